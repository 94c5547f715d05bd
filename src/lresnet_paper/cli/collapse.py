"""The verb ``collapse``: deep chains of residuals, measured layer by layer while they train."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

__all__ = ["collapse"]


def collapse(
    out: Path = Path("results/collapse.jsonl"),
    plan: Annotated[Path | None, arg(metavar="FILE")] = None,
    device: str = "cpu",
    minutes: Annotated[float | None, arg(metavar="M")] = None,
) -> int:
    """Train deep chains of residuals on disease/lp, and measure distances and gradients by layer at several epochs.

    The plan is src/lresnet_paper/collapse.toml. Each training is one line of the file, written as soon as it is known.
    Run the same command again to execute the missing trainings. The test set is not read.

    Example: python -m lresnet_paper collapse --minutes 20

    Args:
        out: The file of JSON lines.
        plan: Another plan of the same form. Default: the plan of the study.
        device: cpu, cuda, cuda:1, ...
        minutes: Start no training after this many minutes.
    """
    from rich.console import Console

    from lresnet.train.results import read_results
    from lresnet_paper.collapse import TABLE, read_plan, run_study
    from lresnet_paper.pages.collapse_table import collapse_table
    from lresnet_paper.pages.text_tables import terminal_tables

    missing = run_study(read_plan(plan), out, device=device, minutes=minutes)
    if missing:
        count = "1 training is" if missing == 1 else f"{missing} trainings are"
        print(f"{count} still missing; run the same command again to resume")
    Console().print(terminal_tables(TABLE, [collapse_table(read_results(out))]))
    print(f"The results: {out}")
    return 0
