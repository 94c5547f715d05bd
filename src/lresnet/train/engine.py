"""The one training loop: seeds, schedule, clipping, early stopping, NaN sentry, checkpoints, resume."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from lresnet.metrics.checks import NonFiniteScores
from lresnet.optim import Optimizers, make_adam, make_adam_l2, make_sgd
from lresnet.train.checkpoint import load_checkpoint, save_checkpoint
from lresnet.train.config import TrainConfig
from lresnet.train.non_finite import Sentry, out_of_range
from lresnet.train.objective import Objective

__all__ = [
    "CapturedStep",
    "Execution",
    "MovingAverage",
    "Outcome",
    "seed_everything",
    "train_model",
]


Trained = TypeVar("Trained", bound=torch.nn.Module)

Execution = Literal["fast", "compiled", "eager"]

# Steps from which on compiling pays in a single run. For a ResNet-18 on an H200 it takes 20 s more than to rehearse,
# and 0.5 ms off a step.
_WORTH_COMPILING = 40_000
# What batch norms keep of the batches they have seen.
_RUNNING = ("running_mean", "running_var")


@dataclasses.dataclass
class Outcome:
    """What a run gave."""

    best_epoch: int
    """The epoch whose parameters were kept."""
    validation: float | None
    """Validation figure of these parameters, percent; None where nothing was held out."""
    epochs: int
    seconds: float
    curve: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """Epoch and validation figure of every look."""


def seed_everything(seed: int) -> None:
    """Torch's generators on every device; ours are all derived from explicit seeds."""
    torch.manual_seed(seed)


def train_model(
    model: Trained,
    objective: Objective[Trained],
    schedule: TrainConfig,
    *,
    checkpoint: Path | None = None,
    checkpoint_every: int = 200,
    execution: Execution = "fast",
    on_epoch: Callable[[int, float | None], None] | None = None,
) -> Outcome:
    """Train ``model`` on ``objective``; resumes from ``checkpoint`` if that file is there, to the same numbers.

    The model is left with the parameters that the schedule says to keep, in eval mode. The test set is not touched:
    that is for the caller, once, with ``objective.test(model)``.

    Args:
        checkpoint: file for the whole state of the run, written at the start (a folder that cannot be written to fails
            there) and every ``checkpoint_every`` epochs; None: never.
        execution: ``"fast"``: on CUDA the training step is recorded once and replayed as a CUDA graph (not with an
            optimiser that counts its steps on the host, as geoopt's do), and a model whose objective says that it
            helps is compiled if the run is long enough. ``"compiled"``: that model is compiled in short runs too; what
            one run compiles serves the next of its kind in the same process. ``"eager"``: neither. On a CPU all are
            the same.
        on_epoch: called as ``on_epoch(epoch, best validation so far)`` at every look at the validation set, and after
            every epoch of several steps.

    Nothing is read from a GPU between two looks at the validation set.

    Where several processes share the objective's batches (``objective.team``) all of them call this, with the same
    arguments. They begin with the parameters of process 0, step on the mean of their gradients, take the mean of the
    batch norms' running statistics after each epoch, and choose by the figures of process 0, which alone touches the
    checkpoint. Their steps are not recorded as a CUDA graph.
    """
    team, written = objective.team, checkpoint if objective.team.leads else None
    run = _Run(model, objective, schedule, _optimizers(model, schedule), execution)
    run.rehearse()
    state = team.same(load_checkpoint(written) if written else None)
    if state is not None:
        run.load_state_dict(state)
    elif written:
        save_checkpoint(written, run.state_dict())
    started = time.perf_counter()
    with _tried_convolutions():
        while run.epoch < schedule.epochs and not run.out_of_patience():
            run.train_epoch()
            looks = run.epoch % schedule.eval_every == 0 or run.epoch == schedule.epochs
            if looks:
                run.look()
            if on_epoch is not None and (looks or objective.steps_per_epoch > 1):
                on_epoch(run.epoch, run.best)
            if written and run.epoch % checkpoint_every == 0:
                run.seconds += time.perf_counter() - started
                started = time.perf_counter()
                save_checkpoint(written, run.state_dict())
    run.seconds += time.perf_counter() - started
    return run.outcome()


