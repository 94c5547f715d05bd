"""Tests of lorentz_gpt: caches, generation, extremes, limits of curvature 0, compilation, saving, baselines."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode

import lresnet
from lresnet.models import LorentzGPT, create_model, from_pretrained, gpt, transformer
from lresnet.models.gpt import _next_token
from lresnet.nn.softmax_attention import KeyValueCache
from lresnet.train.distributed import join_processes
from tests.models.common import RESIDUALS, parameters_of
from tests.processes import run_in_two_processes

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer


def make(**options) -> LorentzGPT:
    torch.manual_seed(0)
    options = {"vocab_size": 17, "context": 12, "layers": 3, "width": 32, "heads": 4, "kv_heads": 2} | options
    model = LorentzGPT(**options)
    with torch.no_grad():  # larger than initial weights, so that no part is negligible
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(10)
    return model.eval()


def tokens(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(17, shape, generator=torch.Generator().manual_seed(seed))


def loss(model: torch.nn.Module, ids: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


VARIANTS = {
    "lorentz": {},
    "learned per layer": {"learn_curvature": True, "curvature_per_layer": True, "head": "lorentz", "tied": False},
    "euclidean": {"residual": "euclidean"},
    "l2": {"residual": "euclidean", "scores": "l2"},
    "tangent": {"residual": "tangent"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_cached_logits_equal_the_full_forward_pass(variant):
    model, ids = make(**VARIANTS[variant]), tokens(2, 12)
    full, caches = model(ids), model.make_caches()
    parts = [model(ids[:, :5], caches), *(model(ids[:, i : i + 1], caches) for i in range(5, 12))]
    torch.testing.assert_close(torch.cat(parts, 1), full, rtol=1e-5, atol=1e-5)
    assert full.abs().max() > 1  # otherwise the tolerance would accept anything


def test_generation_with_and_without_a_cache_continues_beyond_the_context():
    model, prompt = make(), tokens(2, 3)
    for options in ({"temperature": 0.0}, {"temperature": 0.7, "top_k": 5}):
        cached, plain = (
            model.generate(prompt, 20, **options, generator=torch.Generator().manual_seed(3), use_cache=use_cache)
            for use_cache in (True, False)
        )
        assert cached.shape == (2, 23)
        assert torch.equal(cached[:, :3], prompt)
        assert torch.equal(cached, plain)
    greedy = model.generate(prompt, 4, 0.0)
    for i in range(4):
        assert torch.equal(greedy[:, 3 + i], model(greedy[:, : 3 + i])[:, -1].argmax(-1))
    assert torch.equal(model.generate(prompt, 4, top_k=1), greedy)
    assert torch.equal(model.generate(prompt[0], 4, 0.0), greedy[0])
    assert torch.equal(model.generate(prompt, 0), prompt)
    long = tokens(1, 30)
    assert torch.equal(model.generate(long, 1, 0.0)[:, -1], model(long[:, -12:])[:, -1].argmax(-1))


def test_caches_have_room_for_the_positions_that_are_generated(monkeypatch):
    """A config.json may announce a context of millions of tokens."""
    model, made = make(), []
    monkeypatch.setattr(gpt, "KeyValueCache", lambda capacity: made.append(capacity) or KeyValueCache(capacity))
    for new in (4, 40):
        model.generate(tokens(1, 3), new)
    assert made == [7, 7, 7, 12, 12, 12]  # of 3 blocks; the context is 12
    assert model.make_caches()[0].capacity == 12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_network_in_half_precision_sees_the_positions_of_the_whole_network(dtype):
    model, ids = make(context=1024, layers=1), tokens(1, 1024)
    exact, half = model(ids), copy.deepcopy(model).to(dtype)
    assert (half(ids) - exact).abs().max() < 0.03 * exact.abs().max()  # 0.2 with rounded frequencies


def test_a_network_from_the_meta_device_is_that_of_its_parameters():
    """No buffer is left without values by ``to_empty``, as FSDP2 uses it."""
    model, ids = make(), tokens(2, 12)
    with torch.device("meta"):
        other = make().train().eval()
    for buffer in other.to_empty(device="cpu").buffers():
        buffer.fill_(math.nan)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(ids), model(ids))


def test_top_p_draws_from_the_most_likely_tokens_that_reach_it():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log().expand(4000, 4)
    generator = torch.Generator().manual_seed(0)

    def shares(**options):
        options = {"temperature": 1.0, "top_k": None, "top_p": None, "generator": generator} | options
        return torch.bincount(_next_token(logits, **options)[:, 0], minlength=4) / 4000

    torch.testing.assert_close(shares(top_p=1.0), torch.tensor([0.5, 0.3, 0.15, 0.05]), rtol=0, atol=0.03)
    torch.testing.assert_close(shares(top_p=0.7), torch.tensor([0.625, 0.375, 0, 0]), rtol=0, atol=0.03)
    torch.testing.assert_close(shares(top_p=0.9, top_k=2), torch.tensor([0.625, 0.375, 0, 0]), rtol=0, atol=0.03)
    assert shares(top_p=1e-9)[0] == 1
    assert shares(temperature=1e-45)[0] == 1  # logits / temperature would overflow
    torch.testing.assert_close(shares(temperature=math.inf), torch.full((4,), 0.25), rtol=0, atol=0.03)
    torch.testing.assert_close(shares(temperature=math.inf, top_k=2), torch.tensor([0.5, 0.5, 0, 0]), rtol=0, atol=0.03)
    model = make()
    assert torch.equal(model.generate(tokens(1, 3), 4, top_p=1e-9), model.generate(tokens(1, 3), 4, 0.0))


def test_generation_evaluates_without_dropout_and_restores_the_mode():
    model = make(dropout=0.5).train()
    first, second = (model.generate(tokens(1, 3), 8, 0.0) for _ in range(2))
    assert torch.equal(first, second)
    assert model.training


@pytest.mark.parametrize("variant", VARIANTS)
def test_predictions_do_not_depend_on_later_tokens(variant):
    model, ids = make(**VARIANTS[variant]), tokens(2, 12)
    other = ids.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 17
    assert torch.equal(model(ids)[:, :7], model(other)[:, :7])
    assert not torch.equal(model(ids)[:, 7:], model(other)[:, 7:])


@pytest.mark.parametrize("curvature", [-1e-4, -0.1, -1.0, -10.0])
@pytest.mark.parametrize("head", ["linear", "lorentz"])
def test_finite_for_every_curvature_and_points_of_norm_a_million(curvature, head):
    for norm in (0.0, 1.0, 1e6):
        model = make(curvature=curvature, head=head, tied=False).train()
        with torch.no_grad():
            weight = model.embedding.weight
            weight.mul_(norm / weight.norm(dim=-1, keepdim=True))
        for length in (12, 2):  # 2: one position is predicted, from a sequence of one
            value = loss(model, tokens(2, length))
            value.backward()
            assert value.isfinite()
            assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("residual", RESIDUALS)
def test_every_residual_trains(residual):
    model, ids = make(residual=residual, layers=2).train(), tokens(4, 12)
    optimizer = lresnet.optim.make_adam(model, lr=3e-3, weight_decay=0.1)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        value = loss(model, ids)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < 0.7 * losses[0]


def test_curvature_0_is_the_sum_of_the_branches():
    """With weight 1 and the scale 1 + w the Lorentz residual becomes the space residual."""
    flat = make(residual="space", curvature=-1e-3)
    ids, gaps = tokens(2, 12), []
    for curvature in (-1e-3, -1e-4):
        curved = make(residual="lorentz", curvature=curvature)
        curved.load_state_dict(parameters_of(flat.state_dict()), strict=False)
        flat_too = make(residual="space", curvature=curvature)
        flat_too.load_state_dict(parameters_of(flat.state_dict()), strict=False)
        gaps.append((curved(ids) - flat_too(ids)).abs().max())
    assert gaps[1] < 0.2
    assert 5 < gaps[0] / gaps[1] < 20


def test_the_baseline_has_one_percent_more_parameters():
    counts = {}
    with torch.device("meta"):
        for residual in ("lorentz", "euclidean"):
            model = create_model("lorentz_gpt", residual=residual, layers=8, width=512, heads=8)
            counts[residual] = sum(p.numel() for p in model.parameters())
    per_layer = 512 * (8 * 3 + 8 * 3 + 8 * 1) - 8 - 2  # coordinates of queries, keys, values; temperatures; weights
    assert counts["euclidean"] - counts["lorentz"] == 8 * per_layer
    assert 1.005 < counts["euclidean"] / counts["lorentz"] < 1.01


@pytest.mark.parametrize("variant", ["learned per layer", pytest.param("euclidean", marks=pytest.mark.slow)])
def test_compiles_into_one_graph(variant):
    model, ids = make(**VARIANTS[variant], layers=1).train(), tokens(2, 12)
    compiled = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
    loss(model, ids).backward()
    loss(compiled, ids).backward()
    for (name, own), other in zip(model.named_parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(other.grad, own.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_exports_with_a_dynamic_batch_and_length():
    model, ids = make(layers=1), tokens(2, 12)
    shapes = ({0: torch.export.Dim("batch", max=8), 1: torch.export.Dim("length", min=2, max=12)},)
    exported = torch.export.export(model, (ids,), dynamic_shapes=shapes).module()
    for own in (ids, ids[:1, :7]):
        torch.testing.assert_close(exported(own), model(own))


def test_a_step_reads_no_value():
    """As a CUDA graph needs it: on tensors without values, reading one is an error."""
    with FakeTensorMode():
        model = LorentzGPT(17, 12, 2, 32, 4, learn_curvature=True, curvature_per_layer=True)
        loss(model, torch.randint(17, (2, 12))).backward()
        assert model.manifolds[0].log_kappa.grad is not None


def _stored(residual: str) -> list[Tensor]:
    """Return the activations, without values, that compiled code stores for the backward pass."""
    found: list[Tensor] = []

    def record(graph: torch.fx.GraphModule, inputs: object) -> object:
        if not found:  # the first graph is the forward pass
            results = next(node for node in graph.graph.nodes if node.op == "output").args[0]
            values = [node.meta["val"] for node in results[1:] if node.op != "placeholder"]
            found.extend(v for v in values if isinstance(v, Tensor) and v.dim() > 1 and v.shape[0] in (2, 2 * 64))
        return make_boxed_func(graph.forward)

    torch.manual_seed(0)
    model = LorentzGPT(17, 64, layers=6, width=256, heads=4, residual=residual)
    options = {"partition_fn": min_cut_rematerialization_partition, "decompositions": select_decomp_table}
    backend = aot_autograd(fw_compiler=record, bw_compiler=record, **options)
    with torch.autocast("cpu", torch.bfloat16):
        logits = torch.compile(model, fullgraph=True, backend=backend)(tokens(2, 64))
    logits.sum().backward()
    torch.compiler.reset()
    return found


@pytest.mark.slow
def test_compiled_code_stores_the_result_of_every_second_residual():
    own, baseline = _stored("lorentz"), _stored("euclidean")
    points = [t for t in own if t.shape == (2, 64, 256) and t.dtype == torch.float32]
    assert len(points) == 1 + 6  # the embedding, and one for each block; the other residuals follow from it
    sizes = [sum(t.numel() * t.element_size() for t in stored) for stored in (own, baseline)]
    assert sizes[0] < 1.05 * sizes[1]


def test_activation_checkpointing_gives_the_same_gradients():
    ids, gradients = tokens(2, 12), []
    for checkpointing in (False, True):
        model = make(activation_checkpointing=checkpointing, learn_curvature=True, dropout=0.3).train()
        torch.manual_seed(5)
        loss(model, ids).backward()
        gradients.append([p.grad for p in model.parameters()])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_saved_model_is_loaded_as_it_was(variant, tmp_path):
    model, ids = make(**VARIANTS[variant]), tokens(2, 12)
    loaded = from_pretrained(model.save_pretrained(tmp_path))
    assert loaded.config == model.config
    assert torch.equal(loaded(ids), model(ids))


def test_curvature_fixed_learned_and_per_layer():
    def owners(**options):
        return {name for name, _ in make(**options).named_parameters() if "log_kappa" in name}

    assert owners() == set()
    assert owners(learn_curvature=True) == {"manifold.log_kappa"}
    own = {f"manifolds.{i}.log_kappa" for i in range(3)}
    assert owners(learn_curvature=True, curvature_per_layer=True) == own  # the linear head reads no curvature
    assert owners(learn_curvature=True, curvature_per_layer=True, head="lorentz") == own | {"manifold.log_kappa"}
    assert owners(learn_curvature=True, curvature_per_layer=True, residual="euclidean") == set()
    assert make().manifold.fixed_curvature == -0.1 / 32


def test_every_trained_parameter_has_a_gradient_and_only_matrices_decay():
    for variant in VARIANTS.values():
        model = make(**variant).train()
        loss(model, tokens(2, 12)).backward()
        assert all(p.grad is not None for p in model.parameters())
        groups = lresnet.optim.parameter_groups(model)
        assert all(p.dim() == 2 for p in groups.decayed.values())
        assert {name.rsplit(".", 1)[-1] for name in groups.plain} == {"weight"}  # of the norms
        last = {name.rsplit(".", 1)[-1] for name in groups.geometric}
        assert last <= {"log_kappa", "raw_weight", "log_temperature"}


def _trained(model: torch.nn.Module, ids: Tensor) -> torch.nn.Module:
    optimizer = lresnet.optim.make_adam(model, lr=0.01, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss(model, ids).backward()
        optimizer.step()
    return model


def _sharded(variants: tuple[str, ...]) -> dict[str, dict[str, np.ndarray]]:
    from torch.distributed.fsdp import fully_shard

    found = {}
    with join_processes("cpu") as (processes, _):
        rows = processes.share(4, images=4)
        for variant in variants:
            model = make(**VARIANTS[variant], activation_checkpointing=True).train()
            for block in model.layers:
                fully_shard(block)
            state = _trained(fully_shard(model), tokens(4, 12)[rows]).state_dict()
            found[variant] = {name: getattr(t, "full_tensor", lambda t=t: t)().numpy() for name, t in state.items()}
            replicated = torch.nn.parallel.DistributedDataParallel(make(**VARIANTS[variant]).train())
            state = _trained(replicated, tokens(4, 12)[rows]).module.state_dict()
            found[f"{variant}, DDP"] = {name: tensor.numpy() for name, tensor in state.items()}
    return found


@pytest.mark.slow
def test_sharded_blocks_and_replicas_take_the_steps_of_one_process():
    variants = ("lorentz", "learned per layer", "euclidean")
    for case, found in run_in_two_processes(_sharded, variants)[0].items():
        expected = _trained(make(**VARIANTS[case.partition(",")[0]]).train(), tokens(4, 12)).state_dict()
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-4, err_msg=f"{case}: {name}")


def test_precise_attention_under_autocast():
    ids, strong = tokens(2, 12), {"curvature": -10.0}
    exact = make(**strong)(ids)
    with torch.autocast("cpu", torch.bfloat16):
        errors = [(make(**strong, precise=precise)(ids) - exact).square().mean() for precise in (False, True)]
    assert errors[1] < errors[0] / 2


def test_mistakes_are_reported():
    for options, message in (
        ({"context": 0}, "context must be at least 1, got 0"),
        ({"head": "mlr"}, "head must be one of linear, lorentz, got 'mlr'"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**options)
    model = make()
    with pytest.raises(ValueError, match="13 tokens are more than the context of 12"):
        model(tokens(1, 13))
    with pytest.raises(ValueError, match=r"ids must be int64 or int32 \[B, T\], got torch.float32"):
        model(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="T at least 1"):
        model.generate(tokens(1, 0), 3)
    with pytest.raises(ValueError, match="top_k at least 1"):
        model.generate(tokens(1, 1), 3, top_k=0)
    with pytest.raises(ValueError, match="top_p must be above 0 and at most 1, got 0"):
        model.generate(tokens(1, 1), 3, top_p=0)
    with pytest.raises(TypeError, match="prompt_ids must be a tensor, got list"):
        model.generate([1, 2], 3)
    with pytest.raises(ValueError, match="ids must be from 0 to 16, but these are from 2 to 17"):
        model(torch.tensor([[2, 17]]))
    caches = model.make_caches()
    with pytest.raises(ValueError, match="one cache for each of 3 blocks is needed, got 1"):
        model(tokens(1, 3), caches[:1])
    model(tokens(2, 3), caches)
    with pytest.raises(ValueError, match=r"call reset\(\), or use a new cache for another batch"):
        model(tokens(1, 1), caches)  # was computed as if it were two rows


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's tracer reads it
def test_blocks_that_are_compiled_one_by_one_share_their_code(monkeypatch):
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    def compiled(function):
        return torch.compile(function, dynamic=False, backend=count)

    monkeypatch.setattr(transformer, "_compiled", compiled)
    ids = tokens(2, 12)
    for options in ({"layers": 2}, {"layers": 3, "curvature": -0.3}, {"layers": 1, "activation_checkpointing": True}):
        model = make(**options).train()
        loss(model, ids).backward()
        expected = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model.compiles_blocks = True
        loss(model, ids).backward()
        for p, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, gradient)
    assert len(graphs) == 3  # the first norm, all blocks, and blocks with activation checkpointing
    with torch.no_grad():
        loss(model, ids)
    loss(model.eval(), ids)
    assert len(graphs) == 3  # evaluation runs eager code
    with torch._dynamo.config.patch(recompile_limit=1):  # as if other networks had used up torch's limit
        model = make(residual="euclidean").train()
        model.compiles_blocks = True
        loss(model, ids)
    assert len(graphs) == 4
    torch.compiler.reset()
