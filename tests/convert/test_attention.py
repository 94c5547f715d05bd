"""Attention of stock networks: what lorentzify makes of it, against the definition."""

from __future__ import annotations

import copy
import json
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lresnet
from lresnet.convert.attention import _visible
from lresnet.optim import parameter_groups

K = -0.1
M = lresnet.Lorentz(K)


def defined(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    """Lorentz attention as it is defined, with times and without any trick; heads are [..., T, d]."""
    lifted, other = M.lift(q), M.lift(k)
    signs = torch.ones(q.shape[-1] + 1, dtype=q.dtype)
    signs[0] = -1
    scores = (lifted * signs) @ other.mT / temperature
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
    total = weights @ M.lift(v)
    square = total[..., :1] ** 2 - total[..., 1:].square().sum(-1, keepdim=True)
    return total[..., 1:] / (-K * square).sqrt()


def projected(attention: torch.nn.MultiheadAttention, x: Tensor) -> list[Tensor]:
    assert attention.in_proj_weight is not None
    joint = torch.nn.functional.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    return [one.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for one in joint.chunk(3, -1)]


def encoder(**options: Any) -> torch.nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        16, 4, 32, dropout=0.0, **{"batch_first": True, "norm_first": True} | options
    )
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def converted(flat: torch.nn.Module, x: Tensor, curvature: float | lresnet.Lorentz = K) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not converted")  # sums behind which is a norm
        return lresnet.lorentzify(flat, curvature, example=x, attention="lorentz")


def test_multihead_attention_is_that_of_the_definition() -> None:
    torch.manual_seed(0)
    flat = torch.nn.MultiheadAttention(16, 4, batch_first=True, dtype=torch.float64)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    net = lresnet.lorentzify(flat, K, example=(x, x, x), attention="lorentz")
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    result, weights = net(x, x, x, key_padding_mask=padding, attn_mask=hidden)
    q, k, v = projected(flat, x)
    points = defined(q, k, v, hidden | padding[:, None, None], 2.0)
    torch.testing.assert_close(result, flat.out_proj(points.transpose(1, 2).flatten(-2)))
    assert weights.shape == (2, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5, dtype=torch.float64))
    each = net(x, x, x, average_attn_weights=False)[1]
    total = each @ M.lift(v)
    space = total[..., 1:] / (-K * (total[..., :1] ** 2 - total[..., 1:].square().sum(-1, keepdim=True))).sqrt()
    torch.testing.assert_close(net(x, x, x)[0], flat.out_proj(space.transpose(1, 2).flatten(-2)))


@pytest.mark.parametrize("batch_first", [True, False])
def test_masks_mean_the_same_in_every_form(batch_first: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 16)
    given = x if batch_first else x.transpose(0, 1)
    flat = torch.nn.MultiheadAttention(16, 4, batch_first=batch_first)
    net = lresnet.lorentzify(flat, K, example=(given, given, given), attention="lorentz")
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    numbers = torch.zeros(5, 5).masked_fill(hidden, -math.inf)
    expected = net(given, given, given, attn_mask=hidden)[0]
    for options in (
        {"attn_mask": numbers},
        {"attn_mask": hidden.expand(8, 5, 5)},
        {"attn_mask": hidden, "is_causal": True, "need_weights": False},
        {"attn_mask": hidden, "key_padding_mask": torch.zeros(2, 5)},
        {"attn_mask": numbers, "key_padding_mask": torch.zeros(2, 5, dtype=torch.bool)},
    ):
        torch.testing.assert_close(net(given, given, given, **options)[0], expected)
    alone = net(x[0], x[0], x[0], attn_mask=hidden)[0]
    torch.testing.assert_close(alone, expected[0] if batch_first else expected[:, 0])


