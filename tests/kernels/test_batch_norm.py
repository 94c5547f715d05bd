"""Batch statistics in one pass: accuracy of mean and variance for all tiles."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet.kernels import enabled
from lresnet.kernels.tiles import MEAN, VARIANCE, Tile
from tests.kernels.cases import DEVICE
from tests.residual.common import normals

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def kernels():
    with enabled():
        yield


def statistics(rows: Tensor, eps: float = 1e-5, tile: Tile | None = None) -> Tensor:
    from lresnet.kernels.batch_norm import batch_statistics

    one = torch.ones(rows.shape[1], device=rows.device)
    out = torch.full((5, rows.shape[1]), torch.nan, device=rows.device)
    batch_statistics(rows, one, one, eps, out, tile)
    return out


@pytest.mark.parametrize("mean", [0.0, 1e3, -1e6])
def test_the_variance_is_accurate_for_means_far_from_zero(mean):
    rows = (normals(3000, 3) + mean).to(DEVICE)
    found, exact = statistics(rows), rows.double()
    # One rounding of the mean, and one of the partial sums of values with deviation 1.
    assert (found[MEAN] - exact.mean(0)).abs().max() <= 2.0**-24 * (2 + abs(mean))
    torch.testing.assert_close(found[VARIANCE].double(), exact.var(0), rtol=3e-6, atol=0)


def test_the_variance_is_accurate_with_outliers():
    rows = normals(2000, 2).to(DEVICE)
    rows[[0, -1]] = 1e4
    torch.testing.assert_close(statistics(rows)[VARIANCE].double(), rows.double().var(0), rtol=1e-6, atol=0)


def test_constant_channels_have_variance_zero():
    rows = torch.tensor([0.0, 1.0, -3.3, 1e3], device=DEVICE).repeat(700, 1)
    found = statistics(rows)
    torch.testing.assert_close(found[MEAN], rows[0], rtol=1e-7, atol=0)
    assert (found[VARIANCE] <= (2.0**-23 * rows[0]) ** 2).all()


@pytest.mark.parametrize("tile", [Tile(4, 2, 1, 1), Tile(2, 8, 1, 7, 2), Tile(16, 4, 1, 1000)])
@pytest.mark.parametrize("rows", [2, 15, 16, 17, 100])
def test_every_tile_reads_every_row_once(rows, tile):
    x = (normals(rows, 5) + 3).to(DEVICE)
    found = statistics(x, 0.1, tile)
    variance, mean = torch.var_mean(x.double(), 0, correction=0)
    a = (variance + 0.1).rsqrt()
    exact = torch.stack([mean, x.double().var(0), a, a, 1 - mean * a])
    torch.testing.assert_close(found.double(), exact, rtol=2e-6, atol=1e-7)


def test_too_many_programs_raise():
    with pytest.raises(ValueError, match="moments of 1025 programs, but at most 1024 can be merged"):
        statistics(normals(1025, 1), tile=Tile(1, 1, 1, 2000))
