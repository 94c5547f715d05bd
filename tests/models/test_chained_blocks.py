"""Compiled blocks compute the norm that follows them: results of the networks, and networks that must not do so."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils import parametrize

import lresnet
from lresnet.kernels import enabled
from lresnet.models import LorentzGPT, LorentzViT, transformer
from lresnet.nn import LorentzRMSNorm, LorentzTransformerBlock
from lresnet.train.distributed import join_processes
from tests.processes import run_in_two_processes

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning"),  # torch's tracer
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*TensorFloat32.*"),
    pytest.mark.filterwarnings("ignore:.*_prims_common.*"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPTIONS = {
    "lorentz": {},
    "learned per layer": {"learn_curvature": True, "curvature_per_layer": True},
    "euclidean": {"residual": "euclidean"},
    "tangent": {"residual": "tangent"},
}


def gpt(**options) -> LorentzGPT:
    torch.manual_seed(0)
    return _varied(LorentzGPT(17, **{"context": 12, "layers": 3, "width": 32, "heads": 4} | options))


def vit(**options) -> LorentzViT:
    torch.manual_seed(0)
    return _varied(LorentzViT(**{"layers": 3, "width": 32, "heads": 2} | options))


def _varied(model):
    """Return the network on the device, in training, with the norms' weights and the blocks' maps changed."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm.weight" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape))
            elif parameter.dim() > 1:
                parameter.mul_(5)
    model.compiles_blocks = True
    return model.to(DEVICE).train()


def inputs(model) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if isinstance(model, LorentzGPT):
        return torch.randint(17, (2, 12), generator=generator).to(DEVICE)
    own = next(model.parameters()).dtype
    return torch.randn(2, 3, 16, 16, generator=generator).to(DEVICE, own)


