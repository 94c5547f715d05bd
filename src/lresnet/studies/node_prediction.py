"""What a trained network says of the nodes of the graph it was trained on: classes and probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from lresnet.models import from_pretrained
from lresnet.studies.run import build
from lresnet.studies.run_folder import finished_run, run_of, usable_device
from lresnet.train import NodeClassification

__all__ = ["NodePrediction", "predict_nodes"]


class NodePrediction(NamedTuple):
    """Of one node, the most probable classes first."""

    node: int
    classes: tuple[int, ...]
    probabilities: tuple[float, ...]


def predict_nodes(
    folder: Path, nodes: Sequence[int] = (), *, top: int = 1, device: str = "cpu"
) -> list[NodePrediction]:
    """Classes of nodes, by the network that ``lresnet train`` left in ``folder``, of either model of graphs.

    Args:
        nodes: their numbers; none: all of them.
        top: how many classes of each node; all, if there are fewer.
        device: see :func:`lresnet.studies.run_folder.usable_device`.

    Raises:
        FileNotFoundError: there is no run in the folder.
        ValueError: the run has not finished or does not classify nodes, there is no such node, or the network's
            figures are not finite.

    Example: of the first two nodes, ``predict_nodes(Path("runs/chameleon_nc-sgformer-lorentz-0"), [0, 1])``
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    record, place = finished_run(folder), usable_device(device)
    _, objective, _ = build(run_of(record), place)
    if not isinstance(objective, NodeClassification):
        raise ValueError(
            f"{folder} holds a run on {record['cell']}; this needs one that classifies nodes, e.g. cora/nc"
        )
    count = objective.task.num_nodes
    for node in nodes:
        if not 0 <= node < count:
            raise ValueError(f"there is no node {node}: those of {record['cell']} are 0 to {count - 1}")
    model = from_pretrained(folder / "model", place).eval()
    with torch.no_grad():
        shares = objective.inputs.apply(model).softmax(-1)  # type: ignore[arg-type]
    if not shares.isfinite().all():
        raise ValueError(f"the probabilities that {folder} gives are not finite: its network cannot be used")
    wanted = list(nodes) or range(count)
    best = shares[torch.tensor(wanted, device=place)].topk(min(top, objective.task.num_classes))
    rows = zip(wanted, best.indices.tolist(), best.values.tolist(), strict=True)
    return [NodePrediction(node, tuple(classes), tuple(values)) for node, classes, values in rows]
