"""What a checkpoint holds besides tensors: checks of its values, and the settings that identify its run."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, get_args

from lresnet.train.config import NormStatistics, TrainConfig

__all__ = ["first_difference", "in_this_format", "recorded_statistics", "structure_problem"]


def in_this_format(state: dict[str, Any], *, has_norms: bool) -> dict[str, Any]:
    """Return a state of lresnet 0.2, which recorded a part of the settings and no loss, in the form of this version.

    Args:
        has_norms: whether the network has batch norms; they had no other statistics than running ones.
    """
    state = {"best_loss": None} | state
    schedule = state.get("schedule")
    if not isinstance(schedule, dict):
        return state
    rest = {name: value for name, value in state.items() if name != "schedule"}
    train = {"norm_statistics": "running" if has_norms else None} | schedule
    return rest | {"identity": {"train": train, "model": {}}}


def recorded_statistics(state: dict[str, Any]) -> NormStatistics | None:
    """Return what the batch norms of the run normalise by in evaluation; None: the state does not say it."""
    identity = state.get("identity")
    train = identity.get("train") if isinstance(identity, dict) else None
    found = train.get("norm_statistics") if isinstance(train, dict) else None
    return found if found in get_args(NormStatistics) else None


def structure_problem(state: dict[str, Any], epochs: int) -> str | None:
    """Return the entry of a state that has a value which no training writes, and the value; None: there is none."""
    epoch, best_epoch, best, curve = state["epoch"], state["best_epoch"], state["best"], state["curve"]
    best_loss = state["best_loss"]
    identity = state["identity"]
    sound = {
        "identity": isinstance(identity, dict) and all(isinstance(identity.get(part), dict) for part in _PARTS),
        "epoch": type(epoch) is int and 0 <= epoch <= epochs,
        "best_epoch": type(best_epoch) is int and type(epoch) is int and 0 <= best_epoch <= epoch,
        "best": best is None or isinstance(best, int | float),
        "best_loss": best_loss is None or isinstance(best_loss, int | float),
        "seconds": isinstance(state["seconds"], int | float) and 0 <= state["seconds"] < math.inf,
        "curve": isinstance(curve, list)
        and all(isinstance(point, tuple | list) and len(point) == 2 for point in curve),
        "model": _is_state_dict(state["model"]),
        "best_state": _is_state_dict(state["best_state"]),
    }
    return next((f"{name} is {str(state[name])[:60]!r}" for name, is_sound in sound.items() if not is_sound), None)


_PARTS = ("train", "model")


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def first_difference(own: dict[str, Any], other: dict[str, Any]) -> str | None:
    """Return the first setting in which the run of a checkpoint differs from the one that is to resume; None: none.

    A setting that the checkpoint of an earlier version does not know has its default there. One of lresnet 0.2 knows
    no seed; then the settings that it does not know are not compared.

    Args:
        own: the settings of the run that is to resume, in the parts ``train`` and ``model``.
        other: those of the checkpoint.
    """
    mine, theirs = own["train"], other["train"]
    if "seed" in theirs:
        theirs = json.loads(json.dumps(dataclasses.asdict(TrainConfig()))) | theirs
    for name, value in theirs.items():
        if name not in mine or mine[name] != value:
            return f"{name} is {value} there, not {mine.get(name)}"
    for name, value in other["model"].items():
        if name in own["model"] and own["model"][name] != value:
            return f"{name} of the model is {value} there, not {own['model'][name]}"
    return None
