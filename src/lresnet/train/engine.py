"""The training loop: learning-rate schedule, clipping, early stopping, non-finite check, checkpoints and resuming."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from lresnet.geometry.state import EXTRA_STATE
from lresnet.metrics.checks import NonFiniteScores
from lresnet.models.pretrained import Pretrained
from lresnet.models.transformer import Transformer
from lresnet.optim import Optimizers, make_adam, make_adam_l2, make_sgd
from lresnet.train.checkpoint import resume_checkpoint, save_checkpoint
from lresnet.train.checkpoint_state import first_difference, in_this_format, recorded_statistics, structure_problem
from lresnet.train.config import NormStatistics, TrainConfig
from lresnet.train.distributed import data_parallel_loss, report_lost_processes
from lresnet.train.non_finite import NonFiniteCheck, check_parameters, diverged
from lresnet.train.norm_statistics import reestimate_statistics, running_statistics, tracking_norms
from lresnet.train.objective import Objective
from lresnet.train.training_mode import frozen_parts

__all__ = [
    "CapturedStep",
    "Execution",
    "MovingAverage",
    "Outcome",
    "TrainingState",
    "cudnn_benchmark",
    "frozen_parts",
    "seed_everything",
    "train_model",
]

Model = TypeVar("Model", bound=torch.nn.Module)

Execution = Literal["fast", "compiled", "eager"]

# Number of steps from which compiling pays in a single run. For a ResNet-18 on an H200, compiling takes 20 s longer
# than `precompile` and saves 0.5 ms per step.
_WORTH_COMPILING = 40_000
# Statistics of the batches that batch norms have seen.
_RUNNING_STATISTICS = ("running_mean", "running_var")
_OTHER_CHECKPOINT = "delete it or use another folder"
# Autotuners and optimisers must choose and allocate everything before a capture; torch recommends three runs.
_STEPS_BEFORE_CAPTURE = 3


@dataclasses.dataclass
class Outcome:
    """The result of a training run."""

    best_epoch: int
    """The epoch whose parameters were kept."""
    validation: float | None
    """Validation score of these parameters, in percent unless the objective says otherwise; None without validation."""
    epochs: int
    """Number of epochs trained."""
    seconds: float
    """Wall-clock time."""
    curve: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """Epoch and score of every validation pass."""
    norm_statistics: NormStatistics | None = None
    """What batch norms normalise by in evaluation; None for a model without batch norms that are trained."""


def seed_everything(seed: int) -> None:
    """Seed torch's generators on every device. All other generators of lresnet have explicit seeds."""
    torch.manual_seed(seed)


def train_model(
    model: Model,
    objective: Objective[Model],
    config: TrainConfig,
    *,
    checkpoint: Path | None = None,
    checkpoint_every: int = 200,
    execution: Execution = "fast",
    on_epoch: Callable[[int, float | None], None] | None = None,
) -> Outcome:
    """Train ``model`` on ``objective``, resuming from ``checkpoint`` if that file exists.

    A resumed run is bit-identical to an uninterrupted one. The model ends with the parameters that ``config.keep``
    selects, in eval mode. The test set is not read; call ``objective.test(model)`` once afterwards.

    With several processes (``objective.processes``), all of them call this function with the same arguments. They start
    from the parameters of process 0, step on the mean of their gradients (DistributedDataParallel), and average the
    running statistics of batch norms after each epoch. Process 0 validates, selects and writes the checkpoint. Steps
    are not captured as a CUDA graph.

    Args:
        model: the network.
        objective: the task, bound to its data and device.
        config: optimiser, learning rate, stopping.
        checkpoint: file for the whole state of the run. It is written at the start, so that a folder without write
            permission fails at once, and every ``checkpoint_every`` epochs; the one before it is kept, with the ending
            ``.previous``, and used if the last one is damaged. None writes none.
        checkpoint_every: epochs between two checkpoints.
        execution: ``"fast"`` captures the training step as a CUDA graph (except for sampled batches of a graph, whose
            sizes change, and with geoopt's optimisers, which count steps on the host) and compiles the model in long
            runs if the objective benefits. ``"compiled"`` compiles it in short runs too; later runs of the same kind in
            the same process reuse the result. Transformers compile their blocks one by one, once for all depths.
            ``"eager"`` does neither. On a CPU all three are the same.
        on_epoch: called as ``on_epoch(epoch, best validation score so far)`` at every validation pass, and after every
            epoch of more than one step.

    Nothing is read from a GPU between two validation passes.
    """
    processes = objective.processes
    written = checkpoint if processes.is_main else None
    with report_lost_processes(), cudnn_benchmark():
        run = TrainingState(model, objective, config, execution)
        run.precompile()
        state = processes.broadcast(resume_checkpoint(written) if written else None)
        if state is not None:
            try:
                run.load_state_dict(state)
            except ValueError as error:
                raise ValueError(f"{checkpoint}: {error}") from error
        elif written:
            save_checkpoint(written, run.state_dict())
        started = time.perf_counter()
        while run.epoch < config.epochs and not run.out_of_patience():
            run.train_epoch()
            validates = run.epoch % config.eval_every == 0 or run.epoch == config.epochs
            if validates:
                run.validate()
            if on_epoch is not None and (validates or objective.steps_per_epoch > 1):
                on_epoch(run.epoch, run.best)
            if written and run.epoch % checkpoint_every == 0:
                run.seconds += time.perf_counter() - started
                started = time.perf_counter()
                save_checkpoint(written, run.state_dict())
        run.seconds += time.perf_counter() - started
    return run.outcome()


@contextlib.contextmanager
def cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN time its convolution algorithms; every batch has the same shape, so the choice is made once."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True  # torch.backends.cudnn.flags would also reset the other flags
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class TrainingState(Generic[Model]):
    """The state of a run between two steps, for loops of your own and for benchmarks; see :func:`train_model`.

    Args:
        model: the network; its parameters change in place.
        objective: the task, bound to its data and device.
        config: optimiser, learning rate, stopping.
        execution: as for :func:`train_model`.

    Example:
        >>> state = TrainingState(model, objective, TrainConfig(epochs=10))  # doctest: +SKIP
        >>> state.train_epoch()  # doctest: +SKIP
        >>> state.validate()  # doctest: +SKIP
        >>> state.outcome().validation  # doctest: +SKIP
    """

    def __init__(
        self, model: Model, objective: Objective[Model], config: TrainConfig, execution: Execution = "fast"
    ) -> None:
        self.model, self.objective, self.config = model, objective, config
        objective.require_model(model)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError(f"{type(model).__name__} has no parameter to train: none has requires_grad=True")
        self.optimizers, self._frozen = _make_optimizers(model, config), frozen_parts(model)
        self.device, self.processes = self.parameters[0].device, objective.processes
        self.processes.broadcast_(_without_extra_state(model.state_dict()).values())
        self.check = NonFiniteCheck(self.device)
        self.average = None if config.average is None else MovingAverage(model, config.average)
        self.epoch, self.best_epoch, self.seconds = 0, 0, 0.0
        self.best: float | None = None
        self.best_loss: float | None = None
        self.curve: list[tuple[int, float]] = []
        self.best_state: dict[str, Tensor] = {}
        self.norm_statistics = norm_statistics(model, objective, config)
        require_criterion(objective, config)
        fast = execution != "eager" and self.device.type == "cuda"
        pays = execution == "compiled" or config.epochs * objective.steps_per_epoch > _WORTH_COMPILING
        self._compiles = fast and pays and objective.compiles
        if isinstance(model, Transformer):
            model.compiles_blocks = False  # a run that has failed may have left it
        self.network = _compiled(model) if self._compiles else model
        self._loss = data_parallel_loss(self.network, lambda network: objective.loss(network), self.processes)
        captured = fast and objective.captures and self.optimizers.capturable and self.processes.size == 1
        self.step: Callable[[], None] = CapturedStep(self._step, objective.generators) if captured else self._step
        """Take one training step on the batch that ``objective.advance`` has put in place; the model is in train mode
        and ``objective.start_epoch`` has been called."""

    def precompile(self) -> None:
        """Start compiling all kernels in the background; the first step would wait for one after the other."""
        if self.device.type == "cuda" and not self._compiles:  # torch.compile traces the model itself
            self.objective.precompile(self.model)

    def train_epoch(self) -> None:
        """Train for one pass over the data."""
        steps = self.objective.steps_per_epoch
        self.model.train()
        for part in self._frozen:
            part.eval()
        self.objective.start_epoch()
        for i in range(steps):
            self.optimizers.scale_lr(self.config.factor(self.epoch + i / steps, steps))
            self.objective.advance(i)
            try:
                self.step()
            except ValueError as error:  # a range check, e.g. of the curvature, may fail before the loss is checked
                step = self.epoch * steps + i
                check_parameters(self.model, step)
                if step == 0:  # nothing has been learned yet: the call itself is wrong
                    raise
                raise diverged(error, step) from error
        self._average_running_statistics()
        self.epoch += 1

    def _step(self) -> None:
        self.optimizers.zero_grad()
        loss = self._loss()
        self.check.record(self.processes.mean(loss))
        if self.device.type == "cpu":  # reading is free here, and the parameters are still those of this step
            self._raise_if_not_finite()
        loss.backward()
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip, foreach=True)
        self.optimizers.step()
        if self.average is not None:
            self.average.update()

    def _raise_if_not_finite(self) -> None:
        self.check.raise_if_found(self.model, lambda: self.objective.loss(self.model), self.processes)

    def _average_running_statistics(self) -> None:
        """Give all processes the mean of their batch norms' running statistics: each has seen its own images."""
        states = [self.model.state_dict()] + ([] if self.average is None else [self.average.state])
        self.processes.average_(state[name] for state in states for name in state if name.endswith(_RUNNING_STATISTICS))

    def validate(self) -> None:
        """Run a validation pass, and keep a copy of the parameters if they are the best so far."""
        self._raise_if_not_finite()
        step = self.epoch * self.objective.steps_per_epoch - 1
        check_parameters(self.model, step)
        with self._evaluated_state():
            try:
                value, loss = self.processes.broadcast(self._score())
            except NonFiniteScores as error:  # finite with the statistics of a batch, but not with those of evaluation
                raise diverged(error, step) from error
            if value is not None:
                self.curve.append((self.epoch, value))
            if value is None or self.config.keep == "last":
                self.best, self.best_epoch = value, self.epoch
            elif self._improves(value, loss):
                self.best, self.best_loss, self.best_epoch = value, loss, self.epoch
                self.best_state = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    @torch.no_grad()
    def _score(self) -> tuple[float | None, float | None]:
        """Return the validation score of the current model, in percent unless the objective has another unit, and the
        validation loss if that is the criterion."""
        score: Tensor | None
        loss: Tensor | None = None
        if self.config.criterion == "loss":
            score, loss = self.objective.validation_with_loss(self.model)
        else:
            score = self.objective.validation(self.model)
        value = None if score is None else (100 if self.objective.percent else 1) * float(score)
        return value, None if loss is None else float(loss)

    def _improves(self, value: float, loss: float | None) -> bool:
        """Return whether a validation pass is better than the best one so far; one with NaN is not."""
        if loss is not None:
            return loss < (math.inf if self.best_loss is None else self.best_loss)
        if self.objective.lower_is_better:
            return value < (math.inf if self.best is None else self.best)
        return value > (-math.inf if self.best is None else self.best)

    @contextlib.contextmanager
    def _evaluated_state(self) -> Iterator[None]:
        """Give the model the state that would be kept now. Training continues with its own state."""
        own = None
        if self.average is not None or self.norm_statistics == "reestimated":
            own = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self._load_evaluated_state()
        yield
        if own is not None:
            self.model.load_state_dict(own)

    def _load_evaluated_state(self) -> None:
        """Put the model in eval mode, with averaged parameters and re-estimated statistics if the run has them."""
        if self.average is not None:
            self.model.load_state_dict(self.average.state)
        self.model.eval()
        if self.norm_statistics == "reestimated":
            reestimate_statistics(self.model, lambda: self.objective.forward_training_data(self.model))
            self.processes.average_(running_statistics(tracking_norms(self.model)))

    def out_of_patience(self) -> bool:
        """Whether the best validation pass is ``config.patience`` epochs or more before the last one."""
        patience, last_pass = self.config.patience, self.epoch - self.epoch % self.config.eval_every
        return patience is not None and last_pass - self.best_epoch >= patience

    def outcome(self) -> Outcome:
        """Give the model the parameters to keep, and return the result of the run."""
        if isinstance(self.model, Transformer):
            self.model.compiles_blocks = False
        if self.best_state:
            self.model.load_state_dict(self.best_state)
            self.model.eval()
        else:
            self._load_evaluated_state()
        return Outcome(self.best_epoch, self.best, self.epoch, self.seconds, self.curve, self.norm_statistics)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs."""
        return {
            "model": self.model.state_dict(),
            "average": None if self.average is None else self.average.state,
            "best_state": self.best_state,
            "optimizers": self.optimizers.state_dict(),
            "objective": self.objective.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best": self.best,
            "best_loss": self.best_loss,
            "curve": self.curve,
            "seconds": self.seconds,
            "identity": self._identity(),
        }

    def _identity(self) -> dict[str, Any]:
        """What makes a resumed run the same run: every setting of the training and, if it has one, of the model."""
        train = dataclasses.asdict(self.config) | {"norm_statistics": self.norm_statistics}
        model = self.model.config if isinstance(self.model, Pretrained) else {}
        return json.loads(json.dumps({"train": train, "model": model}))  # type: ignore[no-any-return]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned.

        Raises:
            ValueError: the state belongs to another run, or is none.
        """
        state = in_this_format(state, has_norms=self.norm_statistics is not None)
        if self.norm_statistics is not None and self.config.norm_statistics is None:
            self.norm_statistics = recorded_statistics(state) or self.norm_statistics
        self._require_same_run(state)
        try:
            self._load(state)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"the checkpoint is not one of this run: {reason}; {_OTHER_CHECKPOINT}") from error

    def _load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizers.load_state_dict(state["optimizers"])
        self.objective.load_state_dict(state["objective"])
        if self.average is not None:
            self.average.load(state["average"])
        self.best_state = {name: tensor.to(self.device) for name, tensor in state["best_state"].items()}
        self.epoch, self.best_epoch = state["epoch"], state["best_epoch"]
        self.best, self.best_loss = state["best"], state["best_loss"]
        self.curve, self.seconds = list(state["curve"]), state["seconds"]
        self.check.start(self.epoch * self.objective.steps_per_epoch)
        torch.set_rng_state(state["random"])
        if state["random_cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["random_cuda"])

    def _require_same_run(self, state: dict[str, Any]) -> None:
        own = self.state_dict()
        if own.keys() != state.keys():
            raise ValueError(f"another version of lresnet wrote the checkpoint; {_OTHER_CHECKPOINT}")
        if problem := structure_problem(state, self.config.epochs):
            raise ValueError(f"the checkpoint is damaged: its {problem}; {_OTHER_CHECKPOINT}")
        if difference := first_difference(own["identity"], state["identity"]):
            raise ValueError(f"the checkpoint belongs to another run: {difference}; {_OTHER_CHECKPOINT}")
        if _shapes(own["model"]) != _shapes(state["model"]):
            raise ValueError(f"the checkpoint belongs to a run with another model; {_OTHER_CHECKPOINT}")


def norm_statistics(model: torch.nn.Module, objective: Objective[Any], config: TrainConfig) -> NormStatistics | None:
    """Return what the batch norms of a run normalise by in evaluation; None: there is no batch norm to train.

    Raises:
        ValueError: the objective cannot re-estimate statistics.
    """
    if not tracking_norms(model):
        return None
    default: NormStatistics = getattr(model, "norm_statistics", "running")
    chosen = config.norm_statistics or default
    if chosen == "reestimated" and type(objective).forward_training_data is Objective.forward_training_data:
        raise ValueError(
            f"{type(objective).__name__} cannot re-estimate statistics of batch norms; use norm_statistics='running'"
        )
    return chosen


def require_criterion(objective: Objective[Any], config: TrainConfig) -> None:
    """Raise ``ValueError`` if validation passes are to be compared by a loss that the objective does not compute."""
    if config.criterion == "loss" and type(objective).validation_with_loss is Objective.validation_with_loss:
        raise ValueError(
            "criterion='loss' is for the classification of nodes and graphs, but the objective is "
            f"{type(objective).__name__}; use criterion='score'"
        )


def _without_extra_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters and buffers of a state dict. Extra state, such as a fixed curvature, does not change."""
    return {name: tensor for name, tensor in state.items() if not name.endswith(EXTRA_STATE)}


def _shapes(state: dict[str, Tensor]) -> dict[str, torch.Size]:
    """The shapes of parameters and buffers; one number counts as [1] (it was 0-dimensional up to lresnet 0.2)."""
    return {name: tensor.shape or torch.Size([1]) for name, tensor in _without_extra_state(state).items()}


def _make_optimizers(model: torch.nn.Module, config: TrainConfig) -> Optimizers:
    make = {"adam": make_adam, "adam_l2": make_adam_l2, "sgd": make_sgd}[config.optimizer]
    return make(model, config.lr, config.weight_decay, decay=config.decay, layer_decay=config.layer_decay)


def _compiled(model: Model) -> Model:
    """The compiled model, which is called like the model itself; a transformer compiles its blocks one by one."""
    if isinstance(model, Transformer):
        model.compiles_blocks = True
        return model
    # torch's stubs lose the type.
    return torch.compile(model, dynamic=False)  # type: ignore[return-value]


class MovingAverage:
    r"""An exponential moving average of a model's parameters and buffers.

    .. math:: a \leftarrow \beta a + (1 - \beta) p

    after every step, from the initial parameters. Integer buffers are copied. (torch's ``AveragedModel`` reads its
    counter on the host at every update, which a captured step cannot do.)

    Args:
        model: the network.
        beta: weight of the old value.
    """

    def __init__(self, model: torch.nn.Module, beta: float) -> None:
        self.beta, self._model = beta, model
        self.state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Include the model's current parameters."""
        now = _without_extra_state(self._model.state_dict())
        floats = [name for name, tensor in now.items() if tensor.is_floating_point()]
        torch._foreach_lerp_([self.state[n] for n in floats], [now[n] for n in floats], 1 - self.beta)
        for name, tensor in now.items():
            if not tensor.is_floating_point():
                self.state[name].copy_(tensor)

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved ``state``."""
        for name, tensor in _without_extra_state(self.state).items():
            tensor.copy_(state[name])


class CapturedStep:
    """A training step as a CUDA graph: eager for its first calls, then captured once, then replayed.

    Every call is one real step, including the eager ones. The tensors that the step reads and writes must stay at their
    place in memory; ``generators`` advance from call to call. A small network has a few hundred kernels, which the host
    launches more slowly than the GPU runs them; a replay is one launch.

    Args:
        step: the training step.
        generators: generators that the step draws from, besides torch's own.
    """

    def __init__(self, step: Callable[[], None], generators: Iterable[torch.Generator] = ()) -> None:
        self._step, self._generators = step, list(generators)
        self._calls = 0
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self._calls < _STEPS_BEFORE_CAPTURE:
            self._run_eagerly()
        else:
            if self._graph is None:
                self._graph = self._capture()
            self._graph.replay()
        self._calls += 1

    def _run_eagerly(self) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._step()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with _without_garbage_collection(), torch.cuda.graph(graph, stream=self._stream):
            self._step()
        return graph


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collect garbage now and not inside: freeing the memory of an earlier capture breaks the current one."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
