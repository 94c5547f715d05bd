"""Heads on Euclidean features: points at the stated radius, logits of order one, and training whatever their scale."""

import copy
import math

import pytest
import torch

import lresnet
from lresnet.nn import ClassifierHead
from lresnet.optim import make_adam, parameter_groups

KINDS = ("mlr", "prototypes", "linear")


def features(scale: float = 1.0, count: int = 200, n: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features as after a ReLU and a pooling: positive, with a large common mean."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 4
    centres = torch.rand(4, n, generator=generator)
    return scale * (5 + centres[labels] + 0.3 * torch.rand(count, n, generator=generator)), labels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
def test_a_head_learns_from_features_of_any_scale(kind: str, scale: float) -> None:
    torch.manual_seed(0)
    x, y = features(scale)
    head = ClassifierHead(32, 4, kind)  # type: ignore[arg-type]
    optimizer = make_adam(head, lr=0.01)
    assert head(x).std() < 5
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(x), y).backward()
        optimizer.step()
    assert (head.eval()(x).argmax(-1) == y).float().mean() > 0.95


@pytest.mark.parametrize(("kind", "radius"), [("mlr", None), ("mlr", 3.0), ("prototypes", None), ("prototypes", 0.5)])
def test_points_have_the_stated_radius(kind: str, radius: float | None) -> None:
    head = ClassifierHead(32, 4, kind, radius=radius)  # type: ignore[arg-type]
    x, _ = features()
    points = head.points(x)
    assert head.manifold is not None
    found = math.sqrt(float((head.manifold.kappa * points.square().sum(-1)).mean()))
    assert found == pytest.approx({"mlr": 1.0, "prototypes": 2.0}[kind] if radius is None else radius, rel=1e-3)


def test_the_norm_does_not_depend_on_the_scale_and_spares_constant_features() -> None:
    x, _ = features()
    x[:, 0] = 7.0
    small, large = (ClassifierHead(32, 4).norm for _ in range(2))
    torch.testing.assert_close(small(1e-6 * x), large(1e6 * x), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(small.eval()(1e-6 * x), large.eval()(1e6 * x), rtol=1e-2, atol=1e-2)  # after one batch
    x[:, 0] = 8.0
    assert large.eval()(1e6 * x).abs().max() < 400
    assert torch.equal(small.train()(torch.zeros(3, 32)), torch.zeros(3, 32))
    with pytest.raises(ValueError, match="needs more than one item, got 1"):
        small(torch.zeros(1, 32))


def test_a_small_radius_is_a_linear_head() -> None:
    head = ClassifierHead(8, 3, radius=1e-3)
    x = torch.randn(50, 8)
    weight = head.classifier.weight
    torch.testing.assert_close(head(x), 2 * head.norm(x) @ weight.T, rtol=1e-3, atol=1e-4)


def test_the_head_owns_its_curvature_and_nothing_geometric_decays() -> None:
    head = ClassifierHead(8, 3, "prototypes", learn_curvature=True)
    groups = parameter_groups(head)
    assert {name.rsplit(".", 1)[-1] for name in groups.geometric} == {"log_kappa", "log_scale"}
    assert list(groups.manifold) == ["classifier.points"]
    head(torch.randn(4, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    twin = copy.deepcopy(head).eval()
    twin.load_state_dict(head.state_dict())
    x = torch.randn(4, 8)
    torch.testing.assert_close(twin(x), head.eval()(x))
    assert twin.classifier.manifold is twin.manifold


@pytest.mark.parametrize("kind", KINDS)
def test_features_may_have_more_axes_and_half_precision(kind: str) -> None:
    head = ClassifierHead(8, 3, kind)  # type: ignore[arg-type]
    x = torch.randn(4, 5, 8)
    assert head(x).shape == (4, 5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert head(x.bfloat16()).isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "softmax"}, "kind must be one of mlr, prototypes, linear, got 'softmax'"),
        ({"radius": 0.0}, "radius must be positive and finite, got 0.0"),
        ({"kind": "linear", "radius": 1.0}, "are for hyperbolic classifiers, but kind is 'linear'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ClassifierHead(8, 3, **arguments)  # type: ignore[arg-type]


def test_unpooled_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"built for 8 features, got shape \(2, 8, 4, 4\); pool the output"):
        ClassifierHead(8, 3)(torch.rand(2, 8, 4, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_one_line_on_a_timm_backbone(kind: str) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    backbone = timm.create_model("resnet10t", num_classes=0)
    net = torch.nn.Sequential(backbone, ClassifierHead(backbone.num_features, 3, kind))  # type: ignore[arg-type]
    images = torch.rand(12, 3, 32, 32)
    images[torch.arange(12), torch.arange(12) % 3] += 1
    data = torch.utils.data.TensorDataset(images, torch.arange(12) % 3)
    task = lresnet.data.dataset_task(data, validation=data, test=data)
    backbone.requires_grad_(False)
    before = copy.deepcopy(backbone.state_dict())
    run = lresnet.fit(task, net, lresnet.TrainConfig(20, lr=0.01), device="cpu")
    assert run.evaluate()["accuracy"] > 60
    assert all(torch.equal(before[name], value) for name, value in backbone.state_dict().items())
    assert run.embed().points.shape == (12, backbone.num_features)