def test_a_query_that_sees_nothing_is_finite() -> None:
    x = torch.randn(1, 3, 16)
    flat = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    net = lresnet.lorentzify(flat, K, example=(x, x, x), attention="lorentz")
    result, weights = net(x, x, x, key_padding_mask=torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(result, flat.out_proj.bias.expand_as(result))
    assert not weights.any()


def test_masks_join_as_torch_defines_them() -> None:
    assert _visible(None, None, 2) is None
    hidden, padding = torch.tensor([[False, True], [False, False]]), torch.tensor([[True, False]])
    both = _visible(hidden, padding, 2)
    assert both is not None
    assert both.tolist() == [[[[False, False], [False, True]]]]
    mixed = _visible(hidden, padding.float(), 2)
    assert mixed is not None
    assert mixed.tolist() == [[[[1.0, -math.inf], [1.0, 0.0]]]]


def test_near_curvature_0_it_is_dot_product_attention_if_all_keys_have_one_norm() -> None:
    torch.manual_seed(0)
    flat = torch.nn.MultiheadAttention(16, 4, bias=False, batch_first=True, dtype=torch.float64)
    assert flat.in_proj_weight is not None
    with torch.no_grad():  # an orthogonal key matrix for each head keeps the norms of points that are signs
        flat.in_proj_weight[16:32] = torch.eye(16, dtype=torch.float64)
    x = torch.randn(2, 5, 16, dtype=torch.float64).sign()
    net = lresnet.lorentzify(flat, -1e-10, example=(x, x, x), attention="lorentz")
    torch.testing.assert_close(net(x, x, x)[0], flat(x, x, x)[0], rtol=1e-6, atol=1e-8)
    y = torch.randn(2, 5, 16, dtype=torch.float64)
    assert not torch.allclose(net(y, y, y)[0], flat(y, y, y)[0], rtol=1e-2)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_an_encoder_is_converted_with_its_weights(norm_first: bool, batch_first: bool, training: bool) -> None:
    flat = encoder(norm_first=norm_first, batch_first=batch_first).train(training)
    x = torch.randn(3, 3, 16)
    net = converted(flat, x)
    names = set(net.state_dict()) - set(flat.state_dict())
    assert {f"layers.{i}.self_attn.log_temperature" for i in range(2)} <= names
    assert all(torch.equal(net.state_dict()[name], own) for name, own in flat.state_dict().items())
    assert sum("residual" in name for name in names) == (8 if norm_first else 0)  # norms remove the factor of post-norm
    padding = torch.tensor([[False] * 3, [False, False, True], [False] * 3])
    with torch.set_grad_enabled(training):
        found = net(x, src_key_padding_mask=padding)
        assert not torch.allclose(found, flat(x, src_key_padding_mask=padding), rtol=1e-3)
    assert found.isfinite().all()
    if training:
        found.square().sum().backward()
        assert all(one.grad is not None and one.grad.isfinite().all() for one in net.parameters())


def test_evaluation_without_gradients_is_the_same_as_with_them() -> None:
    x = torch.randn(2, 4, 16)
    net = lresnet.lorentzify(encoder(), K, example=x, attention="lorentz").eval()
    with torch.no_grad():
        fast = net(x)
    torch.testing.assert_close(fast, net(x))


def test_the_layer_is_the_definition() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        16, 4, 32, dropout=0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    net = lresnet.lorentzify(layer, K, example=x, attention="lorentz", weight=1.0, scale=2.0)
    q, k, v = projected(layer.self_attn, layer.norm1(x))
    nothing = torch.zeros(5, 5, dtype=torch.bool)
    branch = layer.self_attn.out_proj(defined(q, k, v, nothing, 2.0).transpose(1, 2).flatten(-2))
    y = lresnet.functional.lorentz_residual(x, branch, 1.0, 2.0, K=K)
    z = layer.linear2(layer.linear1(layer.norm2(y)).relu())
    torch.testing.assert_close(net(x), lresnet.functional.lorentz_residual(y, z, 1.0, 2.0, K=K))


class Decoder(torch.nn.Module):
    """Attention of one's own on ``scaled_dot_product_attention``, with grouped heads and a sum in the same forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.q, self.kv = torch.nn.LayerNorm(16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x)
        q = self.q(rows).unflatten(-1, (4, 4)).transpose(1, 2)
        k, v = self.kv(rows).unflatten(-1, (4, 4)).transpose(1, 2).chunk(2, 1)
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.25, enable_gqa=True)
        return x + found.transpose(1, 2).flatten(-2)


def test_calls_of_stock_attention_are_converted() -> None:
    torch.manual_seed(0)
    flat, x = Decoder().double(), torch.randn(2, 5, 16, dtype=torch.float64)
    net = lresnet.lorentzify(flat, K, example=x, attention="lorentz", weight=1.0, scale=2.0)
    rows = flat.norm(x)
    q = flat.q(rows).unflatten(-1, (4, 4)).transpose(1, 2)
    k, v = flat.kv(rows).unflatten(-1, (4, 4)).transpose(1, 2).repeat_interleave(2, 1).chunk(2, 1)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    branch = defined(q, k, v, hidden, 4.0).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(net(x), lresnet.functional.lorentz_residual(x, branch, 1.0, 2.0, K=K))
    assert net.log_temperature.shape == (4,)


@pytest.mark.parametrize("make", [encoder, lambda: encoder(norm_first=False), Decoder])
def test_a_converted_network_is_copied_pickled_and_saved(make: Any, tmp_path: Path) -> None:
    flat, x = make(), torch.randn(2, 4, 16)
    net = converted(flat, x).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.add_(0.1 * ("temperature" in name))
    folder = net.save_pretrained(tmp_path / "net")
    read = lresnet.from_pretrained(folder, net=flat).eval()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), read):
        assert torch.equal(other(x), net(x))
        parts = [one for one in other.modules() if hasattr(one, "log_temperature")]
        assert parts
        assert all(one.manifold is next(m for m in other.modules() if isinstance(m, lresnet.Lorentz)) for one in parts)


def test_a_learned_curvature_gets_a_gradient_and_temperatures_no_weight_decay() -> None:
    x = torch.randn(2, 4, 16)
    net = converted(encoder(norm_first=False), x, lresnet.Lorentz(K, learnable=True))
    net(x).square().sum().backward()
    (curvature,) = (one for name, one in net.named_parameters() if "manifold" in name)
    assert curvature.grad is not None
    assert float(curvature.grad.abs()) > 0
    assert {f"layers.{i}.self_attn.log_temperature" for i in range(2)} <= set(parameter_groups(net).geometric)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch._dynamo
@pytest.mark.parametrize("make", [encoder, Decoder])
def test_a_converted_network_compiles(make: Any) -> None:
    x, whole = torch.randn(2, 4, 16), make is encoder  # calls are intercepted outside of the graph
    net = converted(torch.nn.Sequential(*make().layers) if whole else make(), x).eval()
    compiled = torch.compile(net, backend="eager", fullgraph=whole)
    torch.testing.assert_close(compiled(x), net(x))
    torch._dynamo.reset()


def test_sums_before_a_norm_are_named() -> None:
    with pytest.warns(UserWarning, match="post-norm"):
        lresnet.lorentzify(encoder(norm_first=False), K, example=torch.randn(2, 4, 16), attention="lorentz")


def test_attention_that_cannot_be_converted_is_refused() -> None:
    x = torch.randn(2, 4, 16)
    with pytest.raises(ValueError, match="no attention was found"):
        lresnet.lorentzify(torch.nn.Sequential(torch.nn.Linear(16, 16)), example=x, attention="lorentz")
    with pytest.raises(ValueError, match="must be keep or lorentz"):
        lresnet.lorentzify(encoder(), example=x, attention="euclidean")  # type: ignore[arg-type]
    flat = torch.nn.MultiheadAttention(16, 4, add_zero_attn=True)
    with pytest.raises(ValueError, match="add_zero_attn"):
        lresnet.lorentzify(flat, example=(x, x, x), attention="lorentz")
    with pytest.warns(UserWarning, match="does not drop attention weights"):
        lresnet.lorentzify(torch.nn.TransformerEncoderLayer(16, 4, norm_first=True), example=x, attention="lorentz")


class OwnSoftmax(torch.nn.Module):
    """Attention that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + (q @ k.mT / 4).softmax(-1) @ v


def test_attention_that_is_written_out_is_named() -> None:
    x, layer = torch.randn(2, 4, 16), torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, norm_first=True)
    with pytest.warns(UserWarning, match="^1: not converted, because the module computes a softmax of scores itself"):
        lresnet.lorentzify(torch.nn.Sequential(layer, OwnSoftmax()), example=x, attention="lorentz")
    with pytest.raises(ValueError, match="compute a softmax of scores themselves: 0"):
        lresnet.lorentzify(torch.nn.Sequential(OwnSoftmax()), example=x, attention="lorentz")


