"""One weight for all points or one per point; never one per coordinate."""

import math

import numpy as np
import pytest
import torch

from lresnet.geometry.weights import refuse_negative, weight_rows

POINTS = torch.randn(4, 5, 3)


@pytest.mark.parametrize(
    ("weight", "shape"),
    [
        (2, ()),
        (0.5, ()),
        (np.float32(0.5), ()),
        (torch.tensor(0.5), ()),
        (torch.rand(5), (1, 5, 1)),
        (torch.rand(4, 5), (4, 5, 1)),
        (torch.rand(4, 1), (4, 1, 1)),
        (torch.rand(4, 5, 1), (4, 5, 1)),
        (torch.rand(1, 1, 1), (1, 1, 1)),
    ],
)
def test_accepted(weight, shape):
    rows = weight_rows(weight, POINTS, -1)
    assert rows.shape == shape
    assert rows.dtype == POINTS.dtype
    assert (rows * POINTS).shape == POINTS.shape


def test_the_coordinate_axis_may_be_any():
    images = torch.randn(2, 3, 4, 5)
    assert weight_rows(torch.rand(2, 4, 5), images, 1).shape == (2, 1, 4, 5)
    assert weight_rows(torch.rand(4, 5), images, 1).shape == (1, 1, 4, 5)
    assert weight_rows(torch.rand(2, 1, 4, 5), images, -3).shape == (2, 1, 4, 5)


@pytest.mark.parametrize("shape", [(3,), (4, 5, 3), (4,), (1, 4, 5, 1), (2, 4, 5)])
def test_refused_shapes(shape):
    with pytest.raises(
        ValueError, match=r"one weight each: a number or a tensor that broadcasts to \(4, 5\).*coordinate"
    ):
        weight_rows(torch.rand(shape), POINTS, -1)


@pytest.mark.parametrize("weight", ["1.0", [1.0, 2.0], None, (0.5,)])
def test_refused_kinds(weight):
    with pytest.raises(TypeError, match=r"w must be a number or a torch.Tensor, got .*torch.as_tensor"):
        weight_rows(weight, POINTS, -1, "w")


def test_refused_integers():
    with pytest.raises(TypeError, match=r"weight must be a floating point tensor, got torch.int64; convert it"):
        weight_rows(torch.ones(5, dtype=torch.int64), POINTS, -1)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, -math.inf])
def test_refused_values(bad):
    weight = torch.tensor([[1.0], [bad]], requires_grad=True)
    with pytest.raises(
        ValueError, match=r"my weights must be finite and not negative, got .*abs\(\), or softplus"
    ) as error:
        refuse_negative(weight, "my weights")
    assert f"got {bad:g}:" in str(error.value)
    refuse_negative(torch.tensor([0.0, 1.0]), "my weights")
