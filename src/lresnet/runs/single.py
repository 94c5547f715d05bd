"""One run as a person asks for it: data, a method and some settings; the recipe supplies the rest."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from lresnet.data import TASKS
from lresnet.data.registry import IMAGE_SETS
from lresnet.residual import RESIDUALS
from lresnet_paper.run import Run, complete
from lresnet_paper.search import recipe

__all__ = [
    "TaskKind",
    "command_of",
    "did_you_mean",
    "find_data",
    "require_known",
    "searched",
    "single_image_run",
    "single_run",
]

TaskKind = Literal["graphs", "images"]

# CIFAR's rate is for 50,000 images: on a few hundred its first steps spoil the network. benchmarks/small_images.py, 540
# images, seeds 0 to 2: after 12 epochs 35, 43 and 46 % of the test images are right without clipping, 53, 61 and 70 %
# with; after 40 epochs 79, 80 and 80 %, and with the rate 0.8 that CIFAR-10's search chose 77, 62 and 72 %.
_OWN_IMAGES = {"clip": 1.0}
_OWN_RATE = 0.4  # at most
_DEFAULTS: dict[TaskKind, str] = {"graphs": "disease_tree/lp", "images": "cifar10"}
_OPTIONS = {"num_layers": "layers"}  # where the command line has a shorter name


def find_data(name: str | None, task: TaskKind | None = None) -> tuple[TaskKind, str]:
    """What ``name`` stands for: a cell of graphs, a set of images, or a path to a user's own images.

    A cell goes before a path of its name.

    Args:
        name: None: ``"disease_tree/lp"``, or ``"cifar10"`` for images.
        task: None: what the name says.

    Raises:
        ValueError: there is nothing of that name; the nearest is named.

    Example:
        >>> find_data("cifar100"), find_data(None)
        (('images', 'cifar100'), ('graphs', 'disease_tree/lp'))
    """
    if name is None:
        return task or "graphs", _DEFAULTS[task or "graphs"]
    if task is not None:
        return task, name
    if name in TASKS:
        return "graphs", name
    if name in IMAGE_SETS or Path(name).exists() or name.endswith(".npz"):  # a .npz that is missing is said to be so
        return "images", name
    raise ValueError(
        f"unknown data {name!r}; {did_you_mean(name, [*TASKS, *IMAGE_SETS])}"
        f"Graphs: {', '.join(TASKS)}; images: {', '.join(IMAGE_SETS)}, "
        "or the path of a folder or .npz"
    )


def single_run(
    cell: str, method: str = "lorentz", seed: int = 0, split: str | None = None, config: dict[str, Any] | None = None
) -> Run:
    """A run on a graph. What ``config`` does not say is what the cell's recipe fixes, else the library's default.

    Args:
        split: name of the split, or the number of an official one; None: as the recipe says, else the cell's default.

    Raises:
        ValueError: no such cell or method; the nearest is named.

    Example:
        >>> single_run("disease/lp", "space", config={"lr": 0.1}).config["epochs"]
        1500
    """
    require_known("cell", cell, TASKS)
    require_known("method", method, RESIDUALS)
    plan = _plan(cell, split)
    default = plan.get("protocol", TASKS[cell].splits[0])
    fixed = complete(plan, method, plan.get("chosen", {}).get(method, {}))
    number = int(split) if split is not None and split.isdigit() else None
    if number is None and default == "official_splits" and split is None:
        number = 0
    protocol = "official_splits" if number is not None else split or default
    return Run("train", cell, method, protocol, seed, fixed | (config or {}), split=number, stage="train")


def single_image_run(
    images: str,
    method: str = "lorentz",
    seed: int = 0,
    protocol: str | None = None,
    config: dict[str, Any] | None = None,
) -> Run:
    """A run on images. What ``config`` does not say comes from a recipe.

    Args:
        images: ``"cifar10"``, ``"cifar100"``, or the path of a user's own, which take CIFAR-10's recipe with gradients
            clipped at norm 1 and a learning rate of 0.4 at most. A path is kept in full, so that the run can be
            evaluated from another folder; a link in it stays one, and may lead elsewhere when the images have moved.
        protocol: which recipe: fast, fast-learned, long, long-cutmix or paper; None: fast.
        config: with other ``epochs`` and no ``warmup``, the share of the epochs that is warm-up stays.

    Raises:
        ValueError: no such method or recipe.

    Example:
        >>> single_image_run("cifar10", config={"epochs": 50}).config["warmup"]
        2.5
    """
    require_known("method", method, RESIDUALS)
    official = images in IMAGE_SETS
    plan = _image_plan(images, protocol)
    chosen = plan.get("chosen", {}).get(method, plan["configurations"][0])
    fixed, said = complete(plan, method, chosen, "train"), config or {}
    if not official:
        fixed = _OWN_IMAGES | fixed
        fixed["lr"] = min(fixed["lr"], _OWN_RATE)
    if "warmup" in fixed and "epochs" in said:
        fixed["warmup"] *= said["epochs"] / fixed["epochs"]
    cell = images if official else _in_full(images)
    return Run("train", cell, method, plan["protocol"], seed, fixed | said, stage="train")


def _in_full(path: str) -> str:
    """The absolute path with its links; without them where ``..`` behind one leads elsewhere than it looks."""
    plain, real = Path(os.path.abspath(path)), Path(path).resolve()  # noqa: PTH100 - absolute() leaves ".." in
    return str(plain if plain.resolve() == real else real)


def searched(run: Run) -> bool:
    """Whether the recipe of a run on images has searched settings for its method; if not, it lends its first.

    Example:
        >>> [searched(single_image_run("cifar10", "tangent", protocol=name)) for name in ("fast", "paper")]
        [True, False]
    """
    return run.method in _image_plan(run.cell, run.protocol).get("chosen", {})


def _image_plan(images: str, protocol: str | None) -> dict[str, Any]:
    return recipe("image_classification", images if images in IMAGE_SETS else _DEFAULTS["images"], protocol)


def command_of(run: Run, processes: int = 1) -> str:
    """The command that trains ``run`` whatever recipes may say one day: every setting of its recipe is spelt out."""
    program = ["lresnet"] if processes == 1 else ["torchrun", f"--nproc-per-node={processes}", "-m", "lresnet"]
    words = [*program, "train", run.cell, "--method", run.method, "--seed", str(run.seed)]
    if run.cell in TASKS:
        words += ["--split", run.protocol if run.split is None else str(run.split)]
    else:
        words += ["--recipe", run.protocol]
    for name, value in run.config.items():
        option = _OPTIONS.get(name, name).replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", _number(value) if isinstance(value, float) else str(value)]
    return shlex.join(words)


def require_known(what: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not ``known``, and say which one is nearest.

    Raises:
        ValueError: the name is not known.
    """
    names = list(known)
    if name not in names:
        raise ValueError(f"unknown {what} {name!r}; {did_you_mean(name, names)}Known: {', '.join(names)}")


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """A question, where one of the names looks like what was meant; else nothing.

    Example:
        >>> did_you_mean("cifar1", ["cifar10", "svhn"])
        "did you mean 'cifar10'? "
    """
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def _number(value: float) -> str:
    """A recipe's 5 and the 5.0 that the command line makes of it are one number, and look so."""
    return str(int(value)) if value.is_integer() else str(value)


def _plan(cell: str, split: str | None) -> dict[str, Any]:
    """The recipe of the cell, where there is one for this split then that."""
    for table in ("demo", "gnn"):
        for protocol in (split, None):
            try:
                return recipe(table, cell, protocol)
            except ValueError:
                continue
    return {"fixed": {}}
