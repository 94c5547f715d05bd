"""Blocks of a network: the modules whose own code adds a skip connection and its branch."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
from typing import NamedTuple

import torch

from lresnet.convert.callers import Callers, Pairs, Related, Site, is_torchs, related
from lresnet.convert.dataflow import Dataflow
from lresnet.convert.method_source import Method, Unreadable, read_method
from lresnet.convert.parts import Parts, is_name
from lresnet.convert.skip_sums import SkipSum, UnclearSum, find_skip_sums

__all__ = ["Block", "Survey", "survey"]

_TORCH_BLOCKS = (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
_ALL_PARTS = ("children", "named_children", "modules", "_modules")

_SOME = "some of the calls give a value and what layers have made of it, others do not"


@dataclasses.dataclass
class Block:
    """A module and the sums of its methods."""

    path: str
    module: torch.nn.Module
    methods: dict[str, Method] = dataclasses.field(default_factory=dict)
    """All that were read: forward, and what it calls on the object."""
    of_bases: list[Method] = dataclasses.field(default_factory=list)
    """What these call by super(), or by a class."""
    sums: dict[str, list[SkipSum]] = dataclasses.field(default_factory=dict)
    """Those of each method that has any."""
    sites: list[Site] = dataclasses.field(default_factory=list)
    """The calls in all of that code."""

    @property
    def title(self) -> str:
        """How a message calls it."""
        name = type(self.module).__name__
        return f"{self.path} ({name})" if self.path else name


@dataclasses.dataclass
class Survey:
    """What was found in a network."""

    blocks: list[Block] = dataclasses.field(default_factory=list)
    read: int = 0
    unclear: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of each place, the class, the sum and why it is unclear."""
    overwritten: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of each place, the class and the sum, where one that is converted was written into an argument."""
    unreadable: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of each path, the reason."""

    def left(self) -> str:
        """All that stays as it is, a line for each."""
        lines = [f"  {place}: {text}" for place, text in self.unclear.items()]
        return "\n".join(lines + [f"  {path}: {reason}" for path, reason in self.unreadable.items()])


def survey(network: torch.nn.Module) -> Survey:
    """Read the code of every module, each once.

    Example:
        >>> found = survey(torch.nn.Transformer(8, 2, 1, 1, batch_first=True))
        >>> [block.path for block in found.blocks]
        ['encoder.layers.0', 'decoder.layers.0']
    """
    found, callers = Survey(), Callers(network)
    for path, module in network.named_modules():
        cls = type(module)
        if isinstance(module, torch.jit.ScriptModule):
            found.unreadable[path] = "it is TorchScript; convert the module that it was made of"
        elif "forward" in module.__dict__:
            found.unreadable[path] = f"the forward of this {cls.__name__} was replaced, by one that is not its class's"
        elif is_torchs(cls) and cls not in _TORCH_BLOCKS:
            continue  # torch's own layers and containers add no skip connection
        else:
            _read(Block(path, module), found, callers)
    return found


class _Reading(NamedTuple):
    sums: list[SkipSum]
    unclear: list[UnclearSum]
    flow: Dataflow


def _read(block: Block, found: Survey, callers: Callers) -> None:
    found.read += 1
    readings = _read_methods(block, found, callers)
    for name, (sums, unclear, flow) in readings.items():
        method = block.methods[name]
        if sums:
            block.sums[name] = sums
        for one in unclear:
            _note(found, block, method, one)
        for written in flow.overwritten:
            found.overwritten.setdefault(method.place(written.node), f"{written.text} in {type(block.module).__name__}")
        _note_helpers(found, block, flow)
        block.sites += flow.sites
    callers.note(block.module, block.sites)
    _note_others(found, block, Parts(block.module))
    # Where no run comes, as in a block that has no skip connection, a residual's parameters would never be trained.
    if any(one.met for sums in block.sums.values() for one in sums):
        _refuse_loop_over_parts(block)
        found.blocks.append(block)


def _read_methods(block: Block, found: Survey, callers: Callers) -> dict[str, _Reading]:
    """Of forward, and of all that it calls on the object."""
    cls, parts = type(block.module), Parts(block.module)
    waiting = ["forward"] if cls.__call__ is torch.nn.Module.__call__ else ["forward", "__call__"]
    readings: dict[str, _Reading] = {}
    while waiting:
        name = waiting.pop(0)
        if name in block.methods:
            continue
        try:
            method = read_method(cls, name)
        except Unreadable as error:
            if name in ("forward", "__call__"):
                found.unreadable[block.path or cls.__name__] = str(error)
            continue
        if method.owner is torch.nn.Module:
            continue  # self.train(), say
        block.methods[name] = method
        pairs = callers.related(block.module, method.arguments) if name == "forward" else Pairs({}, {})
        readings[name] = _reading(method, parts, pairs)
        flow = readings[name].flow
        waiting += sorted(flow.called | _read_bases(found, block, method, parts, flow.base_called))
    for name, method in block.methods.items():
        sites = [*block.sites, *(site for reading in readings.values() for site in reading.flow.sites)]
        pairs = related([site for site in sites if site.calls(name)], method.arguments, own=True)
        if pairs.told:
            readings[name] = _reading(method, parts, pairs)
    return readings


