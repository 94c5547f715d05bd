"""The verb ``train``: one run in its folder."""

import dataclasses
import itertools
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from lresnet._files import require_no_file
from lresnet.cli.app import Failed
from lresnet.cli.evaluate import evaluate, untrained_lines
from lresnet.cli.options import (
    GCNIIOptions,
    GraphOptions,
    ImageOptions,
    RunOptions,
    SGFormerOptions,
    TextOptions,
    TransformerOptions,
    given_settings,
    options_named_as_typed,
    require_seeds,
)
from lresnet.cli.torchrun import is_main_process, process_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lresnet.data.source import DataKind
    from lresnet.models.pretrained import Pretrained
    from lresnet.optim.optimizers import ParameterGroups
    from lresnet.runs.config import RunConfig
    from lresnet.runs.graph_search import Budget, Trial
    from lresnet.runs.task_config import GraphTaskKind
    from lresnet.train import ImageClassification, Objective, TextModelling

__all__ = ["train"]

_GENERAL, _GRAPHS, _GCNII = RunOptions(), GraphOptions(), GCNIIOptions()
_SGFORMER, _IMAGES = SGFormerOptions(), ImageOptions()
_TRANSFORMERS, _TEXTS = TransformerOptions(), TextOptions()
_DEFAULT_MODELS = ("lorentz_gcn", "lorentz_resnet18", "lorentz_gpt")
_PARAMETERS = {
    "decayed": "matrices",
    "plain": "biases and norms",
    "geometric": "curvatures, residual weights, scales and temperatures",
    "manifold": "points of the manifold",
}
_NO_MANIFOLD_PARAMETERS = (
    "warning: no parameter is a point of the manifold (geoopt.ManifoldParameter), so every update is an ordinary Adam "
    "update"
)


