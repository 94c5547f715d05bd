# Every target builds .venv from requirements.lock if it is missing or older than that file.
# It needs Python 3.11 or newer, make and a package index. To use another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKED := $(VENV)/.locked
STAMP  := $(VENV)/.complete
TORCH  := 2.13.0
PLAYWRIGHT := 1.65.0
MATHJAX := 3.2.2
IFRAME_WORKER := 1.0.4
SITE_SCRIPTS := docs/assets/vendor
JUPYTER := nbclient==0.11.0 ipykernel==7.4.0
RELEASE := build==1.6.1 twine==7.0.0

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-faults test-browser test-pages bench-disk screenshot check format bench bench-graphs bench-sgformer bench-scale pages docs docs-serve notebooks dist test-wheel lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## train every residual connection on a tree, print the results, draw the embedding (half a minute)
	@$(BIN)/lresnet demo

test: $(STAMP) ## run all tests that are not marked slow (two processes, a few minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

test-all: $(STAMP) ## run all tests, including the slow ones
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

test-faults: $(STAMP) ## end, cut off and damage small runs at every file operation, and read 200,000 hostile files (ten minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --inputs 200000 --processes 2

test-browser: $(STAMP) ## test the report's page, and the site if it is built, in headless Chromium (Debian: apt-get install chromium)
	@$(BIN)/python -m pip install -qq "playwright==$(PLAYWRIGHT)"
	@LRESNET_BROWSER=required $(if $(wildcard site/index.html),LRESNET_SITE=site) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/browser

test-pages: $(STAMP) ## run every code block and command of the README and of docs/, the slow pages included
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 tests/test_site_pages.py

bench-disk: $(STAMP) ## time the frames of the interactive disk in headless Chromium
	@$(BIN)/python -m pip install -qq "playwright==$(PLAYWRIGHT)"
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

pages: $(STAMP) ## render the measured pages and the pictures of docs/ from results/
	@$(BIN)/python benchmarks/numerics.py
	@$(BIN)/python docs/pictures.py
	@$(BIN)/lresnet demo --out docs/images/demo.png
	@$(BIN)/python -m lresnet_paper pages

docs: $(VENV)/.docs $(SITE_SCRIPTS)/.complete ## build the documentation site into site/: strict, and readable without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean --strict
	@$(BIN)/python docs/check_site.py site

docs-serve: $(VENV)/.docs $(SITE_SCRIPTS)/.complete ## show the documentation site at http://127.0.0.1:8000 while you edit it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

notebooks: $(STAMP) ## execute the notebooks of examples/ in Jupyter
	@$(BIN)/python -m pip install -qq --constraint requirements.lock $(JUPYTER)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/examples -k jupyter

dist: $(STAMP) ## build wheel and source distribution into dist/ and check them
	@$(BIN)/python -m pip install -qq --constraint requirements.lock $(RELEASE)
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/python -m twine check --strict dist/*

test-wheel: ## install the wheel of dist/ into an empty environment outside the checkout, and use it
	@.ci/wheel

lock: ## resolve the newest versions and write requirements.lock
	@$(PYTHON) -m venv --clear .venv-lock
	@.venv-lock/bin/pip install -qq "torch==$(TORCH)" -e ".[dev]"
	@{ echo "# The exact versions we develop and test with. Written by: make lock"; \
	   .venv-lock/bin/pip freeze --exclude-editable | sed -E '/^torch==/s/\+.*//; /^triton==/s/$$/; platform_system == "Linux"/'; } > requirements.lock
	@rm -rf .venv-lock

clean: ## remove .venv, caches and build output
	@rm -rf $(VENV) .venv-lock build dist site $(SITE_SCRIPTS) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis lresnet-demo.png lresnet-residuals.png
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

$(VENV)/.docs: $(STAMP)
	@$(BIN)/python -m pip install -qq --constraint requirements.lock -e ".[docs]" --no-build-isolation
	@touch $@

# MathJax and the worker of the offline search are not part of the repository: npm fetches them, sha256 checks them.
$(SITE_SCRIPTS)/.complete: Makefile
	@command -v npm > /dev/null || { echo "error: make docs needs npm, which fetches MathJax; install Node.js" >&2; exit 1; }
	@rm -rf $(SITE_SCRIPTS) && mkdir -p $(SITE_SCRIPTS)
	@cd $(SITE_SCRIPTS) && npm pack --silent mathjax@$(MATHJAX) iframe-worker@$(IFRAME_WORKER) > /dev/null
	@cd $(SITE_SCRIPTS) && printf '%s\n' \
	  "1b9c0a1c44df864e915690558e72adb9cc5203360daefd385084ced3b6c64c09  mathjax-$(MATHJAX).tgz" \
	  "e8c5d12d87829c503afba01d67772ea9f4aba5b7ae57a0c98e1917711030efbb  iframe-worker-$(IFRAME_WORKER).tgz" | sha256sum --check --quiet
	@cd $(SITE_SCRIPTS) && tar -xzOf mathjax-$(MATHJAX).tgz package/es5/tex-svg.js > tex-svg.js \
	  && tar -xzOf mathjax-$(MATHJAX).tgz package/LICENSE > mathjax-LICENSE.txt \
	  && tar -xzOf iframe-worker-$(IFRAME_WORKER).tgz package/shim/index.js > iframe-worker.js \
	  && tar -xzOf iframe-worker-$(IFRAME_WORKER).tgz package/LICENSE > iframe-worker-LICENSE.txt && rm *.tgz
	@touch $@
