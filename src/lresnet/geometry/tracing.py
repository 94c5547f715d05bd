"""Support of torch.fx: a layer on a manifold is one node of a traced graph, as torch's own layers are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Proxy

if TYPE_CHECKING:
    from lresnet.geometry.lorentz import ManifoldModule

__all__ = ["as_graph_node"]


def as_graph_node(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``forward`` of a layer, which torch.fx records as one ``call_module`` node.

    torch.fx runs a network with proxies in place of tensors. The formulas here depend on dtypes and devices, which
    proxies do not have. As a node the layer also keeps its parameters, and a state dict of the network fits the traced
    one. A registered manifold is an argument of the node: otherwise the traced network would not contain it, and a
    learned curvature would not be trained.
    """

    @functools.wraps(forward)
    def call(self: ManifoldModule, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and any(isinstance(each, Proxy) for each in (*args, *kwargs.values())):
            return _node(self, args, kwargs)
        kwargs.pop("traced_manifold", None)
        return forward(self, *args, **kwargs)

    return call


def _node(layer: ManifoldModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tracer: Any = next(each.tracer for each in (*args, *kwargs.values()) if isinstance(each, Proxy))
    path = tracer.path_of_module(layer)
    try:
        owner = tracer.path_of_module(layer.manifold)
    except NameError:  # not registered
        return tracer.create_proxy("call_module", path, args, kwargs)
    manifold = tracer.create_proxy("get_attr", owner, (), {})
    return tracer.create_proxy("call_module", path, args, kwargs | {"traced_manifold": manifold})
