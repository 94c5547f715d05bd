"""The sums of a network as they run, and the choice of those that become residual connections."""

from __future__ import annotations

import contextlib
import copy
import difflib
import fnmatch
import random
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import BaseTorchFunctionMode
from torch.utils._pytree import tree_map

from lresnet.convert.places import Place, place_of
from lresnet.convert.provenance import Kind, Recorder, Value, tensors_in
from lresnet.convert.skip_sums import BOTH_LINEAR, NO_DATA, NOISE, SAME_SHAPE, TWO_BRANCHES, Relation, SkipSums

__all__ = ["Plan", "Sum", "find_sums"]

POST_NORM = "post-norm: no effect (the norm removes the residual's factor)"
SCORES = "it adds attention scores (a softmax follows)"
SOME_CALLS = "only some of its calls add a skip connection and its branch"
NUMBERS = "one side is a number in some calls"
SIDES = "the skip connection is the first side in some calls and the second in others"
FUNCTION = "it runs in an autograd function, whose backward pass may rely on the sum, as in reversible blocks"
_OWN_REASONS = (BOTH_LINEAR, SAME_SHAPE, NOISE)  # about one module, not about the line in all modules
_MERGING = ("fuse", "reparameterize", "switch_to_deploy", "structural_reparam", "merge_kernel")
_NORM = re.compile(r"(layer|rms)_?norm|^norm$", re.IGNORECASE)
_SUMS = ("add", "add_")
_OTHER_SUMS = {
    "sub": "a difference", "sub_": "a difference in place", "lerp": "torch.lerp", "addcmul": "torch.addcmul",
    "addcmul_": "addcmul_", "addcdiv": "torch.addcdiv", "addmm": "torch.addmm", "baddbmm": "torch.baddbmm",
}  # fmt: skip
_WRITE_IT = "write x + f(x) instead"


class Sum:
    """A sum in the code of a module, as it was seen to run.

    Attributes:
        name: how :meth:`Plan.include` and :meth:`Plan.exclude` call it: the module's path and the line.
        module: path of the module in the network.
        class_name: class of the module.
        function: function or method that has the sum.
        file, line: its place in the source.
        text: the sum's source on one line.
        shape: shape of both sides.
        axis: coordinate axis, counted from the end; None: it is not known, and ``dim`` must be given.
        calls: number of times that one forward pass computes it.
        next: the operation or module that reads the result.
        skip_first: whether the skip connection is the first side.
        converted: whether :func:`lresnet.lorentzify` converts it.
        reason: why it is not converted; empty if it is.
    """

    def __init__(self, path: str, class_name: str, place: Place) -> None:
        self.module, self.class_name, self.place = path, class_name, place
        self.function, self.file, self.line, self.text = place.function, place.file, place.line, place.text
        self.name = f"{path}:{place.line}" if path else f":{place.line}"
        self.shape: tuple[int, ...] = ()
        self.axis: int | None = None
        self.calls = 0
        self.next = ""
        self.skip_first = True
        self.converted = False
        self.reason = ""
        self.is_post_norm = False
        self.chosen_by_user = False
        self.relations: list[Relation] = []
        self.results: list[Value] = []

    @property
    def width(self) -> int | None:
        """Number of coordinates: the size of the axis."""
        return None if self.axis is None or not self.shape else self.shape[self.axis]

    def __repr__(self) -> str:
        state = "converted" if self.converted else f"not converted: {self.reason}"
        return f"Sum({self.name}, {self.text or self.function}, {state})"


