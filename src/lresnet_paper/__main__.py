"""The command line of the reproduction, ``python -m lresnet_paper VERB``; it needs no installed metadata."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from lresnet.cli import run_command
from lresnet.cli.app import App, WrongCall
from lresnet_paper.cli import SUMMARIES

__all__ = ["main"]

_ABOUT = "Reproduction of He, Yang and Ying, Lorentzian Residual Neural Networks (KDD 2025)."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 success, 1 failure, 2 a wrong call, 130 interrupted.
    """
    args = _with_all_pages(list(sys.argv[1:] if argv is None else argv))
    return run_command(args, "python -m lresnet_paper", _find_verb, _overview)


def _with_all_pages(args: list[str]) -> list[str]:
    """Insert the verb ``all`` after ``pages`` if no other verb follows, unless help is requested."""
    if args[:1] == ["pages"] and (len(args) == 1 or args[1].startswith("--")) and "--help" not in args:
        return ["pages", "all", *args[1:]]
    return args


def _find_verb(name: str) -> App | Callable[..., int]:
    if name not in SUMMARIES:
        from lresnet.runs.names import did_you_mean

        raise WrongCall(f"unknown verb {name!r}; {did_you_mean(name, list(SUMMARIES))}Verbs: {', '.join(SUMMARIES)}")
    return getattr(import_module(f"lresnet_paper.cli.{name}"), name)  # type: ignore[no-any-return]


def _overview() -> str:
    lines = [f"  {name:<17} {summary}" for name, summary in SUMMARIES.items()]
    return "\n".join([_ABOUT, "", *lines, "", "`python -m lresnet_paper VERB --help` explains a verb."])


if __name__ == "__main__":
    sys.exit(main())
