"""The residuals as modules: parameters, state, copies, training."""

from __future__ import annotations

import copy
import pickle
import pkgutil

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from lresnet import Lorentz, LorentzResidual, make_residual
from lresnet.functional import lorentz_residual, parallel_transport_residual
from lresnet.residual import METHODS, TangentResidual
from lresnet.residual.base import Residual
from tests.residual.common import CONFIGURATIONS, build, name_of, normals

every_configuration = pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=name_of)
every_curvature = pytest.mark.parametrize("learnable", [False, True], ids=["fixed", "learnable"])

# Methods for which the table has no function.
OTHER_FUNCTIONS = {
    "parallel_transport_reversed": lambda x, y, K: parallel_transport_residual(y, x, K=K),
    "none": lambda x, y, K: y,
}


def by_function(kind: str, x: Tensor, y: Tensor, residual: Residual, K: float | Tensor) -> Tensor:
    """The residual by its function, with the module's options."""
    method = METHODS[kind]
    if method.function is None:
        return OTHER_FUNCTIONS[kind](x, y, K)
    options = {"raw_weight": "weight", "scale": "scale"}
    arguments = {name: getattr(residual, own) for own, name in options.items() if name in method.options}
    return pkgutil.resolve_name(method.function)(x, y, **arguments, **({"K": K} if method.curved else {}))


