"""Options of several values: given more than once, they add up, where tyro alone would keep the last."""

import inspect
import itertools
from collections.abc import Callable
from types import GenericAlias
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from tyro.conf import Positional, UseAppendAction, arg

__all__ = ["adding_up"]


def adding_up(verb: Callable[..., Any]) -> Callable[..., Any]:
    """``verb`` as tyro shall see it: each option that is a ``tuple[X, ...]`` may be repeated.

    To tyro it is a tuple of them, one for each time that it is given; ``verb`` gets all their values in one.

    Example:
        >>> def sow(seeds: tuple[int, ...] = (1, 2)) -> tuple[int, ...]:
        ...     return seeds
        >>> adding_up(sow)(seeds=((3, 4), (5,))), adding_up(sow)(seeds=())
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
        parameters[name] = parameters[name].replace(default=())  # what tyro would append to
    # Not functools.wraps: tyro would look through it, at the hints of the verb itself.
    call.__name__, call.__doc__, call.__annotations__ = verb.__name__, verb.__doc__, hints
    vars(call)["__signature__"] = signature.replace(parameters=list(parameters.values()))
    return call


def _list_of(hint: Any) -> Any:
    """The ``tuple[X, ...]`` of an option that is one, or one or None; of anything else, None."""
    if Positional in _metadata(hint):
        return None
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return next((one for one in (kind, *get_args(kind)) if get_origin(one) is tuple and ... in get_args(one)), None)


def _metadata(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()