@contextlib.contextmanager
def _tried_convolutions() -> Iterator[None]:
    """Let cuDNN try its algorithms: every batch has the same shape. (torch's ``cudnn.flags`` would switch it off.)"""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _optimizers(model: torch.nn.Module, schedule: TrainConfig) -> Optimizers:
    make = {"adam": make_adam, "adam_l2": make_adam_l2, "sgd": make_sgd}[schedule.optimizer]
    return make(model, schedule.lr, schedule.weight_decay, decay=schedule.decay)


def _compiled(model: Trained) -> Trained:
    """It is called as the model is; torch's stubs do not know that it keeps its type."""
    return torch.compile(model, dynamic=False)  # type: ignore[return-value]


class _Run(Generic[Trained]):
    """The state of a run between two epochs, and what one epoch does to it."""

    def __init__(
        self,
        model: Trained,
        objective: Objective[Trained],
        schedule: TrainConfig,
        optimizers: Optimizers,
        execution: Execution,
    ) -> None:
        self.model, self.objective, self.schedule, self.optimizers = model, objective, schedule, optimizers
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device, self.team = self.parameters[0].device, objective.team
        self.team.align_(list(model.state_dict().values()))
        self.sentry = Sentry(self.device)
        self.average = None if schedule.average is None else MovingAverage(model, schedule.average)
        self.epoch, self.best_epoch, self.seconds = 0, 0, 0.0
        self.best: float | None = None
        self.curve: list[tuple[int, float]] = []
        self.best_state: dict[str, torch.Tensor] = {}
        fast = execution != "eager" and self.device.type == "cuda"
        pays = execution == "compiled" or schedule.epochs * objective.steps_per_epoch > _WORTH_COMPILING
        self.network = _compiled(model) if fast and pays and objective.compiles else model
        captured = fast and optimizers.capturable and self.team.size == 1
        self.step = CapturedStep(self._step, objective.generators) if captured else self._step

    def rehearse(self) -> None:
        """Begin to compile kernels, where the first step would wait for one after the other."""
        if self.device.type == "cuda" and self.network is self.model:  # to trace a model is a rehearsal, too
            self.objective.rehearse(self.model)

    def train_epoch(self) -> None:
        """One pass over the data."""
        steps = self.objective.steps_per_epoch
        self.model.train()
        self.objective.start_epoch()
        for i in range(steps):
            self.optimizers.scale_lr(self.schedule.factor(self.epoch + i / steps, steps))
            self.objective.advance(i)
            try:
                self.step()
            except ValueError as error:  # a check of values, e.g. of the curvature, may meet it before the sentry does
                step = self.epoch * steps + i
                self.sentry.check_parameters(self.model, step)
                if step == 0:  # nothing has been learned yet: it is the call that is wrong
                    raise
                raise out_of_range(error, step) from error
        self._share_statistics()
        self.epoch += 1

    def _step(self) -> None:
        self.optimizers.zero_grad()
        loss = self.objective.loss(self.network)
        self.sentry.watch(self.team.mean(loss))
        if self.device.type == "cpu":  # nothing to wait for, and the parameters are still those of this step
            self.sentry.check(self.model, lambda: self.objective.loss(self.model), self.team)
        loss.backward()
        self.team.average_([p.grad for p in self.parameters if p.grad is not None])
        if self.schedule.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.schedule.clip, foreach=True)
        self.optimizers.step()
        if self.average is not None:
            self.average.update()

    def _share_statistics(self) -> None:
        """The batch norms of each process have seen its own images: from here on all have the mean of what they saw."""
        if self.team.size == 1:
            return
        states = [self.model.state_dict()] + ([] if self.average is None else [self.average.state])
        self.team.average_([state[name] for state in states for name in state if name.endswith(_RUNNING)])

    def look(self) -> None:
        """Validate, and keep a copy of the parameters if they are the best so far."""
        self.sentry.check(self.model, lambda: self.objective.loss(self.model), self.team)
        step = self.epoch * self.objective.steps_per_epoch - 1
        self.sentry.check_parameters(self.model, step)
        try:
            value = self.team.same(self._validate())
        except NonFiniteScores as error:  # finite with the statistics of a batch, and not with the running ones
            raise out_of_range(error, step) from error
        if value is not None:
            self.curve.append((self.epoch, value))
        if value is None or self.schedule.keep == "last":
            self.best, self.best_epoch = value, self.epoch
        elif value > (-math.inf if self.best is None else self.best):
            self.best, self.best_epoch = value, self.epoch
            self.best_state = {name: tensor.detach().clone() for name, tensor in self._kept().items()}

    def _kept(self) -> dict[str, torch.Tensor]:
        """What would be kept of this moment: the average of the parameters where there is one."""
        return self.model.state_dict() if self.average is None else self.average.state

    @torch.no_grad()
    def _validate(self) -> float | None:
        """The figure of what would be kept, in percent; the model goes on with the parameters it had."""
        trained = None
        if self.average is not None:
            trained = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.model.load_state_dict(self.average.state)
        self.model.eval()
        figure = self.objective.validation(self.model)
        if trained is not None:
            self.model.load_state_dict(trained)
        return None if figure is None else 100 * float(figure)

    def out_of_patience(self) -> bool:
        patience, last_look = self.schedule.patience, self.epoch - self.epoch % self.schedule.eval_every
        return patience is not None and last_look - self.best_epoch >= patience

    def outcome(self) -> Outcome:
        """Go over to the parameters to keep."""
        self.model.load_state_dict(self.best_state or self._kept())
        self.model.eval()
        return Outcome(self.best_epoch, self.best, self.epoch, self.seconds, self.curve)

    def state_dict(self) -> dict[str, Any]:
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
            "curve": self.curve,
            "seconds": self.seconds,
            "schedule": self.schedule.schedule(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._require_own(state)
        self.model.load_state_dict(state["model"])
        self.optimizers.load_state_dict(state["optimizers"])
        self.objective.load_state_dict(state["objective"])
        if self.average is not None:
            self.average.load(state["average"])
        self.best_state = {name: tensor.to(self.device) for name, tensor in state["best_state"].items()}
        self.epoch, self.best_epoch = state["epoch"], state["best_epoch"]
        self.best, self.curve, self.seconds = state["best"], list(state["curve"]), state["seconds"]
        self.sentry.start(self.epoch * self.objective.steps_per_epoch)
        torch.set_rng_state(state["random"])
        if state["random_cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["random_cuda"])

    def _require_own(self, state: dict[str, Any]) -> None:
        """Refuse the checkpoint of another run."""
        own = self.state_dict()
        if own.keys() != state.keys():
            raise ValueError("the checkpoint is of another version of lresnet; delete it or use another folder")
        shapes = [{name: tensor.shape for name, tensor in one["model"].items()} for one in (own, state)]
        for what, same in (("schedule", own["schedule"] == state["schedule"]), ("model", shapes[0] == shapes[1])):
            if not same:
                raise ValueError(
                    f"the checkpoint belongs to a run with another {what}; delete it or use another folder"
                )


class MovingAverage:
    r""":math:`a \leftarrow \beta a + (1 - \beta) p` after every step, from the parameters at the start on.

    Counters are copied. (torch's ``AveragedModel`` reads its own counter on the host at every update, which a recorded
    step cannot.)
    """

    def __init__(self, model: torch.nn.Module, beta: float) -> None:
        if not 0 < beta < 1:
            raise ValueError(f"average must be between 0 and 1, got {beta}; 0.999 keeps about the last 1000 steps")
        self.beta, self._model = beta, model
        self.state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are now."""
        now = self._model.state_dict()
        floats = [name for name, tensor in now.items() if tensor.is_floating_point()]
        torch._foreach_lerp_([self.state[n] for n in floats], [now[n] for n in floats], 1 - self.beta)
        for name, tensor in now.items():
            if not tensor.is_floating_point():
                self.state[name].copy_(tensor)

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved ``state``."""
        for name, tensor in self.state.items():
            tensor.copy_(state[name])


# Before a recording, autotuners and optimisers have to have chosen and allocated everything; torch advises three runs.
_WARM_UP = 3


class CapturedStep:
    """``step``, run eagerly on a stream of its own for its first calls, then recorded, then replayed.

    Every call is one real step: the first ones are not lost on warming up. What the step reads and writes has to stay
    where it is in memory; what it draws from ``generators`` goes on from call to call.

    Launching the few hundred kernels of a small network takes the host longer than they take the GPU; a replay is one
    launch.
    """

    def __init__(self, step: Callable[[], None], generators: Iterable[torch.Generator] = ()) -> None:
        self._step, self._generators = step, list(generators)
        self._calls = 0
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self._calls < _WARM_UP:
            self._warm_up()
        else:
            if self._graph is None:
                self._graph = self._record()
            self._graph.replay()
        self._calls += 1

    def _warm_up(self) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._step()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with _no_garbage(), torch.cuda.graph(graph, stream=self._stream):
            self._step()
        return graph


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Collect it now, and none inside: to free what an earlier recording holds breaks the one under way."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
