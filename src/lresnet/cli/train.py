"""The verbs ``train`` and ``evaluate``: one run in a folder of its own."""

import itertools
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from lresnet.cli.app import Failed
from lresnet.cli.settings import GraphSettings, ImageSettings, Settings, TransformerSettings, require_seeds, said
from lresnet.cli.torchrun import is_main_process, process_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lresnet.models.pretrained import Pretrained
    from lresnet.train import Objective, TrainConfig
    from lresnet_paper.run import Run

__all__ = ["evaluate", "train"]

_SETTINGS, _GRAPHS, _TRANSFORMER, _IMAGES = Settings(), GraphSettings(), TransformerSettings(), ImageSettings()
_CHECKPOINT_EVERY = {"graphs": 200, "images": 10}  # an epoch of images takes as long as a hundred of a graph, or longer
_DEFAULT_MODELS = ("lorentz_gcn", "lorentz_resnet18")
_NO_POINTS = (
    "warning: no parameter is a point of the manifold (geoopt.ManifoldParameter): "
    "Riemannian Adam has nothing to do, all updates are ordinary Adam's"
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
    settings: OmitArgPrefixes[Settings] = _SETTINGS,
    graphs: OmitArgPrefixes[GraphSettings] = _GRAPHS,
    transformer: OmitArgPrefixes[TransformerSettings] = _TRANSFORMER,
    images: OmitArgPrefixes[ImageSettings] = _IMAGES,
) -> int:
    """Train one model on one task; the test set is left for `lresnet evaluate`, or read at the end with --test.

    The same command goes on from the checkpoint of a run that was interrupted, on a CPU to the same numbers. Your own
    images are a folder with train/CLASS/ and test/CLASS/, or a .npz with train_images, train_labels, test_images and
    test_labels. Several GPUs or machines train on images together where torchrun starts a process for each: torchrun
    --nproc-per-node=4 -m lresnet train cifar10. The batch is that of all of them.

    Example: lresnet train disease_tree/lp --method lorentz --seed 1 --epochs 300 --out runs/tree

    Example: lresnet train chameleon/nc --model lorentz_sgformer --split 3

    Example: lresnet train photos/ --model lorentz_resnet20 --epochs 30

    Args:
        data: A graph's task (disease/lp, cora/nc, ...), cifar10, cifar100, or the path of your own images.
        task: Of DATA, where its name says two things. Without DATA: graphs, disease_tree/lp; images, cifar10.
        method: The residual connection: lorentz, parallel_transport, tangent, space, none, or euclidean for the twin.
        seed: Of parameters, negatives and disjoint splits; of shuffling and augmentation.
        recipe: Of images: what supplies settings that are not given: fast, fast-learned, long, long-cutmix or paper.
            None: fast. Your own images take CIFAR-10's, with gradients clipped at norm 1 (--clip) and a rate of 0.4 at
            most (--lr).
        split: Of a graph: legacy, disjoint, official, or the number of an official one. None: as the recipe says.
        out: The folder of the run. None: runs/DATA-METHOD-SEED, of another model than lorentz_gcn and lorentz_resnet18
            runs/DATA-MODEL-METHOD-SEED, with another recipe than fast its name before the method; where that is of
            other images of the same name, runs/DATA_2-..., and so on.
        checkpoint_every: Epochs between two checkpoints. None: 200 for graphs, 10 for images.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        test: Read the test set when the run has ended, once, as `lresnet evaluate` does.
        verbose: Name all image files that could not be read, and why.
        settings: What else decides the run. What is not given is as the recipe says, else the default of the library.
        graphs: Of graphs alone; what is not given is as the recipe says.
        transformer: Of lorentz_sgformer alone; what is not given is as the recipe says.
        images: Of images alone; what is not given is as the recipe says.
    """
    from lresnet.runs.single import find_data, single_image_run
    from lresnet_paper.run import require_shareable

    require_seeds("--seed", seed)
    kind, name = find_data(data, None if task == "auto" else task)
    of_graphs = said(graphs) | said(transformer)
    if kind == "images":
        run = single_image_run(name, method, seed, recipe, said(settings) | said(images))
        _refuse(of_graphs | {"split": split}, "graphs", name, kind)
        _require_image_network(settings.model, name)
    else:
        run = _graph_run(name, method, seed, split, said(settings) | of_graphs)
        _refuse(said(images) | {"recipe": recipe}, "images", name, kind)
    require_shareable(run, process_count())
    folder = out or _default_folder(run)
    every = _CHECKPOINT_EVERY[kind] if checkpoint_every is None else checkpoint_every
    _train(run, folder, device, every, test, verbose)
    return evaluate(folder, device) if test and is_main_process() else 0  # the other processes have ended