def train(
    data: Annotated[Positional[str | None], arg(metavar="[DATA]")] = None,
    task: Literal["auto", "images", "graphs", "link", "node", "graph-level", "hierarchy", "text"] = "auto",
    method: Annotated[str | None, arg(metavar="NAME")] = None,
    search: Annotated[str | None, arg(metavar="60s|INT|off")] = None,
    seed: int = 0,
    recipe: Annotated[str | None, arg(metavar="fast|long|paper|small|...")] = None,
    split: Annotated[str | None, arg(metavar="NAME|INT")] = None,
    split_index: Annotated[int | None, arg(metavar="INT")] = None,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
    checkpoint_every: Annotated[int | None, arg(metavar="EPOCHS")] = None,
    device: str = "auto",
    test: bool = False,
    verbose: Annotated[bool, FlagCreatePairsOff, arg(aliases=["-v"])] = False,
    general: OmitArgPrefixes[RunOptions] = _GENERAL,
    graphs: OmitArgPrefixes[GraphOptions] = _GRAPHS,
    gcnii: OmitArgPrefixes[GCNIIOptions] = _GCNII,
    sgformer: OmitArgPrefixes[SGFormerOptions] = _SGFORMER,
    images: OmitArgPrefixes[ImageOptions] = _IMAGES,
    transformers: OmitArgPrefixes[TransformerOptions] = _TRANSFORMERS,
    texts: OmitArgPrefixes[TextOptions] = _TEXTS,
) -> int:
    """Train one model on one task. The test set is read by `lresnet evaluate`, or at the end with --test.

    Example: lresnet train friends.csv

    Example: lresnet train citations/ --task node --metric f1_macro --search 5m

    Example: lresnet train taxonomy.csv --task hierarchy

    Example: lresnet train book.txt --task text --out runs/book

    Example: lresnet train photos/ --epochs 30 --size 48

    Example: lresnet train disease_tree/lp --method lorentz --seed 1 --epochs 300 --out runs/tree

    Example: lresnet train cora/nc --model lorentz_gcnii --layers 64 --dropout 0.6

    Example: lresnet train cora/nc --split class-random --split-index 3

    Example: lresnet train chameleon/nc --model lorentz_sgformer --split 3

    Settings that you do not give come from the task's preset, otherwise from the defaults of the library. On your own
    graph or taxonomy a short search on validation data chooses them. If a run was interrupted, the same command resumes
    it from its checkpoint; on a CPU the result is bit-identical.

    Your own graph is an edge list (.csv, .tsv, .txt, .edges, also gzipped: two nodes per row and an optional weight), a
    folder with edges.csv and if you have them features.csv, labels.csv and splits.csv, or a .npz, .graphml or .gml
    file.

    Your own taxonomy, with --task hierarchy, is a file with rows child,parent, or an indented .txt.

    Your own text, with --task text, is a text file, also gzipped, or a folder of .txt files. The model learns to
    predict each byte from those before it.

    Your own images are a folder with a folder for each class (a part of each class becomes the test set), a folder with
    train/CLASS/ and test/CLASS/, or a .npz with train_images, train_labels, test_images and test_labels. Their settings
    are chosen by the number and the size of the images, and printed.

    To train with several GPUs or machines, start one process for each: torchrun
    --nproc-per-node=4 -m lresnet train cifar10. The batch size counts all processes together; a graph needs
    --batch-size there.

    Args:
        data: A graph task (disease/lp, cora/nc, ...), cifar10, cifar100, gcide, or the path of your own graph,
            taxonomy, text or images.
        task: What to learn on your own graph: link (missing links; the default without labels), node (classes of nodes;
            the default with labels), graph-level (classes of whole graphs, a folder of them) or hierarchy (ancestors in
            a taxonomy). Give text if DATA is a text, and graphs or images if its name is ambiguous. Without DATA,
            graphs means disease_tree/lp, images cifar10 and text gcide.
        method: Residual connection: lorentz, parallel_transport, tangent, space, none, or euclidean for the Euclidean
            baseline. None: lorentz; the search on your own graph also tries none.
        search: How long the search on your own graph may start new trials: a time (60s, 5m), a number of trials, or off
            for the first settings. None: 60s. Settings that you give hold in every trial.
        seed: Seed of parameters, negatives, random splits, shuffling and augmentation.
        recipe: Preset for images: fast, fast-learned, long, long-cutmix or paper. None: fast, the only one of the
            vision transformers; for your own images, settings that suit their number and size. With a recipe your own
            images use CIFAR-10's preset, with gradients clipped at norm 1 (--clip) and a learning rate of at most 0.4
            (--lr). Preset for texts: small, or base for a GPU. None: small.
        split: Split of a graph: public, legacy, class-random, hgcn, disjoint, fresh_splits, or the number of an
            official split; `lresnet data list` describes them. None: the preset's. On your own graph: random, the
            number of one of its masks, or a file with rows node,part (links: node,node,part); the parts are train, val
            and test. On your own taxonomy: closure (pairs of a node and an ancestor are held out, no edges) or leaves
            (leaves with all their edges; the default with texts or names as features).
        split_index: Number of a class-random or fresh split: the seed that draws it. None: the seed of the run.
        out: Folder of the run. None: runs/DATA-METHOD-SEED, with the model and the recipe in the name if they are not
            the default ones (your own graph: runs/DATA-TASK-SEED); a number is added if that folder holds other data of
            the same name.
        checkpoint_every: Epochs between two checkpoints. None: 10; 200 if an epoch is one batch; 1 for texts.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        test: Read the test set once when the run has finished, as `lresnet evaluate` does.
        verbose: List every image file that could not be read, and why.
        general: Settings of every task.
        graphs: Settings for graphs. lorentz_gpt and lorentz_vit have --layers and --dropout too.
        gcnii: Settings of lorentz_gcnii. lorentz_gpt and lorentz_vit have --activation-checkpointing too.
        sgformer: Settings of lorentz_sgformer, a graph transformer. lorentz_gpt and lorentz_vit have --heads too.
        images: Settings for images. lorentz_gcnii has --head too.
        transformers: Settings of lorentz_gpt and lorentz_vit.
        texts: Settings for texts.
    """
    from lresnet.runs.config import require_shareable
    from lresnet.runs.graph_search import read_budget
    from lresnet.runs.presets import find_task, run_config
    from lresnet.runs.task_config import GraphTaskConfig

    require_seeds("--seed", seed)
    budget = read_budget("60s" if search is None else search)
    learn, kind = _task_and_kind(task)
    if learn is not None and data is None:
        what, place = ("taxonomy", "FILE") if learn == "hierarchy" else ("graph", "GRAPH")
        raise ValueError(f"--task {learn} needs your own {what}: lresnet train {place} --task {learn}")
    kind, name = find_task(data, kind)
    given = given_settings(general, graphs, gcnii, sgformer, images, transformers, texts)
    with options_named_as_typed(given):
        config = run_config(
            name,
            method or "lorentz",
            seed=seed,
            kind=kind,
            split=split,
            split_index=split_index,
            recipe=recipe,
            settings=given,
            graph_task=learn,
        )
    require_shareable(config.task, process_count(), config.train.batch_size)
    if out is not None:
        require_no_file(out)
    own = isinstance(config.task, GraphTaskConfig) and config.task.is_own
    if search is not None and not own:
        raise ValueError(f"--search is for your own graph, but {name} has settings of its own; leave it out")
    if own and task == "auto":
        _require_graph(config)
    folder = out or (_own_graph_folder(config, method) if own else _default_folder(config, recipe))
    if own and budget.trials != 0:
        config = _searched(config, given, budget, method, folder, device)
    _train(config, folder, device, checkpoint_every, test, verbose, recipe, given)
    return evaluate(folder, device) if test and is_main_process() else 0  # the other processes have ended


def _require_graph(config: "RunConfig") -> None:
    """Load the user's graph. A .txt file may be a text or a taxonomy instead: an error or a line mentions it."""
    from lresnet.runs.tasks import load

    is_txt = config.task.name.lower().endswith((".txt", ".txt.gz"))
    try:
        load(config.task, config.train.seed)
    except ValueError as error:
        if not is_txt:
            raise
        raise ValueError(f"{error}; if the file is no graph, add --task text or --task hierarchy") from error
    if is_txt and is_main_process():
        print(f"{Path(config.task.name).name} is read as a graph; if it is none, add --task text or --task hierarchy")


def _task_and_kind(task: str) -> "tuple[GraphTaskKind | None, DataKind | None]":
    """Return what ``--task`` says to learn on a user's graph, and the kind of the data; None: it does not say."""
    from lresnet.runs.task_config import GraphTaskKind

    if task in get_args(GraphTaskKind):
        return task, "graphs"  # type: ignore[return-value]
    kinds: dict[str, DataKind] = {"graphs": "graphs", "images": "images", "text": "texts"}
    return None, kinds.get(task)


def _searched(
    config: "RunConfig", given: dict[str, Any], budget: "Budget", method: str | None, folder: Path, device: str
) -> "RunConfig":
    """Return the configuration that the search chooses, or the one of the run that the folder holds already."""
    from lresnet.data import HierarchyTask
    from lresnet.runs.graph_search import best_trial, require_chosen, search
    from lresnet.runs.names import one_line
    from lresnet.runs.record import read_record
    from lresnet.runs.task_config import GraphTaskConfig
    from lresnet.runs.tasks import load

    assert isinstance(config.task, GraphTaskConfig)
    file = {name: value for name, value in given.items() if name in ("labels", "node_features")}
    fixed = given | {name: getattr(config.task, name) for name in file}  # absolute paths
    before = read_record(folder)
    if before is not None and not before.from_python:
        require_chosen(before.config, config, fixed, method, folder)
        print(f"{folder} holds a run whose settings were chosen before; it is not searched again")
        return before.config
    if not is_main_process() or process_count() > 1:
        raise ValueError("the search runs in one process; run it without torchrun, then use the command that it prints")
    task = load(config.task, config.train.seed)
    for note in task.notes:  # type: ignore[union-attr]
        print(one_line(note))
    limit = (
        f"{budget.seconds:g} seconds"
        if budget.seconds is not None
        else f"{budget.trials} trial{'s'[: budget.trials != 1]}"
    )
    by = f" by {task.metric}" if isinstance(task, HierarchyTask) else ""
    print(f"Searching for settings on validation data{by} (--search, {limit}):")
    try:
        chosen, ended = search(
            config, fixed, budget, method=method, folder=folder, device=device, on_trial=_trial_printer()
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command resumes the search, without repeating the trials above") from None
    best = best_trial(ended)
    print(f"Trial {best.number} of {len(ended)} has the best validation metric, and is the run. To repeat it alone:")
    print(f"  {chosen.command()}")
    return chosen


def _trial_printer() -> "Callable[[Trial], None]":
    """Return a function that prints one line per trial: its validation metric and how it differs from the first."""
    from lresnet._options import option_name
    from lresnet.runs.graph_search import changed_settings

    ended: list[Trial] = []

    def show(trial: "Trial") -> None:
        ended.append(trial)
        *_, (_, changes) = changed_settings(ended)
        words = ", ".join(f"{option_name(name)} {value}" for name, value in changes.items())
        value = "diverged" if trial.validation is None else f"{trial.validation:.2f}"
        first = words or ("first settings" if trial.number == 1 else "as the first")
        print(f"  trial {trial.number:>2}: validation {value}, {trial.seconds:.1f} s: {first}", flush=True)

    return show


def _own_graph_folder(config: "RunConfig", method: str | None) -> Path:
    """Return a folder for a run on a user's graph that holds no run on another one."""
    from lresnet.runs.task_config import GraphTaskConfig

    assert isinstance(config.task, GraphTaskConfig)
    name = re.sub(r"[^\w.-]+", "_", Path(config.task.name).name.partition(".")[0] or "graph")
    rest = f"-{config.task.task}{'' if method is None else f'-{method}'}-{config.train.seed}"
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    folders = (Path("runs") / f"{each}{rest}" for each in names)
    return next(folder for folder in folders if not _holds_other_data(folder, config.task.name))


def _default_folder(config: "RunConfig", recipe: str | None) -> Path:
    """Return a folder that holds no run on other data: two folders of images may have the same name."""
    from lresnet.runs.presets import image_recipes

    preset = f"-{recipe}" if recipe in image_recipes()[1:] or recipe == "base" else ""
    model = "" if config.model.name in _DEFAULT_MODELS else f"-{config.model.name.removeprefix('lorentz_')}"
    dropped = "_".join(map(str, getattr(config.task, "drop_columns", None) or ()))
    name = _folder_name(config.task.name) + (f"-without_{dropped}" if dropped else "")
    rest = f"{model}{preset}-{config.model.residual}-{config.train.seed}"
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
    given: dict[str, Any],
) -> None:
    from lresnet.cli.console import progress_bars
    from lresnet.data import HierarchyTask, LinkTask
    from lresnet.runs.task_config import ImageTaskConfig, TextTaskConfig
    from lresnet.runs.training import fit
    from lresnet.train import NonFiniteError
    from lresnet.train.distributed import join_processes

    notes, digits = None, 4 if isinstance(config.task, TextTaskConfig) else 2
    if isinstance(config.task, ImageTaskConfig) and config.task.is_own and recipe is None:
        config, notes = _suited(config, given, folder, device)
    progress = progress_bars()
    bar = progress.add_task("epochs", total=config.train.epochs, state="")

    def start(model: "Pretrained", objective: "Objective[Any]") -> None:
        for line in _summary(config, model, objective, verbose, recipe, notes):
            progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
        progress.start()

    def show(epoch: int, metric: float | None) -> None:
        state = "" if metric is None else f"{config.train.keep} validation {metric:.{digits}f}"
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
    metric = "nothing held out" if run.record.validation is None else f"validation {run.record.validation:.{digits}f}"
    print(f"{metric}, epoch {run.record.best_epoch}")
    if not test and is_main_process() and isinstance(run.known_task, LinkTask | HierarchyTask):
        for line in untrained_lines(run.untrained(), run.record.validation, "validation"):
            print(line)
    hint = "" if test else f"; `lresnet evaluate {shlex.quote(str(folder))}` reads the test set"
    print(f"The run is in {folder}{hint}")


