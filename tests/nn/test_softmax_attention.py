"""Softmax attention: against softmax and centroid in float64 and mpmath; masks, caches, half precision, extremes."""

import copy
import math
import pickle
import warnings

import mpmath
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import lresnet
from lresnet import Lorentz
from lresnet.nn import KeyValueCache, LorentzAttention, LorentzLinearAttention, RotaryPositions, lorentz_attention
from lresnet.nn import inner_product_vectors as vectors
from lresnet.testing import assert_compiles, assert_finite_gradients, assert_isometry_equivariant, assert_on_manifold

CURVATURES = (-1e-4, -0.1, -1.0, -10.0)


def oracle(q, k, v, K, tau, seen=None):
    """Softmax of Lorentzian inner products, then the weighted centroid, from lifted vectors in float64."""
    M = Lorentz(K)
    q, k, v = (M.lift(t.double()) for t in (q, k, v))
    sign = torch.ones(q.shape[-1], dtype=torch.float64)
    sign[0] = -1
    scores = (q * sign) @ k.mT / torch.as_tensor(tau, dtype=torch.float64)
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    s = scores.softmax(-1) @ v
    norm = (-K * (s[..., :1].square() - s[..., 1:].square().sum(-1, keepdim=True))).sqrt()
    return s[..., 1:] / norm


def points(*shape, norm=2.0, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).mul(norm / shape[-1] ** 0.5).to(dtype)


def qkv(n=6, m=5, queries=7, keys=9, heads=2, **options):
    return (
        points(3, heads, queries, n, seed=1, **options),
        points(3, heads, keys, n, seed=2, **options),
        points(3, heads, keys, m, seed=3, **options),
    )


# --- The function ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_softmax_and_centroid(K, dtype):
    q, k, v = qkv(dtype=dtype)
    expected = oracle(q, k, v, K, math.sqrt(6))
    bound = 1e-5 if dtype == torch.float32 else 1e-10  # the oracle subtracts times near 100
    torch.testing.assert_close(lorentz_attention(q, k, v, K=K).double(), expected, rtol=bound, atol=bound)
    tau = torch.tensor([0.5, 3.0], dtype=dtype)
    expected = oracle(q, k, v, K, tau.view(2, 1, 1))
    torch.testing.assert_close(
        lorentz_attention(q, k, v, K=K, temperature=tau).double(), expected, rtol=bound, atol=bound
    )
    assert_on_manifold(lorentz_attention(q, k, v, K=K), Lorentz(K))


def test_agrees_with_mpmath_at_50_digits():
    mpmath.mp.dps = 50
    K, (q, k, v) = mpmath.mpf("-0.3"), qkv(queries=1, keys=4, dtype=torch.float64)
    q, k, v = q[0, 0], k[0, 0], v[0, 0]

    def lift(row):
        x = [mpmath.mpf(float(a)) for a in row]
        return [mpmath.sqrt(sum(a * a for a in x) - 1 / K), *x]

    query = lift(q[0])
    scores = [sum(a * b for a, b in zip(query[1:], p[1:], strict=True)) - query[0] * p[0] for p in map(lift, k)]
    weights = [mpmath.exp(s / 2) for s in scores]
    s = [sum(w * p[i] for w, p in zip(weights, map(lift, v), strict=True)) for i in range(6)]
    norm = mpmath.sqrt(-K * (s[0] ** 2 - sum(a * a for a in s[1:])))
    expected = torch.tensor([float(a / norm) for a in s[1:]], dtype=torch.float64)
    result = lorentz_attention(q, k, v, K=-0.3, temperature=2.0)[0]
    torch.testing.assert_close(result, expected, rtol=1e-14, atol=1e-15)


def test_is_equivariant_under_lorentz_transforms():
    q, k, v = qkv(n=5, m=5, dtype=torch.float64)
    M = Lorentz(-0.7)
    assert_isometry_equivariant(lambda *t: lorentz_attention(*t, K=-0.7), M, q, k, v, tolerance=1e-11)


def test_curvature_0_is_l2_attention_with_the_mean_and_differs_from_dot_products():
    q, k, v = qkv(dtype=torch.float64)
    flat = (-torch.cdist(q, k).square() / 2 / 1.7).softmax(-1) @ v
    gaps = [(lorentz_attention(q, k, v, K=K, temperature=1.7) - flat).abs().max() for K in (-1e-3, -1e-4, -1e-5)]
    assert gaps[2] < 1e-4
    assert 9 < gaps[0] / gaps[1] < 11  # the difference is proportional to the curvature
    assert (scaled_dot_product_attention(q, k, v, scale=1 / 1.7) - flat).abs().max() > 0.1
    equal = torch.nn.functional.normalize(k, dim=-1)  # with keys of one norm both are the same
    near = lorentz_attention(q, equal, v, K=-1e-7, temperature=1.7)
    torch.testing.assert_close(near, scaled_dot_product_attention(q, equal, v, scale=1 / 1.7), rtol=1e-5, atol=1e-5)


