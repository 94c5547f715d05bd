"""Error messages for bad input."""

from __future__ import annotations

import geoopt
import pytest
import torch
from torch import Tensor

from lresnet import Lorentz, LorentzResidual, make_residual
from lresnet.functional import (
    equivalent_weights,
    klein_residual,
    lorentz_residual,
    lorentz_residual_many,
    parallel_transport_residual,
    poincare_residual,
    space_residual,
    tangent_residual,
)
from lresnet.residual import RESIDUALS
from lresnet.residual.textbook import lorentz_textbook, parallel_transport_textbook, tangent_textbook
from tests.residual.common import normals

NAN, INF = float("nan"), float("inf")

# Functions of two points, a curvature and an axis.
WITH_AXIS = {
    "lorentz": lorentz_residual,
    "many": lambda x, y, **options: lorentz_residual_many([x, y], [1.0, 1.0], **options),
    "parallel_transport": parallel_transport_residual,
    "tangent": tangent_residual,
    "poincare": poincare_residual,
    "klein": klein_residual,
    "lorentz_textbook": lorentz_textbook,
    "parallel_transport_textbook": parallel_transport_textbook,
    "tangent_textbook": tangent_textbook,
}
WITH_CURVATURE = {**WITH_AXIS, "equivalent_weights": lambda x, y, **k: equivalent_weights(x, y, "space", **k)}
ALL = {**WITH_CURVATURE, "space": space_residual}
WEIGHTED = {name: WITH_AXIS[name] for name in ("lorentz", "tangent", "poincare", "klein", "tangent_textbook")}

of_all = pytest.mark.parametrize("name", ALL)
of_weighted = pytest.mark.parametrize("name", WEIGHTED)


def points(*shape: int) -> tuple[Tensor, Tensor]:
    return 0.1 * normals(*shape), 0.1 * normals(*shape, seed=1)


# --- curvature -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_CURVATURE)
@pytest.mark.parametrize(
    "K", [0.0, 1.0, NAN, INF, -INF, torch.tensor(1.0), torch.tensor(NAN), torch.tensor([[-1.0], [0.0]])]
)
def test_invalid_curvature(name, K):
    with pytest.raises(ValueError, match=r"curvature must be negative and finite, got .*curvature = -1/k"):
        WITH_CURVATURE[name](*points(2, 3), K=K)


def test_error_for_a_positive_curvature_shows_its_conversion():
    with pytest.raises(ValueError, match=r"If 4 is geoopt's k, you want -0.25; if it is c, you want -4\."):
        lorentz_residual(*points(2, 3), K=4.0)


@pytest.mark.parametrize("name", WITH_CURVATURE)
@pytest.mark.parametrize("K", ["-1", None, True, torch.tensor(-1), [-1.0]])
def test_curvature_of_the_wrong_type(name, K):
    with pytest.raises(TypeError, match=r"curvature must be .*got"):
        WITH_CURVATURE[name](*points(2, 3), K=K)


# --- points --------------------------------------------------------------------------------------------------------


@of_all
def test_shapes_that_do_not_broadcast(name):
    first, second = (r"p", r"q") if name in ("poincare", "klein") else (r"x", r"y")
    if name == "many":
        first, second = r"xs\[0\]", r"xs\[1\]"
    with pytest.raises(ValueError, match=rf"{first} \(5, 4\) and {second} \(3, 4\) do not broadcast"):
        ALL[name](points(5, 4)[0], points(3, 4)[1])


@of_all
def test_different_numbers_of_coordinates(name):
    with pytest.raises(
        ValueError, match=r"\(5, 4\) and .*\(5, 3\): the coordinate axis \(-1\).*drop\(\) removes the time"
    ):
        ALL[name](points(5, 4)[0], points(5, 3)[1])


@of_all
def test_a_single_coordinate_is_not_broadcast(name):
    with pytest.raises(ValueError, match=r"the coordinate axis"):
        ALL[name](points(5, 4)[0], points(5, 1)[1])


@of_all
def test_integer_tensors(name):
    x, y = points(5, 4)
    zeros = torch.zeros(5, 4, dtype=torch.long)
    with pytest.raises(
        TypeError, match=r"must be a floating point tensor, got torch.int64; convert it, e.g. .*\.float\(\)"
    ):
        ALL[name](zeros, y)
    with pytest.raises(TypeError, match=r"must be a floating point tensor, got torch.bool"):
        ALL[name](x, zeros.bool())


