"""Options that may be repeated; their values accumulate (tyro would keep only the last)."""

import inspect
import itertools
from collections.abc import Callable
from types import GenericAlias
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from tyro.conf import Positional, UseAppendAction, arg

__all__ = ["accumulate"]


def accumulate(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``verb`` for tyro with every option of type ``tuple[X, ...]`` repeatable.

    tyro sees a tuple of tuples, one for each time the option is given; ``verb`` gets all values in one tuple.

    Example:
        >>> def train(seeds: tuple[int, ...] = (1, 2)) -> tuple[int, ...]:
        ...     return seeds
        >>> accumulate(train)(seeds=((3, 4), (5,))), accumulate(train)(seeds=())
        ((3, 4, 5), (1, 2))
    """
    hints, signature = get_type_hints(verb, include_extras=True), inspect.signature(verb)
    parameters = dict(signature.parameters)
    lists = {name: kind for name in parameters if (kind := _list_of(hints[name]))}

    def call(**options: Any) -> Any:
        given = {name: options.pop(name) for name in lists}
        joined = {name: tuple(itertools.chain(*parts)) for name, parts in given.items() if parts}
        return verb(**options, **joined)

    for name, kind in lists.items():
        default = parameters[name].default
        shown = arg(help_behavior_hint=f"(default: {' '.join(map(str, default))})" if default else "")
        hints[name] = Annotated[GenericAlias(tuple, (kind, ...)), *_metadata(hints[name]), UseAppendAction, shown]
        parameters[name] = parameters[name].replace(default=())  # tyro appends to the default
    # Without functools.wraps, because tyro would unwrap it and read the hints of the verb itself.
    call.__name__, call.__doc__, call.__annotations__ = verb.__name__, verb.__doc__, hints
    vars(call)["__signature__"] = signature.replace(parameters=list(parameters.values()))
    return call


def _list_of(hint: Any) -> Any:
    """Return the ``tuple[X, ...]`` of an option with that type, optional or not; None for other types."""
    if Positional in _metadata(hint):
        return None
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return next((one for one in (kind, *get_args(kind)) if get_origin(one) is tuple and ... in get_args(one)), None)


def _metadata(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()
