"""Facts of the how-to pages that the code or the results decide; tests/test_site_pages.py runs their blocks."""

import json
import math
import os
import re
import runpy
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from lresnet.cli import main
from lresnet.data import build
from lresnet.kernels import norm_relu, norm_tail, residual
from lresnet.models import MODELS
from lresnet.plots import node_names
from lresnet.residual import METHODS
from lresnet.runs import presets
from lresnet.train import engine
from tests.processes import run_in_two_processes

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page(name), flags=re.DOTALL)


def test_the_table_of_own_graphs_shows_the_results() -> None:
    values: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for line in (ROOT / "results" / "own_graphs.jsonl").read_text().splitlines():
        row = json.loads(line)
        values[row["graph"], row["method"]][row["seed"]] = row["value"]
    rows = re.findall(
        r"^\| ([\w-]+) \| (?:node|link), [\w ]+ \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$",
        page("howto/own_graph"),
        flags=re.MULTILINE,
    )
    assert len(rows) == 6
    for graph, ours, baseline, difference in rows:
        own = values[graph, "lresnet"]
        others = {method: found for (name, method), found in values.items() if name == graph and method != "lresnet"}
        best = max(others, key=lambda method: statistics.mean(others[method].values()))
        assert (ours, baseline) == (_mean(own), f"{best} {_mean(others[best])}")
        assert difference == _paired([own[seed] - others[best][seed] for seed in own])


def _mean(values: dict[int, float]) -> str:
    assert len(values) == 5
    return f"{statistics.mean(values.values()):.1f} ± {statistics.stdev(values.values()):.1f}"


def _paired(differences: list[float]) -> str:
    mean, error = statistics.mean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
    low, high = stats.t.interval(0.95, len(differences) - 1, mean, error)
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def test_the_python_code_of_own_graphs_predicts_what_the_run_predicts() -> None:
    code = next(code for code in python_blocks("howto/own_graph") if "node_task" in code)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    scaled = code.replace("torch.randn(200, 8)", "50 * torch.randn(200, 8) + 20")  # far from standardised
    assert scaled != code
    names: dict[str, Any] = {}
    exec(scaled.replace("epochs=50", "epochs=5"), names)
    predicted = [prediction.classes[0] for prediction in names["run"].predict()]
    assert names["logits"].argmax(1).tolist() == predicted


def test_the_scale_table_of_images_shows_the_results() -> None:
    final: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for line in (ROOT / "results" / "image_classification.jsonl").read_text().splitlines():
        row = json.loads(line)
        if (row["method"], row["stage"]) == ("lorentz", "final"):
            final[row["cell"], row["protocol"]][row["seed"]] = row["value"]
    text = page("howto/images")
    for start, protocol in (("test after 100 epochs", "fast"), ("learned", "fast-learned")):
        shown = [_two_digits(final[cell, protocol].values()) for cell in ("cifar10", "cifar100")]
        assert re.search(rf"^\| {re.escape(start)}.*\| {shown[0]} \| {shown[1]} \|$", text, re.MULTILINE)
    for cell, shown_difference in (("cifar10", "-0.21 ± 0.37"), ("cifar100", "+1.02 ± 0.34")):
        fixed, learned = final[cell, "fast"], final[cell, "fast-learned"]
        differences = [fixed[seed] - learned[seed] for seed in fixed]
        width = stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
        assert f"{statistics.mean(differences):+.2f} ± {width:.2f}" == shown_difference
        assert shown_difference in text


def _two_digits(values: Any) -> str:
    found = list(values)
    assert len(found) == 5
    return f"{statistics.mean(found):.2f} ± {statistics.stdev(found):.2f}"


@pytest.mark.parametrize(
    ("name", "sentence", "constants"),
    [
        ("own_graph", "It holds out {:.0%} of\n  the edges for validation and {:.0%} for test", build._LINK_SHARES),
        ("own_graph", "split at random, 60 / {:.0f} / {:.0f} %", [100 * share for share in build._NODE_SHARES]),
        ("images", "clipped at norm {:g} ", [presets._OWN_IMAGES_CLIP]),
        ("embeddings", "all of a graph with\nat most {} nodes", [node_names._ALL]),
        ("embeddings", "those of the {} nodes with most edges", [node_names._HUBS]),
        ("../performance/kernels", "only runs of more than\n{:,} steps", [engine._WORTH_COMPILING]),
    ],
)
def test_the_numbers_of_a_sentence_are_the_constants_of_the_code(name: str, sentence: str, constants: Any) -> None:
    expected = sentence.format(*constants).replace("%", " %").replace("  %", " %")
    assert expected in page(f"howto/{name}")


def test_names_on_the_pages_exist() -> None:
    graphs, images, kernels = page("howto/graphs"), page("howto/images"), page("performance/kernels")
    assert set(re.findall(r"`(lorentz_\w+)`", graphs + images)) <= set(MODELS)
    methods = re.search(r"`--method` is the residual connection: (.*?)\. The last", graphs, flags=re.DOTALL)
    assert methods is not None
    assert set(re.findall(r"`(\w+)`", methods[1])) == {name for name, method in METHODS.items() if method.compared}
    for module, operator in ((residual, "residual"), (norm_tail, "norm_tail"), (norm_relu, "norm_relu")):
        assert f"lresnet::{operator}" in kernels
        assert f'"lresnet::{operator}"' in Path(str(module.__file__)).read_text()


def test_options_on_the_pages_are_options_of_train(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    tables = re.findall(r"^\|.*`--.*\|$", page("howto/large_graphs") + page("howto/images"), flags=re.MULTILINE)
    options = {option for cell in tables for option in re.findall(r"`(--[a-z-]+)", cell)}
    assert len(options) >= 10
    assert options <= known


def _train_ddp(folder: str, name: str) -> Any:
    os.chdir(folder)
    names = runpy.run_path(name)
    return names["network"].manifold.K.item() if "network" in names else names["processes"].size


@pytest.mark.slow
def test_the_scripts_for_several_processes_run_in_two(tmp_path: Path) -> None:
    for code in python_blocks("howto/multi_gpu"):
        (tmp_path / code.splitlines()[0].removeprefix("# ")).write_text(code)
    first, second = run_in_two_processes(_train_ddp, str(tmp_path), "train_ddp.py")
    assert first == second
    shown = re.findall(r"process\(es\): curvature (-[\d.]+)", page("howto/multi_gpu"))
    assert [f"{first:.6f}"] * 2 == shown
    assert run_in_two_processes(_train_ddp, str(tmp_path), "fit_ddp.py") == [2, 2]
    assert json.loads((tmp_path / "runs/shared/run.json").read_text())["processes"] == 2
