# Every target builds .venv from requirements.lock if it is missing or older than that file.
# It needs Python 3.11 or newer, make and a package index. To use another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKED := $(VENV)/.locked
STAMP  := $(VENV)/.complete
TORCH  := 2.13.0
PLAYWRIGHT := 1.65.0

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-browser screenshot check format bench bench-graphs bench-sgformer bench-scale docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## train every residual connection on a tree, print the results, draw the embedding (under a minute)
	@$(BIN)/lresnet demo

test: $(STAMP) ## run all tests that are not marked slow (two processes, a few minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

test-all: $(STAMP) ## run all tests, including the slow ones
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

test-browser: $(STAMP) ## test the report's page in headless Chromium (Debian: apt-get install chromium) and time its frames
	@$(BIN)/python -m pip install -qq "playwright==$(PLAYWRIGHT)"
	@LRESNET_BROWSER=required OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/browser
	@PYTHONPATH=. $(BIN)/python benchmarks/disk.py

screenshot: $(STAMP) ## render docs/images/report.png, a picture of the report's page in headless Chromium
	@$(BIN)/python -m pip install -qq "playwright==$(PLAYWRIGHT)"
	@PYTHONPATH=. $(BIN)/python -m tests.browser.screenshot docs/images/report.png

check: $(STAMP) ## check lint, format, types and the import contracts between packages
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --strict src
	@$(BIN)/lint-imports --no-logo

format: $(STAMP) ## sort imports and format the code
	@$(BIN)/ruff check --quiet --fix --exit-zero .
	@$(BIN)/ruff format --quiet .

bench: $(STAMP) ## time the residuals against their alternatives
	@$(BIN)/lresnet bench residual --results None

bench-graphs: $(STAMP) ## time a training epoch against PyG's GCN on the data sets under LRESNET_DATA
	@$(BIN)/lresnet bench gcn --results None

bench-sgformer: $(STAMP) ## time the Lorentz SGFormer against its Euclidean baseline, and on graphs of up to a million nodes (8 GB of memory)
	@$(BIN)/lresnet bench sgformer --results None

bench-scale: $(STAMP) ## measure memory and time on PubMed and on a graph of ten million edges
	@$(BIN)/python benchmarks/scale.py

docs: $(STAMP) ## render the generated pages and the README's pictures
	@$(BIN)/python benchmarks/numerics.py
	@$(BIN)/lresnet plot residuals --out docs/images/residuals.png
	@$(BIN)/lresnet demo --out docs/images/demo.png
	@$(BIN)/python -m lresnet_paper pages
	@$(BIN)/python -m lresnet_paper pages depth --out docs/images/depth.png
	@$(BIN)/python -m lresnet_paper pages depth --protocol legacy-deep --out docs/images/depth-deep.png

lock: ## resolve the newest versions and write requirements.lock
	@$(PYTHON) -m venv --clear .venv-lock
	@.venv-lock/bin/pip install -qq "torch==$(TORCH)" -e ".[dev]"
	@{ echo "# The exact versions we develop and test with. Written by: make lock"; \
	   .venv-lock/bin/pip freeze --exclude-editable | sed -E '/^torch==/s/\+.*//; /^triton==/s/$$/; platform_system == "Linux"/'; } > requirements.lock
	@rm -rf .venv-lock

clean: ## remove .venv, caches and build output
	@rm -rf $(VENV) .venv-lock build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis lresnet-demo.png lresnet-residuals.png
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamp is written last: if an installation fails there is no stamp, and the next call builds .venv from scratch.
$(LOCKED): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: lresnet needs Python 3.11 or newer, and $(PYTHON) is not; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "building $(VENV) from requirements.lock (a minute or more)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq -r requirements.lock
	@touch $(LOCKED)

$(STAMP): $(LOCKED) pyproject.toml
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@touch $(STAMP)
