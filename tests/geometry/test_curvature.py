"""Curvature: negative, owned by the manifold, and error messages that show the conversion."""

import copy
import math
import re

import geoopt
import numpy as np
import pytest
import torch
import torch._dynamo.testing
from safetensors.torch import load, save

import lresnet
from lresnet import Lorentz, LorentzResidual
from lresnet.geometry.curvature import constant, kappa_of, parse_curvature, root

CONVERSIONS = [
    "geoopt.Lorentz(k)",
    "curvature = -1/k",
    "Lorentz.from_geoopt(k)",
    "geoopt.PoincareBall(c)",
    "curvature = -c",
]


@pytest.mark.parametrize("value", [0, 0.0, -0.0, 1.0, 2, 1e-9, math.nan, math.inf, -math.inf, torch.tensor(1.0)])
def test_not_negative(value):
    with pytest.raises(ValueError, match="curvature must be negative and finite, got") as error:
        Lorentz(value)
    for words in CONVERSIONS:
        assert words in str(error.value)


def test_error_for_a_positive_value_shows_its_conversion():
    with pytest.raises(ValueError, match=r"If 4 is geoopt's k, you want -0\.25; if it is c, you want -4\."):
        Lorentz(4.0)


@pytest.mark.parametrize("value", ["-1", "", True, False, None, b"-1"])
def test_not_a_number(value):
    with pytest.raises(TypeError, match="curvature must be a negative number, got") as error:
        Lorentz(value)
    assert repr(value) in str(error.value)
    assert all(words in str(error.value) for words in CONVERSIONS)


@pytest.mark.parametrize("value", [[-1.0], torch.tensor([-1.0, -2.0]), 1j, object(), np.array([-1.0, -2.0])])
def test_not_one_number(value):
    with pytest.raises(TypeError, match="curvature must be one negative number, got"):
        Lorentz(value)


@pytest.mark.parametrize("value", [-0.5, np.float32(-0.5), torch.tensor(-0.5), torch.tensor([-0.5]), np.float64(-0.5)])
def test_accepted_curvatures(value):
    assert parse_curvature(value) == -0.5
    assert float(Lorentz(value).K) == -0.5


@pytest.mark.parametrize("value", [-1e40, -1e-40, -1e31, -1e-31])
def test_range(value):
    for call in (lambda: Lorentz(value), lambda: kappa_of(value, torch.float64)):
        with pytest.raises(
            ValueError, match=f"between -1e30 and -1e-30, got {re.escape(f'{value:g}')}: .* Rescale the points"
        ):
            call()
    with pytest.raises(ValueError, match="between -1e30 and -1e-30, got"):
        kappa_of(torch.tensor([-1.0, value], dtype=torch.float64), torch.float64)


@pytest.mark.parametrize("value", [-1e30, -1e-30])
def test_ends_of_the_range(value):
    for K in (Lorentz(value).curvature, torch.tensor(value), Lorentz(value, learnable=True).curvature):
        assert float(constant(kappa_of(K, torch.float32))) == pytest.approx(-value, rel=1e-4)


def test_functional_curvature_is_checked_too():
    x = torch.randn(2, 3)
    for bad in (1.0, 0.0, math.nan, torch.tensor(2.0), torch.tensor([[-1.0], [math.nan]]), torch.tensor(-math.inf)):
        with pytest.raises(ValueError, match="curvature must be negative and finite, got"):
            lresnet.functional.lorentz_residual(x, x, K=bad)
    with pytest.raises(TypeError, match=r"got a tensor of torch.int64"):
        kappa_of(torch.tensor(-1), torch.float32)
    with pytest.raises(ValueError, match=r"got 3.0"):
        kappa_of(torch.tensor([-1.0, 3.0]), torch.float32)


def test_kappa_of():
    assert kappa_of(-0.25, torch.float32) == 0.25
    K = torch.tensor(-0.25, dtype=torch.float64, requires_grad=True)
    kappa = kappa_of(K, torch.float32)
    assert kappa.dtype == torch.float32
    root(kappa).backward()
    assert K.grad.item() == pytest.approx(-1.0)
    assert not constant(kappa).requires_grad
    assert (root(0.25), constant(0.25)) == (0.5, 0.25)


