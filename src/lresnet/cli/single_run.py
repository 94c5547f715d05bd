"""The verbs ``train`` and ``evaluate``: one run in a folder of its own."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

if TYPE_CHECKING:
    from lresnet.models import LorentzGCN
    from lresnet.studies import Run

__all__ = ["evaluate", "train"]


@dataclass(frozen=True)
class Settings:
    """What decides a run. None: what the cell's recipe fixes, else the default of the library."""

    curvature: Annotated[float | None, arg(metavar="K")] = None
    """Curvature of the space, a negative number."""
    learn_curvature: Annotated[bool, FlagCreatePairsOff] = False
    """Train the curvature too."""
    num_layers: Annotated[int | None, arg(name="layers", metavar="INT")] = None
    """Graph convolutions."""
    hidden: Annotated[int | None, arg(metavar="INT")] = None
    """Dimension of the space."""
    activation: Annotated[Literal["none", "relu"] | None, arg(metavar="none|relu")] = None
    """On what enters every layer but the first."""
    dropout: Annotated[float | None, arg(metavar="RATE")] = None
    """Rate on the space coordinates that enter a layer."""
    features: Annotated[
        Literal["published", "standardised", "raw"] | None, arg(metavar="published|standardised|raw")
    ] = None
    """How the features are prepared."""
    loss: Annotated[Literal["margin", "cross_entropy"] | None, arg(metavar="margin|cross_entropy")] = None
    """Loss function."""
    margin: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Of the margin loss, in units of -1/K."""
    epochs: Annotated[int | None, arg(metavar="INT")] = None
    """Epochs at most."""
    lr: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Learning rate."""
    lr_schedule: Annotated[Literal["constant", "cosine"] | None, arg(metavar="constant|cosine")] = None
    """How the learning rate goes on."""
    weight_decay: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Decoupled; never on curvature, residual weights, norms and biases."""
    clip: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Largest norm of the gradient."""
    patience: Annotated[int | None, arg(metavar="INT")] = None
    """Stop after so many epochs without a better validation figure."""
    eval_every: Annotated[int | None, arg(metavar="INT")] = None
    """Epochs between two looks at the validation set."""


_DEFAULTS = Settings()
_NO_POINTS = (
    "warning: no parameter is a point of the manifold (geoopt.ManifoldParameter): "
    "Riemannian Adam has nothing to do, all updates are ordinary Adam's"
)


def train(
    cell: Annotated[Positional[str], arg(metavar="CELL")],
    method: str = "lorentz",
    seed: int = 0,
    split: Annotated[str | None, arg(metavar="NAME|INT")] = None,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
    checkpoint_every: int = 200,
    device: str = "cpu",
    settings: OmitArgPrefixes[Settings] = _DEFAULTS,
) -> int:
    """Train one model on one task; the test set is left for `lresnet evaluate`.

    The same command goes on from the checkpoint of a run that was interrupted, to the same numbers.

    Example: lresnet train disease_tree/lp --method lorentz --seed 1 --epochs 300 --out runs/tree

    Args:
        cell: The task, e.g. disease/lp: a data set, and lp for link prediction or nc for node classification.
        method: The residual connection: lorentz, parallel_transport, tangent, space, none, or euclidean for the twin.
        seed: Of parameters, negatives and honest splits.
        split: Of the data: legacy, disjoint, official, or the number of an official one. None: as the recipe says.
        out: The folder of the run. None: runs/CELL-METHOD-SEED.
        checkpoint_every: Epochs between two checkpoints.
        device: cpu, cuda, cuda:1, ...
        settings: What else decides the run.
    """
    from lresnet.studies.single import single_run

    given = {name: value for name, value in asdict(settings).items() if value != getattr(_DEFAULTS, name)}
    run = single_run(cell, method, seed, split, given)
    folder = out or Path("runs") / f"{cell.replace('/', '_')}-{method}-{seed}"
    return _train(run, folder, device, checkpoint_every)


def _train(run: "Run", folder: Path, device: str, checkpoint_every: int) -> int:
    from lresnet.cli.console import progress_bars
    from lresnet.optim import parameter_groups
    from lresnet.studies.run_folder import train_in_folder
    from lresnet.studies.single import command_of
    from lresnet.train import NonFiniteError

    progress = progress_bars()
    bar = progress.add_task("epochs", total=None, state="")

    def start(model: "LorentzGCN", epochs: int) -> None:
        groups = parameter_groups(model)
        progress.console.print(groups.summary(), highlight=False)
        if model.head is not None and not model.euclidean and not groups.manifold:
            progress.console.print(_NO_POINTS)
        progress.update(bar, total=epochs)
        progress.start()

    def show(epoch: int, best: float | None) -> None:
        progress.update(bar, completed=epoch, state=f"best validation {best:.2f}")

    try:
        record = train_in_folder(
            run,
            folder,
            command=command_of(run),
            device=device,
            checkpoint_every=checkpoint_every,
            on_start=start,
            on_epoch=show,
        )
    except NonFiniteError as error:
        progress.stop()
        print(f"lresnet: error: {error}", file=sys.stderr)
        return 1
    finally:
        if progress.live.is_started:
            progress.stop()
    print(f"validation {record['validation']:.2f}, epoch {record['best_epoch']}")
    print(f"The run is in {folder}; `lresnet evaluate {folder}` reads the test set")
    return 0


def evaluate(run: Annotated[Positional[Path], arg(metavar="RUN_DIR")], device: str = "cpu") -> int:
    """Read the test set, once, with the model that `lresnet train` left in a folder.

    The figures are kept in RUN_DIR/evaluation.json; asked again, they come from there.

    Example: lresnet evaluate runs/tree

    Args:
        run: The folder of the run.
        device: cpu, cuda, cuda:1, ...
    """
    from lresnet.studies.run_folder import evaluate_folder

    record = evaluate_folder(run, device=device)
    figures = "  ".join(f"{name} {value:.2f}" for name, value in record["metrics"].items())
    print(f"{record['cell']}, {record['method']}, seed {record['seed']}: {figures}")
    return 0
