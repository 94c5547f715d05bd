"""The verb ``evaluate``: the test metrics of a run."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from lresnet._files import require_run_folder

__all__ = ["evaluate"]


def evaluate(run: Annotated[Positional[Path], arg(metavar="RUN_DIR")], device: str = "auto") -> int:
    """Read the test set once, with the model that `lresnet train` left in a folder.

    The metrics are kept in RUN_DIR/evaluation.json; later calls read them from there.

    Example: lresnet evaluate runs/tree

    Args:
        run: Folder of the run.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    require_run_folder(run)
    from lresnet.runs.one_line import one_line
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    metrics = "  ".join(f"{name} {value:.2f}" for name, value in opened.evaluate().items())
    print(f"{one_line(opened.record.name)}: {metrics}")
    return 0
