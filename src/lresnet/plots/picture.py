"""Pictures: colours and markers of methods, file formats, and reproducible writing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lresnet.residual.registry import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["GREY", "INK", "PICTURE_FORMATS", "method_style", "require_writable_picture", "save_picture"]

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


def require_writable_picture(path: Path) -> None:
    """Check that a picture can be written to ``path``, before the work that produces it.

    Raises:
        ValueError: The suffix is not one of :data:`PICTURE_FORMATS`.
        OSError: The folder does not exist or is not writable.
    """
    if path.suffix not in PICTURE_FORMATS:
        raise ValueError(f"a picture's file name must end with {', '.join(PICTURE_FORMATS)}, got {str(path)!r}")
    is_new = not path.exists()
    path.open("ab").close()
    if is_new:
        path.unlink()


def save_picture(figure: Figure, path: str | Path) -> Path:
    """Write ``figure`` to ``path`` and return the path. Equal figures give equal PNG files on every machine."""
    path = Path(path)
    metadata = {"Software": None} if path.suffix == ".png" else None  # matplotlib would add its version
    figure.savefig(path, dpi=160, facecolor="white", metadata=metadata)
    return path
