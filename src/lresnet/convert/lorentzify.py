r"""Conversion of a network: sums of a skip connection and its branch become residual connections.

A convolution, norm, ReLU or linear map of space coordinates *is* a hyperbolic layer, so the rest of the network does
not change.

Choice of the curvature: in flat space the Lorentz residual with weight 1 and scale 2 is x + y. Far from the origin its
norm is about :math:`2/\sqrt\kappa`, independent of x and y. Activations after a norm have coordinates of about unit
variance, and so a norm of :math:`\sqrt n`. ``"auto"`` is :math:`\kappa = 1/n` with n the width of the widest sum. Such
points are one radius of curvature from the origin, where the space is curved and the sum still depends on x and y.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lresnet.convert.attention import Attention, AttentionPlace, convert_attention, find_attention
from lresnet.convert.example import guesses
from lresnet.convert.plan import Plan, Sum, copy_of, find_sums, results_of
from lresnet.convert.rewritten_class import Replacement, find_sum, is_rewritten, rewritten_class
from lresnet.convert.source import enclosed
from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.residual import RESIDUALS, make_residual

__all__ = ["lorentzify", "require_module"]

Dim = int | Mapping[str, int] | None

_LORENTZ_OPTIONS = {"weight": "learned", "scale": "learned", "initial_scale": 2.0}
_MULTIPLES = ("lorentz", "lorentz_textbook")  # residuals that are a multiple of x + w y, which a norm removes
_WRITE_IT = "write a skip connection as x + f(x) in the forward of a module, where f are layers"
CONVERSION = "_lorentz_conversion"
"""Attribute of a converted network: how it was converted, as JSON values."""


def lorentzify(
    module: torch.nn.Module,
    curvature: float | Literal["auto"] | Lorentz = "auto",
    residual: str = "lorentz",
    dim: Dim = None,
    *,
    example: Any = None,
    plan: Plan | None = None,
    attention: Attention | Sequence[AttentionPlace] = "keep",
    **options: Any,
) -> torch.nn.Module:
    """Return a copy of ``module`` in which sums of a skip connection and its branch are residual connections.

    The network runs on example inputs to find the sums (:func:`lresnet.find_sums`). Then each class with such a sum is
    replaced by a subclass of the same name that calls a residual in its place. Parameters keep their names and values;
    residuals add their own (``residual``, ``residual_2``, ... in their block). All residuals refer to one
    ``manifold``, a part of the first block. ``save_pretrained(folder)`` of the result writes the conversion and the
    weights, which :func:`lresnet.from_pretrained` reads. With ``residual="space"`` the converted network must compute
    exactly what the original does; this is checked on the example.

    Args:
        module: the network; it does not change.
        curvature: K < 0; ``"auto"``: -1/n, where n is the number of coordinates of the widest sum; or a manifold, e.g.
            one with a learned curvature.
        residual: a name of :data:`lresnet.residual.RESIDUALS`.
        dim: the coordinate axis of the sums: a number, or numbers for parts of the network,
            ``{"stem": 1, "blocks": -1}``. None: the axis of the channels, as the layers show it.
        example: example input: a tensor, a tuple of arguments, or a dict of named arguments. None: guessed from the
            network's first layer.
        plan: the result of :func:`lresnet.find_sums`, perhaps changed; it replaces the example.
        attention: ``"keep"`` leaves dot-product attention as it is. ``"lorentz"`` makes the scores Lorentzian inner
            products and joins values by their centroid, in :class:`torch.nn.MultiheadAttention` and in modules that
            call ``scaled_dot_product_attention``; all weights stay, and each head gets a learned temperature. The
            network then computes something else even near curvature 0, where this is L2 attention. A network without
            a sum to convert, as one with norms behind its sums, is converted too. A saved network passes the modules.
        options: options of the residual. By default the Lorentz residual has a learned weight (initially 1) and a
            learned scale (initially 2). With a small curvature the network then computes the same as before.
            ``scale="1+w"`` keeps each residual near the sum x + w f(x) while the weight is trained, ``scale=None``
            makes it an average.

    Raises:
        TypeError: ``module`` is not a module, or an option is unknown.
        ValueError: no sum is converted, an axis is unknown or wrong, or the network cannot be converted.

    Example:
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, norm_first=True)
        >>> lorentzify(layer, example=torch.randn(5, 3, 8)).residual
        LorentzResidual(curvature=-0.125, dim=-1, weight=learned, scale=learned)
    """
    require_module(module)
    if residual not in RESIDUALS:
        make_residual(residual, Lorentz())  # raises an error that lists the names
    is_known = plan is not None  # by the user, who can print it
    if plan is None:
        plan = _plan(module, example)
    elif example is not None:
        raise ValueError("give an example or a plan, not both: the plan was made from an example")
    places = _attention_places(module, plan, attention)
    chosen = _chosen(plan, residual)
    if not chosen and not places:
        raise ValueError(_nothing_to_convert(plan))
    chosen, axes = _with_axes(chosen, dim) if chosen else ([], [])
    manifold = curvature if isinstance(curvature, Lorentz) else Lorentz(_curvature(curvature, chosen, axes, places))
    network = copy_of(module)
    blocks = _blocks(network, chosen)
    options = (_LORENTZ_OPTIONS if residual == "lorentz" else {}) | options
    owners = [block for block, _ in blocks.values()] or [network.get_submodule(one.module) for one in places]
    _register(owners[0], manifold)
    added: list[tuple[torch.nn.Module, str, bool]] = []
    flat = residual in ("space", "euclidean")
    for block, sums in blocks.values():
        own = [(one, axes[chosen.index(one)]) for one in sums]
        added += _convert(block, own, lambda axis: make_residual(residual, manifold, dim=axis, **options), flat)
    _switch_fast_paths_off(network)
    if plan.example is not None:
        _verify(module, network, plan, added)
        _warn(plan, chosen, is_known)
    if not is_rewritten(type(network)):
        network.__class__ = rewritten_class(type(network), ())  # has save_pretrained
    convert_attention(network, places, manifold)  # after the check, because it changes what the network computes
    _switch_fast_paths_off(network)
    network.__dict__[CONVERSION] = {
        "residual": residual,
        "options": options,
        "learned_curvature": bool(list(manifold.parameters())),
        **({"attention": [list(place) for place in places]} if places else {}),
        "sums": [_as_dict(one, axes[chosen.index(one)]) for _, sums in blocks.values() for one in sums],
    }
    return network


def require_module(module: object) -> None:
    """Raise an error unless ``module`` is a network whose code can be followed and rewritten."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    name = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise ValueError(f"{name} is TorchScript, which has no source; lorentzify the module that it was made from")
    for part in module.modules():
        if isinstance(part, ManifoldModule | Lorentz):
            raise ValueError(f"{name} already computes on a manifold; convert the Euclidean network")
        # By name: torch._dynamo, which has the class, takes seconds to import.
        if type(part).__name__ == "OptimizedModule" or part._compiled_call_impl is not None:
            raise ValueError(f"{name} is compiled with its present sums; first lorentzify, then compile")
        if isinstance(part, torch.fx.GraphModule):
            raise ValueError(f"{name} is a traced graph; lorentzify the module that it was traced from")
        if isinstance(part, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            raise ValueError(f"{name} is wrapped in {type(part).__name__}; first lorentzify, then wrap")
        for attribute, value in vars(part).items():  # a copy of a function still calls the old objects
            held = enclosed(value).values() if isinstance(value, types.FunctionType) else ()
            if any(isinstance(one, torch.nn.Module) for one in held):
                raise ValueError(
                    f"{name}: {attribute} of {type(part).__name__} is a function that holds a module; a copy would "
                    "still call the old module: make it a method"
                )


def _plan(module: torch.nn.Module, example: Any) -> Plan:
    if isinstance(example, Mapping):
        return find_sums(module, **example)
    if example is not None:
        return find_sums(module, *(example if isinstance(example, tuple | list) else (example,)))
    error: Exception | None = None
    for args, keywords in guesses(module):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return find_sums(module, *args, **keywords)
        except Exception as problem:
            error = error or problem
    text = " ".join(str(error).split())[:200]
    raise ValueError(
        f"{type(module).__name__} does not run on an input guessed from its first layer ({text}); pass an example: "
        "lorentzify(net, example=x), or example=(x, y), or example={'input_ids': ids}"
    ) from error


def _attention_places(
    module: torch.nn.Module, plan: Plan, attention: Attention | Sequence[AttentionPlace]
) -> Sequence[AttentionPlace]:
    """The modules whose attention is converted."""
    if not isinstance(attention, str):
        return attention
    if attention not in get_args(Attention):
        raise ValueError(f"attention must be {' or '.join(get_args(Attention))}, got {attention!r}")
    return find_attention(module, plan) if attention == "lorentz" else ()


def _chosen(plan: Plan, residual: str) -> list[Sum]:
    """The sums to convert. A norm behind the sum removes a factor, and nothing else."""
    has_effect = residual not in _MULTIPLES
    return [one for one in plan if one.converted or (has_effect and one.is_post_norm and not one.chosen_by_user)]


def _nothing_to_convert(plan: Plan) -> str:
    normed = [one for one in plan if one.is_post_norm and not one.chosen_by_user]
    if normed:
        counted, verb = ("sum", "is") if len(normed) == 1 else ("sums", "are")
        return (
            f"{len(normed)} {counted} of {plan.network} {verb} followed by a layer norm, which removes the factor of "
            "the Lorentz residual: converting them has no effect. Use residual='parallel_transport', or a network with "
            f"norms before its branches; plan.include({normed[0].class_name!r}) converts them anyway"
        )
    ran = f"{len(plan)} sum{'' if len(plan) == 1 else 's'} of activations ran"
    left = "".join(f"\n  {one.name} {one.text}: {one.reason}" for one in plan.refused[:20])
    return f"no sum of a skip connection and its branch was found in {plan.network}: {ran}; {_WRITE_IT}{left}"


def _with_axes(chosen: Sequence[Sum], dim: Dim) -> tuple[list[Sum], list[int]]:
    """The sums with a known coordinate axis, and their axes; the others are named in a warning."""
    if isinstance(dim, Mapping):
        known = list(dict.fromkeys(one.module for one in chosen))
        for prefix in dim:
            if not any(_is_within(path, prefix) for path in known):
                raise ValueError(f"dim: there is no sum at {prefix!r}; they are at {', '.join(map(repr, known))}")
    elif dim is not None and type(dim) is not int:
        raise TypeError(f"dim must be a number, a dict from paths to numbers, or None; got {dim!r}")
    axes = {one: axis for one in chosen if (axis := _given_axis(one, dim)) is not None}
    unknown = [one for one in chosen if one not in axes]
    if unknown:
        lines = "".join(f"\n  {one.name} {one.text}, shape {one.shape}" for one in unknown[:10])
        text = (
            f"the layers do not show the coordinate axis of{lines}\nGive dim=1 (channels after the batch) or dim=-1 "
            f"(channels last), or both for parts of the network, e.g. dim={{{unknown[0].module!r}: -1}}"
        )
        if not axes or any(one.chosen_by_user for one in unknown):
            raise ValueError(text)
        warnings.warn(f"not converted: {text}", stacklevel=3)
    return list(axes), list(axes.values())


def _given_axis(one: Sum, dim: Dim) -> int | None:
    """The axis as the residual gets it: 1 for channels after the batch, otherwise counted from the end."""
    if isinstance(dim, Mapping):
        fitting = [prefix for prefix in dim if _is_within(one.module, prefix)]
        if fitting:
            return _checked(one, dim[max(fitting, key=len)])
    elif dim is not None:
        axis = _checked(one, dim)
        if one.axis is not None and one.shape and axis % len(one.shape) != one.axis % len(one.shape):
            raise ValueError(
                f"dim={dim} is wrong for {one.name} {one.text}: its channels are on axis "
                f"{one.axis % len(one.shape)} of {one.shape}; leave dim out, or give it by path: "
                f"dim={{{one.module!r}: {dim}}}"
            )
        return axis
    if one.axis is None:
        return None
    return 1 if one.axis != -1 and len(one.shape) + one.axis == 1 else one.axis


def _checked(one: Sum, axis: int) -> int:
    if type(axis) is not int:
        raise TypeError(f"dim must be a whole number, got {axis!r}")
    if one.shape and not -len(one.shape) <= axis < len(one.shape):
        raise ValueError(f"dim={axis} is out of range for {one.name} {one.text} of shape {one.shape}")
    return axis


def _is_within(path: str, prefix: str) -> bool:
    return prefix in ("", path) or path.startswith(f"{prefix}.")


def _curvature(
    asked: float | str, chosen: Sequence[Sum], axes: Sequence[int], places: Sequence[AttentionPlace]
) -> float:
    if asked == "auto":
        widths = [one.shape[axis] for one, axis in zip(chosen, axes, strict=True) if one.shape]
        widths = widths or [one.heads * one.width for one in places]
        if not widths:
            raise ValueError('curvature="auto" needs a plan that was made from an example; give a number')
        return -1 / max(widths)
    if isinstance(asked, str):
        raise ValueError(f'curvature must be a negative number, "auto" or a Lorentz manifold, got {asked!r}')
    return asked


# Rewriting


def _blocks(network: torch.nn.Module, chosen: Sequence[Sum]) -> dict[str, tuple[torch.nn.Module, list[Sum]]]:
    """The modules with sums, in the network's order, each with its sums in the order of the source."""
    parts = dict(network.named_modules())
    blocks: dict[str, tuple[torch.nn.Module, list[Sum]]] = {}
    for path in parts:
        own = [one for one in chosen if one.module == path]
        if own:
            blocks[path] = (
                parts[path],
                sorted(own, key=lambda one: (one.place.method != "forward", *one.place.source_line)),
            )
    missing = [one.module for one in chosen if one.module not in parts]
    if missing:
        raise ValueError(f"the plan is for another network: {type(network).__name__} has no part {missing[0]!r}")
    for block, sums in blocks.values():
        for one in sums:
            if type(block).__name__ != one.class_name:
                raise ValueError(
                    f"the plan is for another network: {one.module or 'the network'} is a {type(block).__name__}, "
                    f"not a {one.class_name}"
                )
            find_sum(type(block), one.place.method, one.place.calls, one.place.ordinal, one.place.text)
    return blocks


def _register(block: torch.nn.Module, manifold: Lorentz) -> None:
    """Make the first block the owner: a Sequential would call a part of its own, and layers only refer to it.

    The manifold keeps its dtype, since rounding would change a learned curvature that is shared with other networks.
    """
    names = ["manifold", "lorentz_manifold", *(f"lorentz_manifold_{number}" for number in range(2, 100))]
    name = next(name for name in names if not _is_taken(block, name))
    block.add_module(name, manifold.to(_like(block).get("device")).train(block.training))


def _convert(
    block: torch.nn.Module, sums: Sequence[tuple[Sum, int]], make: Callable[[int], torch.nn.Module], flat: bool
) -> list[tuple[torch.nn.Module, str, bool]]:
    """Give the block its residuals and the class that calls them; return block, name and order of each."""
    stems = ["residual", "lorentz_residual", *(f"lorentz_residual_of_{number}" for number in range(2, 100))]
    suffixes = ["" if number == 0 else f"_{number + 1}" for number in range(len(sums))]
    stem = next(stem for stem in stems if not any(_is_taken(block, stem + suffix) for suffix in suffixes))
    replacements, added = [], []
    for (one, axis), suffix in zip(sums, suffixes, strict=True):
        rounds = _rounds(block, one.place.loop)
        with _default_dtype(_like(block).get("dtype")):
            part = make(axis) if rounds is None else torch.nn.ModuleList(make(axis) for _ in range(rounds))
        block.add_module(stem + suffix, part.to(**_like(block)).train(block.training))
        added.append((block, stem + suffix, one.skip_first or flat))
        place = one.place
        # A flat residual treats both sides alike, and the first one decides about the layout of the result.
        first = one.skip_first or flat
        replacements.append(
            Replacement(place.method, place.calls, place.ordinal, place.text, first, stem + suffix, rounds is not None)
        )
    block.__class__ = rewritten_class(type(block), tuple(replacements))
    return added


@contextmanager
def _default_dtype(dtype: torch.dtype | None) -> Iterator[None]:
    """Make new parameters in float64 for a network in float64; log(2) of float32 would have fewer digits."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if dtype == torch.float64 else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _rounds(module: torch.nn.Module, loop: str | None) -> int | None:
    """The number of residuals for a loop through a list of layers, one for each layer."""
    layers = None if loop is None else getattr(module, loop, None)
    if isinstance(layers, torch.nn.ModuleList | torch.nn.Sequential | torch.nn.ModuleDict | list | tuple):
        return len(layers)
    return None


def _is_taken(block: torch.nn.Module, name: str) -> bool:
    """Whether the block has such a part, or the code of its class uses the name."""
    functions = (value for base in type(block).__mro__[:-1] for value in vars(base).values())
    codes = (one.__code__ for one in functions if isinstance(one, types.FunctionType))
    return hasattr(block, name) or any(
        name in code.co_names for code in codes if "torch/nn/modules/module" not in code.co_filename
    )


def _like(module: torch.nn.Module) -> dict[str, Any]:
    """Device and dtype of a module's parameters."""
    floating = (one for one in module.parameters() if one.is_floating_point() and not isinstance(one, Lorentz))
    return next(({"device": one.device, "dtype": one.dtype} for one in floating), {})


def _switch_fast_paths_off(network: torch.nn.Module) -> None:
    """In evaluation torch's encoder layers would call one kernel for everything, sums included."""
    converted = set()
    for module in network.modules():
        own = (one for one in module.children() if isinstance(one, ManifoldModule))
        if isinstance(module, torch.nn.TransformerEncoderLayer) and next(own, None) is not None:
            module.activation_relu_or_gelu = 0  # this attribute selects the kernel
            converted.add(id(module))
    for module in network.modules():
        if isinstance(module, torch.nn.TransformerEncoder) and converted & set(map(id, module.layers)):
            module.use_nested_tensor = False


# Verification


class _PlainSum(torch.nn.Module):
    """The sum with its sides as they were written: the first one decides about the layout of the result."""

    def __init__(self, skip_first: bool) -> None:
        super().__init__()
        self.skip_first = skip_first

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y if self.skip_first else y + x


def _verify(
    module: torch.nn.Module,
    network: torch.nn.Module,
    plan: Plan,
    added: Sequence[tuple[torch.nn.Module, str, bool]],
) -> None:
    """Raise an error unless the network with plain sums in place of the residuals computes what the original did."""
    assert plan.example is not None
    paths = {id(module): path for path, module in network.named_modules()}
    check = copy_of(network)
    for block, name, skip_first in added:
        owner = check.get_submodule(paths[id(block)])
        part, plain = owner._modules[name], _PlainSum(skip_first)
        many = isinstance(part, torch.nn.ModuleList)
        owner._modules[name] = torch.nn.ModuleList([plain] * len(part)) if many else plain  # type: ignore[arg-type]
    if all(_computes_the_same(copy_of(module), copy_of(check), plan, training) for training in (False, True)):
        return
    in_place = [one for one in plan.converted if one.place.in_place]
    hint = (
        f"these sums write into a tensor that other code still reads: {', '.join(one.name for one in in_place[:5])}; "
        "write x = x + f(x), or leave them out with plan.exclude"
        if in_place
        else "please report this, and find the sum with plan.exclude"
    )
    raise ValueError(
        f"{plan.network} computes something else after the conversion, although its residuals were plain sums for this "
        f"check; {hint}"
    )


def _computes_the_same(module: torch.nn.Module, check: torch.nn.Module, plan: Plan, training: bool) -> bool:
    try:
        expected = results_of(module, plan, training=training)
    except Exception:
        if training:  # the example does not fit, e.g. a batch of one image and batch norms
            return True
        raise
    try:
        found = results_of(check, plan, training=training)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise ValueError(f"{plan.network} does not run after the conversion: {text}") from error
    return all(_equal(found.get(name, []), tensors) for name, tensors in expected.items())


def _equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    if len(first) != len(second):
        return False
    for one, other in zip(first, second, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or one.layout != other.layout:
            return False
        one, other = (each.to_dense() if each.layout != torch.strided else each for each in (one, other))
        if not torch.equal(one, other) and not bool(((one == other) | ((one != one) & (other != other))).all()):
            return False
    return True


def _warn(plan: Plan, chosen: Sequence[Sum], is_known: bool) -> None:
    written = [one for one in chosen if one.place.writes_argument]
    if written:
        lines = "".join(f"\n  {one.name}: {one.text}" for one in written)
        warnings.warn(
            f"in {plan.network} these sums changed an argument in place, and no longer do; if the caller relies on it, "
            f"write x = x + f(x) and use the result:{lines}",
            stacklevel=3,
        )
    unclear = [one for one in plan.refused if one.place.reason or one.is_post_norm or "re-param" in one.reason]
    unclear = [one for one in unclear if one not in chosen and not one.chosen_by_user]
    if unclear and not is_known:
        lines = "".join(f"\n  {one.name} {one.text or one.function}: {one.reason}" for one in unclear[:20])
        warnings.warn(f"not converted in {plan.network} (find_sums shows all sums):{lines}", stacklevel=3)


def _as_dict(one: Sum, axis: int) -> dict[str, Any]:
    place = one.place
    return {
        "module": one.module, "class": one.class_name, "method": place.method, "calls": [list(c) for c in place.calls],
        "ordinal": place.ordinal, "text": place.text, "skip_first": one.skip_first, "loop": place.loop, "axis": axis,
    }  # fmt: skip