def _how_to_resume(folder: Path) -> str:
    from lresnet.runs.record import checkpoint_epoch

    epoch = checkpoint_epoch(folder)
    if epoch == 0:
        return "no checkpoint has been written yet, so the same command starts from the beginning"
    return f"the same command resumes from the checkpoint in {folder}, epoch {epoch}"


def _suited(
    config: "RunConfig", given: dict[str, Any], folder: Path, device: str
) -> "tuple[RunConfig, list[str] | None]":
    """Return a run on the user's own images with the settings chosen for them, or that of the folder; and notes."""
    from lresnet.runs.device import usable_device
    from lresnet.runs.own_images import suit_to_images
    from lresnet.runs.record import read_record

    before = read_record(folder)
    if before is not None and not before.from_python:
        known, wanted = before.config.facts(), config.facts()
        for name in ("task", "method", "seed", *given):
            if name in known and known[name] != wanted.get(name):
                raise ValueError(
                    f"{folder} holds another run: {name} is {known[name]} there, not {wanted.get(name)}; "
                    "use another folder"
                )
        machine = {name: given[name] for name in ("memory", "workers") if name in given}
        task = dataclasses.replace(before.config.task, **machine)
        return dataclasses.replace(before.config, task=task), [f"{folder} holds this run; its settings are kept"]
    chosen = suit_to_images(config, given, gpu=usable_device(device).type == "cuda")
    if chosen.mirror is None:
        return chosen.config, []
    return chosen.config, [chosen.mirror.reason]