class Model(nn.Module):
    """A model that registers the manifold; its layers only refer to it."""

    def __init__(self, configuration: tuple, learnable: bool = True) -> None:
        super().__init__()
        self.manifold = Lorentz(-2.0, learnable=learnable)
        self.linears = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.residuals = nn.ModuleList(build(configuration, self.manifold) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for linear, residual in zip(self.linears, self.residuals, strict=True):
            x = residual(x, linear(x))
        return x


def points() -> tuple[Tensor, Tensor]:
    return normals(4, 3), normals(4, 3, seed=1)


@every_curvature
@every_configuration
def test_module_and_function_agree(configuration, learnable):
    x, y = points()
    M = Lorentz(-2.0, learnable=learnable)
    residual = build(configuration, M)
    assert torch.equal(residual(x, y), by_function(configuration[0], x, y, residual, M.curvature))


def test_every_method_without_a_function_is_tested():
    assert set(OTHER_FUNCTIONS) == {name for name, method in METHODS.items() if method.function is None}


# --- state -----------------------------------------------------------------------------------------------------------

STATE = {
    "lorentz-weight=learned-scale=None": ["raw_weight"],
    "lorentz-weight=learned-scale=2.0": ["log_scale", "raw_weight"],
    "lorentz-weight=learned-scale=learned": ["log_scale", "raw_weight"],
    "lorentz-weight=learned-scale=1+w": ["raw_weight"],
    "lorentz-weight=0.5-scale=None": ["raw_weight"],
    "lorentz-weight=0.5-scale=2.0": ["log_scale", "raw_weight"],
    "lorentz-weight=0.5-scale=learned": ["log_scale", "raw_weight"],
    "lorentz-weight=0.5-scale=1+w": ["raw_weight"],
    "lorentz-weight=per point-scale=None": ["raw_weight"],
    "lorentz-weight=per point-scale=2.0": ["log_scale", "raw_weight"],
    "lorentz-weight=per point-scale=learned": ["log_scale", "raw_weight"],
    "lorentz-weight=per point-scale=1+w": ["raw_weight"],
    "tangent-weight=learned": ["raw_weight"],
    "tangent-weight=0.5": ["raw_weight"],
    "tangent-weight=per point": ["raw_weight"],
    "tangent_textbook": ["raw_weight"],
}

PARAMETERS = {
    "lorentz-weight=learned-scale=None": ["raw_weight"],
    "lorentz-weight=learned-scale=2.0": ["raw_weight"],
    "lorentz-weight=learned-scale=learned": ["log_scale", "raw_weight"],
    "lorentz-weight=learned-scale=1+w": ["raw_weight"],
    "lorentz-weight=0.5-scale=learned": ["log_scale"],
    "lorentz-weight=per point-scale=learned": ["log_scale"],
    "tangent-weight=learned": ["raw_weight"],
}


@every_curvature
@every_configuration
def test_snapshot_of_state_keys(configuration, learnable):
    # Without the keys of the manifold, which the model owns.
    residual = build(configuration, Lorentz(-2.0, learnable=learnable))
    keys = sorted(residual.state_dict())
    if METHODS[configuration[0]].curved and not learnable:
        keys.remove("_extra_state")  # a fixed curvature
    assert keys == STATE.get(name_of(configuration), [])
    assert sorted(dict(residual.named_parameters())) == PARAMETERS.get(name_of(configuration), [])


@every_configuration
def test_state_dict_through_safetensors(configuration, tmp_path):
    torch.manual_seed(0)
    model = Model(configuration)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    state = model.state_dict()
    assert sorted(key for key in state if "kappa" in key) == ["manifold.log_kappa"]
    expected = {f"residuals.{i}.{key}" for i in range(2) for key in STATE.get(name_of(configuration), [])}
    assert {key for key in state if key.startswith("residuals")} == expected
    safetensors.torch.save_file(state, tmp_path / "model.safetensors")
    torch.manual_seed(1)
    fresh = Model(configuration)
    x, _ = points()
    assert not torch.equal(fresh(x), model(x))
    fresh.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"), strict=True)
    assert torch.equal(fresh(x), model(x))


def test_no_parameter_is_listed_twice():
    model = Model(("lorentz", {"scale": "learned"}))
    listed = [id(p) for _, p in model.named_parameters(remove_duplicate=False)]
    assert len(listed) == len(set(listed))


def test_strict_loading_rejects_another_configuration():
    M = Lorentz()
    with_scale, without = LorentzResidual(M, scale="learned"), LorentzResidual(M)
    with pytest.raises(RuntimeError, match="log_scale"):
        without.load_state_dict(with_scale.state_dict())
    with pytest.raises(RuntimeError, match="log_scale"):
        with_scale.load_state_dict(without.state_dict())


def test_a_trained_weight_loads_into_a_fixed_one():
    M = Lorentz()
    trained = LorentzResidual(M, scale="learned", initial_weight=0.3, initial_scale=2.0)
    fixed = LorentzResidual(M, weight=1.0, scale=1.0)
    fixed.load_state_dict(trained.state_dict())
    x, y = points()
    assert torch.equal(fixed(x, y), trained(x, y))
    assert not list(fixed.parameters())


# A number that float32 rounds, and exp(log(x)) too.
NUMBERS = {"weight": 0.1, "scale": 7.3}


def effective(residual: LorentzResidual) -> dict[str, float]:
    return {"weight": float(residual.weight), "scale": float(residual.scale)}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_fixed_numbers_are_exact_in_every_dtype(dtype):
    rounded = {name: float(torch.tensor(number, dtype=dtype)) for name, number in NUMBERS.items()}
    residual = LorentzResidual(Lorentz(), **NUMBERS)
    assert float(LorentzResidual(Lorentz(), scale=7.0).scale) == 7.0
    assert effective(LorentzResidual(Lorentz(), **NUMBERS, dtype=dtype)) == rounded
    assert effective(residual.half().to(dtype)) == rounded  # a narrower dtype between has left no trace
    assert effective(copy.deepcopy(residual).double()) == NUMBERS


def test_fixed_numbers_are_exact_after_loading_a_state_of_another_dtype():
    earlier = {"raw_weight": torch.tensor(0.1), "log_scale": torch.tensor(7.3).log()}  # saved in float32
    residual = LorentzResidual(Lorentz(), **NUMBERS).double()
    residual.load_state_dict(earlier, strict=True)
    assert effective(residual) == NUMBERS
    other = LorentzResidual(Lorentz(), weight=0.3, scale=2.5)
    residual.load_state_dict(other.state_dict())
    loaded = effective(residual.float())  # what was loaded stays
    assert loaded == pytest.approx({"weight": 0.3, "scale": 2.5}, rel=1e-6)


# --- copies -----------------------------------------------------------------------------------------------------------


@every_curvature
@every_configuration
def test_deepcopy_is_independent(configuration, learnable):
    x, y = points()
    residual = build(configuration, Lorentz(-2.0, learnable=learnable))
    expected = residual(x, y)
    twin = copy.deepcopy(residual)
    assert torch.equal(twin(x, y), expected)
    assert twin.manifold is not residual.manifold
    with torch.no_grad():
        for tensor in (*twin.parameters(), *twin.buffers(), *twin.manifold.parameters()):
            tensor.add_(0.5)
    assert torch.equal(residual(x, y), expected)


@every_configuration
def test_deepcopy_of_a_model_copies_the_manifold_once(configuration):
    model = Model(configuration)
    twin = copy.deepcopy(model)
    assert twin.manifold is not model.manifold
    assert all(residual.manifold is twin.manifold for residual in twin.residuals)
    x, _ = points()
    before = model(x)
    with torch.no_grad():
        twin.manifold.log_kappa.add_(1.0)
    assert torch.equal(model(x), before)
    if METHODS[configuration[0]].curved:
        assert not torch.equal(twin(x), before)


@every_curvature
@every_configuration
def test_pickle(configuration, learnable):
    model = Model(configuration, learnable)
    twin = pickle.loads(pickle.dumps(model))
    assert all(residual.manifold is twin.manifold for residual in twin.residuals)
    x, _ = points()
    assert torch.equal(twin(x), model(x))


@every_curvature
@every_configuration
def test_meta_device(configuration, learnable):
    torch.manual_seed(0)
    real = Model(configuration, learnable)
    with torch.device("meta"):
        model = Model(configuration, learnable)
    x, _ = points()
    out = model(x.to("meta"))
    assert out.device.type == "meta"
    assert out.shape == x.shape
    if configuration[1].get("weight") == "per point":
        return  # the weights are the caller's tensor, and that one is real
    model.load_state_dict(real.state_dict(), assign=True)
    assert torch.equal(model(x), real(x))


# --- representation --------------------------------------------------------------------------------------------------


def test_repr():
    M = Lorentz(-2.0)
    per_point = torch.ones(4, 5)
    assert repr(make_residual("space", M, dim=1)) == "SpaceResidual(curvature=-2, dim=1)"
    assert repr(LorentzResidual(M)) == "LorentzResidual(curvature=-2, dim=-1, weight=learned, scale=None)"
    assert repr(LorentzResidual(M, 0.5, 1.5)) == "LorentzResidual(curvature=-2, dim=-1, weight=fixed, scale=1.5)"
    assert repr(TangentResidual(M, per_point)) == (
        "TangentResidual(curvature=-2, dim=-1, weight=fixed, one per point (4, 5))"
    )


@pytest.fixture
def every_warning():
    """Repeat the warnings that torch gives only once per process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.usefixtures("every_warning")
def test_repr_of_learned_values_does_not_warn():
    M = Lorentz(-0.5, learnable=True)
    assert repr(LorentzResidual(M, scale="learned")) == (
        "LorentzResidual(curvature=-0.5, learnable, dim=-1, weight=learned, scale=learned)"
    )


# --- training ------------------------------------------------------------------------------------------------------


def test_weight_scale_and_curvature_can_be_learned():
    # Recovered from data: weight 0.3, scale 1.7 and curvature -3, starting at 1, 1 and -1.
    x, y = normals(256, 4), normals(256, 4, seed=1)
    target = lorentz_residual(x, y, 0.3, 1.7, K=-3.0)
    M = Lorentz(-1.0, learnable=True)
    residual = LorentzResidual(M, scale="learned")
    optimiser = torch.optim.Adam([*residual.parameters(), *M.parameters()], lr=0.05)
    for _ in range(400):
        optimiser.zero_grad()
        (residual(x, y) - target).square().mean().backward()
        optimiser.step()
    torch.testing.assert_close(residual.weight.detach(), torch.tensor(0.3), rtol=2e-3, atol=0.0)
    torch.testing.assert_close(residual.scale.detach(), torch.tensor(1.7), rtol=2e-3, atol=0.0)
    torch.testing.assert_close(M.K.detach(), torch.tensor(-3.0), rtol=1e-2, atol=0.0)


@every_configuration
def test_every_learned_value_receives_a_gradient(configuration):
    model = Model(configuration)
    x, _ = points()
    model(x).square().sum().backward()
    flat = not METHODS[configuration[0]].curved
    for name, parameter in model.named_parameters():
        if flat and name == "manifold.log_kappa":
            assert parameter.grad is None
        else:
            assert parameter.grad.isfinite().all()
            assert parameter.grad.abs().sum() > 0, name


def test_a_parameter_per_point_is_trained():
    weight = nn.Parameter(torch.ones(4))
    residual = LorentzResidual(Lorentz(), weight=weight)
    assert dict(residual.named_parameters()) == {"raw_weight": weight}
    residual(*points()).sum().backward()
    assert (weight.grad != 0).all()


def test_a_negative_raw_weight_acts_as_its_absolute_value():
    x, y = points()
    for kind in ("lorentz", "tangent", "tangent_textbook"):
        residual = make_residual(kind, Lorentz(), weight="learned", initial_weight=0.5)
        expected = residual(x, y)
        with torch.no_grad():
            residual.raw_weight.neg_()
        assert torch.equal(residual(x, y), expected)
        assert residual.weight > 0


def test_a_negative_raw_weight_is_trained():
    x, y = points()
    residual = LorentzResidual(Lorentz(), initial_weight=0.5)
    grads = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            residual.raw_weight.fill_(sign * 0.5)
        (g,) = torch.autograd.grad(residual(x, y).sum(), residual.raw_weight)
        grads.append(g)
    assert grads[0] == -grads[1] != 0


def test_scale_stays_positive_in_training():
    residual = LorentzResidual(Lorentz(), scale="learned")
    with torch.no_grad():
        residual.log_scale.fill_(-50.0)
    assert residual.scale > 0


def test_parameters_without_weight_decay_are_known_by_name_and_shape():
    model = Model(("lorentz", {"scale": "learned"}))
    decayed = [n for n, p in model.named_parameters() if p.dim() >= 2]
    assert decayed == ["linears.0.weight", "linears.1.weight"]
    ours = {n.rsplit(".", 1)[-1] for n, p in model.named_parameters() if p.shape == (1,)}
    assert ours == {"raw_weight", "log_scale", "log_kappa"}


def test_a_shared_manifold_gets_gradients_from_every_residual():
    x, y = points()
    M = Lorentz(-1.0, learnable=True)
    residuals = [make_residual(kind, M) for kind in ("lorentz", "tangent", "parallel_transport")]
    single = []
    for residual in residuals:
        (g,) = torch.autograd.grad(residual(x, y).sum(), M.log_kappa)
        single.append(g)
    (together,) = torch.autograd.grad(sum(r(x, y).sum() for r in residuals), M.log_kappa)
    torch.testing.assert_close(together, sum(single))


def test_dtype_of_the_module_follows_its_parameters():
    x, y = (t.double() for t in points())
    residual = LorentzResidual(Lorentz(-2.0), 0.37, 1.7, dtype=torch.float64)
    expected = lorentz_residual(x, y, 0.37, 1.7, K=-2.0)
    torch.testing.assert_close(residual(x, y), expected, rtol=1e-15, atol=0.0)
    assert residual.float().raw_weight.dtype == torch.float32
    assert residual(x, y).dtype == torch.float64