def _reading(method: Method, parts: Parts, pairs: Pairs) -> _Reading:
    """With what the calls tell, more sums are found; none is lost by it."""
    sums, unclear, flow = find_skip_sums(method, parts)
    if pairs.agreed:
        more, _, flow = find_skip_sums(method, parts, pairs.agreed)
        known = {one.ordinal for one in sums}
        sums = sorted([*sums, *(one for one in more if one.ordinal not in known)], key=lambda one: one.position)
    if pairs.told.keys() != pairs.agreed.keys():
        more, _, _ = find_skip_sums(method, parts, pairs.told)
        unclear = [*(UnclearSum(one.sum, _SOME) for one in more if one.met), *unclear]
    return _Reading(sums, [one for one in unclear if not any(one.sum.node is skip.sum.node for skip in sums)], flow)


def _note(found: Survey, block: Block, method: Method, one: UnclearSum) -> None:
    text = f"{one.sum.text} in {type(block.module).__name__}: {one.reason}"
    found.unclear.setdefault(method.place(one.sum.node), text)


def _read_bases(found: Survey, block: Block, method: Method, parts: Parts, called: set[str]) -> set[str]:
    """Methods called by super() or by a class are not looked up in the object, so they cannot be replaced.

    The methods that those call on the object, which can.
    """
    classes, others = type(block.module).__mro__, set()
    for call in sorted(called):
        *named, name = call.split(".")
        bases = [base for base in classes if base.__name__ == named[-1]] if named else []
        bases = bases or list(classes[classes.index(method.owner) + 1 :])
        try:
            base = read_method(next(base for base in bases if hasattr(base, name)), name)
        except (StopIteration, Unreadable):
            continue
        if base.owner is torch.nn.Module or any(base.function is one.function for one in block.of_bases):
            continue
        block.of_bases.append(base)
        sums, _, flow = find_skip_sums(base, parts)
        block.sites += flow.sites
        for one in filter(lambda one: one.met, sums):
            reason = f"{type(block.module).__name__} calls it by {call if named else 'super()'}"
            _note(found, block, base, UnclearSum(one.sum, reason))
        others |= flow.called | _read_bases(found, block, base, parts, flow.base_called)
    return others


def _note_helpers(found: Survey, block: Block, flow: Dataflow) -> None:
    """Functions that are given layers, or a value and what layers made of it, may add both; they are not replaced."""
    for function in flow.helpers.values():
        _note_function(found, block, function, {}, "is given a layer")
    for site in flow.sites:
        if isinstance(site.called, types.FunctionType):
            code = inspect.unwrap(site.called).__code__
            if pairs := related([site], code.co_varnames[: code.co_argcount]).agreed:
                _note_function(found, block, site.called, pairs, "is given a value and what layers have made of it")


def _note_function(found: Survey, block: Block, function: types.FunctionType, pairs: Related, why: str) -> None:
    name = function.__name__
    try:
        method = read_method(type("Functions", (), {name: function}), name)
        (method.node.args.posonlyargs or method.node.args.args).insert(0, ast.arg("_block"))  # it has no self
        sums, _, _ = find_skip_sums(method, Parts(block.module), pairs)
    except ValueError:
        return
    for one in sums:
        _note(found, block, method, UnclearSum(one.sum, f"it stands in {name}, a function that {why}"))


def _note_others(found: Survey, block: Block, parts: Parts) -> None:
    """Methods that forward does not call, as far as is seen: model.encode(x)."""
    cls = type(block.module)
    own = {name for base in cls.__mro__ if not base.__module__.startswith("torch.nn.") for name in vars(base)}
    for name in sorted(own - block.methods.keys()):
        if name.startswith("__") or not isinstance(getattr(cls, name), types.FunctionType):
            continue
        try:
            method = read_method(cls, name)
            sums, _, _ = find_skip_sums(method, parts)
        except ValueError:
            continue
        for one in filter(lambda one: one.met, sums):
            _note(found, block, method, UnclearSum(one.sum, f"forward is not seen to call {name}"))


def _refuse_loop_over_parts(block: Block) -> None:
    """The residuals become parts of the block: code that calls all of its parts would call them too."""
    for method in [*block.methods.values(), *block.of_bases]:
        name = method.self_name
        if method.owner in _TORCH_BLOCKS:
            continue  # there, self.modules() looks for hooks
        for node in ast.walk(method.node):
            match node:
                case ast.Attribute(value=ast.Name(id=own), attr=attribute) if own == name and attribute in _ALL_PARTS:
                    pass
                case ast.Subscript(value=ast.Name(id=own)) if own == name:
                    pass
                case ast.For(iter=ast.Name(id=own)) | ast.comprehension(iter=ast.Name(id=own)) if own == name:
                    pass
                case ast.Call(func=ast.Name(id="enumerate" | "zip" | "len" | "list" | "reversed"), args=given) if any(
                    is_name(one, name) for one in given
                ):
                    pass
                case _:
                    continue
            raise ValueError(
                f"{block.title}: {method.place(node)} goes over all parts of the block, and the residuals become parts "
                "of it; keep its layers in a list of their own, self.layers = torch.nn.ModuleList(...)"
            )
