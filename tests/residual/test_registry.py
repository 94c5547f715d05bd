"""The table of methods, and residuals by name."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest
import torch

import lresnet
from lresnet.functional import equivalent_weights
from lresnet.kernels.formulas import registered_kinds
from lresnet.residual import METHODS, RESIDUALS, make_residual, residual_options
from lresnet.residual.base import Residual, WeightedResidual
from lresnet.residual.registry import compared_methods
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
    assert list(METHODS)[: len(NAMES)] == NAMES
    assert list(METHODS) == list(RESIDUALS)
    assert len(METHODS) == len(RESIDUALS)
    assert lresnet.make_residual is make_residual
    assert lresnet.LorentzResidual is RESIDUALS["lorentz"]


def test_the_table_is_read_only():
    with pytest.raises(TypeError):
        RESIDUALS["mine"] = RESIDUALS["none"]
    with pytest.raises(TypeError):
        METHODS["mine"] = METHODS["none"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        METHODS["none"].label = "mine"


def test_every_residual_class_has_a_name():
    for module in pkgutil.iter_modules(lresnet.residual.__path__, "lresnet.residual."):
        importlib.import_module(module.name)
    classes = set(_subclasses(Residual)) - {WeightedResidual}
    assert classes == set(RESIDUALS.values())
    names = {name for name in lresnet.residual.__all__ if name.endswith("Residual")}
    assert names <= {cls.__name__ for cls in classes}


def _subclasses(cls: type) -> Iterator[type]:
    for child in cls.__subclasses__():
        if child.__module__.startswith("lresnet.residual."):
            yield child
            yield from _subclasses(child)


@pytest.mark.parametrize("kind", METHODS)
def test_the_options_of_the_table_are_those_of_the_class(kind):
    names = {
        name
        for base in RESIDUALS[kind].__mro__
        if issubclass(base, Residual) and "__init__" in vars(base)
        for name in inspect.signature(vars(base)["__init__"]).parameters
    }
    if "factory" in names:
        names |= {"device", "dtype"}
    assert residual_options(kind) == names - {"self", "manifold", "dim", "options", "factory"}


@pytest.mark.parametrize("kind", METHODS)
def test_the_table_names_the_kernel_of_the_class(kind):
    arguments = make_residual(kind, lresnet.Lorentz()).kernel()
    assert METHODS[kind].kernel == (arguments and arguments["kind"])
    assert METHODS[kind].kernel in (None, *registered_kinds())


@pytest.mark.parametrize("kind", METHODS)
def test_commutative_and_curved_are_as_in_the_table(kind):
    x, y = normals(3, 4), normals(3, 4, seed=1)
    with torch.no_grad():
        residual, flatter = make_residual(kind, lresnet.Lorentz(-1)), make_residual(kind, lresnet.Lorentz(-0.1))
        here, there, flat = residual(x, y), residual(y, x), flatter(x, y)
    assert torch.allclose(here, there) is METHODS[kind].commutative
    assert torch.allclose(here, flat) is not METHODS[kind].curved


@pytest.mark.parametrize("kind", METHODS)
def test_the_functions_of_the_table(kind):
    x, y = normals(3, 4), normals(3, 4, seed=1)
    entry = METHODS[kind]
    if entry.function:
        with torch.no_grad():
            assert torch.equal(pkgutil.resolve_name(entry.function)(x, y), make_residual(kind, lresnet.Lorentz())(x, y))
    if entry.function and entry.textbook_function:
        ours, published = (pkgutil.resolve_name(name)(x, y) for name in (entry.function, entry.textbook_function))
        torch.testing.assert_close(ours, published, rtol=1e-4, atol=1e-5)


def test_the_methods_with_equivalent_weights():
    x, y = normals(3, 4), normals(3, 4, seed=1)
    for kind, entry in METHODS.items():
        if entry.has_equivalent_weights:
            equivalent_weights(x, y, kind)
        else:
            with pytest.raises(ValueError, match=f"known for the method '{kind}'"):
                equivalent_weights(x, y, kind)


def test_order_of_tables_and_pictures():
    known = [METHODS[name] for name in NAMES]
    by_row = sorted(known, key=lambda method: method.table_rank)
    by_picture = sorted(known, key=lambda method: method.picture_rank)
    assert [method.name for method in by_row] == [
        "none",
        "parallel_transport",
        "parallel_transport_reversed",
        "parallel_transport_textbook",
        "tangent",
        "tangent_textbook",
        "space",
        "lorentz",
        "euclidean",
    ]
    assert [method.name for method in by_picture if method.role == "residual"] == [
        "lorentz",
        "space",
        "tangent",
        "parallel_transport",
        "parallel_transport_reversed",
    ]
    assert compared_methods() == ("none", "parallel_transport", "tangent", "space", "lorentz", "euclidean")


@pytest.mark.parametrize("kind", METHODS)
def test_class_manifold_and_axis(kind):
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
def test_error_for_an_unknown_name_suggests_the_nearest(wrong, right):
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
def test_error_for_an_unknown_option_lists_the_known_ones(kind, option, takes):
    with pytest.raises(TypeError, match=f"residual '{kind}' has no option '{option}'; {takes}"):
        make_residual(kind, lresnet.Lorentz(), **{option: 1.0})