def test_fixed_curvature():
    M = Lorentz(-0.25)
    assert (M.K.item(), M.kappa.item(), M.curvature, M.learnable) == (-0.25, 0.25, -0.25, False)
    assert M.K.shape == M.kappa.shape == ()
    assert list(M.parameters()) == []
    assert dict(M.state_dict()) == {"_extra_state": torch.tensor([-0.25], dtype=torch.float64)}
    assert repr(M) == "Lorentz(curvature=-0.25) manifold"
    assert Lorentz().curvature == -1.0
    assert Lorentz(-0.1).kappa.item() == 0.1  # as a float64: 0.1 is not a float32


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated")
def test_all_fixed_curvatures_share_one_compiled_graph():
    """If the curvature were a constant of the graph, a search over curvatures would compile again each time."""
    counter = torch._dynamo.testing.CompileCounter()
    x, y = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).unbind(0)
    for K in (-0.1, -1.0, -3.0):
        residual = LorentzResidual(Lorentz(K), weight=0.5, scale=2.0, dtype=torch.float64)
        compiled = torch.compile(residual, backend=counter, fullgraph=True)
        torch.testing.assert_close(compiled(x, y), residual(x, y), rtol=1e-14, atol=1e-15)
    assert counter.frame_count == 1


def test_a_fixed_curvature_is_traced_once():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    M, x = Lorentz(-0.1), torch.ones(2, 3)
    torch.testing.assert_close(torch.compile(M.time, backend=backend)(x), M.time(x))
    assert len(graphs) == 1


@pytest.mark.parametrize(
    "move", [lambda M: M.half(), lambda M: M.to(torch.float32), lambda M: M.to_empty(device="cpu")]
)
def test_a_fixed_curvature_is_not_rounded_with_the_module(move):
    M = move(torch.nn.ModuleList([Lorentz(-0.1)]))[0]
    assert M._traced_K.item() == M.curvature == -0.1
    assert move(M)._traced_K.item() == -0.1
    assert M.to("meta")._traced_K.device.type == "meta"


def test_a_layer_moves_the_fixed_curvature_that_compiled_code_reads():
    """The layer does not register the manifold, and code compiled for a GPU cannot read a tensor on the CPU."""
    M = Lorentz(-0.1)
    layer = torch.nn.Sequential(LorentzResidual(M)).half()
    assert M._traced_K.dtype == torch.float64
    layer.to("meta")
    assert M._traced_K.device.type == "meta"
    layer.to_empty(device="cpu")
    assert M._traced_K.item() == M.curvature == -0.1
    learned = Lorentz(-0.1, learnable=True)
    LorentzResidual(learned).to("meta")
    assert learned.log_kappa.device.type == "cpu"  # a parameter belongs to the model that registers it


def test_geoopt_convention():
    assert Lorentz.from_geoopt(4.0).curvature == -0.25
    assert Lorentz.from_geoopt(torch.tensor(4.0)).curvature == -0.25
    assert Lorentz.from_geoopt(geoopt.Lorentz(k=4.0)).curvature == -0.25
    G = Lorentz(-0.3).to_geoopt()
    assert isinstance(G, geoopt.Lorentz)
    assert G.k.dtype == torch.float64
    assert G.k.item() == pytest.approx(1 / 0.3, rel=1e-15)
    assert Lorentz.from_geoopt(G).curvature == pytest.approx(-0.3, rel=1e-15)


@pytest.mark.parametrize("k", [0, -1.0, math.nan, math.inf, "1", True])
def test_bad_geoopt_k(k):
    with pytest.raises(ValueError, match=r"geoopt's k is positive and finite .*, got"):
        Lorentz.from_geoopt(k)


@pytest.mark.parametrize("k", [None, [1.0], torch.tensor([1.0, 2.0]), "one"])
def test_geoopt_k_of_the_wrong_kind(k):
    with pytest.raises(TypeError, match=r"k must be one positive number or a geoopt.Lorentz, got"):
        Lorentz.from_geoopt(k)


# --- learnable -------------------------------------------------------------------------------------------------------


def test_learnable_curvature_is_one_parameter():
    M = Lorentz(-0.5, learnable=True)
    assert M.learnable
    assert [name for name, _ in M.named_parameters()] == ["log_kappa"]
    assert float(M.K.detach()) == pytest.approx(-0.5, rel=1e-6)
    assert "learnable" in repr(M)


def test_learnable_curvature_stays_negative():
    M = Lorentz(-1.0, learnable=True)
    optimiser = torch.optim.SGD(M.parameters(), lr=10.0)
    for sign in (1, 1, 1, -1, -1, -1, -1, -1):
        optimiser.zero_grad()
        (sign * M.kappa).backward()
        optimiser.step()
        assert float(M.K.detach()) < 0


