"""A batch norm and its ReLU as one operator, against torch's modules in float64."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.nn import BatchNorm2d

from lresnet.kernels import disabled, enabled
from lresnet.models import LorentzResNet
from lresnet.models.resnet import ResidualBlock
from lresnet.nn.batch_norm import RunningUpdate, norm_relu, norm_tail, update_running_statistics
from tests.kernels.cases import DEVICE, record_launches
from tests.residual.common import normals

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def kernels():
    with enabled():
        yield


@pytest.fixture
def launches(monkeypatch):
    from lresnet.kernels import norm_relu

    return record_launches(monkeypatch, norm_relu)


def images(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return images whose channels differ in mean and deviation."""
    spread, mean = (normals(shape[1], seed=s)[:, None, None] for s in (7, 8))
    x = (normals(*shape, seed=seed) * (1 + spread.abs()) + mean).to(DEVICE, dtype)
    return x.to(memory_format=torch.channels_last)


def norm(channels: int, **options: object) -> BatchNorm2d:
    module = BatchNorm2d(channels, **options).to(DEVICE)
    with torch.no_grad():
        module.weight.copy_(normals(channels) + 0.5)
        module.bias.copy_(normals(channels, seed=1))
    return module


def rows(x: Tensor) -> Tensor:
    return x.movedim(1, -1).flatten(0, -2)


def by_operator(x: Tensor, module: BatchNorm2d) -> Tensor:
    from lresnet.kernels import norm_relu as operator

    z, statistics = operator.norm_relu(rows(x), module.weight, module.bias, module.eps)
    update_running_statistics([RunningUpdate(module, statistics)])
    return z.unflatten(0, (x.shape[0], *x.shape[2:])).movedim(-1, 1)


