"""The blocks of a network: the modules whose own code adds a skip connection and its branch."""

from __future__ import annotations

import ast
import dataclasses

import torch

from lresnet.models.conversion.method_source import Method, Unreadable, read_method
from lresnet.models.conversion.parts import Parts
from lresnet.models.conversion.skip_sums import SkipSum, UnclearSum, find_skip_sums

__all__ = ["Block", "Survey", "survey"]

_TORCH_BLOCKS = (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
_ALL_PARTS = ("children", "named_children", "modules", "_modules")


@dataclasses.dataclass
class Block:
    """A module and the sums of its methods."""

    path: str
    module: torch.nn.Module
    methods: dict[str, Method] = dataclasses.field(default_factory=dict)
    """All that were read: forward, and what it calls on the object."""
    sums: dict[str, list[SkipSum]] = dataclasses.field(default_factory=dict)
    """Those of each method that has any."""

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
    found = Survey()
    for path, module in network.named_modules():
        cls = type(module)
        if cls.__module__.startswith("torch.nn.") and cls not in _TORCH_BLOCKS:
            continue  # torch's own layers and containers add no skip connection
        if isinstance(module, torch.jit.ScriptModule):
            found.unreadable[path] = "it is TorchScript; convert the module that it was made of"
        elif "forward" in module.__dict__:
            found.unreadable[path] = f"the forward of this {cls.__name__} was replaced, by one that is not its class's"
        else:
            _read(Block(path, module), found)
    return found


def _read(block: Block, found: Survey) -> None:
    parts, waiting = Parts(block.module), ["forward"]
    found.read += 1
    while waiting:
        name = waiting.pop(0)
        if name in block.methods:
            continue
        try:
            method = read_method(type(block.module), name)
        except Unreadable as error:
            if name == "forward":
                found.unreadable[block.path or type(block.module).__name__] = str(error)
            continue
        if method.owner is torch.nn.Module:
            continue  # self.train(), say
        block.methods[name] = method
        sums, unclear, flow = find_skip_sums(method, parts)
        if sums:
            block.sums[name] = sums
        for one in unclear:
            _note(found, block, method, one)
        _note_base(found, block, method, parts, flow.base_called)
        waiting += sorted(flow.called)
    # Where no run comes, as in a block that has no skip connection, a residual's parameters would never be trained.
    if any(one.met for sums in block.sums.values() for one in sums):
        _refuse_loop_over_parts(block)
        found.blocks.append(block)


def _note(found: Survey, block: Block, method: Method, one: UnclearSum) -> None:
    text = f"{one.sum.text} in {type(block.module).__name__}: {one.reason}"
    found.unclear.setdefault(method.place(one.sum.node), text)


def _note_base(found: Survey, block: Block, method: Method, parts: Parts, called: set[str]) -> None:
    """A method that is called by super() is not looked up in the object, so it cannot be replaced."""
    for name in called:
        base = next((base for base in method.owner.__mro__[1:] if name in vars(base)), None)
        if base is None:
            continue
        try:
            method_of_base = read_method(base, name)
        except Unreadable:
            continue
        for one in filter(lambda one: one.met, find_skip_sums(method_of_base, parts)[0]):
            reason = f"{type(block.module).__name__} calls it by super()"
            _note(found, block, method_of_base, UnclearSum(one.sum, reason))


def _refuse_loop_over_parts(block: Block) -> None:
    """The residuals become parts of the block: code that calls all of its parts would call them too."""
    for method in block.methods.values():
        name = method.self_name
        if type(block.module) in _TORCH_BLOCKS:
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
                    isinstance(one, ast.Name) and one.id == name for one in given
                ):
                    pass
                case _:
                    continue
            raise ValueError(
                f"{block.title}: {method.place(node)} goes over all parts of the block, and the residuals become parts "
                "of it; keep its layers in a list of their own, self.layers = torch.nn.ModuleList(...)"
            )
