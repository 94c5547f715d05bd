"""Provenance of the tensors of one forward pass: which tensor was computed from which, and by what kind of operation.

:class:`Recorder` is a ``TorchFunctionMode``. It sees every call of a torch function, also in helper functions, lambdas
and other libraries. It does not see the inside of TorchScript and of fused modules; autograd's graph tells their
inputs.
"""

from __future__ import annotations

import contextlib
import enum
import math
import sys
import types
import unittest.mock
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["Edge", "Kind", "Recorder", "Value", "ancestors", "direct_ancestors", "tensors_in"]


class Kind(enum.Enum):
    """How an operation computes its result from one of its inputs."""

    SAME = enum.auto()
    """The same numbers in another shape, layout or dtype; dropout counts as well."""
    POINTWISE_LINEAR = enum.auto()
    """Scaled by what does not depend on the input, or a summand."""
    PART = enum.auto()
    """A slice or a piece of it, or one of the pieces of a concatenation."""
    POINTWISE = enum.auto()
    """Any other function of single elements, such as an activation or a product."""
    LINEAR = enum.auto()
    """A linear layer: convolution, matrix product with a parameter, batch norm, pooling, aggregation on a graph."""
    MIXED = enum.auto()
    """Any other layer: attention, layer norm, a product of two activations."""

    @property
    def is_layer(self) -> bool:
        return self in (Kind.LINEAR, Kind.MIXED)

    @property
    def is_linear(self) -> bool:
        return self not in (Kind.POINTWISE, Kind.MIXED)


class Edge(NamedTuple):
    """One input of an operation."""

    source: Value
    kind: Kind


class Value:
    """A tensor of the forward pass at one moment. An operation in place gives a tensor a new value."""

    __slots__ = (
        "axis",
        "edges",
        "index",
        "is_data",
        "is_float",
        "modules",
        "normed_axes",
        "operation",
        "shape",
        "uses",
    )

    def __init__(
        self,
        index: int,
        shape: tuple[int, ...],
        is_float: bool,
        edges: tuple[Edge, ...] = (),
        *,
        operation: str = "",
        modules: tuple[str, ...] = (),
        is_data: bool = False,
        axis: int | None = None,
    ) -> None:
        self.index, self.shape, self.is_float = index, shape, is_float
        self.edges, self.operation, self.modules = edges, operation, modules
        self.is_data = is_data
        """Whether it depends on the example inputs."""
        self.axis = axis
        """Axis of the channels, counted from the end; None: unknown."""
        self.normed_axes = 0
        """Number of last axes that a layer norm or RMS norm runs over, where it is the result of one."""
        self.uses: list[tuple[str, tuple[str, ...], Value]] = []
        """Operations that read it, the modules around them, and their result."""

    @property
    def root(self) -> Value:
        """The value that it repeats in another shape, layout or dtype."""
        value = self
        while len(value.edges) == 1 and value.edges[0].kind is Kind.SAME:
            value = value.edges[0].source
        return value


def tensors_in(item: Any, depth: int = 6) -> Iterator[Tensor]:
    """Yield the tensors of nested lists and dictionaries, and of objects such as a graph of PyG."""
    for leaf in tree_leaves(item):
        if isinstance(leaf, Tensor):
            yield leaf
        elif depth and not isinstance(leaf, torch.nn.Module | type | types.FunctionType | types.ModuleType):
            inner = getattr(leaf, "__dict__", None)
            if isinstance(inner, dict) and inner:
                yield from tensors_in(list(inner.values()), depth - 1)


def ancestors(value: Value) -> set[Value]:
    """Return all values that ``value`` was computed from, itself included."""
    found, waiting = {value}, [value]
    while waiting:
        for edge in waiting.pop().edges:
            if edge.source not in found:
                found.add(edge.source)
                waiting.append(edge.source)
    return found


def direct_ancestors(value: Value, opaque: Container[Value] = ()) -> set[Value]:
    """Return the ancestors that reach ``value`` on a path without a layer, itself included.

    No path leads through the values in ``opaque``.
    """
    found, waiting = {value}, [value]
    while waiting:
        current = waiting.pop()
        for edge in current.edges if current not in opaque else ():
            if edge.source not in found and not edge.kind.is_layer:
                found.add(edge.source)
                waiting.append(edge.source)
    return found


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SAME = _names("""
    view reshape permute transpose swapaxes swapdims movedim moveaxis flatten unflatten contiguous to float half double
    bfloat16 type type_as clone detach requires_grad_ dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout
    feature_dropout feature_alpha_dropout squeeze unsqueeze expand expand_as view_as reshape_as t adjoint cpu cuda
    alias ravel squeeze_ unsqueeze_ transpose_ __get__ positive as_tensor rename refine_names
    """)