def step(model, autocast: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits and the gradients of a training step."""
    model.zero_grad()
    x = inputs(model)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
        logits = model(x)
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype, device=DEVICE).reshape(logits.shape)
    (logits * weights).sum().backward()
    return logits.detach(), {name: p.grad for name, p in model.named_parameters()}


def apart(model):
    """Return the network, whose blocks no longer compute the norm of the next one."""
    model._is_chained = lambda norm: False
    return model


@pytest.fixture
def chained(monkeypatch) -> list[bool]:
    """Record the calls of networks whose blocks compute the norm of the next one."""
    calls: list[bool] = []
    original = transformer.Transformer._run_chained
    monkeypatch.setattr(
        transformer.Transformer, "_run_chained", lambda *a, **k: calls.append(True) or original(*a, **k)
    )
    return calls


@pytest.fixture
def eager(monkeypatch) -> None:
    """Run the functions that would be compiled."""
    monkeypatch.setattr(transformer, "_compiled", lambda function: function)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("make", [gpt, vit])
def test_the_results_are_those_of_separate_norms(make, options, autocast, chained):
    for dtype in (torch.float32,) if autocast else (torch.float32, torch.float64, torch.bfloat16):
        found = step(make(**OPTIONS[options]).to(dtype), autocast)
        assert len(chained) == 1
        expected = step(apart(make(**OPTIONS[options]).to(dtype)), autocast)
        assert len(chained) == 1
        chained.clear()
        assert torch.equal(found[0], expected[0])
        tolerance = {torch.float64: 1e-10, torch.float32: 1e-4}.get(dtype, 1e-2)
        for name, gradient in expected[1].items():
            assert (found[1][name] - gradient).norm() <= (1e-2 if autocast else tolerance) * gradient.norm(), name


@pytest.mark.usefixtures("eager")
def test_dropout_draws_the_same_numbers(chained):
    found = []
    for change in (lambda model: model, apart):
        model = change(gpt(dropout=0.3))
        torch.manual_seed(5)
        found.append(step(model)[0])
    assert len(chained) == 1
    assert torch.equal(*found)


class Scaled(LorentzRMSNorm):
    def forward(self, x):
        return 2 * super().forward(x)


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


class Sharded(torch.nn.Parameter):
    """Stands for the parameter of a module that FSDP2 has not gathered."""


def _with_hook(module: torch.nn.Module, kind: str) -> None:
    getattr(module, f"register_{kind}")(lambda *_: None)


CHANGES = {
    "hook on a norm": lambda model: _with_hook(model.layers[1].attention_norm, "forward_hook"),
    "hook before the last norm": lambda model: _with_hook(model.norm, "forward_pre_hook"),
    "hook on a block": lambda model: _with_hook(model.layers[0], "full_backward_hook"),
    "forward replaced": lambda model: setattr(model.layers[2].attention_norm, "forward", lambda x: 2 * x),
    "forward of a block replaced": lambda model: setattr(model.layers[0], "forward", model.layers[0].forward),
    "other norm": lambda model: setattr(model, "norm", Scaled(32, manifold=model.manifold).to(DEVICE)),
    "no norm": lambda model: setattr(model.layers[0], "attention_norm", torch.nn.Identity()),
    "parametrized": lambda model: parametrize.register_parametrization(model.norm, "weight", Doubled()),
    "sharded": lambda model: setattr(model.norm, "weight", Sharded(model.norm.weight.detach())),
    "norm last": lambda model: setattr(model.layers[1], "norm_first", False),
}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("change", CHANGES)
def test_networks_with_observed_or_replaced_parts_call_their_norms(change, chained):
    model, other = gpt(), apart(gpt())
    CHANGES[change](model)
    CHANGES[change](other)
    assert torch.equal(step(model)[0], step(other)[0])
    assert not chained


@pytest.mark.usefixtures("eager")
def test_checkpointing_caches_evaluation_and_eager_training_call_the_norms(chained):
    step(gpt(activation_checkpointing=True))
    model = gpt()
    with torch.no_grad():
        model(inputs(model))
    model(inputs(model), model.make_caches())
    model.eval()(inputs(model))
    model.train().compiles_blocks = False
    step(model)
    assert not chained


@pytest.mark.usefixtures("eager")
def test_embed_returns_points_in_the_precision_of_the_network():
    model = gpt()
    with torch.autocast(DEVICE, torch.bfloat16):
        points = model.embed(inputs(model))
        assert points.dtype == torch.float32
        assert torch.equal(model.logits(points), model(inputs(model)))


def test_the_blocks_share_one_compilation_and_the_first_norm_has_another(monkeypatch):
    graphs: list[object] = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    compile_ = functools.cache(lambda f: torch.compile(f, dynamic=False, backend=count, fullgraph=True))
    monkeypatch.setattr(transformer, "_compiled", compile_)
    torch.compiler.reset()
    for options in ({}, {"layers": 4, "curvature": -0.3}, {"layers": 1}):
        expected = step(apart(gpt(**options, activation_checkpointing=False)))
        graphs.clear()
        found = step(gpt(**options))
        assert len(graphs) == (2 if not options else 0)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("make", [gpt, vit])
def test_traced_networks_compute_the_gradients_of_both_residuals_by_the_kernel(make, autocast, monkeypatch):
    pytest.importorskip("triton")
    from lresnet.kernels import residual_norm

    seen: list[bool] = []
    original = residual_norm.backward

    def backward(*arguments):
        if type(arguments[0]) is not FakeTensor:  # which asks for shapes
            seen.append(arguments[9] is not None)
        return original(*arguments)

    monkeypatch.setattr(residual_norm, "backward", backward)
    compile_ = functools.cache(lambda f: torch.compile(f, dynamic=False, backend="aot_eager", fullgraph=True))
    monkeypatch.setattr(transformer, "_compiled", compile_)
    torch.compiler.reset()
    with enabled():
        found = step(make(), autocast)
        assert set(seen) == {True, False}
        seen.clear()
        expected = step(apart(make()), autocast)
        assert set(seen) == {False}
    bound = 3e-2 if autocast else 1e-4
    assert (found[0] - expected[0]).norm() <= bound * expected[0].norm()
    for name, gradient in expected[1].items():
        assert (found[1][name] - gradient).norm() <= bound * gradient.norm(), name
    torch.compiler.reset()


def test_a_block_returns_the_norm_that_follows_it():
    manifold = lresnet.Lorentz(-0.1)
    block, x = LorentzTransformerBlock(32, num_heads=2, manifold=manifold), torch.randn(2, 5, 32)
    norm = LorentzRMSNorm(32, manifold=manifold)
    expected = block(x, is_causal=True)
    z, rows = block(x, is_causal=True, normed=block.attention_norm(x), next_norm=norm, next_dtype=torch.bfloat16)
    assert torch.equal(z, expected)
    assert torch.equal(rows, norm(expected).bfloat16())
    assert torch.equal(block(x, is_causal=True, normed=block.attention_norm(x)), expected)
    last = LorentzTransformerBlock(32, num_heads=2, norm_first=False, manifold=manifold)
    for options in ({"normed": x}, {"next_norm": norm}):
        with pytest.raises(ValueError, match="require norm_first=True, but this block has norm_first=False"):
            last(x, **options)


def _trained(model: torch.nn.Module, ids: Tensor) -> torch.nn.Module:
    optimizer = lresnet.optim.make_adam(model, lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
    return model


def _in_processes() -> dict[str, tuple[int, dict[str, np.ndarray]]]:
    from torch.distributed.fsdp import fully_shard

    found, calls = {}, []
    original = transformer.Transformer._run_chained
    transformer._compiled = lambda function: function
    transformer.Transformer._run_chained = lambda *a: calls.append(True) or original(*a)
    with join_processes("cpu") as (processes, _):
        ids = torch.randint(17, (4, 12), generator=torch.Generator().manual_seed(1))[processes.share(4, images=4)]
        for case in ("per block", "whole", "DDP"):
            model = gpt()
            for block in model.layers if case == "per block" else ():
                fully_shard(block)
            model = torch.nn.parallel.DistributedDataParallel(model) if case == "DDP" else fully_shard(model)
            state = getattr(_trained(model, ids), "module", model).state_dict()
            found[case] = len(calls), {k: getattr(t, "full_tensor", lambda t=t: t)().numpy() for k, t in state.items()}
            calls.clear()
    return found


@pytest.mark.slow
@pytest.mark.skipif(DEVICE != "cpu", reason="the processes share one machine")
def test_sharded_networks_call_their_norms_and_replicas_need_not():
    model = gpt()
    model.compiles_blocks = False
    ids = torch.randint(17, (4, 12), generator=torch.Generator().manual_seed(1))
    expected = _trained(model, ids).state_dict()
    for case, (calls, state) in run_in_two_processes(_in_processes)[0].items():
        assert calls == (0 if case == "per block" else 3), case
        for name, values in expected.items():
            np.testing.assert_allclose(state[name], values, rtol=1e-3, atol=1e-4, err_msg=f"{case}: {name}")


@pytest.mark.skipif(DEVICE == "cpu", reason="inductor's code for GPUs is tested")
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("options", ["lorentz", "euclidean"])
@pytest.mark.parametrize("make", [gpt, vit])
def test_compiled_networks_on_a_gpu_compute_what_eager_ones_do(make, options, autocast, chained):
    shape = {"width": 128, "heads": 2, **OPTIONS[options]}
    torch.compiler.reset()
    found = step(make(**shape), autocast)
    assert len(chained) == 1
    model = make(**shape)
    model.compiles_blocks = False
    expected = step(model, autocast)
    bound = 5e-2 if autocast else 1e-3
    assert (found[0] - expected[0]).norm() <= bound * expected[0].norm()
    for name, gradient in expected[1].items():
        assert (found[1][name] - gradient).norm() <= bound * gradient.norm(), name


@pytest.mark.slow
@pytest.mark.parametrize("part", ["attention_norm", "mlp_norm", "mlp_residual"])
def test_compiled_blocks_call_the_hooks_of_their_own_parts(part):
    """Blocks share compiled code: that of the first one must not run for the second."""
    torch.compiler.reset()
    model = gpt()
    for name, parameter in model.named_parameters():
        parameter.data.mul_(8 if "proj" in name else 1)
    getattr(model.layers[1], part).register_forward_hook(lambda _module, _inputs, found: 1.5 * found)
    found = step(model)[0]
    model.compiles_blocks = False
    torch.testing.assert_close(found, step(model)[0], rtol=1e-4, atol=1e-4)
    torch.compiler.reset()


def test_a_replaced_embed_is_called():
    class Shifted(LorentzGPT):
        def embed(self, ids, caches=None):
            return super().embed(ids, caches) * 0

    ids = torch.zeros(1, 3, dtype=torch.long)
    assert not Shifted(vocab_size=7, context=8, layers=1, width=24, heads=2)(ids).any()
    model = LorentzGPT(vocab_size=7, context=8, layers=1, width=24, heads=2)
    model.logits = lambda points: points
    assert torch.equal(model(ids), model.embed(ids))
