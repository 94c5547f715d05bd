"""Vectors of queries, keys and values by one kernel, against the formula of each, in the interpreter or on a GPU."""

import pytest
import torch
from torch.nn.utils import prune

from lresnet import Lorentz
from lresnet.geometry.checks import check_everywhere
from lresnet.kernels import disabled, enabled
from lresnet.kernels.tiles import Heads
from lresnet.models import create_model
from lresnet.nn import LorentzAttention, RotaryPositions, lorentz_attention
from lresnet.nn import inner_product_vectors as file
from tests.kernels.cases import DEVICE

pytest.importorskip("triton")


def compiled_on_a_gpu(function):
    """Mark a test that runs compiled code on a GPU: the compiler warns about itself and about TF32."""
    for message in (".*should not be instantiated.*:DeprecationWarning", ".*TensorFloat32.*", ".*_prims_common.*"):
        function = pytest.mark.filterwarnings(f"ignore:{message}")(function)
    return pytest.mark.skipif(DEVICE == "cpu", reason="torch.compile runs kernels on GPUs")(function)


@pytest.fixture(autouse=True)
def kernels():
    with enabled():
        yield


def attention(heads: int = 3, kv_heads: int = 3, head_dim: int = 16, **options: object) -> LorentzAttention:
    torch.manual_seed(0)
    layer = LorentzAttention(
        8, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, manifold=Lorentz(-0.3), **options
    ).to(DEVICE)
    with torch.no_grad():
        layer.in_proj.weight.mul_(3)
        layer.log_temperature.add_(torch.randn(heads, device=DEVICE) * 0.3)
    return layer


def heads_of(layer: LorentzAttention) -> Heads:
    return Heads(layer.num_heads, layer.num_kv_heads, layer.query_features, layer.value_features, layer.head_dim)


def projection(layer: LorentzAttention, batch: int, length: int) -> torch.Tensor:
    """Return a projection whose unused columns are not 0, to see that nothing reads them."""
    slots = layer.num_heads + 2 * layer.num_kv_heads
    return torch.randn(batch, length, slots * layer.head_dim, device=DEVICE) * 2


def both(layer, dtype, *, turned=True, learned=True, batch=2, length=5, half=None):
    """Return vectors and gradients by the kernel and by the formula, in float64 where it is the reference."""
    torch.manual_seed(1)
    joint = projection(layer, batch, length).to(dtype)
    kappa = torch.tensor(0.7, device=DEVICE) if learned else 0.7
    rotary = RotaryPositions(layer.query_features)(torch.arange(length, device=DEVICE)) if turned else None
    if half is not None:
        angles = torch.randn(length, half, device=DEVICE)
        rotary = angles.cos(), angles.sin()
    gradients = None
    found = []
    for function in (by_kernel, by_formula):
        x, own = joint.clone().requires_grad_(), torch.as_tensor(kappa).clone().requires_grad_(learned)
        tau = layer.temperature.detach().clone().requires_grad_()
        given = own if learned else kappa
        vectors = function(layer, x, given, tau, dtype, rotary)
        if gradients is None:
            gradients = [torch.randn(v.shape, device=DEVICE).to(v.dtype) for v in vectors]
        wanted = [x, tau, own] if learned else [x, tau]
        found.append(([v.detach() for v in vectors], torch.autograd.grad(vectors, wanted, gradients)))
    return found


def by_kernel(layer, x, kappa, tau, dtype, rotary):
    assert file.supports_fused_vectors(x, torch.as_tensor(kappa), dtype, rotary, layer.query_features, layer.head_dim)
    return file.fused_vectors(x, kappa, tau, dtype, rotary, heads_of(layer))