@pytest.mark.parametrize(
    "f",
    [
        lambda M, x, y: M.dist(x, y),
        lambda M, x, y: M.dist2(x, y),
        lambda M, x, y: M.expmap(x, y),
        lambda M, x, y: M.logmap(x, y),
        lambda M, x, y: M.transp(x, y, y),
        lambda M, x, y: M.inner(x, y, y),
        lambda M, x, y: M.boost(x, y),
        lambda M, x, y: M.expmap0(x),
        lambda M, x, y: M.logmap0(x),
        lambda M, x, y: M.time(x),
        lambda M, x, y: M.lift(x),
        lambda M, x, y: M.centroid(torch.stack([x, y], -2)),
        lambda M, x, y: M.to_poincare(x),
        lambda M, x, y: M.from_poincare(0.1 * x),
        lambda M, x, y: M.to_klein(x),
        lambda M, x, y: M.from_klein(0.1 * x),
        lambda M, x, y: M.egrad2rgrad(x, y),
    ],
)
def test_gradient_flows_into_the_curvature(f):
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4, 3, generator=g, dtype=torch.float64) for _ in range(2))
    M = Lorentz(-0.7, learnable=True).double()
    f(M, x, y).square().sum().backward()
    assert M.log_kappa.grad is not None
    h, kappa = 1e-5, M.kappa.item()
    high, low = (f(Lorentz(-kappa * s), x, y).square().sum().item() for s in (1 + h, 1 - h))
    assert M.log_kappa.grad.item() == pytest.approx((high - low) / (2 * h), rel=1e-6, abs=1e-8)


def test_copies_are_independent():
    M = Lorentz(-0.5, learnable=True)
    other = copy.deepcopy(M)
    with torch.no_grad():
        other.log_kappa += 1
    assert float(M.K.detach()) == pytest.approx(-0.5, rel=1e-6)
    assert float(other.K.detach()) == pytest.approx(-0.5 * math.e, rel=1e-6)
    assert copy.deepcopy(Lorentz(-0.5)).curvature == -0.5


def test_state_dict_through_safetensors():
    M, other = Lorentz(-0.5, learnable=True), Lorentz(-2.0, learnable=True)
    assert list(M.state_dict()) == ["log_kappa"]
    other.load_state_dict(load(save(M.state_dict())))
    assert torch.equal(M.K, other.K)


def test_dtype_and_device():
    M = Lorentz(-0.5, learnable=True).double()
    assert M.K.dtype == torch.float64
    x = torch.randn(3, 2)
    assert M.dist(x, -x).dtype == torch.float32
    meta = M.to("meta")
    assert meta.K.device.type == "meta"
    y = torch.empty(3, 2, device="meta")
    assert meta.dist(y, y).device.type == "meta"
    assert Lorentz(-0.5).dist(y, y).shape == (3,)


def test_no_warning_when_a_learnable_curvature_is_read():
    # torch warns once per process when a tensor that requires a gradient is converted to a number; here every time.
    torch.set_warn_always(True)
    try:
        M = Lorentz(torch.tensor(-0.5, requires_grad=True), learnable=True)
        repr(M)
        Lorentz.from_geoopt(geoopt.Lorentz(k=torch.tensor(2.0), learnable=True))
        M.to_geoopt()
        x = torch.randn(3, 2, requires_grad=True)
        lresnet.testing.assert_on_manifold(x, M)
        lresnet.testing.assert_commutative(M.dist, x, x + 1)
        lresnet.testing.assert_isometry_equivariant(lambda x: x, M, x, tolerance=1e-5)
        lresnet.nn.Prototypes(2, 3, manifold=M)
        for bad in (
            lambda: M.drop(M.lift(x) + 1),
            lambda: M.from_poincare(9 * x / x.detach()),
            lambda: M.centroid(x, x[:, 0] - 9),
        ):
            with pytest.raises(ValueError, match=r"must|off"):
                bad()
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("K", [-1e-8, -1e5])
def test_a_learned_curvature_survives_half_precision(K):
    M = Lorentz(K, learnable=True).half()
    assert float(M.K.detach()) == pytest.approx(K, rel=0.02)  # of its logarithm eleven bits are left
    assert M.time(torch.zeros(3, dtype=torch.float16)).isfinite()


def test_manifold_and_prototypes_on_the_meta_device():
    with torch.device("meta"):
        M = Lorentz(-2.0, learnable=True)
        head = lresnet.nn.Prototypes(4, 3, manifold=M)
    assert "curvature=?, learnable" in repr(M)
    assert "curvature=?" in repr(head)
