"""The verb ``train``: one run in its folder."""

import itertools
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from lresnet._files import require_no_file
from lresnet.cli.app import Failed
from lresnet.cli.evaluate import evaluate
from lresnet.cli.options import (
    GraphOptions,
    ImageOptions,
    RunOptions,
    TransformerOptions,
    given_settings,
    require_seeds,
)
from lresnet.cli.torchrun import is_main_process, process_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lresnet.models.pretrained import Pretrained
    from lresnet.runs.config import RunConfig
    from lresnet.train import Objective

__all__ = ["train"]

_RUN, _GRAPHS, _TRANSFORMER, _IMAGES = RunOptions(), GraphOptions(), TransformerOptions(), ImageOptions()
_DEFAULT_MODELS = ("lorentz_gcn", "lorentz_resnet18")
_NO_MANIFOLD_PARAMETERS = (
    "warning: no parameter is a point of the manifold (geoopt.ManifoldParameter), so every update is an ordinary Adam "
    "update"
)


def train(
    data: Annotated[Positional[str | None], arg(metavar="[DATA]")] = None,
    task: Literal["auto", "images", "graphs"] = "auto",
    method: str = "lorentz",
    seed: int = 0,
    recipe: Annotated[str | None, arg(metavar="fast|long|paper|...")] = None,
    split: Annotated[str | None, arg(metavar="NAME|INT")] = None,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
    checkpoint_every: Annotated[int | None, arg(metavar="EPOCHS")] = None,
    device: str = "auto",
    test: bool = False,
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
    settings: OmitArgPrefixes[RunOptions] = _RUN,
    graphs: OmitArgPrefixes[GraphOptions] = _GRAPHS,
    transformer: OmitArgPrefixes[TransformerOptions] = _TRANSFORMER,
    images: OmitArgPrefixes[ImageOptions] = _IMAGES,
) -> int:
    """Train one model on one task. The test set is read by `lresnet evaluate`, or at the end with --test.

    Settings that you do not give come from the task's preset, otherwise from the defaults of the library. If a run was
    interrupted, the same command resumes it from its checkpoint; on a CPU the result is bit-identical. Your own images
    are a folder with train/CLASS/ and test/CLASS/, or a .npz with train_images, train_labels, test_images and
    test_labels. To train with several GPUs or machines, start one process for each: torchrun
    --nproc-per-node=4 -m lresnet train cifar10. The batch size counts all processes together; a graph needs one too.

    Example: lresnet train disease_tree/lp --method lorentz --seed 1 --epochs 300 --out runs/tree

    Example: lresnet train chameleon/nc --model lorentz_sgformer --split 3

    Example: lresnet train photos/ --model lorentz_resnet20 --epochs 30

    Args:
        data: A graph task (disease/lp, cora/nc, ...), cifar10, cifar100, or the path of your own images.
        task: Kind of DATA, if its name is ambiguous. Without DATA, graphs means disease_tree/lp and images cifar10.
        method: Residual connection: lorentz, parallel_transport, tangent, space, none, or euclidean for the Euclidean
            baseline.
        seed: Seed of parameters, negatives, disjoint splits, shuffling and augmentation.
        recipe: Preset for images: fast, fast-learned, long, long-cutmix or paper. None: fast. Your own images use
            CIFAR-10's preset, with gradients clipped at norm 1 (--clip) and a learning rate of at most 0.4 (--lr).
        split: Split of a graph: legacy, disjoint, official, or the number of an official split. None: the preset's.
        out: Folder of the run. None: runs/DATA-METHOD-SEED, with the model and the recipe in the name if they are not
            the default ones; a number is added if that folder holds other images of the same name.
        checkpoint_every: Epochs between two checkpoints. None: 10; 200 for graphs that are one batch.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        test: Read the test set once when the run has finished, as `lresnet evaluate` does.
        verbose: List every image file that could not be read, and why.
        settings: Settings of every task.
        graphs: Settings for graphs only.
        transformer: Settings of lorentz_sgformer only.
        images: Settings for images only.
    """
    from lresnet.runs.config import require_shareable
    from lresnet.runs.presets import find_task, run_config

    require_seeds("--seed", seed)
    kind, name = find_task(data, None if task == "auto" else task)
    given = given_settings(settings, graphs, transformer, images)
    config = run_config(name, method, seed=seed, kind=kind, split=split, recipe=recipe, settings=given)
    require_shareable(config.task, process_count(), config.train.batch_size)
    if out is not None:
        require_no_file(out)
    folder = out or _default_folder(config, recipe)
    _train(config, folder, device, checkpoint_every, test, verbose, recipe)
    return evaluate(folder, device) if test and is_main_process() else 0  # the other processes have ended


