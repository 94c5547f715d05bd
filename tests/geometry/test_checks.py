"""Error messages for bad input, and when values are read."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from lresnet import Lorentz
from lresnet.geometry.checks import checked_points, checks_values, require_nonnegative, require_points, weight_rows
from lresnet.testing import check_everywhere

M = Lorentz(-1.0)
ONE = {
    name: getattr(M, name)
    for name in (
        "time",
        "lift",
        "expmap0",
        "logmap0",
        "dist0",
        "to_poincare",
        "from_poincare",
        "to_klein",
        "from_klein",
    )
}
TWO = {
    name: getattr(M, name) for name in ("dist", "dist2", "inner", "expmap", "retr", "logmap", "boost", "egrad2rgrad")
} | {"transp": lambda x, y: M.transp(x, y, y), "transp of u": lambda x, y: M.transp(x, x, y)}
ALL = ONE | {name: (lambda x, f=f: f(x, x)) for name, f in TWO.items()} | {"centroid": M.centroid}


def over(table):
    return pytest.mark.parametrize("f", table.values(), ids=table)


@over(ALL)
@pytest.mark.parametrize("wrong", [[[0.1, 0.2]], 0.1, None, "x"])
def test_not_a_tensor(f, wrong):
    with pytest.raises(TypeError, match=r"^[xpu] must be a torch.Tensor, got .*; wrap it in torch.as_tensor\(...\)"):
        f(wrong)


@over(ALL)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_not_floating_point(f, dtype):
    with pytest.raises(TypeError, match=r"^[xpu] must be a floating point tensor, got torch\..*\.float\(\)"):
        f(torch.ones(2, 3).to(dtype))


@over(ALL)
def test_a_zero_dimensional_tensor_is_an_error(f):
    with pytest.raises(ValueError, match=r"^[xpu] is a 0-dimensional tensor; a point needs a coordinate axis"):
        f(torch.tensor(0.5))


@over(ALL)
def test_zero_coordinates_are_an_error(f):
    with pytest.raises(ValueError, match=r"^[xpu] has shape \(2, 0\): axis -1 .* is empty.*at least one coordinate"):
        f(torch.zeros(2, 0))


@over(TWO)
def test_dimensions_must_agree(f):
    with pytest.raises(
        ValueError, match=r"\(2, 3\) and . \(2, 4\).*: the coordinate axis \(-1\) must .*drop\(\) removes"
    ):
        f(torch.zeros(2, 3), torch.zeros(2, 4))


@over(TWO)
def test_shapes_must_broadcast(f):
    with pytest.raises(ValueError, match=r"\(2, 3\) and . \(5, 3\).* do not broadcast against each other"):
        f(torch.zeros(2, 3), torch.zeros(5, 3))


@over(ALL)
def test_empty_batches_give_empty_results(f):
    shape = (0, 5, 3) if f is ALL["centroid"] else (0, 3)
    out = f(torch.zeros(shape))
    assert out.shape[0] == 0
    assert out.dtype == torch.float32
    leaf = torch.zeros(shape, requires_grad=True)
    f(leaf).sum().backward()
    assert leaf.grad.shape == shape


@over(ALL)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(f, dtype):
    g = torch.Generator().manual_seed(0)
    # Squares of 300 overflow float16, and bfloat16 arithmetic would be off in the third digit.
    for scale in (0.05, 300.0):
        x = (scale * torch.randn(6, 4, generator=g)).to(dtype)
        if f in (M.from_poincare, M.from_klein):
            x = x / (1.5 * x.float().norm(dim=-1, keepdim=True)).to(dtype)
        wide = f(x.float())
        out = f(x)
        assert out.dtype == dtype
        assert torch.equal(out, wide.to(dtype))


def test_mixed_dtypes_promote():
    x, y = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.bfloat16)
    assert M.dist(x, y).dtype == torch.float64
    torch.testing.assert_close(M.dist(x, y), M.dist(x, y.double()))
    assert M.boost(x.float(), y).dtype == torch.float32


def test_prepare_broadcasts():
    (a, b), dtype = checked_points(torch.zeros(3), torch.zeros(2, 1, 3), names=("x", "y"))
    assert a.shape == b.shape == (2, 1, 3)
    assert dtype == torch.float32


def test_require_points_names_the_axis():
    with pytest.raises(ValueError, match=r"dim=2 is not an axis of z, which has shape \(2, 3\)"):
        require_points(torch.zeros(2, 3), 2, "z")


# --- values ----------------------------------------------------------------------------------------------------------

OFF = torch.tensor([[1.0, 0.0, 0.0], [1.5, 0.0, 0.0]])


@pytest.mark.parametrize(
    "p",
    [
        OFF,
        torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]),
        torch.tensor([[1.0, 0.0, 0.0], [float("nan"), 0.0, 0.0]]),
        torch.tensor([[1.0, 0.0, 0.0], [1.0, float("nan"), 0.0]]),
        torch.tensor([[1.0, 0.0, 0.0], [float("inf"), float("inf"), 0.0]]),
        torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),  # time last
    ],
    ids=["off", "negative time", "NaN time", "NaN space", "infinite", "time last"],
)
def test_drop_rejects_points_off_the_hyperboloid(p):
    with pytest.raises(
        ValueError, match=r"^1 of 2 points are off the hyperboloid <p, p> = 1/K = -1: point \(1,\)"
    ) as error:
        M.drop(p)
    assert "time first and this manifold's curvature" in str(error.value)
    assert "drop(p, check=False)" in str(error.value)
    assert torch.equal(M.drop(p, check=False).nan_to_num(), p[:, 1:].nan_to_num())


def test_drop_rejects_points_of_another_curvature():
    p = Lorentz(-0.5).lift(torch.randn(4, 2))
    assert Lorentz(-0.5).drop(p).shape == (4, 2)
    with pytest.raises(ValueError, match="of 4 points are off the hyperboloid"):
        M.drop(p)
    with pytest.raises(ValueError, match=r"has time 1.41421, its space part needs 1\."):
        M.drop(Lorentz(-0.5).lift(torch.zeros(2)))


def test_drop_accepts_rounding():
    x = torch.randn(8, 3)
    p = M.lift(x)
    p[:, 0] *= 1 + 1e-5  # less than half the digits of float32
    assert torch.equal(M.drop(p), x)
    with pytest.raises(ValueError, match="off the hyperboloid"):
        M.drop(p.double())


def test_drop_rejects_vectors_without_space_coordinates():
    with pytest.raises(ValueError, match=r"p has shape \(4, 1\): expected \[..., n\+1\], the time first"):
        M.drop(torch.ones(4, 1))


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_centroid_rejects_negative_and_infinite_weights(bad):
    with pytest.raises(ValueError, match="centroid weights must be finite and not negative, got"):
        M.centroid(torch.randn(2, 3), torch.tensor([1.0, bad]))
    with pytest.raises(ValueError, match="centroid weights must be finite and not negative, got"):
        M.centroid(torch.randn(2, 3), bad)


def test_centroid_rejects_weights_of_the_wrong_shape():
    with pytest.raises(ValueError, match=r"weight has shape \(3,\).* broadcasts to \(2,\)"):
        M.centroid(torch.randn(2, 3), torch.ones(3))
    with pytest.raises(ValueError, match="A weight per coordinate would not give a point"):
        M.centroid(torch.randn(2, 3), torch.ones(2, 3))
    with pytest.raises(TypeError, match=r"weight must be a floating point tensor, got torch.int64"):
        M.centroid(torch.randn(2, 3), torch.ones(2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("shape", "dim"), [((2, 3), -1), ((2, 3), 1), ((2, 3), 2), ((2, 3), -3), ((3,), -2), ((3,), 0)]
)
def test_centroid_rejects_the_coordinate_axis(shape, dim):
    with pytest.raises(ValueError, match=rf"dim={dim} must be an axis of points, not the coordinate axis, of x"):
        M.centroid(torch.randn(shape), dim=dim)


# torch.compile instantiates the autograd.Function while tracing, which torch itself deprecates.
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated")
def test_values_are_not_read_while_compiling():
    torch.compiler.reset()
    drop = torch.compile(M.drop, fullgraph=True, backend="eager")
    assert torch.equal(drop(OFF), OFF[:, 1:])
    centroid = torch.compile(M.centroid, fullgraph=True, backend="eager")
    assert centroid(torch.randn(2, 3), torch.tensor([1.0, -1.0])).shape == (3,)
    inside = torch.compile(M.from_poincare, fullgraph=True, backend="eager")
    assert inside(torch.full((2,), 2.0)).shape == (2,)


def test_values_are_not_read_under_vmap_and_grad():
    assert torch.equal(torch.func.vmap(M.drop)(OFF), OFF[:, 1:])
    weights = torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    assert torch.func.vmap(M.centroid)(torch.randn(2, 2, 3), weights).shape == (2, 3)
    assert torch.func.grad(lambda p: M.drop(p).sum())(OFF).shape == OFF.shape


def test_values_are_not_read_of_fake_and_meta_tensors():
    with FakeTensorMode() as mode:
        assert not checks_values(mode.from_tensor(OFF))
        assert M.drop(mode.from_tensor(OFF)).shape == (2, 2)
    assert not checks_values(OFF.to("meta"))
    assert M.drop(OFF.to("meta")).shape == (2, 2)


def test_check_everywhere_reads_cuda_tensors_too():
    on_cuda = SimpleNamespace(device=torch.device("cuda"))  # no such device is needed to ask
    assert checks_values(OFF)
    assert not checks_values(on_cuda)
    with check_everywhere():
        assert checks_values(on_cuda)
        with pytest.raises(ValueError, match="off the hyperboloid"):
            M.drop(OFF)
        with check_everywhere():
            pass
        assert checks_values(on_cuda)
    assert not checks_values(on_cuda)


def test_check_everywhere_ends_after_an_error():
    on_cuda = SimpleNamespace(device=torch.device("cuda"))
    with pytest.raises(ZeroDivisionError), check_everywhere():
        _ = 1 / 0
    assert not checks_values(on_cuda)


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
def test_accepted_weights(weight, shape):
    rows = weight_rows(weight, POINTS, -1)
    assert rows.shape == shape
    assert rows.dtype == POINTS.dtype
    assert (rows * POINTS).shape == POINTS.shape


def test_weights_with_any_coordinate_axis():
    images = torch.randn(2, 3, 4, 5)
    assert weight_rows(torch.rand(2, 4, 5), images, 1).shape == (2, 1, 4, 5)
    assert weight_rows(torch.rand(4, 5), images, 1).shape == (1, 1, 4, 5)
    assert weight_rows(torch.rand(2, 1, 4, 5), images, -3).shape == (2, 1, 4, 5)


@pytest.mark.parametrize("shape", [(3,), (4, 5, 3), (4,), (1, 4, 5, 1), (2, 4, 5)])
def test_rejected_weight_shapes(shape):
    with pytest.raises(
        ValueError, match=r"one weight each: a number or a tensor that broadcasts to \(4, 5\).*coordinate"
    ):
        weight_rows(torch.rand(shape), POINTS, -1)


@pytest.mark.parametrize("weight", ["1.0", [1.0, 2.0], None, (0.5,)])
def test_rejected_weight_types(weight):
    with pytest.raises(TypeError, match=r"w must be a number or a torch.Tensor, got .*torch.as_tensor"):
        weight_rows(weight, POINTS, -1, "w")


def test_integer_weights_are_rejected():
    with pytest.raises(TypeError, match=r"weight must be a floating point tensor, got torch.int64; convert it"):
        weight_rows(torch.ones(5, dtype=torch.int64), POINTS, -1)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, -math.inf])
def test_rejected_weight_values(bad):
    weight = torch.tensor([[1.0], [bad]], requires_grad=True)
    with pytest.raises(
        ValueError, match=r"my weights must be finite and not negative, got .*abs\(\), or softplus"
    ) as error:
        require_nonnegative(weight, "my weights")
    assert f"got {bad:g}:" in str(error.value)
    require_nonnegative(torch.tensor([0.0, 1.0]), "my weights")
