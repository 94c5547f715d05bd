"""The command line under torchrun: N processes run one command; one of them prints and one reports an error."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from lresnet.cli.app import WrongCall

__all__ = ["ReportedElsewhere", "is_main_process", "print_once", "process_count", "require_one_process"]


class ReportedElsewhere(Exception):
    """This process failed, and another process reports the failure; ``code`` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def process_count() -> int:
    """Return the number of processes that torchrun has started for this command; 1 without torchrun.

    Raises:
        WrongCall: the environment variable WORLD_SIZE is not a positive number.
    """
    size = os.environ.get("WORLD_SIZE") or "1"
    if not size.isdigit() or int(size) < 1:
        raise WrongCall(f"the environment variable WORLD_SIZE is {size!r}, not a number of processes; unset it")
    return int(size)


def is_main_process() -> bool:
    """Whether this is process 0, the one that prints."""
    return process_count() == 1 or os.environ.get("RANK", "0") == "0"


def require_one_process(verb: str) -> None:
    """Refuse a verb that cannot be shared between processes: each of them would do all the work.

    Raises:
        WrongCall: torchrun has started more than one process.
    """
    if (number := process_count()) > 1:
        instead = "use --workers instead of torchrun" if verb == "reproduce" else "start it without torchrun"
        raise WrongCall(f"`lresnet {verb}` runs in one process, but torchrun has started {number}; {instead}")


@contextlib.contextmanager
def print_once() -> Iterator[None]:
    """Print in process 0 only, and report a failure in the first process that fails, which ends the others.

    Raises:
        ReportedElsewhere: in the other processes, in place of their own error.
    """
    with _no_output() if not is_main_process() else contextlib.nullcontext():
        try:
            yield
        except KeyboardInterrupt:  # Ctrl-C reaches all processes at once
            if not is_main_process():
                raise ReportedElsewhere(130) from None
            raise
        except Exception as error:  # includes wrong calls: torchrun ends the others when one process has ended
            if process_count() > 1 and not _first_to_fail():
                raise ReportedElsewhere(2 if isinstance(error, WrongCall) else 1) from None
            raise


def _first_to_fail() -> bool:
    from lresnet.train.distributed import first_to_fail

    return first_to_fail()


@contextlib.contextmanager
def _no_output() -> Iterator[None]:
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield
