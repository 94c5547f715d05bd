"""The program ``lresnet``; ``python -m lresnet`` is the same."""

import contextlib
import os
import signal
import sys
from types import FrameType

__all__ = ["main"]

_IMPORT_SYSTEM = "<frozen importlib."


def main() -> int:
    """Run the command line of ``sys.argv``. Control-C ends it with exit code 130 at any time."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have ignored it
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, _interrupt)
    from lresnet.cli import main as run

    code = run()
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, _end)  # while Python ends, an exception would be printed and not caught
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but end at once during an import, which may turn it into another error or crash."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORT_SYSTEM):
            _end(number, frame)
        frame = frame.f_back
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    shows_cursor = "\x1b[?25h" if os.isatty(2) else ""  # a progress bar may have hidden it
    with contextlib.suppress(OSError):
        os.write(2, f"{shows_cursor}lresnet: interrupted\n".encode())
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