def _graph_run(name: str, method: str, seed: int, split: str | None, config: dict[str, Any]) -> "Run":
    from lresnet.runs.single import single_run
    from lresnet.runs.transformer_run import transformer_run
    from lresnet_paper.run import require_settings

    make = transformer_run if config.get("model") == "lorentz_sgformer" else single_run
    run = make(name, method, seed, split, config)
    require_settings(run.config)
    return run


def _require_image_network(model: str | None, name: str) -> None:
    if model is not None and "resnet" not in model:
        raise ValueError(f"{model} is no network for images, as {name} is; take lorentz_resnet18, 20 or 32")


def _refuse(options: dict[str, Any], owner: str, name: str, kind: str) -> None:
    for option, value in options.items():
        if value is not None:
            typed = option.removeprefix("num_").replace("_", "-")
            raise ValueError(f"--{typed} is for {owner}, but {name} is a task of {kind}; leave it out")


def _default_folder(run: "Run") -> Path:
    """One that other data or another model cannot have taken: two folders of images may have the same name."""
    from lresnet_paper.search import protocols

    others = protocols("image_classification", "cifar10")[1:]  # than the default; a graph's run is named by no recipe
    recipe = f"-{run.protocol}" if run.protocol in others else ""
    name, rest = _folder_name(run.cell), f"{_model_name(run.config)}{recipe}-{run.method}-{run.seed}"
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    folders = (Path("runs") / f"{own}{rest}" for own in names)
    return next(folder for folder in folders if not _holds_other_data(folder, run.cell))


def _holds_other_data(folder: Path, cell: str) -> bool:
    from lresnet.runs.images import real_place

    try:
        return real_place(json.loads((folder / "run.json").read_text())["cell"]) != real_place(cell)
    except (OSError, ValueError, KeyError, TypeError):  # nothing there, or something damaged, of which training tells
        return False


def _folder_name(cell: str) -> str:
    """A path goes by its last part, and nothing but letters, digits, dots and lines stays."""
    name = Path(cell).name.removesuffix(".npz") if Path(cell).is_absolute() else cell
    return re.sub(r"[^\w.-]+", "_", name)


def _model_name(config: dict[str, Any]) -> str:
    """Runs of two models on the same data must not meet in one folder; the default one goes without a name."""
    name = config.get("model")
    return "" if name in (None, *_DEFAULT_MODELS) else f"-{name.removeprefix('lorentz_')}"


