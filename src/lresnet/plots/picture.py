"""Pictures: colours and markers of methods, file formats, and reproducible writing."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lresnet._files import require_writable, write_atomically
from lresnet.residual.registry import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "GREY",
    "INK",
    "PICTURE_FORMATS",
    "method_style",
    "percent_limits",
    "require_writable_picture",
    "save_picture",
]

PICTURE_FORMATS = (".png", ".svg", ".pdf")

INK = "#222222"
"""Colour of text and axes. A page in dark mode replaces it by its own text colour."""
GREY = "#8C8C8C"
"""Colour of grids and of methods without a colour of their own."""


def method_style(name: str) -> tuple[str, str]:
    """Return colour and matplotlib marker of a residual method; an unknown method is a grey circle.

    Example:
        >>> method_style("lorentz")
        ('#D55E00', 'o')
    """
    return (METHODS[name].colour, METHODS[name].marker) if name in METHODS else (GREY, "o")


def percent_limits(values: Iterable[float]) -> tuple[float, float]:
    """Return multiples of five around ``values``, between 0 and 100: the ends of an axis of accuracies or AUCs.

    Example:
        >>> percent_limits([71.0, 97.5]), percent_limits([99.0, 101.2]), percent_limits([])
        ((70.0, 100.0), (95.0, 100.0), (0.0, 100.0))
    """
    known = [value for value in values if math.isfinite(value)] or [0.0, 100.0]
    low = min(95.0, max(0.0, 5.0 * math.floor(min(known) / 5)))
    return low, min(100.0, max(low + 5, 5.0 * math.ceil(max(known) / 5)))


def require_writable_picture(path: Path) -> None:
    """Check that a picture can be written to ``path``, before the work that produces it.

    Raises:
        ValueError: The suffix is not one of :data:`PICTURE_FORMATS`.
        OSError: The folder does not exist or is not writable.
    """
    if path.suffix not in PICTURE_FORMATS:
        raise ValueError(f"a picture's file name must end with {', '.join(PICTURE_FORMATS)}, got {str(path)!r}")
    require_writable(path)


def save_picture(figure: Figure, path: str | Path, dpi: int = 160) -> Path:
    """Write ``figure`` to ``path`` and return the path. Equal figures give equal PNG files on every machine."""
    path = Path(path)
    metadata = {"Software": None} if path.suffix == ".png" else None  # matplotlib would add its version
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=dpi, facecolor="white", metadata=metadata)
    write_atomically(path, buffer.getvalue())
    return path
