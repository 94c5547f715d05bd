"""Tests of errors for points of the wrong dimension and for scales out of range."""

import pytest
import torch

import lresnet
from lresnet.nn import LorentzMLR, Prototypes

M = lresnet.Lorentz(-1.0)


@pytest.mark.parametrize("layer", [LorentzMLR(4, 3, manifold=M), Prototypes(4, 3, manifold=M)])
def test_points_of_another_dimension_are_rejected(layer):
    with pytest.raises(ValueError, match=r"built for points of dimension 4, got shape \(2, 5\).*drop\(\)"):
        layer(torch.randn(2, 5))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_not_positive_and_finite_is_rejected(scale):
    x = torch.randn(2, 4)
    with pytest.raises(ValueError, match="scale must be positive and finite"):
        lresnet.functional.lorentz_residual(x, x, scale=scale)
