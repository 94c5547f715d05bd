"""The end of a block with its batch norms as one operator, against torch's norms and the residuals in float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import BatchNorm2d

from lresnet import Lorentz
from lresnet.kernels import disabled, enabled
from lresnet.kernels.tiles import Tile
from lresnet.models.resnet import ResidualBlock
from lresnet.nn.batch_norm import norm_tail
from lresnet.residual import make_residual
from tests.kernels.cases import DEVICE, on_device, record_launches, residual
from tests.residual.common import normals, per_point

pytest.importorskip("triton")

KINDS = ("lorentz", "parallel_transport", "tangent", "space")
Norms = tuple[BatchNorm2d | None, BatchNorm2d | None]


@pytest.fixture(autouse=True)
def kernels():
    with enabled():
        yield


@pytest.fixture
def launches(monkeypatch):
    from lresnet.kernels import norm_tail

    return record_launches(monkeypatch, norm_tail)


def images(*shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return skip, branch and gradient, whose channels differ in mean and deviation."""
    spread, mean = (normals(shape[1], seed=s)[:, None, None] for s in (7, 8))
    tensors = on_device(*((normals(*shape, seed=s) * (1 + spread.abs()) + mean).to(dtype) for s in range(3)))
    return [t.to(memory_format=torch.channels_last) for t in tensors]


def norm(channels: int, seed: int = 0, **options: object) -> BatchNorm2d:
    module = BatchNorm2d(channels, **options).to(DEVICE)
    with torch.no_grad():
        module.weight.copy_(normals(channels, seed=seed) + 0.5)
        module.bias.copy_(normals(channels, seed=seed + 1))
    return module


def by_hand(x, y, *, branch_norm, skip_norm, kind="lorentz", weight=1.0, scale=None, kappa=1.0, relu=True):
    """Compute the definition with torch's modules and the public functions."""
    x, y = x if skip_norm is None else skip_norm(x), y if branch_norm is None else branch_norm(y)
    with disabled():
        z = x + y if kind == "space" else residual(kind, x, y, weight, None, -kappa, dim=1)
    z = z if scale is None else scale * z
    return z.relu() if relu else z


def run(function, x, y, g, norms: Norms, factors, dtype=None, **options) -> dict[str, Tensor]:
    """Return result, all gradients and the norms' buffers by name, computed in ``dtype`` if given."""
    skip, branch = (None if n is None else copy.deepcopy(n).to(dtype) for n in norms)
    leaves = [t.detach().to(dtype or t.dtype).requires_grad_() for t in (x, y, *factors)]
    named = dict(zip(("x", "y", "weight", "scale", "kappa"), leaves, strict=True))
    z = function(**named, skip_norm=skip, branch_norm=branch, **options)
    found = {"z": z.detach()}
    for side, module in (("skip", skip), ("branch", branch)):
        if module is not None:
            named |= {f"{side} {name}": p for name, p in module.named_parameters()}
            found |= {f"{side} {name}": b for name, b in module.named_buffers()}
    grads = torch.autograd.grad(z, named.values(), g.to(z.dtype), allow_unused=True, materialize_grads=True)
    return found | {f"gradient of {name}": grad for name, grad in zip(named, grads, strict=True)}


def scalars() -> list[Tensor]:
    return on_device(*map(torch.tensor, (-0.37, 1.3, 0.7)))


