"""The verb ``evaluate``: the test metrics of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from lresnet._files import require_run_folder
from lresnet._metric_names import digits

if TYPE_CHECKING:
    from lresnet.metrics import UntrainedScore

__all__ = ["evaluate", "untrained_lines"]


def evaluate(run: Annotated[Positional[Path], arg(metavar="RUN_DIR")], device: str = "auto") -> int:
    """Read the test set once, with the model that `lresnet train` left in a folder.

    The metrics are kept in RUN_DIR/evaluation.json; later calls read them from there. For link prediction they include
    scores without any training: raw features, common neighbours, two- and three-hop counts, degrees.

    Example: lresnet evaluate runs/tree

    Args:
        run: Folder of the run.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    require_run_folder(run)
    from lresnet.runs.names import one_line
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    metrics = "  ".join(f"{name} {value:.{digits(name)}f}" for name, value in opened.evaluate().items())
    print(f"{one_line(opened.record.name)}: {metrics}")
    for line in untrained_lines(opened.record.untrained_scores, opened.record.value, "test"):
        print(line)
    return 0


def untrained_lines(
    scores: "list[UntrainedScore]", network: float | None, part: Literal["validation", "test"]
) -> list[str]:
    """Return the best untrained score next to the network's, and a warning if it is higher.

    Args:
        scores: best first by validation; empty if the run does not predict links.
        network: the metric of the network on the same pairs, in percent; None: there is none.
        part: which pairs.
    """
    value = None if not scores else scores[0].value if part == "test" else scores[0].validation
    if value is None or network is None:
        return []
    label, on = scores[0].label, "" if part == "test" else ", validation"
    lines = [f"untrained baseline: {label}{on} {value:.2f} (this network {network:.2f})"]
    if value > network:
        lines.append(
            f"warning: a score that learns nothing ({label}) ranks the {part} pairs better than this network; other "
            "settings may help, and this figure should not be reported without that score"
        )
    return lines
