"""Accuracy and F1 against scikit-learn."""

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from lresnet.metrics import accuracy, f1


@st.composite
def random_predictions(draw: st.DrawFn, classes: int) -> tuple[Tensor, Tensor]:
    size = draw(st.integers(1, 40))
    y = draw(st.lists(st.integers(0, classes - 1), min_size=size, max_size=size))
    predicted = draw(st.lists(st.integers(0, classes - 1), min_size=size, max_size=size))
    return torch.nn.functional.one_hot(torch.tensor(predicted), classes).float() * 3 - 1, torch.tensor(y)


@settings(deadline=None)
@given(random_predictions(classes=5))
def test_many_classes_equal_scikit_learn(predictions: tuple[Tensor, Tensor]) -> None:
    logits, y = predictions
    predicted = logits.argmax(dim=1)
    assert accuracy(logits, y).item() == pytest.approx(accuracy_score(y, predicted), abs=1e-12)
    for average in ("micro", "macro"):
        expected = f1_score(y, predicted, average=average, zero_division=0.0)
        assert f1(logits, y, average=average).item() == pytest.approx(expected, abs=1e-12)  # type: ignore[arg-type]


@settings(deadline=None)
@given(random_predictions(classes=2))
def test_two_classes_equal_scikit_learn(predictions: tuple[Tensor, Tensor]) -> None:
    logits, y = predictions
    expected = f1_score(y, logits.argmax(dim=1), average="binary", zero_division=0.0)
    found = f1(logits, y, average="binary")
    assert found.shape == ()
    assert found.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("logits", "y", "words"),
    [
        (torch.zeros(2, 3), torch.tensor([0]), "must have shape"),
        (torch.zeros(2), torch.tensor([0, 1]), "must have shape"),
        (torch.zeros(2, 3), torch.tensor([0.0, 1.0]), "be int64"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), "are empty"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "labels are 0 to 3, but the logits have 3 classes"),
        (torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), torch.tensor([0, 1]), "row 1 contain NaN"),
    ],
)
def test_invalid_input_is_refused(logits: Tensor, y: Tensor, words: str) -> None:
    for metric in (accuracy, f1):
        with pytest.raises(ValueError, match=words):
            metric(logits, y)


def test_invalid_average_is_refused() -> None:
    logits, y = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="for two classes, but the logits have 3"):
        f1(logits, y, average="binary")
    with pytest.raises(ValueError, match="average='weighted'"):
        f1(logits, y, average="weighted")  # type: ignore[arg-type]


@pytest.mark.parametrize("average", ["micro", "macro", "binary"])
def test_metrics_do_not_synchronise_with_the_device(average: Literal["micro", "macro", "binary"]) -> None:
    with FakeTensorMode():
        logits, y = torch.rand(8, 2), torch.ones(8, dtype=torch.int64)
        assert accuracy(logits, y).shape == f1(logits, y, average=average).shape == ()