def _own_image_lines(config: "RunConfig", objective: "ImageClassification", notes: list[str]) -> list[str]:
    """Return the printed facts about a user's own images and about the settings chosen for them."""
    from lresnet.data import ImageSet

    data, train, augment = objective.data, config.train, config.train.augment
    parts = [part for part in (data.train, data.val, data.test) if part is not None]
    height, width, channels = data.train.shape
    decoded = sum(map(len, parts)) * height * width * channels / 1e6
    where = f"in memory: {decoded:,.1f} MB decoded"
    if not isinstance(data.train, ImageSet):
        processes = f"{data.train.workers} process{'' if data.train.workers == 1 else 'es'}"
        where = f"in their files, decoded by {processes} (--workers): {decoded:,.1f} MB decoded"
    counts = objective.train.labels.bincount(minlength=len(data.classes)).tolist()
    few, many = counts.index(min(counts)), counts.index(max(counts))
    flip = f"--{'' if augment.flip else 'no-'}flip"
    balance = f"{counts[few]:,}"
    if counts[few] < counts[many]:
        balance += f" ({data.classes[few]}) to {counts[many]:,} ({data.classes[many]})"
    return [
        f"Training images per class: {balance}",
        *data.notes,
        f"Images: {width} x {height} (--size), kept {where}, limit --memory",
        f"Augmentation: shifts of up to {augment.pad} pixels (--pad {augment.pad} --cutout {augment.cutout} {flip})",
        *notes,
        f"Training: {_counted(train.epochs, 'epoch')} of {_counted(objective.steps_per_epoch, 'step')} (--model "
        f"{config.model.name} --epochs {train.epochs} --batch-size {objective.batch_size} --lr {train.lr:g})",
    ]


