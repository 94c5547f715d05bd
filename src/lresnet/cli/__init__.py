"""The command line: verbs only, one thin function each, grouped in small files.

A verb imports its work when it is called, so that ``lresnet --help`` needs neither torch nor matplotlib.
"""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points

from lresnet._version import __version__
from lresnet.cli.app import App, Failed, read_call
from lresnet.cli.data import data
from lresnet.cli.demo import demo
from lresnet.cli.measures import delta, doctor
from lresnet.cli.ood import ood
from lresnet.cli.plot import plot
from lresnet.cli.points import embed, neighbours
from lresnet.cli.predict import predict
from lresnet.cli.report import report
from lresnet.cli.torchrun import ReportedElsewhere, print_once, require_one_process
from lresnet.cli.train import evaluate, train

__all__ = ["main"]

_ABOUT = f"""lresnet {__version__}: Lorentzian residual networks for PyTorch.

Start with `lresnet demo`; `lresnet VERB --help` explains a verb."""

_app = App()
for _verb in (demo, train, evaluate, predict, embed, neighbours, ood, report):
    _app.command(_verb)
_app.command(data, name="data", help="List, fetch and verify data sets.")
_app.command(delta)
_app.command(plot, name="plot", help="Draw pictures.")
_app.command(doctor)
for _entry in entry_points(group="lresnet.verbs"):
    _app.command(_entry.load(), name=_entry.name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 done, 1 it failed (a check, a training that diverged) or nobody reads what it prints, 2 a wrong
        call, 130 interrupted.
    """
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        with print_once():
            if args == ["--version"]:
                print(f"lresnet {__version__}")
                return 0
            call = read_call(_app, "lresnet", _ABOUT, args)
            if args[0] != "train":
                require_one_process(args[0])
            code = int(call() or 0)
            sys.stdout.flush()  # a reader that has gone is met here, and not when Python ends
            return code
    except ReportedElsewhere as end:
        return end.code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left in the buffer
        return 1  # as rich does
    except KeyboardInterrupt as stop:
        print(f"lresnet: interrupted{'; ' if str(stop) else ''}{stop}", file=sys.stderr)
        return 130
    except Failed as error:
        print(f"lresnet: error: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        if os.environ.get("LRESNET_DEBUG"):
            raise
        print(f"lresnet: error: {_in_one_line(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        if os.environ.get("LRESNET_DEBUG"):
            raise
        print(f"lresnet: error: there is not enough memory{': ' if str(error) else ''}{error}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        if os.environ.get("LRESNET_DEBUG") or type(error).__name__ != "OutOfMemoryError":  # torch's, not imported here
            raise
        print("lresnet: error: the GPU's memory is full; try a smaller --batch-size, or --device cpu", file=sys.stderr)
        return 1


def _in_one_line(error: ValueError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"  # without the [Errno 13] that helps nobody
    return " ".join(str(error).split()) or type(error).__name__
