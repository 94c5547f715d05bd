"""The table of methods: every residual connection with its class, options, label, colour and order.

Every other list of methods reads this table. It loads without torch; classes and functions are named as
``"module:name"`` and imported on first use.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from lresnet.geometry import Lorentz
    from lresnet.residual.base import Residual

__all__ = ["METHODS", "RESIDUALS", "Method", "compared_methods", "make_residual", "residual_options"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """One residual connection. A new one needs ``name``, ``label``, ``short_label`` and ``module``."""

    name: str
    label: str
    """Label in a picture of points."""
    short_label: str
    """Label in a table or legend of results."""
    summary: str = ""
    """What it does with two points at weight 1, in a few words, for the legend of a picture."""
    module: str
    """Class of the module, as ``"module:name"``."""
    function: str | None = None
    """The function on space coordinates, as ``"module:name"``; None if the method is only a module."""
    textbook_function: str | None = None
    """The published form of ``function``, for comparison."""
    options: tuple[str, ...] = ()
    """Options of :func:`make_residual`, besides ``dim``."""
    role: Literal["residual", "baseline", "textbook"] = "residual"
    """``"baseline"``: what residuals are compared with. ``"textbook"``: the published form of another method."""
    compared: bool = False
    """Whether a comparison of methods trains it by default."""
    commutative: bool = True
    """Whether x and y may be exchanged at weight 1."""
    curved: bool = True
    """Whether the result depends on the curvature."""
    branch_weights: Literal["own", "coordinates", "vectors", "unused"] = "vectors"
    """How :class:`lresnet.nn.WeightedJoin` weighs two branches: by the residual's own ``weight``, by a factor of the
    coordinates, by a factor of the tangent vectors at the origin, or not at all."""
    has_equivalent_weights: bool = False
    """Whether :func:`lresnet.functional.equivalent_weights` knows weights for it."""
    kernel: str | None = None
    """Name of its formula in :mod:`lresnet.kernels`; None if it has no kernel."""
    colour: str = "#8C8C8C"
    marker: str = "o"
    """Marker of matplotlib."""
    line: Literal["solid", "dashed"] = "solid"
    table_rank: int = 1000
    """Order of the rows of a table of results, ascending."""
    picture_rank: int = 1000
    """Order of the points of a picture, ascending."""


_WEIGHT_OPTIONS = ("device", "dtype", "initial_weight", "weight")

# Colours: Okabe and Ito, "Color Universal Design" (2008), which colour-blind readers can tell apart.
_TABLE = (
    Method(
        name="lorentz",
        label="Lorentz residual",
        short_label="lorentz",
        summary="midpoint of x and y",
        module="lresnet.residual.lorentz:LorentzResidual",
        function="lresnet.residual.lorentz:lorentz_residual",
        textbook_function="lresnet.residual.textbook:lorentz_textbook",
        options=(*_WEIGHT_OPTIONS, "initial_scale", "scale"),
        compared=True,
        branch_weights="own",
        kernel="lorentz",
        colour="#D55E00",
        marker="o",
        table_rank=80,
        picture_rank=10,
    ),
    Method(
        name="parallel_transport",
        label="parallel transport, x ⊕ y",
        short_label="parallel transport, boost",
        summary="y moved by the shift o → x",
        module="lresnet.residual.parallel_transport:ParallelTransportResidual",
        function="lresnet.residual.parallel_transport:parallel_transport_residual",
        textbook_function="lresnet.residual.textbook:parallel_transport_textbook",
        compared=True,
        commutative=False,
        has_equivalent_weights=True,
        kernel="parallel_transport",
        colour="#0072B2",
        marker="^",
        table_rank=20,
        picture_rank=40,
    ),
    Method(
        name="parallel_transport_reversed",
        label="parallel transport, y ⊕ x",
        short_label="parallel transport, reversed",
        summary="x moved by the shift o → y",
        module="lresnet.residual.parallel_transport:ReversedParallelTransportResidual",
        commutative=False,
        has_equivalent_weights=True,
        colour="#56B4E9",
        marker="v",
        table_rank=30,
        picture_rank=50,
    ),
    Method(
        name="tangent",
        label="tangent space",
        short_label="tangent",
        summary="sum of the logarithms at o",
        module="lresnet.residual.tangent:TangentResidual",
        function="lresnet.residual.tangent:tangent_residual",
        textbook_function="lresnet.residual.textbook:tangent_textbook",
        options=_WEIGHT_OPTIONS,
        compared=True,
        has_equivalent_weights=True,
        kernel="tangent",
        colour="#CC79A7",
        marker="D",
        table_rank=50,
        picture_rank=30,
    ),
    Method(
        name="space",
        label="space addition",
        short_label="space",
        summary="sum of the coordinates",
        module="lresnet.residual.space:SpaceResidual",
        function="lresnet.residual.space:space_residual",
        compared=True,
        curved=False,
        branch_weights="coordinates",
        has_equivalent_weights=True,
        colour="#009E73",
        marker="s",
        table_rank=70,
        picture_rank=20,
    ),
    Method(
        name="none",
        label="no residual, y alone",
        short_label="none",
        summary="x is not used",
        module="lresnet.residual.space:NoResidual",
        role="baseline",
        compared=True,
        commutative=False,
        curved=False,
        branch_weights="unused",
        colour="#E69F00",
        marker="X",
        table_rank=10,
        picture_rank=80,
    ),
    Method(
        name="euclidean",
        label="Euclidean addition",
        short_label="Euclidean baseline",
        summary="sum in flat space",
        module="lresnet.residual.space:EuclideanResidual",
        function="lresnet.residual.space:space_residual",
        role="baseline",
        compared=True,
        curved=False,
        branch_weights="coordinates",
        colour="#8C8C8C",
        marker="P",
        line="dashed",
        table_rank=90,
        picture_rank=90,
    ),
    Method(
        name="parallel_transport_textbook",
        label="parallel transport, exp and log",
        short_label="parallel transport, exp and log",
        module="lresnet.residual.textbook:TextbookParallelTransportResidual",
        function="lresnet.residual.textbook:parallel_transport_textbook",
        role="textbook",
        commutative=False,
        colour="#56B4E9",  # as the reversed form, which is never in the same picture
        marker="v",
        line="dashed",
        table_rank=40,
        picture_rank=60,
    ),
    Method(
        name="tangent_textbook",
        label="tangent space, exp and log",
        short_label="tangent, exp and log",
        module="lresnet.residual.textbook:TextbookTangentResidual",
        function="lresnet.residual.textbook:tangent_textbook",
        options=_WEIGHT_OPTIONS,
        role="textbook",
        line="dashed",
        table_rank=60,
        picture_rank=70,
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _TABLE})
"""Every method by name."""


class _Modules(Mapping[str, "type[Residual]"]):
    """The modules of :data:`METHODS` by name, imported on first use."""

    def __getitem__(self, name: str) -> type[Residual]:
        return resolve_name(METHODS[name].module)  # type: ignore[no-any-return]

    def __contains__(self, name: object) -> bool:
        return name in METHODS

    def __iter__(self) -> Iterator[str]:
        return iter(METHODS)

    def __len__(self) -> int:
        return len(METHODS)


RESIDUALS: Mapping[str, type[Residual]] = _Modules()
"""The class of every method by name; iterating over the names does not import torch."""


def make_residual(kind: str, manifold: Lorentz, dim: int = -1, **options: Any) -> Residual:
    """Return the residual connection ``kind`` as a module.

    Args:
        kind: A name of :data:`METHODS`.
        manifold: Owner of the curvature.
        dim: The coordinate axis; 1 for images.
        options: Options of the module's class (:func:`residual_options`).

    Example:
        >>> from lresnet import Lorentz
        >>> make_residual("lorentz", Lorentz(-1.0), scale="learned")
        LorentzResidual(curvature=-1, dim=-1, weight=learned, scale=learned)
    """
    if kind not in METHODS:
        near = difflib.get_close_matches(str(kind), METHODS, n=1, cutoff=0.0)
        raise ValueError(f"unknown residual {kind!r}; did you mean {near[0]!r}? Known: {', '.join(METHODS)}")
    accepted = residual_options(kind)
    unknown = sorted(set(options) - accepted)
    if unknown:
        names = ", ".join(sorted(accepted)) or "no options"
        raise TypeError(f"residual {kind!r} has no option {', '.join(map(repr, unknown))}; it takes {names}")
    return RESIDUALS[kind](manifold, dim=dim, **options)


def residual_options(kind: str) -> set[str]:
    """Return the names of the options that ``kind`` takes in :func:`make_residual`.

    Example:
        >>> sorted(residual_options("space"))
        []
    """
    return set(METHODS[kind].options)


def compared_methods() -> tuple[str, ...]:
    """Return the methods that a comparison trains by default, in the order of a table of results.

    Example:
        >>> compared_methods()
        ('none', 'parallel_transport', 'tangent', 'space', 'lorentz', 'euclidean')
    """
    compared = [method for method in METHODS.values() if method.compared]
    return tuple(method.name for method in sorted(compared, key=lambda method: method.table_rank))
