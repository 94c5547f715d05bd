"""The command line: verbs only, one thin function each.

A verb imports its work when it is called, so that ``lresnet --help`` needs neither torch nor matplotlib.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg
from tyro.extras import SubcommandApp

from lresnet._version import __version__

__all__ = ["main"]

_ABOUT = f"""lresnet {__version__}: Lorentzian residual networks for PyTorch.

Start with `lresnet demo`; `lresnet VERB --help` explains a verb."""

_app = SubcommandApp()


@_app.command
def demo(
    x: tuple[float, float] = (2.0, -2.0),
    y: tuple[float, float] = (2.0, 2.0),
    curvature: float = -1.0,
    out: Path = Path("lresnet-demo.png"),
) -> int:
    """Print and draw where each residual connection puts two points.

    Example: lresnet demo --x 1 0 --y 0 3 --curvature -0.5

    Args:
        x: The point that skips the layer: its two space coordinates.
        y: The layer's output f(x): its two space coordinates.
        curvature: The curvature K of the space, a negative number.
        out: The picture to write; .png, .svg or .pdf.
    """
    from rich.console import Console

    from lresnet.report.residual_picture import draw_residuals, residual_table

    console = Console()
    console.print(residual_table(x, y, curvature))
    console.print(f"The picture: {draw_residuals(out, x, y, curvature)}", soft_wrap=True, highlight=False)
    return 0


@_app.command
def delta(
    file: Annotated[Positional[Path], arg(metavar="FILE")],
    samples: Annotated[int | None, arg(metavar="INT")] = None,
    seed: int = 0,
) -> int:
    """Measure how tree-like a graph or metric space is: Gromov's delta (0 for a tree).

    Example: lresnet delta edges.csv --samples 100000

    Args:
        file: Edges as text, two node names a line (comma or white space between them, # for comments; the distance
            is the number of hops), or distances as a square matrix in .npy or .npz.
        samples: Draw so many quadruples of points. None: look at all up to 300 points, draw 50000 beyond.
        seed: Seed of the drawing.
    """
    from rich.console import Console

    from lresnet.data import read_space
    from lresnet.geometry.delta import delta_hyperbolicity
    from lresnet.report.delta_table import delta_table

    Console().print(delta_table(delta_hyperbolicity(read_space(file), samples=samples, seed=seed), file.name))
    return 0


@_app.command
def doctor(json: Annotated[bool, FlagCreatePairsOff] = False) -> int:
    """Report versions, devices and folders, and check the numerics on this machine.

    Ends with code 1 if a check fails.

    Example: lresnet doctor --json > doctor.json

    Args:
        json: Print one JSON object instead of tables.
    """
    from lresnet.doctor import examine, print_json, print_tables

    findings = examine()
    (print_json if json else print_tables)(findings)
    return 0 if findings.ok else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 a check failed, 2 a wrong call, 130 interrupted."""
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if args == ["--version"]:
        print(f"lresnet {__version__}")
        return 0
    try:
        return int(_app.cli(prog="lresnet", description=_ABOUT, args=args) or 0)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        if os.environ.get("LRESNET_DEBUG"):
            raise
        print(f"lresnet: error: {_in_one_line(error)}", file=sys.stderr)
        return 2


def _in_one_line(error: ValueError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"  # without the [Errno 13] that helps nobody
    return " ".join(str(error).split()) or type(error).__name__
