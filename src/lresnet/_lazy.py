"""Public names of a package that load on first use (PEP 562), so that importing the package stays light."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: str, module_of: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for ``package``.

    Args:
        package: ``__name__`` of the package.
        module_of: For every public name, the module inside the package that defines it. A name that maps to itself
            stands for the module.

    Example:
        >>> load, _ = lazy_names("lresnet", {"functional": "functional"})
        >>> load("functional").__name__
        'lresnet.functional'
    """

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{module_of[name]}")
        value = module if name == module_of[name] else getattr(module, name)
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, names
