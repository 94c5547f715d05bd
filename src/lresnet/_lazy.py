"""Public names of a package that load on first use (PEP 562), so that importing the package stays light."""

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import resolve_name
from typing import NamedTuple

__all__ = ["Deprecated", "lazy_names"]


class Deprecated(NamedTuple):
    """A former public name: where its object is now, and the version that removes the old name.

    Args:
        use: The full name to use instead, such as ``lresnet.nn.LorentzLinear``.
        removed_in: The version without the old name, at least one minor version after the first warning.
    """

    use: str
    removed_in: str


def lazy_names(
    package: str, module_of: Mapping[str, str], deprecated: Mapping[str, Deprecated] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for ``package``.

    Args:
        package: ``__name__`` of the package.
        module_of: For every public name, the module inside the package that defines it. A name that maps to itself
            stands for the module.
        deprecated: Former names. They still load, with a ``DeprecationWarning``, and ``dir`` does not list them.

    Example:
        >>> load, _ = lazy_names("lresnet", {"functional": "functional"})
        >>> load("functional").__name__
        'lresnet.functional'
    """

    former = deprecated or {}

    def load(name: str) -> object:
        if name in former:
            use, removed_in = former[name]
            message = f"{package}.{name} is deprecated and will be removed in lresnet {removed_in}; use {use}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            found: object = resolve_name(use)
            vars(sys.modules[package])[name] = found  # so that it warns once
            return found
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{module_of[name]}")
        value = module if name == module_of[name] else getattr(module, name)
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, names