_PART = _names("""
    __getitem__ chunk split tensor_split split_with_sizes narrow select unbind cat concat concatenate stack hstack
    vstack dstack roll flip masked_fill masked_fill_ where diff repeat repeat_interleave tile __setitem__ slice_scatter
    select_scatter tril triu take_along_dim masked_select nan_to_num pad constant_pad_nd
    """)
_POINTWISE_LINEAR = _names("mul mul_ multiply div div_ divide true_divide add add_ sub sub_ rsub neg lerp")
_PRODUCTS = _names("matmul mm bmm addmm baddbmm einsum tensordot bilinear mv dot inner outer")
_LINEAR = _names("""
    linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d _conv_forward batch_norm
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d interpolate upsample
    grid_sample pixel_shuffle pixel_unshuffle unfold fold mean sum scatter_add scatter_add_ index_add index_add_
    scatter scatter_ scatter_reduce scatter_reduce_ index_select gather cumsum max_pool1d max_pool2d max_pool3d
    boolean_dispatch fn _max_pool1d _max_pool2d _max_pool3d sparse_mm segment_reduce index_put index_put_
    """)
_MIXED = _names("""
    layer_norm group_norm instance_norm local_response_norm rms_norm softmax log_softmax normalize embedding
    embedding_bag multi_head_attention_forward scaled_dot_product_attention lstm gru rnn_tanh rnn_relu lstm_cell
    gru_cell sort argsort topk amax max min amin norm vector_norm std var fft ifft fft2 ifft2 rfft irfft rfft2 irfft2
    fftn ifftn rfftn irfftn stft istft cdist unique adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    """)
_CHANNELS_LAST = _names(
    "linear layer_norm rms_norm embedding multi_head_attention_forward lstm gru rnn_tanh rnn_relu lstm_cell gru_cell"
)
_CHANNELS_BEHIND_BATCH = frozenset(("batch_norm", "group_norm", "instance_norm", "pixel_shuffle", "pixel_unshuffle"))
# They take the shape of a tensor, and nothing else.
_SHAPES = _names(
    """
    zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full
    new_tensor bernoulli bernoulli_ normal_ uniform_ zero_ fill_
    """
)
_QUERIES = _names("size dim numel stride is_floating_point is_contiguous data_ptr element_size __len__ item")


