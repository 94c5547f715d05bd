"""Under torchrun: N processes are given one command, and speak with one voice."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from lresnet.cli.app import WrongCall

__all__ = ["Unheard", "leads", "one_voice", "processes", "require_one_process"]


class Unheard(Exception):
    """What ended this process is told by another one; ``code`` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def processes() -> int:
    """How many processes torchrun has started for this command; without it, 1."""
    size = os.environ.get("WORLD_SIZE") or "1"
    if not size.isdigit() or int(size) < 1:
        raise WrongCall(f"the environment's WORLD_SIZE is {size!r}, not a number of processes; unset it")
    return int(size)


def leads() -> bool:
    """Whether this process is the one of them that prints."""
    return processes() == 1 or os.environ.get("RANK", "0") == "0"


def require_one_process(verb: str) -> None:
    """Refuse a verb that each of several processes would do from beginning to end.

    Raises:
        WrongCall: there are several.
    """
    if (number := processes()) > 1:
        instead = "use --workers in place of torchrun" if verb == "reproduce" else "start it without torchrun"
        raise WrongCall(
            f"`lresnet {verb}` runs in one process, and each of {number} (WORLD_SIZE) would do all; {instead}"
        )


@contextlib.contextmanager
def one_voice() -> Iterator[None]:
    """Let one process alone print, and one tell of a failure: the first that fails, as it ends the others.

    Raises:
        Unheard: in the others, in place of what ended them.
    """
    with _silence() if not leads() else contextlib.nullcontext():
        try:
            yield
        except KeyboardInterrupt:  # of all of them at once
            if not leads():
                raise Unheard(130) from None
            raise
        except Exception as error:  # a wrong call too: torchrun ends the others when one of them has ended
            if processes() > 1 and not _first_to_fail():
                raise Unheard(2 if isinstance(error, WrongCall) else 1) from None
            raise


def _first_to_fail() -> bool:
    from lresnet.train.distributed import first_to_fail

    return first_to_fail()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield
