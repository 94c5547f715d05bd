"""The README keeps its word: its code runs, what it names exists."""

import re
from pathlib import Path

import pytest
import torch

import lresnet
from lresnet.train.results import read_results
from lresnet_paper.comparisons import compare_methods
from lresnet_paper.pages.ood_page import detection_counts, ood_runs

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_code_runs_and_trains_every_parameter() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(code, names)
    net, loss = names["net"], names["loss"]
    assert isinstance(net, torch.nn.Module)
    assert isinstance(loss, torch.Tensor)
    assert loss.isfinite()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert sum(float(parameter.grad.abs().sum()) > 0 for parameter in net[0].parameters()) >= 2


def test_the_files_it_points_to_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert "docs/residuals.png" in targets
    assert [target for target in targets if "://" not in target and not (ROOT / target).is_file()] == []


def test_the_commands_it_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", TEXT)) <= targets


def test_the_names_in_its_table_exist() -> None:
    for path in re.findall(r"`lresnet\.([A-Za-z_.]+)", TEXT):
        found: object = lresnet
        for name in path.split("."):
            found = getattr(found, name)


def test_the_residuals_it_lists_are_those_of_the_registry() -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith("| `lresnet.make_residual"))
    listed = re.findall(r'"(\w+)"', row)
    assert listed == [kind for kind in lresnet.residual.RESIDUALS if not kind.endswith("_textbook")]


@pytest.mark.parametrize(
    ("label", "protocol"),
    [("the paper's", "paper"), ("`fast`", "fast"), ("`long`", "long"), ("`long-cutmix`", "long-cutmix")],
)
def test_the_figures_of_images_are_those_of_the_results(label: str, protocol: str) -> None:
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


def test_as_many_pairs_of_seeds_are_behind_as_it_says() -> None:
    table = {"paper", "fast", "long", "long-cutmix"}
    values: dict[tuple[str, str, int], dict[str, float]] = {}
    for run in read_results(ROOT / "results" / "image_classification.jsonl"):
        if run["stage"] == "final" and run["protocol"] in table and run["method"] in ("lorentz", "euclidean"):
            values.setdefault((run["cell"], run["protocol"], run["seed"]), {})[run["method"]] = run["value"]
    behind = sum(pair["lorentz"] < pair["euclidean"] for pair in values.values())
    assert f"in {behind} of {len(values)} pairs of seeds" in TEXT


def test_detection_is_better_and_worse_in_as_many_cells_as_it_says() -> None:
    runs = ood_runs(read_results(ROOT / "results" / "ood.jsonl"))
    better, worse, cells = detection_counts(runs)["euclidean"]
    assert (better, f"better in none and worse in {worse} of {cells} cells" in " ".join(TEXT.split())) == (0, True)
