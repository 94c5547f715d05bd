"""The verb ``hierarchy``: hierarchy-aware losses on CIFAR-100, Lorentz and Euclidean."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

__all__ = ["hierarchy"]


def hierarchy(
    out: Path = Path("results/hierarchy_images.jsonl"),
    plan: Annotated[Path | None, arg(metavar="FILE")] = None,
    device: str = "auto",
    workers: int = 1,
) -> int:
    """Train CIFAR-100 with and without hierarchy-aware losses: search on validation images, then three seeds.

    The plan is src/lresnet_paper/hierarchy_images.toml. Each training is one line of the file, written as soon as it is
    known. Trainings whose lines are already in the file are not repeated.

    Example: python -m lresnet_paper hierarchy --workers 4

    Args:
        out: The file of JSON lines.
        plan: Another plan of the same form. Default: the plan of the study.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        workers: Trainings at the same time, as processes that share the device.
    """
    import torch

    from lresnet.runs.workers import require_workers
    from lresnet_paper.hierarchy_images import read_plan, run_study

    require_workers(workers)
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    run_study(read_plan(plan), out, device=chosen, workers=workers)
    print(f"The results: {out}")
    return 0
