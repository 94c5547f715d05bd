"""The scale 1 + w of the Lorentz residual: a sum in flat space, an average without it."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

import lresnet
from lresnet import Lorentz, LorentzResidual, create_model, from_pretrained
from lresnet.functional import lorentz_residual
from lresnet.nn import WeightedJoin
from tests.residual.common import normals

PER_POINT = torch.tensor([0.2, 1.0, 1.7, 0.0], dtype=torch.float64)
WEIGHTS = {"number": 0.3, "per point": PER_POINT, "trained per point": torch.nn.Parameter(PER_POINT.clone())}


def points() -> tuple[Tensor, Tensor]:
    return normals(4, 3, dtype=torch.float64), normals(4, 3, seed=1, dtype=torch.float64)


def rows(weight: float | Tensor) -> float | Tensor:
    return weight.detach().unsqueeze(-1) if isinstance(weight, Tensor) else weight


@torch.no_grad()
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("scale", [None, "1+w"], ids=["average", "sum"])
def test_near_curvature_0_it_is_a_sum_and_without_a_scale_an_average(name, scale):
    (x, y), w = points(), rows(WEIGHTS[name])
    expected = (x + w * y) / (1 if scale else 1 + w)
    errors = []
    for kappa in (1e-4, 1e-6):
        residual = LorentzResidual(Lorentz(-kappa), WEIGHTS[name], scale, dtype=torch.float64)
        errors.append(float((residual(x, y) - expected).norm()))
    assert errors[0] / errors[1] == pytest.approx(100, rel=1e-2)  # proportional to kappa
    assert errors[1] < 1e-5


@pytest.mark.parametrize("weight", [0.7, -0.7], ids=["positive", "negative"])
def test_gradcheck_through_a_learned_weight(weight):
    residual = LorentzResidual(Lorentz(-2.0), scale="1+w", dtype=torch.float64)

    def value(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return torch.func.functional_call(residual, {"raw_weight": w}, (x, y))

    inputs = (torch.tensor([weight], dtype=torch.float64), *points())
    assert torch.autograd.gradcheck(value, [each.requires_grad_() for each in inputs])
    assert torch.autograd.gradgradcheck(value, inputs)


@torch.no_grad()
def test_the_scale_follows_a_weight_that_changes():
    x, y = points()
    residual = LorentzResidual(Lorentz(-2.0), scale="1 + w").double()
    for weight in (0.25, -3.0):
        residual.raw_weight.fill_(weight)
        assert float(residual.scale) == 1 + abs(weight)
        assert torch.equal(residual(x, y), lorentz_residual(x, y, weight, 1 + abs(weight), K=-2.0))
    assert list(dict(residual.named_parameters())) == ["raw_weight"]
    twin = copy.deepcopy(residual)
    twin.raw_weight.fill_(1.0)
    assert (float(twin.scale), float(residual.scale)) == (2.0, 4.0)


def test_a_loaded_weight_decides_the_scale():
    trained = LorentzResidual(Lorentz(), scale="1+w", initial_weight=0.3)
    fixed = LorentzResidual(Lorentz(), weight=1.0, scale="1+w")
    fixed.load_state_dict(trained.state_dict())
    assert fixed.scale == trained.scale == 1 + trained.weight


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_scale_of_a_weight_in_half_precision_is_rounded_once(dtype):
    residual = LorentzResidual(Lorentz(), weight=0.1, scale="1+w").to(dtype)
    assert float(residual.scale) == float(1 + torch.tensor(0.1, dtype=dtype).float())
    assert float(residual.double().scale) == 1.1


def test_repr_names_the_scale():
    text = repr(LorentzResidual(Lorentz(-2.0), scale=" 1 + w "))
    assert text == "LorentzResidual(curvature=-2, dim=-1, weight=learned, scale=1+w)"


def test_arguments_of_kernels():
    arguments = LorentzResidual(Lorentz(-2.0), PER_POINT, "1+w").kernel()
    assert torch.equal(arguments["weight"], PER_POINT)
    assert torch.equal(arguments["scale"], 1 + PER_POINT)


@torch.no_grad()
def test_a_weighted_join_divides_its_limit_by_the_weight_of_the_first_branch():
    x, y = points()
    errors = []
    for kappa in (1e-4, 1e-6):
        join = WeightedJoin("lorentz", Lorentz(-kappa), 0.2, learn_weight=True, scale="1+w").double()
        error = join(x, y) - (x + 0.25 * y)
        torch.testing.assert_close(join.of_vectors(x, y), join(x, y), rtol=10 * kappa, atol=10 * kappa)
        errors.append(float(error.norm()))
    assert errors[0] / errors[1] == pytest.approx(100, rel=2e-2)


def test_images_are_joined_by_the_same_formula():
    torch.manual_seed(0)
    options = {"weight": "learned", "scale": "1+w"}
    model = create_model("lorentz_resnet20", num_classes=3, residual_options=options)
    twin = create_model("lorentz_resnet20", num_classes=3, residual_options={"weight": "learned", "scale": 2.0})
    twin.load_state_dict(model.state_dict(), strict=False)
    images = normals(2, 3, 32, 32)
    torch.testing.assert_close(model(images), twin(images))
    model(images).square().sum().backward()
    gradients = [parameter.grad for name, parameter in model.named_parameters() if name.endswith("raw_weight")]
    assert gradients
    assert all(math.isfinite(float(g)) and float(g) != 0 for g in gradients)


@pytest.mark.parametrize("name", ["lorentz_gcn", "lorentz_sage", "lorentz_sgformer", "lorentz_mlp"])
def test_a_network_is_saved_and_loaded(name, tmp_path):
    torch.manual_seed(0)
    given = {} if name == "lorentz_sgformer" else {"weight": "learned"}
    model = create_model(name, in_features=6, num_classes=3, residual_options={"scale": "1+w"} | given).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    back = from_pretrained(model.save_pretrained(tmp_path)).eval()
    graph = () if name == "lorentz_mlp" else (torch.tensor([[0, 1, 2], [1, 2, 3]]),)
    x = normals(5, 6)
    assert torch.equal(back(x, *graph), model(x, *graph))
    own = [part for part in back.modules() if isinstance(part, LorentzResidual) and part.follows_weight]
    assert own
    assert all(part.scale == 1 + part.weight for part in own)


def test_a_converted_network_is_saved_and_loaded(tmp_path):
    torch.manual_seed(0)
    net = torch.nn.TransformerEncoderLayer(8, 2, norm_first=True, dropout=0.0)
    x = normals(5, 3, 8)
    flat = lresnet.lorentzify(net, curvature=-1e-9, example=x, scale="1+w")
    torch.testing.assert_close(flat(x), net(x), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        flat.residual.raw_weight.fill_(0.4)
    back = lresnet.from_pretrained(flat.save_pretrained(tmp_path), net=net)
    assert back.residual.scale.item() == pytest.approx(1.4)
    assert torch.equal(back.eval()(x), flat.eval()(x))
