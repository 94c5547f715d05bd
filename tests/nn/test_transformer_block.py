"""Norms, rotary positions, the gated perceptron, embeddings and the transformer block, against their formulas."""

import pytest
import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention, silu

from lresnet import Lorentz
from lresnet.functional import lorentz_residual
from lresnet.nn import (
    LorentzEmbedding,
    LorentzGatedMLP,
    LorentzLayerNorm,
    LorentzPatchEmbedding,
    LorentzRMSNorm,
    LorentzTransformerBlock,
    RotaryPositions,
    apply_rotary,
)
from lresnet.residual import lorentz
from lresnet.testing import assert_finite_gradients, assert_on_manifold

M = Lorentz(-0.4)


def test_rms_norm_moves_points_along_the_radius_to_one_distance():
    norm, x = LorentzRMSNorm(16, manifold=M), torch.randn(5, 16)
    y = norm(x)
    torch.testing.assert_close(y, 4 * torch.nn.functional.normalize(x, dim=-1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(M.dist0(y), torch.full((5,), 16.0).mul(0.4).sqrt().asinh() / 0.4**0.5)
    for points in (torch.zeros(2, 16), torch.full((2, 16), 1e6)):
        assert_finite_gradients(norm, points)
    assert (norm(torch.zeros(2, 16)) == 0).all()
    assert norm.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    assert_on_manifold(y, M)


def test_layer_norm_is_that_of_the_coordinates():
    norm, x = LorentzLayerNorm(16, manifold=M), torch.randn(5, 16)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    torch.testing.assert_close(norm(x), layer_norm(x, (16,), norm.weight, norm.bias))
    torch.testing.assert_close(LorentzLayerNorm(16, bias=False, manifold=M)(x), layer_norm(x, (16,)))
    assert_finite_gradients(norm, torch.zeros(2, 16))


def test_rotary_positions_keep_norms_and_are_complex_factors():
    positions = RotaryPositions(9, base=50.0)
    x, p = torch.randn(6, 9, dtype=torch.float64), torch.tensor([0, 1, 2, 5, 40, 1000])
    cos, sin = positions(p)
    y = apply_rotary(x, cos.double(), sin.double())
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1), rtol=1e-6, atol=1e-6)
    angles = p[:, None] * 50.0 ** -(torch.arange(4, dtype=torch.float64) / 4)
    expected = torch.complex(x[:, :4], x[:, 4:8]) * torch.polar(torch.ones(6, 4, dtype=torch.float64), angles)
    torch.testing.assert_close(torch.cat([expected.real, expected.imag, x[:, 8:]], -1), y, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(y[0], x[0])


@pytest.mark.parametrize(
    ("n", "half", "pairs"),
    [
        (61, 32, 29),
        (13, 8, 5),
        (29, 16, 13),
        (15, 8, 7),
        (8, 4, 4),
        (64, 32, 32),
        (10, 5, 5),
        (9, 4, 4),
        (1, 0, 0),
        (62, 31, 31),
    ],
)
def test_rotary_positions_turn_pairs_at_a_fixed_distance(n, half, pairs):
    p = torch.tensor([0.0, 1.0, 2.5, 700.0], dtype=torch.float64)
    cos, sin = RotaryPositions(n)(p)
    assert cos.shape == sin.shape == (4, half)
    x = torch.randn(4, n, dtype=torch.float64)
    expected = x.clone()
    for row in range(4):
        turn = torch.eye(n, dtype=torch.float64)
        for i in range(pairs):
            angle = p[row] * 10000.0 ** (-i / pairs)
            turn[i, i] = turn[i + half, i + half] = angle.cos()
            turn[i + half, i] = angle.sin()
            turn[i, i + half] = -angle.sin()
        expected[row] = turn @ x[row]
    y = apply_rotary(x, cos, sin)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(apply_rotary(y, cos, -sin), x, rtol=1e-9, atol=1e-9)


def test_angles_of_coordinates_without_a_partner_are_not_used():
    x, (cos, sin) = torch.randn(5, 13), RotaryPositions(13)(torch.arange(5))
    expected = apply_rotary(x, cos, sin)
    assert torch.equal(expected[:, 5:8], x[:, 5:8])
    cos[:, 5:], sin[:, 5:] = torch.nan, torch.nan
    assert torch.equal(apply_rotary(x, cos, sin), expected)


@pytest.mark.parametrize(("n", "half"), [(60, 32), (12, 8), (13, 9), (2, 3), (0, 1)])
def test_rotary_tables_that_do_not_fit_a_head_are_reported(n, half):
    with pytest.raises(ValueError, match=f"tables of {half} columns, but a head of {n} coordinates"):
        apply_rotary(torch.ones(5, n), torch.ones(5, half), torch.zeros(5, half))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_rotary_angles_do_not_depend_on_the_dtype_of_the_network(dtype):
    """The frequencies were a buffer, which half precision rounded: position 257 was position 256."""
    network = torch.nn.Sequential(RotaryPositions(64), torch.nn.Linear(2, 2)).to(dtype)
    exact = torch.arange(1024.0, dtype=torch.float64)[:, None] * 10000 ** (
        -torch.arange(32.0, dtype=torch.float64) / 32
    )
    for positions, bound in ((torch.arange(1024), 2e-4), (torch.arange(1024.0, dtype=torch.float64), 1e-12)):
        cos, sin = network[0](positions)
        assert (cos.double() - exact.cos()).abs().max() < bound
        assert (sin.double() - exact.sin()).abs().max() < bound


def test_mistakes_are_reported():
    for call, error, message in (
        (lambda: RotaryPositions(8, axes=2)(torch.arange(5)), ValueError, r"shape \[..., T, 2\], got \(5,\)"),
        (
            lambda: apply_rotary(torch.ones(5, 4), *RotaryPositions(8)(torch.arange(5))),
            ValueError,
            "tables of 4 columns, but a head of 4 coordinates has at most 3",
        ),
        (lambda: LorentzGatedMLP(8, 0, manifold=M), ValueError, "at least 1, got 8 and 0"),
        (lambda: LorentzRMSNorm(0, manifold=M), ValueError, "features must be at least 1 and eps above 0, got 0"),
        (lambda: LorentzLayerNorm(4, eps=0.0, manifold=M), ValueError, "eps above 0, got 4 and 0"),
        (lambda: LorentzEmbedding(5, 4, manifold=M)(torch.zeros(2)), TypeError, "int64 or int32, got torch.float32"),
        (lambda: LorentzEmbedding(5, 4, manifold=M)(torch.tensor([-1, 5])), ValueError, "from 0 to 4, .* from -1 to 5"),
        (lambda: LorentzPatchEmbedding(3, 4, 4, manifold=M)(torch.ones(2, 1, 8, 8)), ValueError, r"\[B, 3, H, W\]"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_perceptron_is_its_formula():
    x = torch.randn(5, 12)
    mlp = LorentzGatedMLP(12, 20, bias=True, manifold=M)
    gate, values = mlp.in_proj(x).chunk(2, -1)
    torch.testing.assert_close(mlp(x), mlp.out_proj(silu(gate) * values))
    plain = LorentzGatedMLP(12, gated=False, activation="gelu", manifold=M)
    assert plain.hidden == 48
    torch.testing.assert_close(plain(x), plain.out_proj(torch.nn.functional.gelu(plain.in_proj(x))))
    gated = sum(p.numel() for p in LorentzGatedMLP(384, manifold=M).parameters())
    assert gated == sum(p.numel() for p in LorentzGatedMLP(384, gated=False, manifold=M).parameters())
    assert (LorentzGatedMLP(12, manifold=M)(torch.zeros(2, 12)) == 0).all()
    with pytest.raises(ValueError, match="activation must be one of silu, gelu, relu, got 'tanh'"):
        LorentzGatedMLP(12, activation="tanh", manifold=M)


def test_embedding_returns_its_points():
    layer, ids = LorentzEmbedding(7, 4, std=3.0, manifold=M), torch.tensor([[0, 6], [6, 2]])
    assert torch.equal(layer(ids), layer.weight[ids])
    assert layer.weight.std() > 1
    assert_on_manifold(layer(ids), M)
    with pytest.raises(ValueError, match="num_embeddings and features must be at least 1"):
        LorentzEmbedding(0, 4, manifold=M)


@pytest.mark.parametrize("norm_first", [True, False])
def test_block_is_residuals_of_attention_and_perceptron(norm_first):
    torch.manual_seed(0)
    block = LorentzTransformerBlock(32, num_heads=2, norm_first=norm_first, manifold=M)
    x = torch.randn(2, 5, 32)

    def step(x, norm, layer):
        y = lorentz_residual(x, layer(norm(x) if norm_first else x), 1.0, 2.0, K=-0.4)
        return y if norm_first else norm(y)

    expected = step(x, block.attention_norm, lambda t: block.attention(t, is_causal=True))
    expected = step(expected, block.mlp_norm, block.mlp)
    torch.testing.assert_close(block(x, is_causal=True), expected)
    assert_finite_gradients(lambda t: block(t, is_causal=True), torch.zeros(2, 5, 32))


def test_the_baseline_block_is_a_usual_transformer():
    torch.manual_seed(0)
    block = LorentzTransformerBlock(32, num_heads=2, residual="euclidean", norm="layer", bias=True, manifold=M)
    x = torch.randn(2, 5, 32)
    rows = layer_norm(x, (32,))
    q, k, v = (t.unflatten(-1, (2, 16)).transpose(1, 2) for t in block.attention.in_proj(rows).chunk(3, -1))
    heads = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
    y = x + block.attention.out_proj(heads)
    y = y + block.mlp(layer_norm(y, (32,)))
    torch.testing.assert_close(block(x), y, rtol=1e-5, atol=1e-5)
    assert not any("log" in name or "raw_weight" in name for name, _ in block.named_parameters())


def test_options_of_the_block():
    dropped = LorentzTransformerBlock(32, num_heads=2, dropout=0.5, manifold=M)
    x = torch.randn(2, 5, 32)
    assert not torch.equal(dropped(x), dropped(x))
    assert torch.equal(dropped.eval()(x), dropped(x))
    with pytest.raises(ValueError, match="norm must be one of rms, layer, got 'batch'"):
        LorentzTransformerBlock(32, num_heads=2, norm="batch", manifold=M)
    scaled = LorentzTransformerBlock(32, num_heads=2, residual_options={"scale": None, "weight": 0.5}, manifold=M)
    assert not scaled.attention_residual.has_scale
    assert float(scaled.mlp_residual.weight) == 0.5


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer
def test_compiled_blocks_leave_the_residual_to_the_compiler(monkeypatch):
    def calls(features: int) -> int:
        asked = []
        monkeypatch.setattr(lorentz, "supports_pair", lambda *_, **__: asked.append(1) is not None)
        torch.compiler.reset()
        block = LorentzTransformerBlock(features, num_heads=features // 8, hidden=8, manifold=M)
        x = torch.randn(1, 2, features)
        result = torch.compile(block, backend="eager")(x)
        compiled = len(asked)
        torch.testing.assert_close(result, block(x), rtol=1e-4, atol=1e-4)
        assert len(asked) == compiled + 2  # eager calls ask for the kernel
        return compiled

    assert calls(16) == 0
    assert not LorentzTransformerBlock(4096, num_heads=64, hidden=8, manifold=M).mlp_residual.joined_by_compiler
