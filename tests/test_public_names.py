"""Public names stay: what a released version offers, later versions offer too, or deprecate first."""

import importlib
import re
import warnings
from pathlib import Path
from types import ModuleType

import lresnet

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
RELEASED = (Path(__file__).parent / "public_names.txt").read_text().split()


def public_names() -> list[str]:
    """Return the names in ``__all__`` of lresnet and of its public packages, and those that reference pages name."""
    modules = [value for name in lresnet.__all__ if isinstance(value := getattr(lresnet, name), ModuleType)]
    exported = [
        f"{module.__name__}.{name}" for module in (lresnet, *modules) for name in getattr(module, "__all__", [])
    ]
    shown = [re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE) for page in REFERENCE.glob("*.md")]
    return exported + [name for names in shown for name in names]


def test_released_names_still_load() -> None:
    for full in RELEASED:
        package, _, name = full.rpartition(".")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a deprecated name still counts
            assert hasattr(importlib.import_module(package), name), (
                f"{full} was released: keep it, or pass it to lazy_names as deprecated (docs/project/versioning.md)"
            )


def test_every_public_name_is_recorded() -> None:
    new = sorted(set(public_names()) - set(RELEASED))
    assert new == [], "new public names: add them to tests/public_names.txt and to CHANGELOG.md"
