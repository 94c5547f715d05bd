"""The README keeps its word: its code runs, what it names exists."""

import re
from pathlib import Path

import torch

import lresnet

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
