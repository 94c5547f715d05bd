"""Tests of linear attention against its N x N matrix, and of attention whose output is a centroid."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.nn import LinearAttention, LorentzLinearAttention
from lresnet.nn.attention import attention_rows, linear_attention
from lresnet.testing import assert_compiles, assert_finite_gradients, assert_on_manifold

KINDS = ("vectors", "points")


def tensors(*shape: int, count: int = 3) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=g, dtype=torch.float64) for _ in range(count))


def matrix(q: Tensor, k: Tensor) -> Tensor:
    """Return A as the paper defines it, [N, d] -> [N, N]."""
    n = q.shape[0]
    numerator = torch.eye(n, dtype=q.dtype) + (q / q.norm()) @ (k / k.norm()).T / n
    return numerator / numerator.sum(1, keepdim=True)


def layer(kind: str, heads: int = 2, curvature: float = -1.0) -> LinearAttention | LorentzLinearAttention:
    torch.manual_seed(0)
    if kind == "vectors":
        return LinearAttention(5, 4, heads)
    return LorentzLinearAttention(5, 4, heads, manifold=Lorentz(curvature))


# --- functions --------------------------------------------------------------------------------------------------------


def test_attention_equals_the_product_with_the_whole_matrix():
    q, k, v = tensors(11, 6)
    torch.testing.assert_close(linear_attention(q, k, v), matrix(q, k) @ v)
    torch.testing.assert_close(attention_rows(q, k, torch.arange(11)), matrix(q, k))


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_float32_agrees_with_the_whole_matrix_in_float64_to_five_digits(size):
    q, k, v = tensors(500, 16)
    got = linear_attention(size * q.float(), k.float() / size, v.float()).double()
    assert (got - matrix(q, k) @ v).abs().max() < 1e-5


def test_each_index_of_the_middle_axes_is_a_separate_attention():
    q, k, v = tensors(11, 3, 2, 6)
    y, rows = linear_attention(q, k, v), attention_rows(q, k, torch.tensor([7, 0]))
    assert rows.shape == (2, 3, 2, 11)
    for i in range(3):
        for j in range(2):
            A = matrix(q[:, i, j], k[:, i, j])
            torch.testing.assert_close(y[:, i, j], A @ v[:, i, j])
            torch.testing.assert_close(rows[:, i, j], A[[7, 0]])


def test_scaling_q_and_k_changes_nothing_and_values_may_have_another_width():
    q, k, _ = tensors(9, 4)
    (v,) = tensors(9, 7, count=1)
    torch.testing.assert_close(linear_attention(1e3 * q, 1e-3 * k, v), linear_attention(q, k, v))
    torch.testing.assert_close(linear_attention(q, k, torch.ones_like(v)), torch.ones_like(v))


def test_the_lower_bound_of_the_row_sums_is_attained():
    """q is non-zero in one node only and k is the same in every node: D = 1 - 1/sqrt(N)."""
    n = 4
    q, k, v = torch.zeros(n, 1), -torch.ones(n, 1), torch.randn(n, 2)
    q[0] = 5.0
    own = attention_rows(q, k, torch.tensor([0]))[0]
    row_sum = 1 - n**-0.5
    torch.testing.assert_close(own[1], torch.tensor(-1 / (n * n**0.5) / row_sum))
    assert linear_attention(q, k, v).isfinite().all()


@pytest.mark.parametrize(("q", "k"), [(3.0, -2.0), (1.0, 1.0), (0.0, 1.0)])
def test_a_single_node_attends_to_itself(q, k):
    """The formula gives 0 / 0 for q = -k."""
    q, k, v = torch.full((1, 1), q), torch.full((1, 1), k), torch.randn(1, 3)
    assert torch.equal(linear_attention(q, k, v), v)
    assert attention_rows(q, k, torch.tensor([0])).tolist() == [[1.0]]
    assert_finite_gradients(linear_attention, q, k, v)


def test_nodes_attend_to_themselves_if_q_or_k_is_zero_and_gradients_are_finite():
    v, zero = torch.randn(6, 3), torch.zeros(6, 2)
    assert torch.equal(linear_attention(zero, zero, v), v)
    assert_finite_gradients(linear_attention, zero, zero, v)
    assert_finite_gradients(linear_attention, torch.randn(6, 2), zero, v)


def test_first_and_second_derivatives():
    inputs = [t.requires_grad_() for t in tensors(5, 2, 3)]
    assert torch.autograd.gradcheck(linear_attention, inputs)
    assert torch.autograd.gradgradcheck(linear_attention, inputs)
    assert torch.autograd.gradcheck(lambda q, k: attention_rows(q, k, torch.tensor([3, 1])), inputs[:2])


def test_memory_is_linear():
    """The matrix of 200,000 nodes would take 160 GB."""
    q, k, v = torch.randn(3, 200_000, 2).unbind()
    assert linear_attention(q, k, v).shape == (200_000, 2)
    assert attention_rows(q, k, torch.tensor([5])).sum().item() == pytest.approx(1.0, abs=1e-4)


# --- layers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", [1, 3])
def test_rows_sum_to_one_and_do_not_depend_on_the_order_of_nodes(kind, heads):
    module, (x,) = layer(kind, heads).double(), tensors(8, 5, count=1)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(module(x[order]), module(x)[order])
    rows = module.rows(x, torch.arange(8))
    torch.testing.assert_close(rows.sum(-1), torch.ones(8, dtype=torch.float64))
    torch.testing.assert_close(module.rows(x[order], torch.arange(8)), rows[order][:, order])
    assert (rows - torch.eye(8)).abs().max() > 1e-4  # nodes attend to others


def test_heads_are_averaged():
    module, (x,) = layer("vectors", 3).double(), tensors(8, 5, count=1)
    q, k, v = (part(x).view(8, 3, 4) for part in (module.query, module.key, module.value))
    expected = sum(matrix(q[:, h], k[:, h]) @ v[:, h] for h in range(3)) / 3
    torch.testing.assert_close(module(x), expected)
    torch.testing.assert_close(
        module.rows(x, torch.tensor([2])), sum(matrix(q[:, h], k[:, h]) for h in range(3))[[2]] / 3
    )


@pytest.mark.parametrize("K", [-0.1, -1.0, -10.0])
def test_outputs_are_centroids_with_the_attention_rows_as_weights(K):
    module, (x,) = layer("points", heads=2, curvature=K).double(), tensors(8, 5, count=1)
    q, k = (torch.relu(part(x)).view(8, 2, 4) for part in (module.query, module.key))
    weights = torch.cat([matrix(q[:, h], k[:, h]) for h in range(2)], dim=1)
    values = torch.cat([value(x) for value in module.values])
    assert (weights >= 0).all()
    y = module(x)
    torch.testing.assert_close(y, module.manifold.centroid(values.expand(8, 16, 4), weights))
    assert_on_manifold(y, module.manifold)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_differentiate_and_compile(kind):
    module, (x,) = layer(kind), tensors(6, 5, count=1)
    assert_finite_gradients(module, torch.zeros(6, 5))
    assert_compiles(module, x.float())
    module = module.double()
    assert torch.autograd.gradcheck(module, (x.requires_grad_(),))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_equals_its_members(kind):
    from lresnet.train.stacking.model import ModelStack

    members = [layer(kind).double() for _ in range(3)]
    for i, member in enumerate(members):
        torch.manual_seed(i)
        for parameter in member.parameters():
            parameter.data.normal_()
    stack = ModelStack(members, [[name for name, _ in members[0].named_parameters()]])
    (x,) = tensors(7, 3, 5, count=1)
    y = stack.call(lambda model: model(x))
    for i, member in enumerate(members):
        torch.testing.assert_close(y[:, i], member(x[:, i]))


def test_autocast_does_not_change_lorentz_attention():
    module = layer("points")
    x = torch.randn(6, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module(x), module(x))
        narrow = module(x)
    assert torch.equal(narrow, module(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_points_may_have_another_dtype_than_the_weights(dtype):
    """The input is rounded, nothing else is: half precision is computed in float32, as in the other layers."""
    module, (x,), nodes = layer("points"), tensors(6, 5, count=1), torch.tensor([4, 2])
    x = x.to(dtype)
    wide = layer("points").double() if dtype == torch.float64 else module
    wide.load_state_dict(module.state_dict())
    other = x.double() if dtype == torch.float64 else x.float()
    assert module(x).dtype == module.rows(x, nodes).dtype == dtype
    torch.testing.assert_close(module(x), wide(other).to(dtype))
    torch.testing.assert_close(module.rows(x, nodes), wide.rows(other, nodes).to(dtype))


# --- shapes and names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_are_refused_because_the_batch_would_attend_across_them(kind):
    attention, x = layer(kind), torch.randn(3, 7, 5)
    nodes = torch.tensor([0])
    for call in (lambda: attention(x), lambda: attention.rows(x, nodes)):
        with pytest.raises(ValueError, match=r"needs the nodes of one graph, \[N, C\], got shape \(3, 7, 5\)") as error:
            call()
        assert "torch.vmap(layer)(x)" in str(error.value)
        assert "\n" not in str(error.value)
    within = torch.stack([attention(sequence) for sequence in x])
    torch.testing.assert_close(torch.vmap(attention)(x), within)
    with pytest.raises(ValueError, match=r"got shape \(5,\)"):
        attention(x[0, 0])


def test_pickles_with_the_former_name_of_the_lorentz_layer_load():
    module = importlib.import_module("lresnet.nn.attention")
    vars(module).pop("LorentzAttention", None)  # it warns once
    with pytest.warns(DeprecationWarning, match=r"use lresnet\.nn\.LorentzLinearAttention"):
        assert module.LorentzAttention is LorentzLinearAttention
    keys = LorentzLinearAttention(5, 4, manifold=Lorentz(-1.0, learnable=True)).state_dict().keys()
    assert {key.split(".")[0] for key in keys} == {"query", "key", "values"}