def run(function, x: Tensor, g: Tensor, module: BatchNorm2d, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Return result, gradients and buffers by name."""
    own = copy.deepcopy(module).to(dtype)
    leaf = x.detach().to(dtype or x.dtype).requires_grad_()
    z = function(leaf, own)
    grads = torch.autograd.grad(z, (leaf, own.weight, own.bias), g.to(z.dtype))
    return {"z": z.detach(), **dict(zip(("x", "weight", "bias"), grads, strict=True)), **dict(own.named_buffers())}


def modules(x: Tensor, module: BatchNorm2d) -> Tensor:
    return module(x).relu()


def assert_near(found: dict[str, Tensor], exact: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert found.keys() == exact.keys()
    for name, value in exact.items():
        error = (found[name].double() - value).abs().max() / value.abs().max().clamp(min=1.0)
        assert error <= tolerance, (name, float(error))


# The interpreter needs five seconds for this case; on a GPU it is fast.
WIDE = pytest.param(520, (3, 9, 13), marks=() if torch.cuda.is_available() else pytest.mark.slow)


@pytest.mark.parametrize(
    ("channels", "pixels"),
    [
        *itertools.product([1, 5, 64, 130], [(1, 1, 2), (2, 5, 7), (3, 9, 13)]),
        *itertools.product([520], [(1, 1, 2), (2, 5, 7)]),
        WIDE,
    ],
)
def test_same_numbers_as_torch_modules(channels, pixels, launches):
    x, g = (images(pixels[0], channels, *pixels[1:], seed=s) for s in (0, 1))
    module = norm(channels, eps=1e-2)
    found = run(by_operator, x, g, module)
    assert launches == ["forward", "backward"]
    assert_near(found, run(modules, x, g, module, torch.float64), 3e-5 if x.numel() > 2 * channels else 3e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_once(dtype):
    x, g = (images(2, 6, 4, 5, seed=s, dtype=dtype) for s in (0, 1))
    found = run(by_operator, x, g, norm(6))
    exact = run(modules, x, g, norm(6), torch.float64)
    for name in ("z", "x"):
        assert found[name].dtype == dtype
        assert ((found[name] - exact[name]).abs() <= torch.finfo(dtype).eps * exact[name].abs() + 1e-6).all()
    assert found["weight"].dtype == torch.float32


def test_strided_rows():
    x, g = images(2, 5, 3, 4), images(2, 5, 3, 4, seed=1)
    apart = [torch.stack([t, t], -1)[..., 0] for t in (x, g)]
    assert_near(run(by_operator, *apart, norm(5)), run(modules, x, g, norm(5), torch.float64))


def test_a_channel_below_zero_has_no_gradient():
    module, x = norm(3), images(2, 3, 4, 4)
    with torch.no_grad():
        module.bias.fill_(-100.0)
    found = run(by_operator, x, images(2, 3, 4, 4, seed=1), module)
    assert all(found[name].eq(0).all() for name in ("z", "x", "weight", "bias"))


def test_a_nan_stays_in_its_channel():
    x = images(2, 3, 4, 4)
    x[0, 1, 0, 0] = torch.nan
    z = by_operator(x, norm(3))
    assert z[:, 1].isnan().all()
    assert z[:, [0, 2]].isfinite().all()


def test_second_derivatives():
    x, module = images(2, 3, 2, 3), norm(3)

    def penalty(function):
        leaf = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(function(leaf, copy.deepcopy(module)).square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(g.square().sum(), leaf)[0]

    for function in (by_operator, norm_relu):
        torch.testing.assert_close(penalty(function), penalty(modules), rtol=1e-4, atol=1e-4)


def test_operators_pass_opcheck():
    from lresnet.kernels import norm_relu as operator

    module = norm(5)
    x, g = rows(images(2, 5, 3, 4)), rows(images(2, 5, 3, 4, seed=1))
    weight, bias = module.weight.detach(), module.bias.detach()
    arguments = x.clone().requires_grad_(), weight.clone().requires_grad_(), bias.clone().requires_grad_(), 1e-5
    torch.library.opcheck(operator.norm_relu, arguments)
    _, statistics = operator.norm_relu(x, weight, bias, 1e-5)
    torch.library.opcheck(operator.norm_relu_backward, (g, x, statistics))


def test_runs_are_bit_identical():
    x, g = images(3, 16, 5, 9), images(3, 16, 5, 9, seed=1)
    runs = [run(by_operator, x, g, norm(16)) for _ in range(3)]
    for other in runs[1:]:
        assert all(torch.equal(value, other[name]) for name, value in runs[0].items())


# --- the public function, and networks --------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_eager_calls_run_the_kernels(memory, launches):
    x, g = (images(2, 5, 3, 4, seed=s).contiguous(memory_format=memory) for s in (0, 1))
    assert_near(run(norm_relu, x, g, norm(5)), run(modules, x, g, norm(5), torch.float64))
    assert launches == ["forward", "backward"]


def test_results_of_eager_calls_may_be_changed_in_place():
    x, module = images(2, 5, 3, 4).requires_grad_(), norm(5)
    norm_relu(x, module).mul_(2.0).sum().backward()
    (exact,) = torch.autograd.grad(2 * modules(x, copy.deepcopy(module)).sum(), x)
    torch.testing.assert_close(x.grad, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["train", "eval", "untracked", "other"])
def test_compiled_calls_run_the_operator_in_training(mode, launches):
    x, g = images(2, 5, 3, 4), images(2, 5, 3, 4, seed=1)
    module = norm(5, track_running_stats=mode != "untracked").train(mode != "eval")
    if mode == "other":
        module = torch.nn.InstanceNorm2d(5, affine=True).to(DEVICE)
    torch._dynamo.reset()
    found = run(torch.compile(norm_relu, backend="aot_eager", fullgraph=True), x, g, module)
    assert launches == (["forward", "backward"] if mode in ("train", "untracked") else [])
    assert_near(found, run(modules, x, g, module, torch.float64))


def test_error_messages():
    call = torch.compile(norm_relu, backend="eager", fullgraph=True)
    for x, channels, message in (
        (images(1, 5, 1, 1), 5, "more than one pixel per channel, got 1; use eval"),
        (images(1, 5, 2, 2), 4, "a batch norm of 4 channels got 5"),
    ):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=message):
            call(x, norm(channels))


@pytest.mark.parametrize("residual", ["lorentz", pytest.param("euclidean", marks=pytest.mark.slow)])
def test_a_network_trains_the_same_with_modules_kernels_and_compiled(residual, launches):
    torch.manual_seed(0)
    net = LorentzResNet(8, 10, widths=[4, 4, 8], residual=residual).to(DEVICE).train()
    x = normals(4, 3, 8, 8).to(DEVICE)
    found = {}
    for way in ("modules", "eager", "compiled"):
        own = copy.deepcopy(net)
        torch._dynamo.reset()
        call = torch.compile(own, backend="aot_eager", fullgraph=True) if way == "compiled" else own
        with disabled() if way == "modules" else enabled():
            logits = call(x)
            logits.square().sum().backward()
        found[way] = {"logits": logits.detach(), **{n: p.grad for n, p in own.named_parameters()}, **own.state_dict()}
    assert launches == 2 * (["forward"] * 4 + ["backward"] * 4)
    assert found["compiled"]["blocks.1.bn1.num_batches_tracked"] == 1
    for way in ("eager", "compiled"):
        for name, value in found["modules"].items():
            torch.testing.assert_close(found[way][name], value, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("case", ["stem in another order", "own activation", "grouped blocks", "own block"])
def test_a_modified_network_runs_its_own_modules(case):
    class Leaky(torch.nn.ReLU):
        def forward(self, x):
            return torch.nn.functional.leaky_relu(x)

    class Own(ResidualBlock):
        def forward(self, x):
            return super().forward(x)

        def join(self, skip, branch):
            return super().join(skip, branch)

    net = LorentzResNet(8, 10, widths=[4, 4, 8]).to(DEVICE).train()
    if case == "stem in another order":
        net.stem = torch.nn.Sequential(net.stem[0], net.stem[2], net.stem[1])
    elif case == "own activation":
        net.stem[2] = Leaky()
    elif case == "grouped blocks":
        net.blocks = torch.nn.Sequential(net.blocks[:1], net.blocks[1:])
    else:
        net.blocks[0].__class__ = Own
    x = normals(4, 3, 8, 8).to(DEVICE)
    found = net.features(x)
    with disabled():
        torch.testing.assert_close(found, net.features(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo reads it
@pytest.mark.slow
def test_blocks_compiled_one_by_one_share_their_code():
    net = LorentzResNet(20, 10, widths=[4, 4, 8]).to(DEVICE).train()
    torch._dynamo.reset()
    counter = CompileCounter()
    for block in net.blocks:
        block.compile(backend=counter)
    net(normals(4, 3, 8, 8).to(DEVICE))
    assert counter.frame_count <= 5  # one kind of block in the first stage, two in each other stage


def test_norms_without_counters():
    net = LorentzResNet(8, 10, widths=[4, 4, 8]).to(DEVICE).train()
    for module in net.modules():
        if isinstance(module, BatchNorm2d):
            module.num_batches_tracked = None
    net(normals(4, 3, 8, 8).to(DEVICE)).sum().backward()
    assert net.blocks[0].bn1.running_mean.abs().sum() > 0


def test_a_hook_on_the_stem_is_called(launches):
    net = LorentzResNet(8, 10, widths=[4, 4, 8]).to(DEVICE).train()
    seen = []
    net.stem.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    net(normals(4, 3, 8, 8).to(DEVICE))
    assert seen == [(4, 4, 8, 8)]


def test_a_norm_with_a_hook_is_called(launches):
    seen, module = [], norm(5)
    module.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    torch._dynamo.reset()
    torch.compile(norm_relu, backend="eager")(images(2, 5, 3, 4), module)
    norm_tail(images(2, 5, 3, 4), images(2, 5, 3, 4, seed=1), branch_norm=module)
    assert seen == [(2, 5, 3, 4)] * 2
    assert launches == []


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_norm_without_bias_runs_as_a_module(mode, launches):
    module = norm(5)
    module.bias = None  # as BatchNorm2d(5, bias=False) of torch 2.13
    module.train(mode == "train")
    x, y = images(2, 5, 3, 4), images(2, 5, 3, 4, seed=1)
    torch._dynamo.reset()
    found = torch.compile(norm_relu, backend="aot_eager")(x, copy.deepcopy(module))
    torch.testing.assert_close(found, modules(x, copy.deepcopy(module)))
    tail = norm_tail(x, y, branch_norm=copy.deepcopy(module), kind="space", relu=False)
    torch.testing.assert_close(tail, x + copy.deepcopy(module)(y))
    assert launches == []


def test_a_norm_whose_forward_was_replaced_is_called(launches):
    module, x = norm(5), images(2, 5, 3, 4)
    module.forward = lambda z: 0 * z
    torch._dynamo.reset()
    assert torch.compile(norm_relu, backend="aot_eager")(x, module).eq(0).all()
    assert torch.equal(norm_tail(x, x, branch_norm=module, kind="space", relu=False), x)
    assert launches == []


def test_images_of_three_axes_raise_torch_s_error():
    for call in (norm_relu, torch.compile(norm_relu, backend="eager")):
        torch._dynamo.reset()
        with pytest.raises(Exception, match="expected 4D input"):
            call(torch.randn(5, 3, 4, device=DEVICE), norm(5))


@pytest.mark.parametrize("momentum", [0.3, None])
def test_a_norm_used_twice_is_updated_in_sequence(momentum):
    from lresnet.kernels import norm_relu as operator

    ours, theirs, other = norm(5, momentum=momentum), norm(5, momentum=momentum), norm(5, momentum=0.1)
    updates = []
    for seed, module in ((0, ours), (1, other), (2, ours)):
        x = images(3, 5, 2, 4, seed=seed) + seed
        _, statistics = operator.norm_relu(rows(x), module.weight, module.bias, module.eps)
        updates.append(RunningUpdate(module, statistics))
        if module is ours:
            theirs(x)
    update_running_statistics(updates)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    assert other.num_batches_tracked == 1


def test_running_statistics_with_and_without_momentum_or_tracking():
    x = images(3, 5, 2, 4)
    for options in ({"momentum": None}, {"momentum": 0.3}, {"track_running_stats": False}):
        ours, theirs = norm(5, **options), norm(5, **options)
        for seed in range(3):
            by_operator(x + seed, ours)
            theirs(x + seed)
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
