"""A layer says which dimension it was built for."""

import pytest
import torch

import lresnet
from lresnet.nn import LorentzMLR, Prototypes

M = lresnet.Lorentz(-1.0)


@pytest.mark.parametrize("layer", [LorentzMLR(4, 3, manifold=M), Prototypes(4, 3, manifold=M)])
def test_points_of_another_dimension_are_refused(layer):
    with pytest.raises(ValueError, match=r"built for points of dimension 4, got shape \(2, 5\).*drop\(\)"):
        layer(torch.randn(2, 5))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_is_positive(scale):
    x = torch.randn(2, 4)
    with pytest.raises(ValueError, match="scale must be positive and finite"):
        lresnet.functional.lorentz_residual(x, x, scale=scale)
