"""The verb ``ancestors``: k-hop ancestor retrieval by residual, curvature, width and number of hops."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

__all__ = ["ancestors"]


def ancestors(
    small: bool = False,
    cpu: bool = False,
    deeper: bool = False,
    out: Path = Path("results/ancestors.jsonl"),
    plan: Annotated[Path | None, arg(metavar="FILE")] = None,
    device: str = "auto",
    workers: Annotated[int, arg(metavar="N")] = 1,
    minutes: Annotated[float | None, arg(metavar="M")] = None,
) -> int:
    """Train networks of k layers to name the random code of the ancestor k hops up, and print their test accuracy.

    The plan is src/lresnet_paper/ancestors.toml. The default is its whole study, which needs a GPU and WordNet's file.
    Each training is one line of the file, written as soon as it is known. Run the same command again to execute the
    missing trainings.

    Example: python -m lresnet_paper ancestors --small

    Args:
        small: A form that takes about a minute of CPU time and needs no file.
        cpu: A form that takes about half an hour on one core. It needs WordNet's file.
        deeper: A form with more layers than hops, for a CPU. It needs no file.
        out: The file of JSON lines.
        plan: Another plan of the same form. Default: the plan of the study.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        workers: Arms of the study at the same time, as processes that share the device.
        minutes: Start no arm after this many minutes.
    """
    import torch
    from rich.console import Console

    from lresnet.runs.workers import require_workers
    from lresnet_paper.ancestors import TABLE, own_lines, read_plan, run_study
    from lresnet_paper.pages.ancestors_page import accuracy_tables
    from lresnet_paper.pages.text_tables import terminal_tables

    if small + cpu + deeper > 1:
        raise ValueError("--small, --cpu and --deeper are forms of the study; choose one of them")
    require_workers(workers)
    form = "small" if small else "cpu" if cpu else "deeper" if deeper else "full"
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    missing = run_study(read_plan(plan), form, out, device=chosen, workers=workers, minutes=minutes)
    if missing:
        print(f"{missing} arms are not finished; run the same command again to resume")
    Console().print(terminal_tables(TABLE, accuracy_tables(own_lines(out), form)))
    print(f"The results: {out}")
    return 0
