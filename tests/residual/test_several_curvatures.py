"""Several curvatures at once: the same results as one by one; one per coordinate is an error."""

import pytest
import torch

from lresnet.functional import (
    equivalent_weights,
    lorentz_residual,
    lorentz_residual_many,
    parallel_transport_residual,
    poincare_residual,
    tangent_residual,
)
from lresnet.geometry.checks import check_nowhere

RESIDUALS = {
    "lorentz": lorentz_residual,
    "lorentz, weight 1/2": lambda x, y, **other: lorentz_residual(x, y, 0.5, 2.0, **other),
    "many": lambda x, y, **other: lorentz_residual_many([x, y], [1.0, 0.5], **other),
    "parallel_transport": parallel_transport_residual,
    "tangent": tangent_residual,
    "poincare": lambda x, y, **other: poincare_residual(x / 9, y / 9, **other),
}
both = pytest.mark.parametrize("residual", RESIDUALS.values(), ids=RESIDUALS)


def points(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x, y


@both
@pytest.mark.parametrize(
    ("shape", "K_shape", "dim"),
    [((4, 5), (3, 1, 1), -1), ((4, 5), (4, 1), -1), ((4, 5), (4, 1), 1), ((2, 5, 3), (2, 1, 1), 1), ((5, 3), (3,), 0)],
)
def test_several_curvatures_agree_with_one_by_one(residual, shape, K_shape, dim):
    x, y = points(*shape)
    K = (-0.2 - torch.rand(K_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))).requires_grad_()
    z = residual(x.requires_grad_(), y, K=K, dim=dim)
    assert z.shape == torch.broadcast_shapes(shape, K_shape)
    g = torch.ones_like(z)
    gx, gK = torch.autograd.grad(z, (x, K), g)
    expected = torch.zeros_like(x)
    for place, k in enumerate(K.detach().flatten()):
        one = k.clone().requires_grad_()
        alone = residual(x, y, K=one, dim=dim)
        own = torch.zeros(K_shape, dtype=torch.float64).flatten().index_fill(0, torch.tensor(place), 1).view(K_shape)
        own = own.expand(z.shape).bool()
        torch.testing.assert_close(z[own], alone.expand(z.shape)[own])
        hx, hk = torch.autograd.grad(alone.expand(z.shape)[own].sum(), (x, one))
        expected += hx
        torch.testing.assert_close(gK.flatten()[place], hk)
    torch.testing.assert_close(gx, expected)


@both
@pytest.mark.parametrize(
    ("K", "dim"), [(torch.rand(5), -1), (torch.rand(4, 5), -1), (torch.rand(4, 1), 0), (torch.rand(3, 1), 1)]
)
def test_curvatures_of_the_wrong_shape_are_an_error(residual, K, dim):
    with pytest.raises(ValueError, match=r"need one curvature each: a number, or a tensor that broadcasts"):
        residual(*points(4, 5), K=-0.1 - K.double(), dim=dim)


def test_curvatures_with_more_axes_than_the_points_need_a_negative_dim():
    with pytest.raises(ValueError, match=r"count the coordinate axis from the end, dim=-1"):
        lorentz_residual(*points(4, 5), K=-torch.ones(3, 1, 1).double(), dim=1)


def test_equivalent_weights_of_several_curvatures():
    x, y = points(4, 5)
    K = -torch.tensor([[0.5], [1.0], [2.0], [3.0]], dtype=torch.float64)
    found = equivalent_weights(x, y, "parallel_transport", K=K)
    for i, k in enumerate(K.flatten()):
        alone = equivalent_weights(x[i], y[i], "parallel_transport", K=float(k))
        torch.testing.assert_close(found.gamma[i], alone.gamma)


def test_a_nan_weight_gives_nan_for_equal_points_where_values_are_not_checked():
    x = torch.ones(2, 3)
    with check_nowhere():  # as in a stack, where one member may diverge
        assert lorentz_residual(x, x, torch.tensor(torch.nan)).isnan().all()
        assert lorentz_residual(x, x, torch.tensor([torch.nan, 2.0])).isnan().any(-1).tolist() == [True, False]