def assert_near(found: dict[str, Tensor], exact: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert found.keys() == exact.keys()
    for name, value in exact.items():
        error = (found[name].double() - value).abs().max() / value.abs().max().clamp(min=1.0)
        assert error <= tolerance, (name, float(error))


# --- values and gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sides", "relu"), [("branch", True), ("both", True), ("skip", True), ("both", False)])
@pytest.mark.parametrize("kind", KINDS)
def test_same_numbers_as_the_definition(kind, sides, relu, launches):
    x, y, g = images(3, 5, 3, 4)
    norms = norm(5) if sides != "branch" else None, norm(5, seed=3, eps=0.1) if sides != "skip" else None
    options = {"kind": kind, "relu": relu}
    found = run(norm_tail, x, y, g, norms, scalars(), **options)
    assert launches == ["forward", "backward"]
    assert found["z"].is_contiguous(memory_format=torch.channels_last)
    assert_near(found, run(by_hand, x, y, g, norms, scalars(), torch.float64, **options))


@pytest.mark.parametrize("channels", [1, 2, 33, 64, 130])
@pytest.mark.parametrize("few", [True, False])
def test_sizes(channels, few):
    # 35 wide rows already need several programs in the backward pass, with several tiles each and a partial last one.
    batch, height, width = (1, 1, 2) if few else (1, 9, 13) if channels < 64 else (1, 5, 7)
    x, y, g = images(batch, channels, height, width)
    norms = norm(channels), norm(channels, seed=3)
    exact = run(by_hand, x, y, g, norms, scalars(), torch.float64)
    # Two pixels are always normalised to +1 and -1: their gradients are 0 except for the effect of eps.
    assert_near(run(norm_tail, x, y, g, norms, scalars()), exact, 3e-4 if few else 3e-5)


@pytest.mark.parametrize("channels", [pytest.param(8192, marks=pytest.mark.slow), 8193])
def test_the_largest_number_of_channels(channels, launches):
    x, y, g = images(1, channels, 1, 3)
    norms = None, norm(channels, eps=1.0)
    found = run(norm_tail, x, y, g, norms, scalars(), kind="space")
    assert launches == (["forward", "backward"] if channels == 8192 else [])
    assert_near(found, run(by_hand, x, y, g, norms, scalars(), torch.float64, kind="space"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(kind, dtype):
    x, y, g = images(2, 6, 4, 5, dtype=dtype)
    norms = norm(6), norm(6, seed=3)
    found = run(norm_tail, x, y, g, norms, scalars(), kind=kind)
    exact = run(by_hand, x, y, g, norms, scalars(), torch.float64, kind=kind)
    halves = {"z", "gradient of x", "gradient of y"}
    assert {name for name, t in found.items() if t.dtype == dtype} == halves
    # The gradient of the norm's output is rounded before the statistics' part is added, as between torch's modules.
    unit = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-10
    assert_near({n: found[n] for n in halves}, {n: exact[n] for n in halves}, 2 * unit)
    rest = exact.keys() - halves
    assert_near({n: found[n] for n in rest}, {n: exact[n] for n in rest}, 1e-5)


def test_mixed_dtypes():
    x, y, g = images(2, 6, 4, 5)
    found = run(norm_tail, x.bfloat16(), y, g, (norm(6), norm(6, seed=3)), scalars())
    exact = run(norm_tail, x.bfloat16().float(), y, g, (norm(6), norm(6, seed=3)), scalars())
    assert found["z"].dtype == found["gradient of y"].dtype == torch.float32
    assert found["gradient of x"].dtype == torch.bfloat16
    found["gradient of x"], exact["gradient of x"] = found["z"], exact["z"]
    assert_near(found, exact, 1e-6)


@pytest.mark.parametrize("layout", ["contiguous", "cropped"])
def test_layouts(layout):
    x, y, g = images(2, 6, 4, 7)
    norms = norm(6), norm(6, seed=3)
    exact = run(by_hand, x[..., :5], y[..., :5], g[..., :5], norms, scalars(), torch.float64)
    a, b, c = (t[..., :5].contiguous() if layout == "contiguous" else t[..., :5] for t in (x, y, g))
    assert_near(run(norm_tail, a, b, c, norms, scalars()), exact)


def test_weight_and_scale_per_pixel():
    x, y, g = images(2, 5, 3, 4)
    factors = on_device(per_point(24).reshape(2, 1, 3, 4), per_point(24, seed=2).reshape(2, 1, 3, 4) + 0.1)
    factors.append(scalars()[2])
    norms = norm(5), norm(5, seed=3)
    found = run(norm_tail, x, y, g, norms, factors)
    assert_near(found, run(by_hand, x, y, g, norms, factors, torch.float64))


# --- tiles and repeated runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("programs", [1, 3, 100])
def test_backward_programs_loop_over_many_tiles(programs):
    from lresnet.kernels import norm_tail as operator
    from lresnet.kernels.residual import Factors

    x, y, g = on_device(*(normals(21, 6, seed=s) for s in range(3)))
    factors = Factors(*scalars(), *on_device(*(normals(6, seed=s) for s in range(4))))
    _, found = operator.forward(x, y, factors, (1e-5, 1e-5), "lorentz", True)
    few, many = (
        operator.backward(g, x, y, factors, found, "lorentz", True, tile)
        for tile in (Tile(32, 8, 1, 1), Tile(2, 8, 1, programs, 2))
    )
    for a, b in zip(few, many, strict=True):
        torch.testing.assert_close(a, b)


def test_runs_are_bit_identical():
    x, y, g = images(3, 16, 5, 9)
    runs = [run(norm_tail, x, y, g, (norm(16), norm(16, seed=3)), scalars()) for _ in range(3)]
    for other in runs[1:]:
        assert all(torch.equal(value, other[name]) for name, value in runs[0].items())


# --- modes of the norms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_over_steps(momentum):
    ours = norm(5, momentum=momentum), norm(5, seed=3, momentum=momentum)
    theirs = copy.deepcopy(ours)
    for seed in range(3):
        x, y = ((normals(3, 5, 2, 4, seed=seed + s) * 3 + 1).to(DEVICE) for s in (0, 10))
        norm_tail(x, y, skip_norm=ours[0], branch_norm=ours[1])
        theirs[0](x), theirs[1](y)
    for a, b in zip(ours, theirs, strict=True):
        assert a.num_batches_tracked == 3
        torch.testing.assert_close(a.state_dict(), b.state_dict())


@pytest.mark.parametrize("skip", ["train", "eval", "untracked", "none", "other"])
@pytest.mark.parametrize("branch", ["train", "eval", "untracked"])
def test_norms_in_any_mode(skip, branch):
    x, y, g = images(3, 5, 2, 4)
    made: list[BatchNorm2d | None] = []
    for mode, seed in ((skip, 0), (branch, 3)):
        module = norm(5, seed, track_running_stats=mode != "untracked")
        if mode != "untracked":
            module.running_mean.copy_(normals(5, seed=20).to(DEVICE))
            module.running_var.copy_(normals(5, seed=21).to(DEVICE).square() + 0.5)
        module.train(mode != "eval")
        made.append(module)
    if skip == "none":
        made[0] = None
    if skip == "other":
        made[0] = (torch.nn.SyncBatchNorm(5) if DEVICE == "cuda" else torch.nn.InstanceNorm2d(5, affine=True)).to(
            DEVICE
        )
    found = run(norm_tail, x, y, g, tuple(made), scalars())
    assert_near(found, run(by_hand, x, y, g, tuple(made), scalars(), torch.float64))


def test_norms_without_tracking_are_not_updated():
    x, y, _ = images(2, 5, 2, 2)
    module = norm(5)
    module.track_running_stats = False
    norm_tail(x, y, branch_norm=module)
    assert module.num_batches_tracked == 0
    assert module.running_mean.eq(0).all()


def test_gradients_flow_through_frozen_norms():
    x, y, g = images(2, 5, 3, 3)
    module = norm(5).requires_grad_(False)
    leaf = y.clone().requires_grad_()
    (found,) = torch.autograd.grad(norm_tail(x, leaf, branch_norm=module), leaf, g)
    with disabled():
        (exact,) = torch.autograd.grad(norm_tail(x, leaf, branch_norm=module), leaf, g)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)


def test_modules_run_without_kernels(launches):
    x, y, g = images(3, 5, 2, 4)
    norms = norm(5), norm(5, seed=3)
    with disabled():
        found = run(norm_tail, x, y, g, norms, scalars())
    assert launches == []
    assert_near(found, run(by_hand, x, y, g, norms, scalars(), torch.float64))


def test_error_messages():
    x, y, _ = images(1, 5, 2, 2)
    with pytest.raises(ValueError, match=r"more than one pixel per channel, got 1; use eval\(\)"):
        norm_tail(x[..., :1, :1], y[..., :1, :1], branch_norm=norm(5))
    with pytest.raises(ValueError, match=r"a batch norm of 4 channels got 5; make it BatchNorm2d\(5\)"):
        norm_tail(x, y, branch_norm=norm(4))
    with pytest.raises(ValueError, match="kappa must be positive and finite, got -1"):
        norm_tail(x, y, branch_norm=norm(5), kappa=-1.0)
    with pytest.raises(ValueError, match="unknown residual 'mean'"):
        norm_tail(x, y, branch_norm=norm(5), kind="mean")


# --- operators --------------------------------------------------------------------------------------------------------


def test_operators_pass_opcheck():
    from lresnet.kernels import norm_tail as operator

    x, y, g = on_device(*(normals(6, 5, seed=s) for s in range(3)))
    columns = on_device(*(normals(5, seed=s) for s in range(4)))
    tensors = [x, y, scalars()[0], None, scalars()[2], *columns]
    leaves = [None if t is None else t.clone().requires_grad_() for t in tensors]
    torch.library.opcheck(operator.norm_tail, (*leaves, 1e-5, 1e-3, "lorentz", True))
    for skip in (columns[:2], [None, None]):
        tensors[5:7] = skip
        _, found = operator.norm_tail(*tensors, 1e-5, 1e-3, "lorentz", True)
        arguments = (g, *tensors, found, "lorentz", True)
        torch.library.opcheck(operator.norm_tail_backward, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("sides", ["branch", "both"])
def test_compiles_into_one_graph(sides, launches):
    x, y, g = images(3, 5, 2, 4)
    norms = norm(5, momentum=None) if sides == "both" else None, norm(5, seed=3)
    compiled = torch.compile(norm_tail, fullgraph=True, backend="aot_eager")
    found = [run(function, x, y, g, norms, scalars()) for function in (norm_tail, compiled)]
    assert launches == ["forward", "backward"] * 2
    torch.testing.assert_close(*found)


def test_second_derivatives_use_the_formula(launches):
    x, y, _ = images(2, 3, 2, 2)
    norms = norm(3), norm(3, seed=3)

    def second(function):
        skip, branch = copy.deepcopy(norms)
        leaves = [t.clone().requires_grad_() for t in (x, y, *scalars())]
        named = dict(zip(("x", "y", "weight", "scale", "kappa"), leaves, strict=True))
        leaves += [*skip.parameters(), *branch.parameters()]
        z = function(**named, skip_norm=skip, branch_norm=branch, relu=False)
        first = torch.autograd.grad(z.square().sum(), leaves, create_graph=True)
        assert "backward" not in launches
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    got = second(norm_tail)
    assert launches == ["forward", "backward"]  # the loss is a square, so its derivative depends on the result
    launches.clear()
    with disabled():
        torch.testing.assert_close(got, second(norm_tail), rtol=1e-3, atol=1e-4)


def test_the_statistics_have_no_derivative():
    from lresnet.kernels import norm_tail as operator

    x = normals(6, 5).to(DEVICE).requires_grad_()
    columns = on_device(normals(5), normals(5, seed=1))
    z, found = operator.norm_tail(x, x, None, None, scalars()[2], None, None, *columns, 0.0, 1e-5, "space", False)
    assert z.requires_grad
    assert not found.requires_grad


# --- a network's block ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("kind", "compiled"), [("lorentz", False), ("tangent", False), ("lorentz", True)])
def test_a_block_gives_the_same_with_and_without_kernels(kind, stride, compiled, launches):
    manifold = Lorentz(-0.5, learnable=True).to(DEVICE)
    torch.manual_seed(0)
    block = ResidualBlock(4, 4 * stride, stride, make_residual(kind, manifold, dim=1, weight="learned")).to(DEVICE)
    x = images(3, 4, 6, 6)[0]

    def steps() -> dict[str, Tensor]:
        mine = copy.deepcopy(block)
        call = torch.compile(mine, fullgraph=True, backend="aot_eager") if compiled else mine
        leaf = x.clone().requires_grad_()
        found = {}
        for step, mode in enumerate((True, True, False)):
            mine.train(mode)
            z = call(leaf)
            z.square().sum().backward()
            found[f"step {step}"] = z.detach()
        found |= {f"gradient of {name}": p.grad for name, p in mine.named_parameters()}
        return found | dict(mine.named_buffers()) | {"gradient of the input": leaf.grad}

    found = steps()
    assert launches == ["forward", "backward"] * 2  # evaluation needs no statistics
    with disabled():
        assert_near(found, steps())