def test_gradients_in_every_argument():
    q, k, v = (t[:1].requires_grad_() for t in qkv(n=2, m=3, queries=2, keys=3, dtype=torch.float64))
    K = torch.tensor(-0.4, dtype=torch.float64, requires_grad=True)
    tau = torch.tensor([0.5, 3.0], dtype=torch.float64, requires_grad=True)

    def f(q, k, v, K, tau):
        return lorentz_attention(q, k, v, K=K, temperature=tau, is_causal=True)

    assert torch.autograd.gradcheck(f, (q, k, v, K, tau))
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels of torch have no second derivative
        assert torch.autograd.gradgradcheck(f, (q, k, v, K, tau))


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("norm", [0.0, 1e-20, 1e-3, 1e4, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_and_gradients_are_finite_up_to_norms_of_a_million(K, norm, dtype):
    inputs = qkv(norm=norm, dtype=dtype)
    assert_finite_gradients(lambda *t: lorentz_attention(*t, K=K), *inputs)
    assert_finite_gradients(lambda *t: lorentz_attention(*t, K=K, is_causal=True), *(t[..., :1, :] for t in inputs))


def test_a_sequence_of_one_returns_its_value():
    for K, norm in ((-1e-4, 30.0), (-1.0, 1.0), (-10.0, 10.0)):
        q, k, v = qkv(queries=1, keys=1, norm=norm)
        torch.testing.assert_close(lorentz_attention(q, k, v, K=K), v, rtol=1e-3 if norm == 10 else 1e-5, atol=1e-6)
    layer = LorentzAttention(16, num_heads=2, manifold=Lorentz(-1.0))
    assert layer(torch.randn(3, 1, 16), is_causal=True).isfinite().all()


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_queries_that_see_nothing_are_at_the_origin_with_gradients_of_0(kind):
    q, k, v = (t.requires_grad_() for t in qkv())
    seen = torch.rand(3, 1, 7, 9, generator=torch.Generator().manual_seed(0)) < 0.5
    seen[:, :, 2] = False
    seen[0] = False  # a whole sequence of padding
    seen[1:, :, 0, 0] = True
    mask = seen if kind == "bool" else torch.zeros(seen.shape).masked_fill(~seen, -math.inf)
    result = lorentz_attention(q, k, v, mask, K=-0.5)
    assert (result[:, :, 2] == 0).all()
    assert (result[0] == 0).all()
    assert result.isfinite().all()
    some = seen.any(-1).expand(3, 2, 7)
    torch.testing.assert_close(
        result.double()[some], oracle(q, k, v, -0.5, math.sqrt(6), seen)[some], rtol=1e-5, atol=1e-6
    )
    result.square().sum().backward()
    for tensor in (q, k, v):
        assert tensor.grad.isfinite().all()
        assert (tensor.grad[0] == 0).all()
    assert (q.grad[:, :, 2] == 0).all()
    nothing = lorentz_attention(q, k[..., :0, :], v[..., :0, :], K=-0.5)
    assert nothing.shape == (3, 2, 7, 5)
    assert (nothing == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_mask_that_rounds_to_minus_infinity_hides_everything(dtype):
    q, k, v = (t.requires_grad_() for t in qkv(n=13, m=15, dtype=dtype))
    mask = torch.zeros(3, 1, 7, 9)
    mask[:, :, 2] = torch.finfo(torch.float32).min  # as transformers writes masks
    result = lorentz_attention(q, k, v, mask)
    assert (result[:, :, 2] == 0).all()
    assert result.isfinite().all()
    result.square().sum().backward()
    assert (q.grad[:, :, 2] == 0).all()


def test_causal_and_mask_together_and_each_alone():
    q, k, v = qkv(queries=9)
    seen = torch.rand(3, 1, 1, 9, generator=torch.Generator().manual_seed(1)) < 0.7
    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    both = lorentz_attention(q, k, v, seen, True)
    torch.testing.assert_close(both, lorentz_attention(q, k, v, seen & causal))
    added = torch.zeros(3, 1, 1, 9).masked_fill(~seen, -math.inf)
    torch.testing.assert_close(both, lorentz_attention(q, k, v, added, True))
    torch.testing.assert_close(
        lorentz_attention(q, k, v, is_causal=True), lorentz_attention(q, k, v, causal), rtol=1e-5, atol=1e-6
    )


def test_grouped_heads_are_repeated_keys_and_values():
    q, k, v = qkv(heads=4)
    k, v = k[:, :2], v[:, :2]
    repeated = (t.repeat_interleave(2, 1) for t in (k, v))
    torch.testing.assert_close(lorentz_attention(q, k, v, enable_gqa=True), lorentz_attention(q, *repeated))


# --- Half precision --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "bound"), [(1.0, 3e-5), (10.0, 3e-3), (30.0, 3e-2)])
def test_split_scores_in_bfloat16_have_the_stated_error(norm, bound):
    """Curvature -1/64; beside it what plain bfloat16 times and unsplit excesses give."""
    kappa = 1 / 64
    q, k = (points(1000, 61, norm=norm, dtype=torch.bfloat16, seed=seed) for seed in (1, 2))
    products = vectors.query_vectors(q, kappa, 1.0, torch.bfloat16, 64).double() @ (
        vectors.key_vectors(k, kappa, torch.bfloat16, 64).double().mT
    )
    Q, K = q.double(), k.double()
    (q_t, _), (k_t, k_e) = vectors.time_excess(Q, kappa), vectors.time_excess(K, kappa)
    exact = Q @ K.mT - q_t * k_e.mT
    assert (products - exact).abs().max() < bound
    plain = Q @ K.mT - q_t.bfloat16().double() * k_t.bfloat16().double().mT
    unsplit = Q @ K.mT - q_t.bfloat16().double() * k_e.bfloat16().double().mT
    assert (plain - (exact - q_t / kappa**0.5)).abs().max() > 50 * bound
    assert (unsplit - exact).abs().max() > 50 * bound


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_within_the_stated_error_of_its_rounded_inputs(dtype):
    q, k, v = qkv(n=61, m=63, norm=8.0, dtype=dtype)
    K = -2 / 64  # kappa |v|^2 = 2
    exact = oracle(q, k, v, K, math.sqrt(61))
    result = lorentz_attention(q, k, v, K=K)
    assert result.dtype == dtype
    assert (result.double() - exact).norm(dim=-1).div(exact.norm(dim=-1)).max() < 2e-2
    assert (result.double().norm(dim=-1) / exact.norm(dim=-1) - 1).abs().max() < 1e-2
    precise = lorentz_attention(q, k, v, K=K, precise=True)
    assert precise.dtype == dtype
    assert (precise.double() - exact).norm(dim=-1).div(exact.norm(dim=-1)).max() < torch.finfo(dtype).eps


@pytest.mark.parametrize("spread", [1.0, 0.1, 0.0])  # values apart, near each other, equal
def test_the_normaliser_in_bfloat16_has_the_stated_error(spread):
    kappa = 1 / 64
    q, k, v = qkv(n=61, m=63, queries=64, keys=64, norm=8.0, dtype=torch.float64)
    v = v[:, :, :1] + spread * v
    v = (v / v.norm(dim=-1, keepdim=True) * math.sqrt(2 / kappa)).bfloat16()  # kappa |v|^2 = 2

    def normaliser(dtype):
        rows = (
            vectors.query_vectors(q.bfloat16().to(dtype), kappa, 8.0, dtype, 64),
            vectors.key_vectors(k.bfloat16().to(dtype), kappa, dtype, 64),
            vectors.value_vectors(v.to(dtype), kappa, dtype, 64),
        )
        mean = scaled_dot_product_attention(*rows, scale=1.0)
        space = mean[..., :63].to(vectors.wide_dtype(dtype))
        return (space / vectors.centroids(mean.to(space.dtype), 63, kappa, False))[..., 0].double()

    exact = normaliser(torch.float64)
    assert (normaliser(torch.bfloat16) / exact - 1).abs().max() < 6e-3


def test_far_values_need_precise_in_bfloat16():
    q, k, v = qkv(n=61, m=63, keys=1, norm=80.0, dtype=torch.bfloat16)  # one value: the result is that value
    value = v.expand(3, 2, 7, 63).double()

    def error(**options):
        result = lorentz_attention(q, k, v, K=-1.0, **options).double()
        return float((result.norm(dim=-1) / value.norm(dim=-1) - 1).abs().max())

    assert error(precise=True) < 1e-2
    assert error() > 0.1


def test_autocast_computes_in_half_precision_and_keeps_times():
    q, k, v = qkv(n=61, m=63, norm=8.0)
    with torch.autocast("cpu", torch.bfloat16):
        result = lorentz_attention(q, k, v, K=-1 / 64)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), lorentz_attention(q, k, v, K=-1 / 64), rtol=0.1, atol=0.05)


# --- The layer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", ["lorentz", "l2", "dot"])
def test_layer_is_its_formula(scores):
    torch.manual_seed(0)
    M = Lorentz(-0.3)
    layer = LorentzAttention(24, num_heads=2, scores=scores, bias=True, manifold=M).double()
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    H, n, m = 2, layer.query_features, layer.value_features
    assert (n, m) == {"lorentz": (9, 11), "l2": (9, 12), "dot": (12, 12)}[scores]
    q, k, v = layer.in_proj(x).split([H * n, H * n, H * m], -1)
    q, k, v = (t.unflatten(-1, (H, -1)).transpose(1, 2) for t in (q, k, v))
    tau = layer.temperature.double().view(2, 1, 1)
    torch.testing.assert_close(tau.flatten(), torch.full((2,), math.sqrt(12), dtype=torch.float64))
    if scores == "lorentz":
        heads = lorentz_attention(q, k, v, K=-0.3, temperature=math.sqrt(12))
        heads = torch.cat([heads, M.time(heads).unsqueeze(-1) - 0.3**-0.5], -1)
    else:
        raw = q @ k.mT if scores == "dot" else -torch.cdist(q, k).square() / 2
        heads = (raw / tau).softmax(-1) @ v
    expected = layer.out_proj(heads.transpose(1, 2).flatten(-2))
    torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scores", ["lorentz", "l2", "dot"])
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_cached_steps_equal_the_causal_pass(scores, kv_heads):
    torch.manual_seed(0)
    layer = LorentzAttention(64, num_heads=4, num_kv_heads=kv_heads, scores=scores, manifold=Lorentz(-0.3))
    positions, x = RotaryPositions(layer.query_features), torch.randn(2, 9, 64)
    full = layer(x, is_causal=True, rotary=positions(torch.arange(9)))
    cache, parts = KeyValueCache(9), []
    for start, end in ((0, 4), (4, 5), (5, 9)):  # several new positions behind cached ones, and one
        rotary = positions(torch.arange(start, end))
        parts.append(layer(x[:, start:end], is_causal=True, rotary=rotary, cache=cache))
    torch.testing.assert_close(torch.cat(parts, 1), full, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="the cache holds 9 positions, but 10 are needed"):
        layer(x[:, :1], cache=cache)


def test_rotary_scores_depend_on_differences_of_positions_only():
    torch.manual_seed(0)
    layer = LorentzAttention(64, num_heads=4, manifold=Lorentz(-0.3)).double()
    positions, x = RotaryPositions(layer.query_features), torch.randn(2, 9, 64, dtype=torch.float64)
    places = torch.arange(9, dtype=torch.float64)
    result = layer(x, rotary=positions(places))
    torch.testing.assert_close(layer(x, rotary=positions(places + 100)), result, rtol=1e-9, atol=1e-9)
    assert (layer(x) - result).abs().max() > 1e-3
    per_sequence = positions(torch.stack([places, places + 3]))
    torch.testing.assert_close(layer(x, rotary=per_sequence), result, rtol=1e-9, atol=1e-9)


def test_cross_attention_of_a_sequence_to_itself_is_self_attention():
    torch.manual_seed(0)
    layer = LorentzAttention(24, num_heads=2, bias=True, manifold=Lorentz(-0.3))
    x, memory = torch.randn(2, 5, 24), torch.randn(2, 8, 24)
    torch.testing.assert_close(layer(x, x), layer(x))
    torch.testing.assert_close(layer(x, memory, memory), layer(x, memory))
    assert layer(x, memory).shape == (2, 5, 24)
    with pytest.raises(ValueError, match="are for self attention"):
        layer(x, memory, cache=KeyValueCache(4))
    with pytest.raises(ValueError, match="a value was given without a key"):
        layer(x, None, memory)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer
def test_layer_compiles_and_has_finite_gradients():
    torch.manual_seed(0)
    layer = LorentzAttention(64, num_heads=4, num_kv_heads=2, manifold=Lorentz(-0.3, learnable=True))
    assert_compiles(lambda x: layer(x, is_causal=True), torch.randn(2, 6, 64))
    for x in (torch.zeros(2, 6, 64), torch.full((2, 6, 64), 1e5)):
        assert_finite_gradients(lambda x: layer(x, is_causal=True), x)


def test_the_learned_curvature_and_temperature_have_gradients():
    M = Lorentz(-0.3, learnable=True)
    layer = LorentzAttention(64, num_heads=4, manifold=M)
    layer(torch.randn(2, 6, 64)).square().sum().backward()
    assert M.log_kappa.grad.abs() > 0
    assert (layer.log_temperature.grad != 0).all()
    groups = lresnet.optim.parameter_groups(layer)
    assert list(groups.geometric) == ["log_temperature"]


def test_mistakes_are_reported():
    M = Lorentz(-1.0)
    for options, message in (
        ({"num_heads": 3}, "embed_dim=64 is not a multiple of num_heads=3"),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_kv_heads must divide num_heads"),
        ({"num_heads": 32}, "a head has 2 coordinates, but needs at least 4 with scores='lorentz'"),
        ({"num_heads": 4, "scores": "cosine"}, "scores must be one of lorentz, l2, dot, got 'cosine'"),
    ):
        with pytest.raises(ValueError, match=message):
            LorentzAttention(64, **options, manifold=M)
    with pytest.raises(ValueError, match="LorentzAttention was built for points of dimension 64"):
        LorentzAttention(64, num_heads=4, manifold=M)(torch.randn(2, 5, 65))
    with pytest.raises(ValueError, match=r"LorentzAttention \(key\) was built for points of dimension 64"):
        LorentzAttention(64, num_heads=4, manifold=M)(torch.randn(2, 5, 64), torch.randn(2, 5, 63))
    with pytest.raises(ValueError, match="temperature must be positive and finite, got 0"):
        lorentz_attention(*qkv(), temperature=0)
    with pytest.raises(ValueError, match=r"or one for each head of query \(3, 2, 7, 6\), got shape \(3,\)"):
        lorentz_attention(*qkv(), temperature=torch.ones(3))


def test_arguments_that_do_not_fit_together_are_reported():
    """All but the heads and the one-dimensional query were computed to something before they were checked."""
    q, k, v = qkv(heads=4)
    for arguments, error, message in (
        ((q, k[..., :5], v), ValueError, "equally many coordinates, got 6 and 5"),
        ((q, k, v[:, :2]), ValueError, "key and value must have equally many heads, got 4 and 2"),
        ((q, k[..., :8, :], v), ValueError, "the same length, got 8 and 9"),
        ((q, k.double(), v), TypeError, "must have one dtype, got torch.float32, torch.float64 and torch.float32"),
        ((q, k[:, :2], v[:, :2]), ValueError, "query has 4 heads and key 2; pass enable_gqa=True"),
        ((q[0, 0, 0], k, v), ValueError, r"query must have shape \[..., length, coordinates\], got \(6,\)"),
        ((q, k, v, torch.ones(7, 9, dtype=torch.int64)), TypeError, r"got torch.int64. Convert .* by mask.bool\(\)"),
        ((q, k, v, torch.ones(3, 9, dtype=torch.bool)), ValueError, r"is given as mask\[:, None, None\]"),
    ):
        with pytest.raises(error, match=message):
            lorentz_attention(*arguments)
    with pytest.raises(ValueError, match="must divide those of query, got 3 and 3 for 4"):
        lorentz_attention(q, k[:, :3], v[:, :3], enable_gqa=True)


def test_a_cache_of_another_batch_is_reported_until_it_is_reset():
    layer = LorentzAttention(64, num_heads=4, manifold=Lorentz(-0.3))
    x, cache = torch.randn(2, 3, 64), KeyValueCache(9)
    layer(x, cache=cache)
    for other in (x[:1], x.expand(2, 2, 3, 64)):
        with pytest.raises(ValueError, match=r"call reset\(\), or use a new cache for another batch"):
            layer(other, cache=cache)
    cache.reset()
    torch.testing.assert_close(layer(x[:1], cache=cache), layer(x[:1]))


def test_the_released_meaning_of_the_name_still_works_and_warns():
    M = Lorentz(-1.0)
    for call in (
        lambda: LorentzAttention(8, 4, manifold=M),
        lambda: LorentzAttention(8, 4, heads=2, manifold=M),
        lambda: LorentzAttention(in_features=8, out_features=4, manifold=M),
    ):
        with pytest.warns(
            DeprecationWarning, match=r"removed in lresnet 0\.4; use lresnet\.nn\.LorentzLinearAttention"
        ):
            layer = call()
        assert type(layer) is LorentzLinearAttention
        assert layer(torch.randn(10, 8)).shape == (10, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = LorentzAttention(8, num_heads=1, manifold=M)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert type(other) is LorentzAttention