def by_formula(layer, x, kappa, tau, dtype, rotary):
    q, k, v = x.unflatten(-1, (-1, layer.head_dim)).split([layer.num_heads, layer.num_kv_heads, layer.num_kv_heads], -2)
    q, k, v = q[..., : layer.query_features], k[..., : layer.query_features], v[..., : layer.value_features]
    turns = None if rotary is None else tuple(t.unsqueeze(-2) for t in rotary)
    return (
        file.query_vectors(q, kappa, tau.unsqueeze(-1), dtype, layer.head_dim, turns),
        file.key_vectors(k, kappa, dtype, layer.head_dim, turns),
        file.value_vectors(v, kappa, dtype, layer.head_dim),
    )


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (4, 2), (1, 1)])
def test_vectors_and_gradients_are_those_of_the_formula_in_float32(heads, kv_heads, turned, learned):
    layer = attention(heads, kv_heads)
    (vectors, gradients), (expected, others) = both(layer, torch.float32, turned=turned, learned=learned, length=37)
    for one, other in zip((*vectors, *gradients), (*expected, *others), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5 * float(other.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("head_dim", "half"),
    [
        (16, 8),  # n = 13: the numbers are in the second half
        (16, 7),  # some of the numbers are beyond the second half
        (16, 6),
        (16, 2),
        (18, 8),  # n = 15
        (64, 32),
        (64, 30),
        (40, 18),
        (72, 32),
        (5, 2),  # n = 2: one coordinate has no partner
    ],
)
def test_tables_of_any_width_that_fits_turn_what_they_turn_in_the_formula(head_dim, half, dtype):
    """Also the angles of coordinates without a partner are random: neither uses them."""
    layer = attention(2, 1, head_dim=head_dim)
    (vectors, gradients), (expected, others) = both(layer, dtype, half=half, length=7)
    step = torch.finfo(dtype).eps
    for one, other in zip((*vectors, *gradients), (*expected, *others), strict=True):
        bound = 2e-5 if dtype == torch.float32 else 4 * step
        torch.testing.assert_close(one, other, rtol=bound, atol=bound * float(other.abs().max()))


@pytest.mark.parametrize("programs", [1, 2, 3, 5])
@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (4, 1)])
def test_a_program_that_computes_several_sequences_finds_the_same(heads, kv_heads, programs, monkeypatch):
    from lresnet.kernels import attention_vectors

    for name in ("attention_vectors_tile", "attention_vectors_backward_tile"):
        tile = getattr(attention_vectors, name)(16, 8)
        tiles = 3 * -(-11 * heads // tile.rows)
        changed = tile._replace(programs=tiles * programs)
        monkeypatch.setattr(attention_vectors, name, lambda width, half, changed=changed: changed)
    layer = attention(heads, kv_heads)
    (vectors, gradients), (expected, others) = both(layer, torch.float32, batch=5, length=11)
    for one, other in zip((*vectors, *gradients), (*expected, *others), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5 * float(other.abs().max()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_vectors_and_gradients_are_those_of_the_formula_in_half_precision(dtype):
    layer = attention(2, 1, head_dim=24)
    (vectors, gradients), (expected, others) = both(layer, dtype, length=19)
    step = torch.finfo(dtype).eps
    for one, other in zip(vectors, expected, strict=True):
        assert one.dtype == other.dtype == dtype
        n = layer.query_features if one is not vectors[2] else layer.value_features
        torch.testing.assert_close(one[..., :n].float(), other[..., :n].float(), rtol=step, atol=1e-6)
        # Two parts add up to the time of the rounded coordinates, far beyond the accuracy of the dtype.
        square = one[..., :n].double().square().sum(-1)
        if one is vectors[1]:
            total = one[..., n].double() + one[..., n + 1].double()
            radius = 0.7**-0.5
            torch.testing.assert_close(
                total, square / ((square + 1 / 0.7).sqrt() + radius), rtol=4 * step**2, atol=1e-6
            )
            assert torch.equal(one[..., n], one[..., n + 2])
        if one is vectors[0]:
            assert torch.equal(one[..., n], one[..., n + 1])
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, other, rtol=4 * step, atol=2 * step * float(other.abs().max()))


def test_the_kernel_reads_projections_and_gradients_with_any_strides():
    layer = attention(2, 2)
    sizes, contiguous = heads_of(layer), projection(layer, 3, 7)
    wide = torch.cat([contiguous, contiguous[..., :5]], -1).transpose(0, 1)
    joint = wide[..., : contiguous.shape[-1]].transpose(0, 1).detach().requires_grad_()
    tau = layer.temperature.detach()
    vectors = file.fused_vectors(joint, 0.7, tau, torch.float32, None, sizes)
    # Gradients of attention are by head: [B, H, T, width] in memory.
    g = [torch.randn(3, v.shape[2], 7, v.shape[3], device=DEVICE).transpose(1, 2) for v in vectors]
    (found,) = torch.autograd.grad(vectors, joint, g)
    same = joint.detach().contiguous().requires_grad_()
    others = by_formula(layer, same, 0.7, tau, torch.float32, None)
    (expected,) = torch.autograd.grad(others, same, [t.contiguous() for t in g])
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


def test_second_derivatives_are_those_of_the_formula():
    layer = attention(2, 1, head_dim=8)
    joint = projection(layer, 1, 4)
    rotary = RotaryPositions(layer.query_features)(torch.arange(4, device=DEVICE))
    found = []
    for function in (by_kernel, by_formula):
        x = joint.clone().requires_grad_()
        tau, kappa = (
            t.clone().requires_grad_() for t in (layer.temperature.detach(), torch.tensor(0.7, device=DEVICE))
        )
        vectors = function(layer, x, kappa, tau, torch.float32, rotary)
        total = sum((v * v * (i + 1)).sum() for i, v in enumerate(vectors))
        first = torch.autograd.grad(total, [x, tau, kappa], create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), [x, tau, kappa]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


def test_a_layer_with_kernels_computes_what_it_computes_without():
    layer, x = attention(4, 2, bias=True), torch.randn(2, 9, 8, device=DEVICE)
    rotary = RotaryPositions(layer.query_features)(torch.arange(9, device=DEVICE))
    found = layer(x, is_causal=True, rotary=rotary)
    found.square().sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    with disabled():
        expected = layer(x, is_causal=True, rotary=rotary)
        expected.square().sum().backward()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for one, p in zip(gradients, layer.parameters(), strict=True):
        torch.testing.assert_close(one, p.grad, rtol=1e-3, atol=1e-4 * float(p.grad.abs().max()))


def test_the_layer_uses_one_kernel_forward_and_one_backward(monkeypatch):
    from lresnet.kernels import attention_vectors

    seen = []
    original = attention_vectors.launch
    monkeypatch.setattr(attention_vectors, "launch", lambda *a, **o: (seen.append(a[0].fn.__name__), original(*a, **o)))
    layer, x = attention(), torch.randn(2, 9, 8, device=DEVICE)
    layer(x).sum().backward()
    assert seen == ["_forward", "_backward"]
    layer(x, x)  # cross attention has three projections
    with torch.no_grad():
        layer.double()(x.double())
    assert len(seen) == 2


class Adapted(torch.nn.Module):
    """A linear map with a correction of low rank (LoRA), with the attributes of the map."""

    def __init__(self, base):
        super().__init__()
        self.base, self.correction = base, torch.nn.Linear(base.in_features, base.out_features, False, DEVICE)
        self.weight, self.bias = base.weight, base.bias

    def forward(self, x):
        return self.base(x) + self.correction(x)


@pytest.mark.parametrize("change", ["hook", "pruned", "adapter", "replaced"])
def test_a_projection_that_is_not_a_plain_linear_map_is_called(change):
    layer, x = attention(), torch.randn(2, 6, 8, device=DEVICE)
    before = layer(x), layer(x, x)
    if change == "hook":
        layer.in_proj.register_forward_hook(lambda module, inputs, result: 2 * result)
    elif change == "pruned":
        prune.l1_unstructured(layer.in_proj, "weight", 0.5)
        with torch.no_grad():
            layer.in_proj.weight_orig.mul_(2)  # as an optimiser does: the next call computes the weight
    elif change == "adapter":
        layer.in_proj = Adapted(layer.in_proj)
    else:
        layer.in_proj.forward = lambda x: torch.nn.functional.linear(x, 2 * layer.in_proj.weight)
    found = layer(x), layer(x, x)
    q, k, v = layer.in_proj(x).split(layer._rows, -1)
    with disabled():
        plain = lorentz_attention(
            *(t.unflatten(-1, (3, -1)).transpose(1, 2) for t in (q, k, v)), K=-0.3, temperature=layer.temperature
        )
    excess = file.time_excess(plain, 0.3)[1]
    expected = layer.out_proj(torch.cat([plain, excess], -1).transpose(1, 2).flatten(-2))
    for one, other in zip(found, before, strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(one, other, rtol=1e-2)


@pytest.mark.parametrize("rotary", ["by batch", "learned"])
def test_positions_that_the_kernel_does_not_read_take_the_formula(rotary):
    layer, x = attention(), torch.randn(2, 6, 8, device=DEVICE)
    cos, sin = RotaryPositions(layer.query_features)(torch.arange(6, device=DEVICE))
    expected = layer(x, rotary=(cos, sin))
    if rotary == "by batch":
        cos, sin = (t.expand(2, 6, -1) for t in (cos, sin))
    else:
        cos = cos.clone().requires_grad_()
    torch.testing.assert_close(layer(x, rotary=(cos, sin)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pairs", [9, 30])
def test_rotary_positions_with_more_pairs_than_a_head_has_are_reported(pairs):
    """The kernel would write beyond the head."""
    layer, x = attention(), torch.randn(2, 5, 8, device=DEVICE)
    assert layer.query_features == 13
    with pytest.raises(ValueError, match="a head of 13 coordinates has at most 8"):
        layer(x, rotary=(torch.ones(5, pairs, device=DEVICE), torch.zeros(5, pairs, device=DEVICE)))


def test_a_temperature_that_is_not_a_number_is_reported():
    layer, x = attention(), torch.randn(2, 5, 8, device=DEVICE)
    with torch.no_grad():
        layer.log_temperature[1] = torch.nan
    with check_everywhere(), pytest.raises(ValueError, match="temperature must be positive"):
        layer(x)


def test_a_fixed_curvature_is_not_rounded_to_the_default_dtype():
    layer = attention()
    joint, tau = projection(layer, 2, 5), layer.temperature.detach()
    expected = file.fused_vectors(joint, 0.7, tau, torch.float32, None, heads_of(layer))
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = file.fused_vectors(joint, 0.7, tau, torch.float32, None, heads_of(layer))
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_offsets_of_gradients_by_head_may_exceed_32_bits():
    from lresnet.kernels import attention_vectors as kernel

    heads, factor, step = kernel.Heads(3, 1, 5, 7, 8), torch.ones(3, device=DEVICE), 2**30
    x = torch.randn(1, 2, heads.columns, device=DEVICE)
    vectors = kernel.forward(x, factor, factor[0], None, None, torch.bfloat16, heads)
    gradients = [torch.randn_like(v) for v in vectors]
    memory = torch.empty(2 * step + 16, dtype=torch.bfloat16, device=DEVICE)  # almost all of it is never touched
    apart = memory.as_strided((1, 2, 3, 8), (0, 8, step, 1)).copy_(gradients[0])
    options = vectors, factor, factor[0], None, None, torch.float32, heads, False
    found, _ = kernel.backward([apart, *gradients[1:]], *options)
    expected, _ = kernel.backward(gradients, *options)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("norm", [1.0, 1e2, 1e4, 1e6])
def test_a_query_that_sees_one_key_gets_its_value(norm):
    """The centroid compares the excess of the kernel with that of torch, whose sums have another order."""
    layer = attention(2, 2, head_dim=72)
    x = torch.randn(4, 3, 8, device=DEVICE)
    x = x * (norm / x.norm(dim=-1, keepdim=True))
    for K in (-1.0, -10.0):
        layer.manifold = Lorentz(K)
        found = layer(x, is_causal=True)[:, 0]
        with disabled():
            torch.testing.assert_close(found, layer(x[:, :1])[:, 0], rtol=1e-4, atol=1e-5 * norm)


@compiled_on_a_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("moved", [False, True])
def test_a_compiled_layer_on_a_gpu_computes_what_it_computes_in_eager_mode(dtype, moved):
    """Also if nobody moved the manifold to the GPU: compiled code read its tensor there by a CPU address."""
    layer = LorentzAttention(128, num_heads=2, manifold=Lorentz(-0.01))
    layer = layer.to(DEVICE, dtype)
    if moved:
        layer.manifold.to(DEVICE)
    x = torch.randn(2, 70, 128, device=DEVICE, dtype=dtype)
    rotary = RotaryPositions(layer.query_features)(torch.arange(70, device=DEVICE))
    expected = layer(x, is_causal=True, rotary=rotary)
    expected.float().square().sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    found = torch.compile(layer, fullgraph=True)(x, is_causal=True, rotary=rotary)
    found.float().square().sum().backward()
    bound = 1e-4 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound * float(expected.detach().abs().max()))
    for one, p in zip(gradients, layer.parameters(), strict=True):
        torch.testing.assert_close(one, p.grad, rtol=bound, atol=2 * bound * float(p.grad.abs().max()))


@compiled_on_a_gpu
@pytest.mark.parametrize("name", ["lorentz_gpt", "lorentz_vit"])
def test_a_compiled_network_on_a_gpu_has_the_gradients_of_the_formulas(name):
    torch.manual_seed(0)
    options = {"vocab_size": 11, "context": 16} if name == "lorentz_gpt" else {"num_classes": 3}
    model = create_model(name, layers=2, width=64, heads=2, **options).to(DEVICE)
    ids = torch.randint(11, (2, 16), device=DEVICE)
    x = ids if name == "lorentz_gpt" else torch.randn(2, 3, 32, 32, device=DEVICE)
    with disabled():
        expected = model(x)
        expected.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    found = torch.compile(model, fullgraph=True)(x)
    found.square().sum().backward()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * float(expected.detach().abs().max()))
    for one, p in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(one, p.grad, rtol=1e-2, atol=1e-3 * float(p.grad.abs().max()))


@compiled_on_a_gpu
def test_compiled_code_launches_the_kernels_without_an_operator():
    layer = LorentzAttention(128, num_heads=2, manifold=Lorentz(-0.01).to(DEVICE)).to(DEVICE)
    compiled, x = torch.compile(layer, fullgraph=True), torch.randn(2, 70, 128, device=DEVICE)
    compiled(x, is_causal=True).sum().backward()
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as profile:
        compiled(x, is_causal=True).sum().backward()
        torch.cuda.synchronize()
    names = [event.name for event in profile.events()]
    assert [name for name in names if name.startswith("lresnet::")] == []
    for kernel in ("_forward", "_backward"):
        assert any(name.startswith(kernel) for name in names)


@compiled_on_a_gpu
@pytest.mark.parametrize("options", [{"mode": "reduce-overhead"}, {"dynamic": True}, {"backend": "aot_eager"}])
def test_a_layer_computes_the_same_however_it_is_compiled(options):
    """Among the ways is a CUDA graph, which is captured in the second step and replayed from the third on."""
    layer = LorentzAttention(128, num_heads=2, manifold=Lorentz(-0.01).to(DEVICE)).to(DEVICE)
    rotary = RotaryPositions(layer.query_features)(torch.arange(70, device=DEVICE))
    compiled = torch.compile(layer, fullgraph=True, **options)
    for _ in range(4):
        x = torch.randn(2, 70, 128, device=DEVICE)
        found = []
        for function in (compiled, layer):
            layer.zero_grad()
            value = function(x, is_causal=True, rotary=rotary)
            value.square().sum().backward()
            found.append([value.detach().clone(), *(p.grad.clone() for p in layer.parameters())])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-4 * float(other.abs().max()))


@compiled_on_a_gpu
def test_a_compiled_layer_can_be_captured_as_a_cuda_graph():
    layer = LorentzAttention(128, num_heads=2, manifold=Lorentz(-0.01).to(DEVICE)).to(DEVICE)
    compiled, x = torch.compile(layer, fullgraph=True), torch.randn(2, 70, 128, device=DEVICE)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compiled(x, is_causal=True)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = compiled(x, is_causal=True)
        x.normal_()
        graph.replay()
        torch.testing.assert_close(found, layer(x, is_causal=True), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_the_operator_of_no_token_and_of_meta_tensors_returns_shapes(shape):
    pytest.importorskip("triton")
    from lresnet.kernels import attention_vectors

    heads = Heads(2, 2, 13, 15, 16)
    for device in ("cpu", "meta"):
        x, numbers = torch.empty(*shape, heads.columns, device=device), torch.ones(2, device=device)
        found = attention_vectors.attention_vectors(x, numbers, numbers[0], None, None, torch.float32, *heads)
        assert [v.shape for v in found] == [(*shape, 2, 16)] * 3