@of_all
def test_lists_and_numbers(name):
    x, _ = points(4)
    for other in ([0.1, 0.2, 0.3, 0.4], 1.0, None):
        with pytest.raises(TypeError, match=r"must be a torch.Tensor, got .*; wrap it in torch.as_tensor"):
            ALL[name](x, other)


@of_all
def test_empty_tensors_give_empty_ones(name):
    x, y = (t.requires_grad_() for t in points(0, 4))
    out = ALL[name](x, y)
    for tensor, shape in [(w, (0,)) for w in out] if isinstance(out, tuple) else [(out, (0, 4))]:
        assert tensor.shape == shape
    if not isinstance(out, tuple):
        out.sum().backward()
        assert x.grad.shape == (0, 4)


@of_all
def test_zero_coordinates(name):
    with pytest.raises(ValueError, match=r"shape \(5, 0\): axis -1 holds the coordinates and is empty"):
        ALL[name](*points(5, 0))
    with pytest.raises(ValueError, match=r"a point needs a coordinate axis"):
        ALL[name](torch.tensor(0.1), torch.tensor(0.1))


@pytest.mark.parametrize("name", WITH_AXIS)
def test_axis_out_of_range(name):
    for dim in (2, -3):
        with pytest.raises(ValueError, match=rf"dim={dim} is not an axis of .*\(5, 4\)"):
            WITH_AXIS[name](*points(5, 4), dim=dim)


# --- weights -------------------------------------------------------------------------------------------------------


@of_weighted
def test_weights_per_coordinate_are_an_error(name):
    x, y = points(5, 4)
    for weight in (torch.ones(5, 4), torch.ones(4), torch.ones(1, 4)):
        with pytest.raises(
            ValueError, match=r"weight has shape .*broadcasts to \(5,\). A weight per coordinate would not"
        ):
            WEIGHTED[name](x, y, weight)
    images = points(2, 3, 4, 5)
    with pytest.raises(ValueError, match=r"weight has shape \(1, 3, 1, 1\).*broadcasts to \(2, 4, 5\)"):
        WEIGHTED[name](*images, torch.ones(1, 3, 1, 1), dim=1)


@of_weighted
def test_weights_of_the_wrong_shape(name):
    for weight in (torch.ones(3), torch.ones(1, 1, 5), torch.ones(5, 2)):
        with pytest.raises(ValueError, match=r"weight has shape .*the points need one weight each"):
            WEIGHTED[name](*points(5, 4), weight)


@of_weighted
def test_integer_weights(name):
    with pytest.raises(TypeError, match=r"weight must be a floating point tensor, got torch.int64"):
        WEIGHTED[name](*points(5, 4), torch.ones(5, dtype=torch.long))


@of_weighted
def test_weights_of_the_wrong_type(name):
    for weight in ("learned", [1.0, 2.0], None):
        with pytest.raises(TypeError, match=r"weight must be a number or a torch.Tensor, got"):
            WEIGHTED[name](*points(5, 4), weight)


def test_scale_of_the_function():
    x, y = points(5, 4)
    for scale in (0.0, -1.0, NAN, INF, torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0])):
        with pytest.raises(ValueError, match=r"scale must be positive and finite"):
            lorentz_residual(x, y, 1.0, scale)
        with pytest.raises(ValueError, match=r"scale must be positive and finite"):
            lorentz_residual_many([x, y], [1.0, 1.0], scale)
    with pytest.raises(ValueError, match=r"scale has shape"):
        lorentz_residual(x, y, 1.0, torch.ones(5, 4))
    with pytest.raises(TypeError, match=r"scale must be a number"):
        lorentz_residual(x, y, 1.0, "learned")


def test_branches_and_weights_of_lorentz_residual_many():
    x, y = points(5, 4)
    for xs, weights in (([x, y], [1.0]), ([x], [1.0, 2.0]), ([], [])):
        with pytest.raises(ValueError, match=rf"got {len(xs)} branches and {len(weights)} weights"):
            lorentz_residual_many(xs, weights)
    with pytest.raises(ValueError, match=r"weights\[1\] has shape"):
        lorentz_residual_many([x, y], [1.0, torch.ones(5, 4)])
    with pytest.raises(TypeError, match=r"xs\[1\] must be a torch.Tensor"):
        lorentz_residual_many([x, [1.0]], [1.0, 1.0])


