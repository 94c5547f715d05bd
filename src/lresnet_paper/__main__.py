"""The command line of the reproduction, ``python -m lresnet_paper VERB``; it needs no installed metadata."""

import sys
from collections.abc import Sequence

from lresnet.cli.app import App, Failed, read_call
from lresnet_paper.cli import bench, pages, report, reproduce

__all__ = ["main"]

_ABOUT = "Reproduction of He, Yang and Ying, Lorentzian Residual Neural Networks (KDD 2025)."

_app = App()
_app.command(reproduce)
_app.command(bench, name="bench", help="Measure times and memory.")
_app.command(pages, name="pages", help="Render the generated pages and pictures of the documentation.")
_app.command(report)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 success, 1 failure, 2 wrong call, 130 interrupted.
    """
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        return int(read_call(_app, "python -m lresnet_paper", _ABOUT, args)() or 0)
    except KeyboardInterrupt as stop:
        return _failed(130, f"interrupted{'; ' if str(stop) else ''}{stop}")
    except Failed as error:
        return _failed(1, f"error: {error}")
    except (ValueError, OSError) as error:
        return _failed(2, f"error: {' '.join(str(error).split())}")


def _failed(code: int, message: str) -> int:
    sys.stderr.write(f"lresnet_paper: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