def _train(run: "Run", folder: Path, device: str, checkpoint_every: int, test: bool, verbose: bool) -> None:
    from lresnet.cli.console import progress_bars
    from lresnet.runs.folder import train_in_folder
    from lresnet.runs.single import command_of
    from lresnet.train import NonFiniteError
    from lresnet.train.distributed import join_processes

    progress = progress_bars()
    bar = progress.add_task("epochs", total=None, state="")
    word = "best"

    def start(model: "Pretrained", objective: "Objective[Any]", schedule: "TrainConfig") -> None:
        nonlocal word
        word = schedule.keep
        for line in _facts(run, model, objective, verbose):
            progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
        progress.update(bar, total=schedule.epochs)
        progress.start()

    def show(epoch: int, figure: float | None) -> None:
        progress.update(bar, completed=epoch, state="" if figure is None else f"{word} validation {figure:.2f}")

    try:
        with join_processes(device) as (processes, place):
            record = train_in_folder(
                run,
                folder,
                command=command_of(run, processes.size),
                device=place,
                checkpoint_every=checkpoint_every,
                processes=processes,
                on_start=start,
                on_epoch=show,
            )
    except NonFiniteError as error:
        raise Failed(str(error)) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_way_on(folder) if progress.live.is_started else "") from None
    finally:
        if progress.live.is_started:
            progress.stop()
    figure = "nothing held out" if record["validation"] is None else f"validation {record['validation']:.2f}"
    print(f"{figure}, epoch {record['best_epoch']}")
    hint = "" if test else f"; `lresnet evaluate {shlex.quote(str(folder))}` reads the test set"
    print(f"The run is in {folder}{hint}")


def _way_on(folder: Path) -> str:
    """What becomes of a run that was interrupted."""
    from lresnet.runs.folder import checkpoint_epoch

    epoch = checkpoint_epoch(folder)
    if epoch == 0:
        return "no checkpoint has been written yet, so the same command begins anew"
    return f"the same command goes on from the checkpoint in {folder}, epoch {epoch}"


def _facts(run: "Run", model: "Pretrained", objective: "Objective[Any]", verbose: bool) -> list[str]:
    """What is trained on what, a line each."""
    from lresnet.models import LorentzGCN
    from lresnet.optim import parameter_groups
    from lresnet.runs.single import searched
    from lresnet.train import ImageClassification

    groups = parameter_groups(model)
    lines = [groups.summary()]
    if isinstance(model, LorentzGCN) and model.head is not None and not model.euclidean and not groups.manifold:
        lines.append(_NO_POINTS)
    if isinstance(objective, ImageClassification):
        data, apart = objective.data, 0 if objective.held_out is None else len(objective.held_out)
        height, width, channels = data.train.images.shape[1:]
        lines.append(
            f"{len(objective.train):,} images to train on, {apart:,} held out, {len(data.test):,} to test: "
            f"{width} x {height} x {channels}, {len(data.classes)} classes"
        )
        if data.skipped:
            lines += _left_out(data.skipped, len(data.train) + len(data.test), verbose)
        if not searched(run):
            lines.append(f"recipe {run.protocol} has no search for {run.method}: its first configuration is taken")
    return lines


def _left_out(skipped: "Sequence[tuple[Path, str]]", read: int, verbose: bool) -> list[str]:
    """What is said of the files that could not be read: three names, or all with the reasons."""
    from lresnet.cli.console import skipped_lines
    from lresnet.runs.one_line import one_line

    count = len(skipped)
    warning = f"warning: {count} of {read + count} files could not be read as images and are left out"
    if verbose:
        return [f"{warning}:", *skipped_lines(skipped)]
    names = ", ".join(one_line(str(file)) for file, _ in skipped[:3])
    return [f"{warning}: {names}{', ...' if count > 3 else ''} (-v names all, and why)"]


def evaluate(run: Annotated[Positional[Path], arg(metavar="RUN_DIR")], device: str = "auto") -> int:
    """Read the test set, once, with the model that `lresnet train` left in a folder.

    The figures are kept in RUN_DIR/evaluation.json; asked again, they come from there.

    Example: lresnet evaluate runs/tree

    Args:
        run: The folder of the run.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    from lresnet.runs.folder import evaluate_folder

    record = evaluate_folder(run, device=device)
    figures = "  ".join(f"{name} {value:.2f}" for name, value in record["metrics"].items())
    print(f"{record['cell']}, {record['method']}, seed {record['seed']}: {figures}")
    return 0
