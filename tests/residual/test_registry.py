"""The residuals by name."""

from __future__ import annotations

import pytest
import torch

import lresnet
from lresnet import residual as room
from lresnet.residual import RESIDUALS, make_residual, modules
from tests.residual.common import normals

NAMES = [
    "lorentz",
    "parallel_transport",
    "parallel_transport_reversed",
    "tangent",
    "space",
    "none",
    "euclidean",
    "parallel_transport_textbook",
    "tangent_textbook",
]


def test_the_names_are_the_public_ones():
    assert list(RESIDUALS) == NAMES
    assert lresnet.make_residual is make_residual
    assert lresnet.LorentzResidual is RESIDUALS["lorentz"]


def test_the_list_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        RESIDUALS["mine"] = modules.NoResidual


def test_every_module_of_the_room_has_a_name():
    classes = {
        value
        for value in vars(modules).values()
        if isinstance(value, type) and issubclass(value, modules.Residual) and not value.__name__.startswith("_")
    }
    assert classes - {modules.Residual} == set(RESIDUALS.values())
    assert set(room.__all__) - {"RESIDUALS", "make_residual"} <= {c.__name__ for c in classes}


@pytest.mark.parametrize("kind", NAMES)
def test_made_as_its_class_with_manifold_and_axis(kind):
    M = lresnet.Lorentz(-2.0)
    residual = make_residual(kind, M, dim=1)
    assert type(residual) is RESIDUALS[kind]
    assert residual.manifold is M
    assert residual.dim == 1


def test_options_reach_the_class():
    M = lresnet.Lorentz(-2.0)
    residual = make_residual(
        "lorentz", M, weight="learned", scale="learned", initial_weight=0.5, initial_scale=3.0, dtype=torch.float64
    )
    assert float(residual.weight.detach()) == 0.5
    torch.testing.assert_close(residual.scale.detach(), torch.tensor(3.0, dtype=torch.float64))
    tangent = make_residual("tangent", M, weight="learned", initial_weight=0.25, device="meta")
    assert tangent.raw_weight.device.type == "meta"


def test_defaults():
    M = lresnet.Lorentz()
    lorentz, tangent = make_residual("lorentz", M), make_residual("tangent", M)
    assert isinstance(lorentz.raw_weight, torch.nn.Parameter)
    assert lorentz.scale is None
    assert not isinstance(tangent.raw_weight, torch.nn.Parameter)
    assert lorentz.dim == tangent.dim == -1
    assert float(lorentz.weight.detach()) == float(tangent.weight) == 1.0


def test_none_and_euclidean():
    x, y = normals(3, 4), normals(3, 4, seed=1)
    M = lresnet.Lorentz(-2.0)
    assert torch.equal(make_residual("none", M)(x, y), y)
    assert torch.equal(make_residual("euclidean", M)(x, y), x + y)
    assert torch.equal(make_residual("space", M)(x, y), x + y)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("lorenz", "lorentz"),
        ("Lorentz", "lorentz"),
        ("parallel-transport", "parallel_transport"),
        ("tangent_space", "tangent"),
        ("Euclidean", "euclidean"),
        (None, "none"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong, right):
    with pytest.raises(ValueError, match=f"unknown residual {wrong!r}; did you mean {right!r}\\? Known: lorentz, "):
        make_residual(wrong, lresnet.Lorentz())


@pytest.mark.parametrize(
    ("kind", "option", "takes"),
    [
        ("lorentz", "wieght", "it takes device, dtype, initial_scale, initial_weight, scale, weight"),
        ("tangent", "scale", "it takes device, dtype, initial_weight, weight"),
        ("space", "weight", "it takes no options"),
        ("parallel_transport", "curvature", "it takes no options"),
    ],
)
def test_an_unknown_option_is_answered_with_the_known_ones(kind, option, takes):
    with pytest.raises(TypeError, match=f"residual '{kind}' has no option '{option}'; {takes}"):
        make_residual(kind, lresnet.Lorentz(), **{option: 1.0})