def test_branches_of_lorentz_residual_many_as_one_tensor():
    # A tensor is a sequence of branches along its first axis.
    x, y = points(5, 4)
    stacked = lorentz_residual_many(torch.stack([x, y]), torch.tensor([1.0, 0.5]))
    assert torch.equal(stacked, lorentz_residual_many([x, y], [1.0, 0.5]))


@pytest.mark.parametrize("function", [lorentz_residual, tangent_residual, klein_residual, poincare_residual])
@pytest.mark.parametrize("bad", [NAN, INF, torch.tensor(NAN), torch.tensor([1.0, INF])])
def test_a_weight_that_is_not_finite_is_refused(function, bad):
    x, y = 0.1 * normals(2, 3), 0.1 * normals(2, 3)
    with pytest.raises(ValueError, match=r"weight must be finite, got (nan|inf)"):
        function(x, y, bad)
    with pytest.raises(ValueError, match=r"weights\[1\] must be finite, got (nan|inf)"):
        lorentz_residual_many([x, y], [1.0, bad])


@pytest.mark.parametrize("name", ["lorentz", "tangent"])
def test_a_module_whose_weight_is_not_finite_is_refused(name):
    x, y = normals(2, 3), normals(2, 3)
    with pytest.raises(ValueError, match="weight must be finite, got nan"):
        make_residual(name, Lorentz(), weight=torch.tensor([1.0, NAN]))
    learned = make_residual(name, Lorentz(), weight="learned")
    torch.nn.init.constant_(learned.raw_weight, NAN)
    with pytest.raises(ValueError, match="weight must be finite, got nan"):
        learned(x, y)


# --- modules -------------------------------------------------------------------------------------------------------


def test_weight_and_scale_of_the_module():
    M = Lorentz()
    with pytest.raises(ValueError, match=r"weight must be 'learned', a number .*got 'fixed'"):
        LorentzResidual(M, weight="fixed")
    with pytest.raises(ValueError, match=r"scale must be 'learned', a number or '1\+w'; got 'trainable'"):
        LorentzResidual(M, scale="trainable")
    for weight in (NAN, INF, -INF):
        with pytest.raises(ValueError, match=rf"weight must be finite, got {weight}"):
            LorentzResidual(M, weight=weight)
    for scale in (0.0, -1.0, NAN, INF):
        with pytest.raises(ValueError, match=rf"scale must be positive and finite, got {scale}"):
            LorentzResidual(M, scale=scale)


def test_initial_values_of_the_module():
    M = Lorentz()
    for value in (0.0, -1.0, NAN, INF):
        with pytest.raises(ValueError, match=rf"initial_weight must be positive and finite, got {value}"):
            make_residual("tangent", M, weight="learned", initial_weight=value)
        with pytest.raises(ValueError, match=rf"initial_scale must be positive and finite, got {value}"):
            LorentzResidual(M, scale="learned", initial_scale=value)


def test_weights_of_the_module_are_checked_against_the_points():
    residual = LorentzResidual(Lorentz(), weight=torch.ones(3))
    with pytest.raises(ValueError, match=r"weight has shape \(3,\).*broadcasts to \(5,\)"):
        residual(*points(5, 4))


@pytest.mark.parametrize("kind", RESIDUALS)
def test_a_manifold_of_another_type(kind):
    for manifold, name in ((geoopt.Lorentz(), "Lorentz"), (geoopt.PoincareBall(), "PoincareBall"), (-1.0, "float")):
        with pytest.raises(TypeError, match=rf"manifold must be an lresnet.Lorentz, got {name}; .*from_geoopt\(k\)"):
            make_residual(kind, manifold)


@pytest.mark.parametrize("kind", [k for k in RESIDUALS if k != "none"])
def test_modules_raise_the_errors_of_the_functions(kind):
    residual = make_residual(kind, Lorentz(), dim=1)
    x, y = points(2, 3, 4, 5)
    with pytest.raises(ValueError, match=r"coordinate axis \(1\) must have the same size"):
        residual(x, y[:, :2])
    with pytest.raises(ValueError, match=r"do not broadcast"):
        residual(x, y[..., :2])
    with pytest.raises(TypeError, match=r"floating point"):
        residual(x, y.long())
    assert residual(x[:0], y[:0]).shape == (0, 3, 4, 5)
