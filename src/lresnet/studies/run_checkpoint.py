"""Whether a run can go on from the checkpoint in its folder, to the numbers it would have had without the pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lresnet.studies.run_images import require_same_images, require_same_order
from lresnet.train.checkpoint import is_damaged

__all__ = ["require_own_checkpoint"]


def require_own_checkpoint(checkpoint: Path, before: dict[str, Any] | None, record: dict[str, Any]) -> None:
    """Refuse a ``checkpoint`` that a run cannot go on from; where there is none, it begins anew.

    Args:
        before: what ``run.json`` beside the checkpoint held when this call began; None: there was none.
        record: what it is going to hold.

    Raises:
        ValueError: the file is damaged, nobody's, or of another kind of device, number of processes or images.
    """
    if is_damaged(checkpoint):
        raise ValueError(f"{checkpoint} is damaged and cannot be gone on from; delete it to begin anew")
    if not checkpoint.is_file():
        return
    if before is None:
        raise ValueError(f"{checkpoint} has no run.json beside it that says whose it is; use another folder")
    _require_same_device(record["device"], before, checkpoint.parent)
    _require_as_many(record.get("processes", 1), before, checkpoint.parent)
    images = record.get("images", {})
    require_same_images(images, before, checkpoint.parent)
    require_same_order(images, before, checkpoint.parent)


def _require_same_device(kind: str, before: dict[str, Any], folder: Path) -> None:
    """Random streams of a CPU and of a GPU are different: a run cannot change over."""
    begun = before.get("device", kind)
    if begun != kind:
        raise ValueError(
            f"the run in {folder} was begun on {begun} and cannot go on on {kind}; "
            f"take --device {begun}, or another folder to begin anew"
        )


def _require_as_many(processes: int, before: dict[str, Any], folder: Path) -> None:
    """Batch norms see the share of a process: other shares would be another run."""
    begun = before.get("processes", 1)
    if begun != processes:
        raise ValueError(
            f"the run in {folder} was begun by {begun} process{'es' if begun > 1 else ''} and cannot go on with "
            f"{processes}, as batch norms would see other shares of a batch; "
            f"start {'it without torchrun' if begun == 1 else f'{begun} (torchrun --nproc-per-node)'}, "
            "or take another folder to begin anew"
        )