class Plan:
    """The sums of a network, and which of them become residual connections.

    :func:`find_sums` makes it, ``print(plan)`` shows it as a table, :meth:`include` and :meth:`exclude` change it, and
    :func:`lresnet.lorentzify` follows it.
    """

    def __init__(self, network: str, sums: Sequence[Sum], notes: Sequence[str] = ()) -> None:
        self.network, self.sums, self.notes = network, list(sums), list(notes)
        self.example: tuple[Any, Mapping[str, Any]] | None = None
        """The example inputs."""
        self.kind: tuple[torch.dtype, torch.device] | None = None
        """Dtype and device of the network that ran."""

    def __iter__(self) -> Iterator[Sum]:
        return iter(self.sums)

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def converted(self) -> list[Sum]:
        """The sums that become residual connections."""
        return [one for one in self.sums if one.converted]

    @property
    def refused(self) -> list[Sum]:
        """The sums that stay as they are."""
        return [one for one in self.sums if not one.converted]

    def include(self, pattern: str, *, skip_first: bool | None = None) -> Plan:
        """Convert the sums that match, whatever was decided about them; return the plan.

        Args:
            pattern: name of a sum, path of a module (all sums within it), class, or ``file.py:line``; ``*`` matches any
                text.
            skip_first: whether the first side is the skip connection; None: as found, else the first.

        Raises:
            ValueError: no sum matches, or the code of one that matches cannot be rewritten.
        """
        found = self._matching(pattern)
        impossible = [one for one in found if one.place.reason]
        if impossible:
            raise ValueError(f"{impossible[0].name} cannot be converted: {impossible[0].place.reason}")
        for one in found:
            one.converted, one.reason, one.chosen_by_user = True, "", True
            one.skip_first = one.skip_first if skip_first is None else skip_first
        return self

    def exclude(self, pattern: str) -> Plan:
        """Leave the sums that match as they are; return the plan. See :meth:`include` for the pattern."""
        for one in self._matching(pattern):
            one.converted, one.reason, one.chosen_by_user = False, "excluded", True
        return self

    def _matching(self, pattern: str) -> list[Sum]:
        found = [one for one in self.sums if _matches(one, pattern)]
        if not found:
            names = [one.name for one in self.sums]
            near = difflib.get_close_matches(pattern, names, n=1, cutoff=0.0)
            hint = f"; the nearest name is {near[0]!r}" if near else ""
            raise ValueError(f"no sum of {self.network} matches {pattern!r}{hint}. print(plan) shows their names")
        return found

    def __str__(self) -> str:
        groups: dict[tuple[Any, ...], list[Sum]] = {}
        for one in self.sums:
            key = (one.place.source_line, one.class_name, one.converted, one.reason, one.next, one.axis, one.width)
            groups.setdefault(key, []).append(one)
        header = ("sum", "of", "code", "where", "shape", "axis", "width", "calls", "next", "converted")
        rows = [header, *(_row(group) for group in groups.values())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        lines = [
            "  ".join(entry.ljust(width) for entry, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        converted = len(self.converted)
        counted = (
            f"{len(self.sums)} sum{'' if len(self.sums) == 1 else 's'} ran in {self.network}, {converted} converted"
        )
        return "\n".join([counted, *(lines if self.sums else []), *self.notes])

    def __repr__(self) -> str:
        return str(self)


def _matches(one: Sum, pattern: str) -> bool:
    place = f"{Path(one.file).name}:{one.line}"
    named = any(fnmatch.fnmatchcase(name, pattern) for name in (one.name, one.module, one.class_name, place))
    return named or one.module.startswith(f"{pattern}.")


def _row(group: list[Sum]) -> tuple[str, ...]:
    first = group[0]
    names = first.name if len(group) == 1 else f"{first.name} ... {group[-1].name} ({len(group)})"
    calls = sorted({one.calls for one in group})
    shapes = {one.shape for one in group}
    shape = "x".join(map(str, first.shape)) + (" ..." if len(shapes) > 1 else "")
    text = first.text if len(first.text) <= 48 else f"{first.text[:45]}..."
    return (
        names, first.class_name, text, f"{Path(first.file).name}:{first.line}", shape,
        "?" if first.axis is None else str(first.axis), "?" if first.width is None else str(first.width),
        str(calls[0]) if len(calls) == 1 else f"{calls[0]}-{calls[-1]}", first.next,
        "yes" if first.converted else f"no: {first.reason}",
    )  # fmt: skip


def find_sums(net: torch.nn.Module, *example_inputs: Any, **example_keywords: Any) -> Plan:
    """Run a copy of a network and return the sums that it computes.

    The network runs twice on the example inputs, in evaluation and in training mode, while the provenance of every
    tensor is recorded. Code that does not run is not in the plan. ``net`` itself does not change.

    Args:
        net: the network.
        example_inputs: what its ``forward`` takes. The values do not matter, the shapes do.
        example_keywords: named arguments of its ``forward``.

    Raises:
        TypeError: ``net`` is not a module.
        ValueError: the network cannot be converted, e.g. because it is compiled.

    Example:
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, norm_first=True)
        >>> plan = find_sums(layer, torch.randn(5, 3, 8))
        >>> [(one.text, one.axis, one.width, one.converted) for one in plan][1]
        ('x + self._ff_block(self.norm2(x))', -1, 8, True)
    """
    from lresnet.convert.lorentzify import require_module

    require_module(net)
    network = copy_of(net)
    search = _Search(network)
    with _seeded():
        search.run(network.eval(), example_inputs, example_keywords)
    try:
        with _seeded():
            search.run(network.train(), example_inputs, example_keywords)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        search.notes.append(
            f"It does not run in training mode with this example ({text}); only evaluation was recorded."
        )
    search.merge(example_inputs, example_keywords)
    plan = Plan(type(net).__name__, search.finish(), search.notes)
    plan.example, plan.kind = (example_inputs, example_keywords), kind_of(net)
    if not any(True for _ in tensors_in((example_inputs, example_keywords))):
        plan.notes.append("No tensor was found in the example inputs.")
    return plan


def _differentiable(inputs: Any) -> Any:
    """Return the inputs as tensors that require gradients; they are not leaves, so a network can write to them."""
    return tree_map(
        lambda one: one.requires_grad_().clone() if isinstance(one, Tensor) and one.is_floating_point() else one, inputs
    )


def kind_of(network: torch.nn.Module) -> tuple[torch.dtype, torch.device] | None:
    """Return dtype and device of the first floating-point parameter."""
    return next(((one.dtype, one.device) for one in network.parameters() if one.is_floating_point()), None)


def copy_of(network: torch.nn.Module) -> torch.nn.Module:
    """Return a deep copy; tensors that modules keep from an earlier pass are detached, as torch copies leaves only."""
    values = [value for module in network.modules() for value in vars(module).values()]
    kept = {id(one): one.detach().clone() for one in tensors_in(values) if not one.is_leaf}
    return copy.deepcopy(network, kept)


def copied(inputs: Any) -> Any:
    """Return a copy of the example, since a network may write into its input."""
    detached = tree_map(lambda one: one.detach().clone() if isinstance(one, Tensor) else one, inputs)
    return copy.deepcopy(detached)


def results_of(network: torch.nn.Module, plan: Plan, *, training: bool) -> dict[str, list[Tensor]]:
    """Return the tensors that a forward pass gives, and those that the modules then keep.

    The mode for torch functions keeps torch's encoder layers from their fused path.
    """
    assert plan.example is not None
    args, keywords = copied((plan.example[0], dict(plan.example[1])))
    now = kind_of(network)
    if now is not None and plan.kind is not None and now != plan.kind:  # the network was moved, or its dtype changed
        old = plan.kind[0]
        args, keywords = tree_map(
            lambda one: one.to(now[1], now[0] if one.dtype == old else None) if isinstance(one, Tensor) else one,
            (args, keywords),
        )
    with _seeded(), torch.enable_grad(), BaseTorchFunctionMode():
        output = network.train(training)(*args, **keywords)
    own = ("_parameters", "_modules")
    kept = {
        f"{path}.{name}": value
        for path, module in network.named_modules()
        for name, value in vars(module).items()
        if name not in own
    }
    return {name: [one.detach().clone() for one in tensors_in(value)] for name, value in {"": output, **kept}.items()}


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """Seed the random numbers of torch, NumPy and Python inside, and restore them after."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            np.random.seed(0)  # noqa: NPY002
            random.seed(0)
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


class _Search:
    """The sums that forward passes of one network compute."""

    def __init__(self, network: torch.nn.Module) -> None:
        self.network = network
        self.paths = {id(module): path for path, module in network.named_modules()}
        self.classes = {path: type(module).__name__ for path, module in network.named_modules()}
        self._leaves = {path for path, module in network.named_modules() if path and not list(module.children())}
        self.sums: dict[tuple[Any, ...], Sum] = {}
        self.notes: list[str] = []
        self._skip_sums = SkipSums()
        self._unseen: set[str] = set()
        self._with_numbers: set[Any] = set()
        self._after_merging: set[Any] | None = None
        """The sums that still run once branches were merged; None: no module merges any."""
        self._with_constants: set[Any] = set()
        """Places that add a number, or what does not depend on the input, in some calls."""

    def run(self, network: torch.nn.Module, args: Any, keywords: Any) -> None:
        """Run the network once and record its sums.

        The inputs require gradients if the network runs with such inputs: autograd then tells the inputs of code that
        is not seen.
        """
        before = dict(self.sums), set(self._with_numbers), set(self._with_constants)
        try:
            recorder = self._record(network, _differentiable(copied((args, dict(keywords)))))
        except Exception:
            self.sums, self._with_numbers, self._with_constants = before
            recorder = self._record(network, copied((args, dict(keywords))))
        for key, count in self._calls.items():
            self.sums[key].calls = max(self.sums[key].calls, count)
        self._unseen |= recorder.unseen

    def _record(self, network: torch.nn.Module, inputs: tuple[Any, dict[str, Any]]) -> Recorder:
        self._skip_sums, self._calls = SkipSums(), dict[tuple[Any, ...], int]()
        recorder = self._recorder = Recorder(network, self._on_operation)
        with torch.enable_grad(), recorder.following(inputs):
            network(*inputs[0], **inputs[1])
        return recorder

    def _on_operation(self, name: str, result: Value, frame: types.FrameType) -> None:
        sides = [edge.source for edge in result.edges]
        form = ""
        if name in ("sum", "mean") and sides and sides[0].operation == "stack":
            sides, form = [edge.source for edge in sides[0].edges], f"torch.stack(...).{name}(...)"
        elif name in _OTHER_SUMS:
            form = _OTHER_SUMS[name]
        elif name not in _SUMS:
            return
        if len(sides) < 2:
            if name in _SUMS and (place := place_of(frame)) is not None:
                self._with_numbers.add(place.source_line)
            return
        relation = self._skip_sums.relate(sides[0], sides[1] if name in _SUMS else sides[-1], result)
        if relation is None or relation.reason == NO_DATA:
            if name in _SUMS and relation is not None and (place := place_of(frame)) is not None:
                self._with_constants.add(place.source_line)
            return
        if form:
            if relation.skip_first is None or (name.startswith("sub") and not relation.skip_first):
                return
            relation = Relation(None, f"it is written as {form}; {_WRITE_IT}")
        if any(not one.__module__.startswith("torch.") for one in self._recorder.functions):
            relation = Relation(None, FUNCTION)
        place = place_of(frame)
        if place is None or place.module is None:
            return
        path = self.paths.get(id(place.module))
        if path is None:
            self._note(f"{type(place.module).__name__} at {place.file}:{place.line} is not part of the network.")
            return
        key = (path, *place[1:5], *place.source_line)
        self._calls[key] = self._calls.get(key, 0) + 1
        found = self.sums.setdefault(key, Sum(path, type(place.module).__name__, place))
        found.relations.append(relation)
        found.results.append(result)
        found.shape = found.shape or result.shape
        if found.axis is None:
            skip = sides[0] if relation.skip_first is not False else sides[1]
            branch = sides[1] if relation.skip_first is not False else sides[0]
            found.axis = skip.axis if skip.axis is not None else branch.axis
            found.axis = -1 if found.axis is None and len(result.shape) <= 2 else found.axis

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def finish(self) -> list[Sum]:
        """Decide about every sum, and return them in the order in which they first ran."""
        sums = list(self.sums.values())
        lines: dict[Any, list[Sum]] = {}
        for one in sums:
            lines.setdefault(one.place.source_line, []).append(one)
            one.next = self._next(one.results)
        for line in lines.values():
            reason = self._reason(line)
            all_normed = all(self._is_normed(result) for one in line for result in one.results)
            for one in line:
                one.reason = self._merging(one) or reason or self._own_reason(one)
                one.is_post_norm = all_normed and not one.reason
                one.reason = one.reason or (POST_NORM if all_normed else "")
                one.converted = not one.reason
                related = [relation for other in (one, *line) for relation in other.relations]
                one.skip_first = next((bool(each.skip_first) for each in related if each.skip_first is not None), True)
        constants = self._with_constants - lines.keys()
        if constants:
            places = f"{len(constants)} other line{'' if len(constants) == 1 else 's'}"
            self._note(f"Not listed: sums in {places} with a side that does not depend on the input, such as a bias.")
        for path in sorted(self._unseen):
            self._note(f"{path or 'The network'} runs code that cannot be followed, e.g. TorchScript.")
        _number(sums)
        return sums

    def _reason(self, line: list[Sum]) -> str:
        """Why a line of the source is not converted, in any module."""
        relations = [relation for one in line for relation in one.relations]
        not_skips = [relation for relation in relations if relation.skip_first is None]
        if len(not_skips) == len(relations):
            return not_skips[0].reason
        # Where a line adds a skip connection in other modules, two branches of one value are a shortcut and a branch.
        related = (TWO_BRANCHES, *_OWN_REASONS)
        in_some = line[0].place.source_line in self._with_constants
        if in_some or any(relation.reason not in related for relation in not_skips):
            return SOME_CALLS
        if line[0].place.source_line in self._with_numbers and not line[0].place.reason:
            return NUMBERS
        if any(_is_score(result) for one in line for result in one.results):
            return SCORES
        return ""

    def _own_reason(self, one: Sum) -> str:
        """Why a sum of one module is not converted."""
        own = [relation.reason for relation in one.relations if relation.reason in _OWN_REASONS]
        if own:
            return own[0]
        if len({relation.skip_first for relation in one.relations if relation.skip_first is not None}) > 1:
            return SIDES
        return one.place.reason

    def _merging(self, one: Sum) -> str:
        """Why a sum is not converted in a module whose branches can be merged later."""
        names = [name for name in _MERGING if callable(getattr(one.place.module, name, None))]
        if not names or self._after_merging is None or _key(one) in self._after_merging:
            return ""
        return f"re-parametrisable: {one.class_name}.{names[0]}() merges its branches"

    def merge(self, args: Any, keywords: Any) -> None:
        """Find out which sums still run in a copy of the network whose branches were merged."""
        if not any(callable(getattr(one.place.module, name, None)) for one in self.sums.values() for name in _MERGING):
            return
        merged = _Search(copy_of(self.network).eval())
        try:
            _merge(merged.network)
            merged.paths = {id(module): path for path, module in merged.network.named_modules()}
            merged.run(merged.network, args, keywords)
            self._after_merging = {_key(one) for one in merged.sums.values()}
        except Exception:
            self._after_merging = set()

    def _next(self, results: list[Value]) -> str:
        found = dict.fromkeys(self._reader(use) for result in results for use in _uses(result))
        readers = [one for one in found if one]
        return ", ".join(readers[:3]) + (" ..." if len(readers) > 3 else "") if readers else "output"

    def _reader(self, use: tuple[str, tuple[str, ...], Value]) -> str:
        name, modules, _ = use
        if name in _SUMS:
            return "sum"
        return self.classes[modules[-1]] if self._is_leaf(modules) else name

    def _is_normed(self, result: Value) -> bool:
        """Whether nothing but layer norms or RMS norms over the coordinates read a value."""
        uses = list(_uses_of(result))
        return bool(uses) and all(self._is_norm(value, use) for value, use in uses)

    def _is_norm(self, value: Value, use: tuple[str, tuple[str, ...], Value]) -> bool:
        name, modules, normed = use
        if value.axis not in (None, -1):
            return False
        if name in ("layer_norm", "rms_norm"):
            return normed.normed_axes == 1
        return self._is_leaf(modules) and _NORM.search(self.classes[modules[-1]]) is not None

    def _is_leaf(self, modules: tuple[str, ...]) -> bool:
        """Whether the innermost of the running modules has no parts."""
        path = modules[-1] if modules else ""
        return path in self._leaves


def _key(one: Sum) -> tuple[Any, ...]:
    return one.module, one.class_name, *one.place.source_line


def _merge(module: torch.nn.Module) -> None:
    """Merge the branches of all parts that have a method for it; it may return a part to take their place."""
    for name, part in list(module.named_children()):
        method = next((getattr(part, one) for one in _MERGING if callable(getattr(part, one, None))), None)
        merged = method() if method is not None else None
        if isinstance(merged, torch.nn.Module):
            setattr(module, name, merged)
        _merge(getattr(module, name, part))


def _number(sums: Sequence[Sum]) -> None:
    """Tell sums of one line apart by their column."""
    names: dict[str, list[Sum]] = {}
    for one in sums:
        names.setdefault(one.name, []).append(one)
    for same in names.values():
        # The inner one of a + b + c comes first.
        for number, one in enumerate(sorted(same, key=lambda one: one.place.source_line)[1:], 2):
            one.name = f"{one.name}.{number}"


def _uses(value: Value) -> Iterator[tuple[str, tuple[str, ...], Value]]:
    """Yield the operations that read a value, also in another shape or dtype."""
    return (use for _, use in _uses_of(value))


def _uses_of(value: Value) -> Iterator[tuple[Value, tuple[str, tuple[str, ...], Value]]]:
    """Yield the operations that read a value, each with the value as it is read: in its shape and dtype."""
    for use in value.uses:
        edge = next((edge for edge in use[2].edges if edge.source is value), None)
        if edge is not None and edge.kind is Kind.SAME:
            yield from _uses_of(use[2])
        elif use[0] != "__get__":
            yield value, use


def _is_score(result: Value) -> bool:
    """Whether a softmax follows, and its result weights values: then the sum adds attention scores."""
    return any(
        name == "softmax" and any(reader in ("matmul", "bmm", "einsum") for reader, _ in _after(softmax))
        for name, softmax in _after(result)
    )


def _after(value: Value) -> Iterator[tuple[str, Value]]:
    """Yield the operations that read a value, or a pointwise function of it."""
    seen, waiting = {value}, [value]
    while waiting:
        current = waiting.pop()
        for name, _, result in current.uses:
            yield name, result
            edge = next((edge for edge in result.edges if edge.source is current), None)
            if result not in seen and edge is not None and not edge.kind.is_layer:
                seen.add(result)
                waiting.append(result)
