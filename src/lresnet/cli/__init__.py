"""The command line: one thin function per verb.

A verb imports its work when it is called, so that ``lresnet --help`` and every wrong call answer without torch. Other
packages add verbs through the entry-point group ``lresnet.verbs``.
"""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from lresnet._version import __version__
from lresnet.cli.app import App, Failed, WrongCall, read_call
from lresnet.cli.torchrun import ReportedElsewhere, print_once, require_one_process

__all__ = ["main", "run_command"]

# The overview's line of every verb. The verb is the function of that name in the module of that name.
_VERBS = {
    "demo": "Train every residual connection on a tree, print the results and draw an embedding.",
    "train": "Train a model on a shipped task, or on your own graph, taxonomy, text or images.",
    "evaluate": "Read the test set once with the model of a run.",
    "predict": "Predict classes of images, nodes or graphs, missing links, or parents of new terms.",
    "ancestors": "Rank the ancestors of a node of a taxonomy with the model of a run.",
    "generate": "Continue a text with the model of a run.",
    "embed": "Write the points to which the model of a run maps its data.",
    "neighbours": "List the nearest neighbours of a node or an image in the space of a run.",
    "ood": "Detect out-of-distribution images with the model of a run.",
    "report": "Compare your runs: means and deviations over seeds, differences to the baseline.",
    "data": "List, fetch and verify data sets.",
    "delta": "Measure how tree-like a graph or an embedding is (Gromov's delta).",
    "plot": "Draw residuals, embeddings, training curves and score histograms.",
    "doctor": "Report versions, devices and folders, and check the numerics on this machine.",
}

Verb = App | Callable[..., int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``lresnet``.

    Returns:
        The exit code: 0 success, 1 failure (a check, a training that diverged, a closed output), 2 a wrong call, 130
        interrupted.
    """
    return run_command(list(sys.argv[1:] if argv is None else argv), "lresnet", _find_verb, _overview)


def run_command(args: list[str], prog: str, find_verb: Callable[[str], Verb], overview: Callable[[], str]) -> int:
    """Find the verb, parse its options, call it, and report errors in one line.

    Args:
        args: the words after the program's name.
        prog: name of the program, for messages.
        find_verb: returns a verb by its name, or raises :class:`~lresnet.cli.app.WrongCall`.
        overview: returns what the program prints without a verb.
    """
    # Read by torch's OpenMP when torch is imported. By default a thread that waits for another one spins; if a second
    # program needs the core, a training step of a small graph takes 10 to 20 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if isinstance(sys.stdout, io.TextIOWrapper):  # names may have characters that the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with print_once(), _closed_outputs(), _plain_warnings():
            if args in ([], ["-h"], ["--help"]):
                print(overview())
                return 0
            if args == ["--version"]:
                print(f"lresnet {__version__}")
                return 0
            call = read_call(find_verb(args[0]), f"{prog} {args[0]}", args[1:])
            if args[0] != "train":
                require_one_process(args[0])
            code = int(call() or 0)
            sys.stdout.flush()  # a closed output raises here, not when Python ends
            return code
    except ReportedElsewhere as end:
        return end.code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest of the buffer
        return 1  # as rich does
    except KeyboardInterrupt as stop:
        return _report(f"interrupted{'; ' if str(stop) else ''}{stop}", 130)
    except Failed as error:
        return _report(f"error: {error}", 1)
    except (ValueError, OSError) as error:
        if os.environ.get("LRESNET_DEBUG"):
            raise
        return _report(f"error: {_in_one_line(error)}", 2)
    except MemoryError as error:
        if os.environ.get("LRESNET_DEBUG"):
            raise
        return _report(f"error: there is not enough memory{': ' if str(error) else ''}{error}", 1)
    except RuntimeError as error:
        if os.environ.get("LRESNET_DEBUG") or type(error).__name__ != "OutOfMemoryError":  # torch's, not imported here
            raise
        return _report("error: the GPU is out of memory; use a smaller --batch-size, or --device cpu", 1)


@contextlib.contextmanager
def _closed_outputs() -> Iterator[None]:
    """Replace outputs that are closed from the start (``>&-``), which are None in Python.

    Raises:
        Failed: at the end, if what the verb has printed is lost.
    """
    lost: dict[str, _Nowhere] = {}
    with contextlib.ExitStack() as stack:
        for name, redirect in (("stdout", contextlib.redirect_stdout), ("stderr", contextlib.redirect_stderr)):
            if getattr(sys, name) is None:
                lost[name] = stack.enter_context(_Nowhere(stack.enter_context(Path(os.devnull).open("wb"))))
                stack.enter_context(redirect(lost[name]))
        yield
    if "stdout" in lost and lost["stdout"].was_written:
        raise Failed("the standard output is closed, so what was to be printed is lost")


class _Nowhere(io.TextIOWrapper):
    """An output that keeps nothing and remembers whether anything was written."""

    was_written = False

    def write(self, text: str) -> int:
        self.was_written = True
        return super().write(text)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings as one line, without the place in the code."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"lresnet: warning: {' '.join(str(message).split())}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def _report(message: str, code: int) -> int:
    if sys.stderr is not None:
        print(f"lresnet: {message}", file=sys.stderr)
    return code


def _find_verb(name: str) -> Verb:
    if name in _VERBS:
        return getattr(import_module(f"lresnet.cli.{name}"), name)  # type: ignore[no-any-return]
    entries = _entries()
    if name in entries:
        try:
            return entries[name].load()  # type: ignore[no-any-return]
        except (ImportError, AttributeError) as error:
            if os.environ.get("LRESNET_DEBUG"):
                raise
            message = f"the verb {name!r} of another package, {entries[name].value}, cannot be loaded: {error}"
            raise Failed(f"{message}; reinstall that package, or set LRESNET_DEBUG=1 to see the traceback") from error
    if name.startswith("-"):
        raise WrongCall(f"unknown option {name!r}; `lresnet --help` lists the verbs")
    from lresnet.runs.names import choose_one_of

    raise WrongCall(f"unknown verb {name!r}; {choose_one_of(name, [*_VERBS, *entries])}")


def _entries() -> dict[str, Any]:
    """Return the verbs of other packages by name."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in sorted(entry_points(group="lresnet.verbs"), key=lambda entry: entry.name)}


def _overview() -> str:
    """Return the verbs with one line each, those of other packages last."""
    lines = [f"  {name:<11} {summary}" for name, summary in _VERBS.items()]
    lines += [f"  {name:<11} {_summary(name, entry.module)}" for name, entry in _entries().items()]
    head = [f"lresnet {__version__}: Lorentzian residual networks for PyTorch.", "", "usage: lresnet VERB [OPTIONS]"]
    tail = "`lresnet VERB --help` explains a verb. Start with `lresnet demo` or `lresnet train YOUR_FILE`."
    return "\n".join([*head, "", *lines, "", tail])


def _summary(name: str, module: str) -> str:
    """Return the line of another package's verb: ``SUMMARIES[name]`` of the package that holds its module."""
    package = module.rpartition(".")[0] or module
    summaries: dict[str, str] = getattr(import_module(package), "SUMMARIES", {})
    return summaries.get(name, f"(from {package.partition('.')[0]})")


def _in_one_line(error: ValueError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"  # without the error number
    return " ".join(str(error).split()) or type(error).__name__