@pytest.mark.parametrize("entry", [["", 10**9, 4, 2.0], ["", 4, 4, 0.0], ["nowhere", 4, 4, 2.0], ["", 4, 4]])
def test_a_saved_conversion_with_wrong_attention_is_refused(entry: list[Any], tmp_path: Path) -> None:
    x = torch.randn(2, 4, 16)
    flat = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    folder = lresnet.lorentzify(flat, K, example=(x, x, x), attention="lorentz").save_pretrained(tmp_path / "net")
    config = json.loads((folder / "config.json").read_text())
    config["lresnet"]["attention"] = [entry]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="cannot be read as a converted network"):
        lresnet.from_pretrained(folder, net=flat)


def test_an_encoder_takes_a_causal_mask_with_and_without_its_hint() -> None:
    x = torch.randn(2, 5, 16)
    net = converted(encoder(), x).eval()
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5)
    with_hint = net(x, mask=mask, is_causal=True)
    torch.testing.assert_close(net(x, mask=mask), with_hint)
    torch.testing.assert_close(net(x, mask=mask == -math.inf), with_hint)
    torch.testing.assert_close(net(x[:, :3], mask=mask[:3, :3]), with_hint[:, :3])
    padding = torch.zeros(2, 5)  # torch wants both masks as numbers, or both as truth values
    torch.testing.assert_close(net(x, mask=mask, src_key_padding_mask=padding, is_causal=True), with_hint)


def test_cross_attention_of_a_decoder_is_converted() -> None:
    torch.manual_seed(0)
    flat = torch.nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=True)
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 7, 16)
    net = lresnet.lorentzify(flat, K, example=(x, memory), attention="lorentz").eval()
    hidden = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    found = net(x, memory, memory_key_padding_mask=hidden)
    other = torch.where(hidden[..., None], torch.randn(2, 7, 16), memory)
    torch.testing.assert_close(net(x, other, memory_key_padding_mask=hidden), found)
    assert not torch.allclose(net(x, other), found)