class Recorder(TorchFunctionMode):
    """Record the provenance of every tensor while it is active.

    Args:
        network: the network that is run. Its modules are known by their paths.
        on_operation: called after every operation with its name, the result's value and the frame of the code that
            called it. Only operations that give one tensor are reported.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        on_operation: Callable[[str, Value, types.FrameType], None] | None = None,
    ) -> None:
        super().__init__()
        self.paths = {id(module): path for path, module in network.named_modules()}
        self.values: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.unseen: set[str] = set()
        """Paths of modules, and code, that compute tensors without calls that can be recorded."""
        self.functions: list[type] = []
        """Autograd functions that are running."""
        self._by_gradient: dict[Any, Value] = {}
        self._modules: list[str] = []
        self._inputs: list[list[Value]] = []
        self._count = 0
        self._on_operation = on_operation

    # The modules that are running

    @contextlib.contextmanager
    def following(self, inputs: Any) -> Iterator[None]:
        """Record what runs inside; ``inputs`` are the example inputs."""
        for tensor in tensors_in(inputs):
            self.values[tensor] = self._new(tensor, is_data=True)
        before = torch.nn.modules.module.register_module_forward_pre_hook(self._enter)
        after = torch.nn.modules.module.register_module_forward_hook(self._leave, always_call=True)
        apply = torch.autograd.Function.__dict__["apply"].__func__

        def noted(cls: type, *args: Any, **kwargs: Any) -> Any:
            self.functions.append(cls)
            try:
                return apply(cls, *args, **kwargs)
            finally:
                self.functions.pop()

        try:
            with self, unittest.mock.patch.object(torch.autograd.Function, "apply", classmethod(noted)):
                yield
        finally:
            before.remove()
            after.remove()
            self._by_gradient.clear()

    def _enter(self, module: torch.nn.Module, given: Any) -> None:
        self._modules.append(self.paths.get(id(module), type(module).__name__))
        self._inputs.append([self.value_of(one) for one in tensors_in(given)])

    def _leave(self, module: torch.nn.Module, given: Any, result: Any) -> None:
        if not self._modules:
            return
        path, sources = self._modules.pop(), self._inputs.pop()
        for leaf in tree_leaves(result):
            unseen = isinstance(leaf, Tensor) and leaf not in self.values
            if unseen and (self._is_computed(leaf) or isinstance(module, torch.jit.ScriptModule)):
                self.unseen.add(path)
                known = self._by_autograd(leaf) or sources
                self.values[leaf] = self._new(leaf, tuple(Edge(one, Kind.MIXED) for one in known), operation="module")

    # Values of tensors

    def value_of(self, tensor: Tensor) -> Value:
        """Return the value of a tensor; one that is unknown is a constant, or comes from code that is not seen."""
        found: Value | None = self.values.get(tensor)
        if found is None:
            sources = self._by_autograd(tensor) if self._is_computed(tensor) else []
            if sources:
                self.unseen.add(self._modules[-1] if self._modules else "")
            found = self._new(tensor, tuple(Edge(one, Kind.MIXED) for one in sources), operation="unseen")
            self.values[tensor] = found
        return found

    @staticmethod
    def _is_computed(tensor: Tensor) -> bool:
        return tensor.grad_fn is not None

    def _by_autograd(self, tensor: Tensor) -> list[Value]:
        """Return the nearest recorded values in the autograd graph of a tensor."""
        found, seen, waiting = [], set(), [tensor.grad_fn]
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node in self._by_gradient:
                found.append(self._by_gradient[node])
            else:
                waiting.extend(following for following, _ in node.next_functions)
        return found

    def _new(self, tensor: Tensor, edges: tuple[Edge, ...] = (), **facts: Any) -> Value:
        self._count += 1
        is_data = facts.pop("is_data", any(edge.source.is_data for edge in edges))
        value = Value(
            self._count, tuple(tensor.shape), tensor.is_floating_point(), edges, is_data=is_data,
            modules=tuple(self._modules), **facts,
        )  # fmt: skip
        if tensor.grad_fn is not None:
            self._by_gradient[tensor.grad_fn] = value
        return value

    # Operations

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _QUERIES or name == "_set_grad_enabled":
            return func(*args, **kwargs)
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        sources = [self.value_of(one) for one in given]
        versions = [None if one.is_inference() else one._version for one in given]
        result = func(*args, **kwargs)
        if name == "__setitem__" and given:
            self._record(name, given[0], args, sources, sys._getframe(1), written=True)
            return result
        results = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        for one in results:
            before = [version for tensor, version in zip(given, versions, strict=True) if tensor is one]
            written = bool(before) and before[0] is not None and one._version != before[0]
            if written or not before:
                self._record(name, one, args, sources, sys._getframe(1), written=written, single=len(results) == 1)
        return result

    def _record(
        self,
        name: str,
        result: Tensor,
        args: Any,
        sources: list[Value],
        frame: types.FrameType,
        *,
        written: bool,
        single: bool = True,
    ) -> None:
        edges = _edges(name, sources, result)
        value = self._new(result, edges, operation=name, axis=_axis(name, args, sources, result))
        if name in ("layer_norm", "rms_norm") and len(args) > 1 and isinstance(args[1], Sequence):
            value.normed_axes = len(args[1])
        for edge in edges:
            edge.source.uses.append((name, value.modules, value))
        _note_consumed_axis(name, sources)
        self.values[result] = value
        base = result._base if written else None
        if base is not None and base in self.values:  # a view was written to: its base has changed too
            self.values[base] = self._new(base, (Edge(self.value_of(base), Kind.SAME), Edge(value, Kind.PART)))
        if self._on_operation is not None and single:
            self._on_operation(name, value, frame)


def _edges(name: str, sources: list[Value], result: Tensor) -> tuple[Edge, ...]:
    if name in _SHAPES:
        return ()
    data = [source for source in sources if source.is_data]
    kind = _kind(name, len(data), sources, result)
    if kind is Kind.SAME:
        return (Edge(sources[0], kind),)
    # Weights are constants. The first operand of a layer is its input, even if it is a learned token.
    return tuple(
        Edge(source, kind if source.is_data or source is sources[0] else Kind.POINTWISE_LINEAR)
        for source in dict.fromkeys(sources)
    )


def _kind(name: str, data: int, sources: list[Value], result: Tensor) -> Kind:
    if name in _SAME and sources:
        return Kind.SAME
    if name == "__getitem__" and math.prod(sources[0].shape) == result.numel():
        return Kind.SAME  # x[:, None], x[..., :]
    if name in _PART:
        return Kind.PART
    if name in _PRODUCTS:
        return Kind.LINEAR if data <= 1 else Kind.MIXED
    if name in _LINEAR:
        return Kind.LINEAR if data <= 1 or name.startswith(("scatter", "index")) else Kind.MIXED
    if name in _MIXED or name.startswith("fft_"):
        return Kind.MIXED
    if name in ("add", "add_", "sub", "sub_", "rsub", "neg"):
        return Kind.POINTWISE_LINEAR
    if name in _POINTWISE_LINEAR:
        divides = name.startswith(("div", "true_divide")) and not sources[0].is_data
        return Kind.POINTWISE if data > 1 or divides else Kind.POINTWISE_LINEAR
    return Kind.POINTWISE


# The axis of the channels, counted from the end


def _axis(name: str, args: Any, sources: list[Value], result: Tensor) -> int | None:
    """Return the channel axis of a result: known after layers, and followed through changes of the shape."""
    shape = tuple(result.shape)
    spatial = _spatial_axes(name)
    if spatial is not None:
        return -1 - spatial
    if name in _CHANNELS_LAST:
        return -1
    if name in _CHANNELS_BEHIND_BATCH:
        return 1 - len(shape) if len(shape) > 1 else None
    if name in ("matmul", "mm", "bmm", "addmm") and sum(source.is_data for source in sources) == 1 and len(shape) > 1:
        return -1 if sources[0].is_data else None
    if not sources:
        return None
    first = next((one for one in sources if one.is_data), sources[0])
    if name in _SAME or name in _PART:
        return _moved(name, args, first, shape)
    known = [one.axis for one in sources if one.axis is not None and one.is_data and one.shape == shape]
    if known and all(one == known[0] for one in known):
        return known[0]
    same_rank = [one.axis for one in sources if one.axis is not None and one.is_data and len(one.shape) == len(shape)]
    return same_rank[0] if same_rank and _keeps_axes(name) else None


def _spatial_axes(name: str) -> int | None:
    if name.startswith(("conv", "avg_pool", "adaptive_avg_pool", "max_pool", "adaptive_max_pool", "_max_pool")):
        return next((count for count in (1, 2, 3) if f"{count}d" in name), None)
    return None


def _keeps_axes(name: str) -> bool:
    return name not in _PRODUCTS and name not in ("scaled_dot_product_attention", "unfold", "fold")


def _moved(name: str, args: Any, source: Value, shape: tuple[int, ...]) -> int | None:
    """Return where an operation on the shape moves the channel axis."""
    if source.axis is None:
        return None
    old, place = source.shape, len(source.shape) + source.axis
    numbers = [one for one in tree_leaves(list(args)[1:]) if isinstance(one, int)]
    if name == "permute" and len(numbers) == len(old):
        return [one % len(old) for one in numbers].index(place) - len(old)
    if name in ("transpose", "swapaxes", "swapdims", "transpose_") and len(numbers) == 2:
        a, b = (one % len(old) for one in numbers)
        return {a: b, b: a}.get(place, place) - len(old)
    if name in ("t", "adjoint") or (name == "__get__" and len(old) > 1 and shape[:-2] == old[:-2] and shape != old):
        return {-1: -2, -2: -1}.get(source.axis, source.axis)
    if name in ("movedim", "moveaxis") and len(numbers) == 2:
        order = [one for one in range(len(old)) if one != numbers[0] % len(old)]
        order.insert(numbers[1] % len(old), numbers[0] % len(old))
        return order.index(place) - len(old)
    if len(old) == len(shape) and (name in _PART or old == shape):
        return source.axis
    if name == "expand" and len(shape) >= len(old):
        return source.axis
    before = math.prod(old[:place])  # a reshape: the axis of the same size behind as many elements
    for axis, size in enumerate(shape):
        if size == old[place] and math.prod(shape[:axis]) == before:
            return axis - len(shape)
    return None


def _note_consumed_axis(name: str, sources: list[Value]) -> None:
    """A layer tells the channel axis of its input as well."""
    if not sources or sources[0].axis is not None or not sources[0].is_data:
        return
    first, spatial = sources[0], _spatial_axes(name)
    if spatial is not None and name.startswith("conv"):
        first.axis = -1 - spatial
    elif name in ("linear", "layer_norm", "rms_norm", "multi_head_attention_forward"):
        first.axis = -1
    elif name in ("batch_norm", "group_norm", "instance_norm") and len(first.shape) > 1:
        first.axis = 1 - len(first.shape)
    else:
        return
    for edge in first.edges:  # and that of a tensor of the same shape before it
        same = edge.kind in (Kind.SAME, Kind.POINTWISE_LINEAR) and edge.source.shape == first.shape
        if same and edge.source.axis is None and first.operation not in ("transpose", "permute"):
            edge.source.axis = first.axis
