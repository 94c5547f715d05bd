"""The pages with Python code: the code runs, and linked files exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's own, compiling
@pytest.mark.parametrize("page", ["convert", "graphs", "images", "kernels", "scaling", "stacking"])
def test_the_code_of_a_page_runs_from_top_to_bottom(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    names: dict[str, torch.Tensor] = {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(code, names)
    shapes = {name: tuple(value.shape) for name, value in names.items() if isinstance(value, torch.Tensor)}
    expected = {
        "convert": ("logits", (8, 10, 3)),
        "graphs": ("logits", (1000, 2)),
        "images": ("logits", (8, 10)),
        "kernels": ("z", (8, 64, 32, 32)),
        "scaling": ("logits", (128, 2)),
        "stacking": ("scores", (3,)),
    }[page]
    assert expected in shapes.items()
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    assert targets
    assert [target for target in targets if not (DOCS / target).is_file()] == []


def test_the_python_of_own_graphs_predicts_what_run_predict_says() -> None:
    text = (DOCS / "own_graphs.md").read_text(encoding="utf-8")
    code = next(code for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if "lresnet" in code)
    scaled = code.replace("torch.randn(200, 8)", "50 * torch.randn(200, 8) + 20")  # far from standardised
    assert scaled != code
    names: dict[str, Any] = {}
    exec(scaled, names)
    predicted = [prediction.classes[0] for prediction in names["run"].predict()]
    assert names["logits"].argmax(1).tolist() == predicted
