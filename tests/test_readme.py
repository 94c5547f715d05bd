"""The README: its code runs, the names in it exist, and its numbers are those of the results."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import lresnet
from lresnet.train.results import read_results
from lresnet_paper.comparisons import compare_methods
from lresnet_paper.pages.ood_page import detection_counts, ood_runs

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
CLASSIFIER, TRAINING = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_classifier_has_a_gradient_for_every_parameter() -> None:
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(CLASSIFIER, names)
    net, loss = names["net"], names["loss"]
    assert isinstance(net, torch.nn.Module)
    assert isinstance(loss, torch.Tensor)
    assert loss.isfinite()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert sum(float(parameter.grad.abs().sum()) > 0 for parameter in net[0].parameters()) >= 2


def test_the_training_writes_a_run_and_embeds_all_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(TRAINING, names)
    assert len(TRAINING.splitlines()) <= 8
    assert (tmp_path / "runs" / "tree" / "evaluation.json").is_file()
    assert [len(one.classes) for one in names["classes"]] == [2, 2]
    assert names["points"].shape == (1000, 16)


def test_linked_files_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert "docs/images/residuals.png" in targets
    assert [target for target in targets if "://" not in target and not (ROOT / target).is_file()] == []


def test_the_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", TEXT)) <= targets


def test_the_python_names_exist() -> None:
    for path in re.findall(r"`lresnet\.([A-Za-z_.]+)", TEXT):
        found: object = lresnet
        for name in path.split("."):
            found = getattr(found, name)


def test_the_listed_residuals_are_those_of_the_registry() -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith("| `lresnet.make_residual"))
    listed = re.findall(r'"(\w+)"', row)
    assert listed == [kind for kind in lresnet.residual.RESIDUALS if not kind.endswith("_textbook")]


@pytest.mark.parametrize(
    ("label", "protocol"),
    [("the paper's", "paper"), ("`fast`", "fast"), ("`long`", "long"), ("`long-cutmix`", "long-cutmix")],
)
def test_the_accuracies_on_images_are_those_of_the_results(label: str, protocol: str) -> None:
    runs = [run for run in read_results(ROOT / "results" / "image_classification.jsonl") if run["stage"] == "final"]
    (row,) = re.findall(rf"^\| {re.escape(label)}.*\|$", TEXT, flags=re.MULTILINE)
    seeds, *figures = row.strip("| ").split(" | ")[1:]
    expected = []
    for cell in ("cifar10", "cifar100"):
        own = [run for run in runs if (run["cell"], run["protocol"]) == (cell, protocol)]
        for method in ("lorentz", "euclidean"):
            values = [run["value"] for run in own if run["method"] == method]
            assert len(values) == int(seeds)
            expected.append(f"{sum(values) / len(values):.2f}")
        (gap,) = (one.difference for one in compare_methods(own) if one.method == "euclidean")
        expected.append(f"{gap.mean:+.2f} ± {gap.half_width:.2f}")
    assert figures == expected


def test_the_number_of_pairs_of_seeds_below_the_baseline() -> None:
    table = {"paper", "fast", "long", "long-cutmix"}
    values: dict[tuple[str, str, int], dict[str, float]] = {}
    for run in read_results(ROOT / "results" / "image_classification.jsonl"):
        if run["stage"] == "final" and run["protocol"] in table and run["method"] in ("lorentz", "euclidean"):
            values.setdefault((run["cell"], run["protocol"], run["seed"]), {})[run["method"]] = run["value"]
    behind = sum(pair["lorentz"] < pair["euclidean"] for pair in values.values())
    assert f"in {behind} of {len(values)} pairs of seeds" in TEXT


def test_the_numbers_of_cells_with_better_and_worse_detection() -> None:
    runs = ood_runs(read_results(ROOT / "results" / "ood.jsonl"))
    better, worse, cells = detection_counts(runs)["euclidean"]
    assert (better, f"better in none and worse in {worse} of {cells} cells" in " ".join(TEXT.split())) == (0, True)
