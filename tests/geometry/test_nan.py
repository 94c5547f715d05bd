"""NaN inputs give NaN outputs: no guard turns them into plausible numbers."""

import pytest
import torch

import lresnet
from lresnet.functional import lorentz_residual, lorentz_residual_many, parallel_transport_residual, tangent_residual

M = lresnet.Lorentz(-1.0)
BAD = torch.tensor([[1.0, float("nan"), 2.0]])
GOOD = torch.tensor([[1.0, 0.5, 2.0]])


@pytest.mark.parametrize("first", [BAD, GOOD], ids=["first", "second"])
@pytest.mark.parametrize(
    "f",
    [
        M.dist,
        M.dist2,
        M.expmap,
        M.logmap,
        M.boost,
        M.inner,
        lambda x, y: M.transp(x, y, GOOD),
        lambda x, y: M.centroid(torch.stack([x, y], -2)),
        lorentz_residual,
        lambda x, y: lorentz_residual(x, y, 0.5),
        lambda x, y: lorentz_residual_many([x, y], [1.0, 1.0]),
        parallel_transport_residual,
        tangent_residual,
    ],
)
def test_nan_in_gives_nan_out(f, first):
    second = GOOD if first is BAD else BAD
    assert torch.isnan(f(first, second)).any()