def _summary(
    config: "RunConfig",
    model: "Pretrained",
    objective: "Objective[Any]",
    verbose: bool,
    recipe: str | None,
    notes: list[str] | None,
) -> list[str]:
    """Return one line per fact about the parameters and the data.

    Args:
        notes: facts about settings that were chosen for the user's own images; None: there are none.
    """
    from lresnet.models import LorentzGCN, LorentzResNet
    from lresnet.optim import parameter_groups
    from lresnet.runs.names import one_line
    from lresnet.runs.presets import has_searched_preset, image_recipes
    from lresnet.runs.task_config import GraphTaskConfig
    from lresnet.runs.tasks import load
    from lresnet.train import ImageClassification, TextModelling

    groups = parameter_groups(model)
    lines = [_parameter_line(groups)]
    if isinstance(model, LorentzGCN) and model.head is not None and not model.euclidean and not groups.manifold:
        lines.append(_NO_MANIFOLD_PARAMETERS)
    if isinstance(model, LorentzGCN) and not model.residuals and config.model.residual not in ("none", "euclidean"):
        lines.append("A network of one layer has no residual connection: every --method gives the same network here.")
    if isinstance(config.task, GraphTaskConfig) and config.task.is_own:
        lines += map(one_line, load(config.task, config.train.seed).notes)  # type: ignore[union-attr]
    if isinstance(objective, TextModelling):
        lines += _text_lines(config, objective)
    if isinstance(objective, ImageClassification):
        data, held_out = objective.data, 0 if objective.held_out is None else len(objective.held_out)
        height, width, channels = data.train.shape
        lines.append(
            f"{len(objective.train):,} images to train on, {held_out:,} held out, {len(data.test):,} to test: "
            f"{width} x {height} x {channels}, {len(data.classes)} classes"
        )
        if isinstance(model, LorentzResNet):
            chosen = "given by --stem" if getattr(config.model, "stem", None) else "chosen by the size of the images"
            lines.append(f"stem {model.stem_name}, {chosen}")
        if data.skipped:
            read = len(data.train) + len(data.test) + (0 if data.val is None else len(data.val))
            lines += _skipped_files(data.skipped, read, verbose)
        if notes is not None:
            lines += _own_image_lines(config, objective, notes)
        elif not has_searched_preset(config, recipe):
            name = recipe or image_recipes()[0]
            lines.append(f"recipe {name} was not searched for {config.model.residual}; it uses its first settings")
    return lines


def _parameter_line(groups: "ParameterGroups") -> str:
    """Return the numbers of trainable parameters, without empty groups."""
    counts = {name: sum(p.numel() for p in group.values()) for name, group in groups._asdict().items()}
    parts = [f"{count:,} in {_PARAMETERS[name]}" for name, count in counts.items() if count]
    return f"Trainable parameters: {', '.join(parts) or 'none'}"


def _text_lines(config: "RunConfig", objective: "TextModelling") -> list[str]:
    """Return the printed facts about a text: its parts, its tokens and the length of an epoch."""
    task = objective.task
    parts = ", ".join(f"{len(one):,} {word}" for one, word in ((task.train, "to train on"), (task.val, "held out")))
    kind = "byte pairs" if task.tokenizer.merges else "bytes"
    return [
        f"Tokens ({kind}, {task.vocab_size:,} different ones): {parts}, {len(task.test):,} to test",
        *task.notes,
        f"Training: {_counted(config.train.epochs, 'epoch')} of {_counted(objective.steps_per_epoch, 'step')}, each of "
        f"{_counted(objective.batch_size, 'window')} of {_counted(task.context, 'token')} (--epochs --steps-per-epoch "
        "--batch-size --context); validation in bits per byte, lower is better",
    ]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _skipped_files(skipped: "Sequence[tuple[Path, str]]", read: int, verbose: bool) -> list[str]:
    """Return a warning about unreadable files: three names, or all with their reasons."""
    from lresnet.cli.console import skipped_lines
    from lresnet.runs.names import one_line

    count = len(skipped)
    warning = f"warning: {count} of {read + count} files could not be read as images and are skipped"
    if verbose:
        return [f"{warning}:", *skipped_lines(skipped)]
    names = ", ".join(one_line(str(file)) for file, _ in skipped[:3])
    return [f"{warning}: {names}{', ...' if count > 3 else ''} (-v lists all, with the reasons)"]
