"""The verb ``evaluate``: the test metrics of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from lresnet._files import require_run_folder
from lresnet._metric_names import digits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lresnet.metrics import UntrainedScore

__all__ = ["evaluate", "untrained_lines"]

_HIERARCHY_FIGURES = {
    "ordered_mrr": "mrr times order: ancestors above other nodes, and the nearest first",
    "mrr": "mean of 1 / rank of the held-out ancestors, in percent",
    "order": "pairs of a node's ancestors with the nearer one first, in percent; 50 is a random order",
    "parent_first": "nodes with a parent in the first place, in percent",
    "mean_average_precision": "mean precision at the held-out ancestors, in percent",
    "mean_rank": "mean rank of the held-out ancestors; 1 is the best",
    "distortion": "error of the distances, relative to those in the taxonomy; 0 is exact",
    "norm_depth_correlation": "1: deeper nodes always lie further out",
}


def evaluate(run: Annotated[Positional[Path], arg(metavar="RUN_DIR")], device: str = "auto") -> int:
    """Read the test set once, with the model that `lresnet train` left in a folder.

    The metrics are kept in RUN_DIR/evaluation.json; later calls read them from there. For link prediction they include
    scores without any training: raw features, common neighbours, two- and three-hop counts, degrees. For a taxonomy
    every figure is printed with its meaning.

    Example: lresnet evaluate runs/tree

    Args:
        run: Folder of the run.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    require_run_folder(run)
    from lresnet.runs.names import one_line
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    metrics = opened.evaluate()
    scores = opened.record.untrained_scores
    if opened.record.task.get("task") == "hierarchy":
        print(f"{one_line(opened.record.name)}, test pairs:")
        print("\n".join(_explained(metrics)))
    else:
        figures = "  ".join(f"{name} {value:.{digits(name)}f}" for name, value in metrics.items())
        print(f"{one_line(opened.record.name)}: {figures}")
    for line in untrained_lines(scores, opened.record.value, "test"):
        print(line)
    if scores and scores[0].metrics and next(iter(metrics)) == "ordered_mrr":
        print(f"without the order: mrr {scores[0].metrics['mrr']:.2f} (this network {metrics['mrr']:.2f})")
    return 0


def _explained(metrics: "Mapping[str, float]") -> "Iterator[str]":
    """Yield one line for each figure of a hierarchy, with what it means."""
    for name, value in metrics.items():
        meaning = _HIERARCHY_FIGURES.get(name, "")
        if name.startswith("hits@"):
            meaning = f"held-out ancestors among the first {name.removeprefix('hits@')}, in percent"
        yield f"  {name:<22} {value:>7.{digits(name)}f}  {meaning}".rstrip()


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