def _default_folder(config: "RunConfig", recipe: str | None) -> Path:
    """Return a folder that holds no run on other data: two folders of images may have the same name."""
    from lresnet.runs.presets import image_recipes

    preset = f"-{recipe}" if recipe in image_recipes()[1:] else ""
    model = "" if config.model.name in _DEFAULT_MODELS else f"-{config.model.name.removeprefix('lorentz_')}"
    name, rest = _folder_name(config.task.name), f"{model}{preset}-{config.model.residual}-{config.train.seed}"
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    folders = (Path("runs") / f"{each}{rest}" for each in names)
    return next(folder for folder in folders if not _holds_other_data(folder, config.task.name))


def _holds_other_data(folder: Path, task: str) -> bool:
    from lresnet.runs.record import read_record

    try:
        record = read_record(folder)
    except (OSError, ValueError):  # damaged; training reports it
        return False
    return record is not None and _real_path(record.task_name) != _real_path(task)


def _real_path(task: str) -> str:
    path = Path(task)
    return str(path.resolve()) if path.is_absolute() else task


def _folder_name(task: str) -> str:
    """Return the last part of a path, or the name of a task, in letters, digits, dots, hyphens and underscores."""
    name = Path(task).name.removesuffix(".npz") if Path(task).is_absolute() else task
    return re.sub(r"[^\w.-]+", "_", name)


def _train(
    config: "RunConfig",
    folder: Path,
    device: str,
    checkpoint_every: int | None,
    test: bool,
    verbose: bool,
    recipe: str | None,
) -> None:
    from lresnet.cli.console import progress_bars
    from lresnet.runs.run import fit
    from lresnet.train import NonFiniteError
    from lresnet.train.distributed import join_processes

    progress = progress_bars()
    bar = progress.add_task("epochs", total=config.train.epochs, state="")

    def start(model: "Pretrained", objective: "Objective[Any]") -> None:
        for line in _summary(config, model, objective, verbose, recipe):
            progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
        progress.start()

    def show(epoch: int, metric: float | None) -> None:
        state = "" if metric is None else f"{config.train.keep} validation {metric:.2f}"
        progress.update(bar, completed=epoch, state=state)

    try:
        with join_processes(device) as (processes, place):
            run = fit(
                config.task,
                config.model,
                config.train,
                out=folder,
                device=place,
                checkpoint_every=checkpoint_every,
                processes=processes,
                on_start=start,
                on_epoch=show,
            )
    except NonFiniteError as error:
        raise Failed(str(error)) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_how_to_resume(folder) if progress.live.is_started else "") from None
    finally:
        if progress.live.is_started:
            progress.stop()
    metric = "nothing held out" if run.record.validation is None else f"validation {run.record.validation:.2f}"
    print(f"{metric}, epoch {run.record.best_epoch}")
    hint = "" if test else f"; `lresnet evaluate {shlex.quote(str(folder))}` reads the test set"
    print(f"The run is in {folder}{hint}")


def _how_to_resume(folder: Path) -> str:
    from lresnet.runs.record import checkpoint_epoch

    epoch = checkpoint_epoch(folder)
    if epoch == 0:
        return "no checkpoint has been written yet, so the same command starts from the beginning"
    return f"the same command resumes from the checkpoint in {folder}, epoch {epoch}"


def _summary(
    config: "RunConfig", model: "Pretrained", objective: "Objective[Any]", verbose: bool, recipe: str | None
) -> list[str]:
    """Return one line per fact about the parameters and the data."""
    from lresnet.models import LorentzGCN
    from lresnet.optim import parameter_groups
    from lresnet.runs.presets import has_searched_preset, image_recipes
    from lresnet.train import ImageClassification

    groups = parameter_groups(model)
    lines = [groups.summary()]
    if isinstance(model, LorentzGCN) and model.head is not None and not model.euclidean and not groups.manifold:
        lines.append(_NO_MANIFOLD_PARAMETERS)
    if isinstance(objective, ImageClassification):
        data, held_out = objective.data, 0 if objective.held_out is None else len(objective.held_out)
        height, width, channels = data.train.images.shape[1:]
        lines.append(
            f"{len(objective.train):,} images to train on, {held_out:,} held out, {len(data.test):,} to test: "
            f"{width} x {height} x {channels}, {len(data.classes)} classes"
        )
        if data.skipped:
            lines += _skipped_files(data.skipped, len(data.train) + len(data.test), verbose)
        if not has_searched_preset(config, recipe):
            name = recipe or image_recipes()[0]
            lines.append(f"recipe {name} was not searched for {config.model.residual}; it uses its first settings")
    return lines


def _skipped_files(skipped: "Sequence[tuple[Path, str]]", read: int, verbose: bool) -> list[str]:
    """Return what is reported of unreadable files: three names, or all with their reasons."""
    from lresnet.cli.console import skipped_lines
    from lresnet.runs.one_line import one_line

    count = len(skipped)
    warning = f"warning: {count} of {read + count} files could not be read as images and are skipped"
    if verbose:
        return [f"{warning}:", *skipped_lines(skipped)]
    names = ", ".join(one_line(str(file)) for file, _ in skipped[:3])
    return [f"{warning}: {names}{', ...' if count > 3 else ''} (-v lists all, with the reasons)"]
