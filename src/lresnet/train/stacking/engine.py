"""The training loop for S runs at once. Each ends as it would have ended alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lresnet.geometry.checks import check_nowhere
from lresnet.models import LorentzGCN
from lresnet.optim import Optimizers, RiemannianAdam, parameter_groups
from lresnet.optim.optimizers import adam_l2, adamw, device_rate
from lresnet.train.config import TrainConfig
from lresnet.train.engine import CapturedStep, Execution, Outcome
from lresnet.train.non_finite import NonFiniteError, Sentry, non_finite_loss
from lresnet.train.objective import Objective
from lresnet.train.stacking.model import ModelStack, StackError
from lresnet.train.stacking.objectives import stack_objectives

__all__ = [
    "Seen",
    "StackState",
    "own_generator",
    "train_many",
]


def own_generator(device: torch.device | str) -> torch.Generator:
    """A generator that goes on from where torch's own on ``device`` stands, which stays there.

    Example:
        >>> a, b = own_generator("cpu"), torch.rand(1)
        >>> torch.equal(torch.rand(1, generator=a), b)
        True
    """
    device = torch.device(device)
    state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
    generator = torch.Generator(device)
    generator.set_state(state)
    return generator


def train_many(
    models: Sequence[LorentzGCN],
    objectives: Sequence[Objective[Any]],
    schedule: TrainConfig,
    *,
    generators: Sequence[torch.Generator] = (),
    execution: Execution = "fast",
    on_epoch: Callable[[int, list[float | None]], None] | None = None,
) -> list[Outcome | NonFiniteError]:
    """Train ``models[s]`` on ``objectives[s]`` for all s as one computation, as :func:`train_model` would one by one.

    A run that is out of patience keeps its best parameters, and what comes later does not count for it. A run whose
    numbers stop being finite ends with the error that :func:`train_model` would raise, and does not touch the others.
    Each model is left with the parameters to keep, in eval mode.

    Args:
        models, objectives: of one shape each (:class:`StackError` if not); the objectives draw from their own
            generators.
        generators: one for each run, from which its dropout is drawn in place of torch's own; see
            :func:`own_generator`. Needed where there is dropout.
        execution: ``"fast"``: on CUDA, a training step and a look at the validation set are recorded once each and
            replayed as CUDA graphs. ``"compiled"``: the same. ``"eager"``: they are not. On a CPU all are the same.
        on_epoch: called as ``on_epoch(epoch, best validation figures so far)`` at every look.

    Nothing is read from a GPU between two looks, and little then.
    """
    run = _StackedRun(models, objectives, schedule, generators, execution)
    started = time.perf_counter()
    with check_nowhere():
        while run.epoch < schedule.epochs and run.running:
            run.train_epoch()
            if run.epoch % schedule.eval_every == 0 or run.epoch == schedule.epochs:
                run.look()
                if on_epoch is not None:
                    on_epoch(run.epoch, run.best_figures())
    return run.results((time.perf_counter() - started) / len(models))


class _StackedRun:
    """The state of S runs between two epochs. What a step or a look changes is on the device, in place."""

    def __init__(
        self,
        models: Sequence[LorentzGCN],
        objectives: Sequence[Objective[Any]],
        schedule: TrainConfig,
        generators: Sequence[torch.Generator],
        execution: Execution,
    ) -> None:
        _require_sense(models, objectives, schedule, generators)
        self.models, self.objectives, self.schedule = list(models), list(objectives), schedule
        self.stack, self.optimizers = _stack_and_optimizers(models, schedule)
        self.stack.model.generators = list(generators)
        self.objective = stack_objectives(objectives, self.stack.model)
        self.leaves = self.stack.leaves
        self.device = self.leaves[0].device
        self.average = None if schedule.average is None else [leaf.detach().clone() for leaf in self.leaves]
        self.kept = [leaf.detach().clone() for leaf in self.leaves]
        self.state = StackState(len(models), self.device)
        self.epoch, self.rate = 0, 1.0
        self.running = set(range(len(models)))
        self.ends: dict[int, int | NonFiniteError] = {}
        self.curves: list[list[tuple[int, float]]] = [[] for _ in models]
        fast = execution != "eager" and self.device.type == "cuda"
        drawn_from = [*self.objective.generators, *generators]
        self.step = CapturedStep(self._step, drawn_from) if fast else self._step
        self.validate = CapturedStep(self._validate) if fast else self._validate

    def train_epoch(self) -> None:
        """One pass over the data, which for these objectives is one step."""
        rate = self.schedule.factor(self.epoch)
        if rate != self.rate:
            self.optimizers.scale_lr(rate)
            self.rate = rate
        self.step()
        self.epoch += 1

    def _step(self) -> None:
        self.optimizers.zero_grad()
        self.stack.model.train()
        losses = self.stack.call(self.objective.loss)
        self.state.watch(losses.detach())
        if self.device.type == "cpu":  # nothing to wait for, and the parameters are still those of this step
            self._end_broken_losses(self.state.finite_steps.tolist(), self.state.finite.tolist())
        losses.sum().backward()
        if self.schedule.clip is not None:
            _clip(self.leaves, self.schedule.clip)
        self.optimizers.step()
        if self.average is not None and self.schedule.average is not None:
            torch._foreach_lerp_(self.average, [leaf.detach() for leaf in self.leaves], 1 - self.schedule.average)

    @torch.no_grad()
    def _validate(self) -> None:
        """Figures of what would be kept, and a copy of it for the runs in which it is the best so far."""
        now = self._now()
        self.stack.model.eval()
        figures = 100 * self.stack.call(self.objective.validation, now)
        better = self.state.compare(figures, _all_finite(self.leaves), self.schedule.keep)
        for kept, leaf in zip(self.kept, now, strict=True):
            kept.copy_(torch.where(_per_run(better, leaf), leaf, kept))

    def _now(self) -> list[Tensor]:
        """What would be kept of this moment: the average of the parameters where there is one."""
        return self.leaves if self.average is None else self.average

    def look(self) -> None:
        """Validate, and end the runs that broke or are out of patience: what they do from now on does not count."""
        self.state.epoch.fill_(self.epoch)
        self.validate()
        seen = self.state.read()
        self._end_broken_losses(seen.finite_steps, seen.finite)
        for member in [i for i in sorted(self.running) if not seen.finite_parameters[i]]:
            self._end_broken_parameters(member)
        patience = self.schedule.patience
        for member in sorted(self.running):
            self.curves[member].append((self.epoch, seen.figures[member]))
            if patience is not None and self.epoch - seen.best_epoch[member] >= patience:
                self._end(member, self.epoch)

    def _end_broken_losses(self, finite_steps: Sequence[float], finite: Sequence[bool]) -> None:
        for member in [i for i in sorted(self.running) if not finite[i]]:
            model, objective = self.models[member].train(), self.objectives[member]
            self.stack.write(member, model)
            self._end(member, non_finite_loss(model, partial(objective.loss, model), int(finite_steps[member])))

    def _end_broken_parameters(self, member: int) -> None:
        self.stack.write(member, self.models[member])
        try:
            Sentry.check_parameters(self.models[member], self.epoch - 1)
        except NonFiniteError as error:
            self._end(member, error)

    def _end(self, member: int, end: int | NonFiniteError) -> None:
        self.running.remove(member)
        self.ends[member] = end
        self.state.counts[member].fill_(False)
        if not self.state.best_epoch[member]:  # never a figure: it ends with the parameters of now
            for kept, leaf in zip(self.kept, self._now(), strict=True):
                kept[member].copy_(leaf[member].detach())

    def best_figures(self) -> list[float | None]:
        """Of each run the best validation figure so far, in percent."""
        return [None if math.isinf(figure) else figure for figure in self.state.best.tolist()]

    def results(self, seconds: float) -> list[Outcome | NonFiniteError]:
        """Give every model the parameters to keep; ``seconds``: a run's share of the time."""
        for member in sorted(self.running):
            self._end(member, self.epoch)
        figures, epochs = self.best_figures(), self.state.best_epoch.tolist()
        results = list[Outcome | NonFiniteError]()
        for member, model in enumerate(self.models):
            end = self.ends[member]
            if isinstance(end, int):
                self.stack.write(member, model, self.kept)
                results.append(Outcome(int(epochs[member]), figures[member], end, seconds, self.curves[member]))
            else:
                results.append(end)
            model.eval()
        return results


def _clip(leaves: Sequence[Tensor], largest: float) -> None:
    """Each run by the norm of all of its own gradients; the formula is that of torch's ``clip_grad_norm_``."""
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    norms = torch.linalg.vector_norm(torch.cat([gradient.flatten(1) for gradient in gradients], dim=1), dim=1)
    factors = (largest / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(_per_run(factors, gradient))


def _per_run(values: Tensor, like: Tensor) -> Tensor:
    """[S] with as many axes as ``like``, [S, ...]."""
    return values.view(-1, *[1] * (like.dim() - 1))


def _all_finite(leaves: Sequence[Tensor]) -> Tensor:
    """[S]: whether all parameters of a run are finite."""
    values = torch.cat([leaf.flatten(1) for leaf in leaves], dim=1)
    return (values - values == 0).all(1)


def _stack_and_optimizers(
    models: Sequence[LorentzGCN], schedule: TrainConfig
) -> tuple[ModelStack[LorentzGCN], Optimizers]:
    """Parameters that decay alike lie side by side. Their names decide, as in one model: a stack has an axis more."""
    groups = parameter_groups(models[0])
    decayed = [*groups.decayed, *(groups.plain if schedule.decay == "all" else ())]
    rates = dict.fromkeys([*groups.plain, *groups.geometric], 0.0) | dict.fromkeys(decayed, schedule.weight_decay)
    sections = {rate: [name for name in rates if rates[name] == rate] for rate in sorted(set(rates.values()))}
    stack = ModelStack(models, list(sections.values()), list(groups.manifold))
    flat = [{"params": [leaf], "weight_decay": rate} for leaf, rate in zip(stack.leaves, sections, strict=False)]
    adam = adam_l2 if schedule.optimizer == "adam_l2" else adamw
    optimizers: list[torch.optim.Optimizer] = [adam(flat, schedule.lr)]
    if points := stack.leaves[len(sections) :]:
        optimizers.append(RiemannianAdam(points, stack.curvature, device_rate(schedule.lr, points)))
    return stack, Optimizers(optimizers)


def _require_sense(
    models: Sequence[LorentzGCN],
    objectives: Sequence[Objective[Any]],
    schedule: TrainConfig,
    generators: Sequence[torch.Generator],
) -> None:
    if not models:
        raise ValueError("there is nothing to train: at least one model is needed")
    if len(models) != len(objectives):
        raise ValueError(
            f"one objective for each model is needed, got {len(models)} models, {len(objectives)} objectives"
        )
    if generators and len(generators) != len(models):
        raise ValueError(f"one generator for each model is needed, got {len(generators)} for {len(models)} models")
    if not generators and any(model.dropout > 0 for model in models):
        raise ValueError("dropout needs generators, one for each model: pass own_generator(device) of each run")
    if schedule.optimizer not in ("adam", "adam_l2"):
        raise StackError(f"stacked runs are trained by adam, not by {schedule.optimizer!r}; run them one by one")


class Seen(NamedTuple):
    """A look's result on the host, one number for each run."""

    best_epoch: list[float]
    finite_steps: list[float]
    finite: list[bool]
    finite_parameters: list[bool]
    figures: list[float]


class StackState:
    """What is known of each run, in tensors [S] that stay where they are."""

    def __init__(self, members: int, device: torch.device) -> None:
        self.best = torch.full((members,), -math.inf, dtype=torch.float64, device=device)
        """Best validation figure, percent."""
        self.figures = torch.zeros_like(self.best)
        """Those of the last look."""
        self.best_epoch = torch.zeros_like(self.best)
        self.epoch = torch.zeros((), dtype=torch.float64, device=device)
        self.counts = torch.ones(members, dtype=torch.bool, device=device)
        """Whether the run goes on."""
        self.finite = torch.ones_like(self.counts)
        """Whether all losses so far were finite."""
        self.finite_steps = torch.zeros_like(self.best)
        """How many steps had been taken when one was not."""
        self.finite_parameters = torch.ones_like(self.counts)

    def watch(self, losses: Tensor) -> None:
        """Remember which losses are not finite. Does not synchronise, and can be recorded."""
        # x - x is 0 for finite numbers only: half the kernels of isfinite.
        self.finite.logical_and_(losses - losses == 0)
        self.finite_steps.add_(self.finite)

    def compare(self, figures: Tensor, finite_parameters: Tensor, keep: Literal["best", "last"]) -> Tensor:
        """In which runs ``figures`` are the best so far; they are remembered."""
        self.finite_parameters.copy_(finite_parameters)
        self.figures.copy_(figures)
        better = self.counts & self.finite & finite_parameters
        if keep == "best":
            better = better & (figures > self.best)
        self.best.copy_(torch.where(better, figures, self.best))
        self.best_epoch.copy_(torch.where(better, self.epoch, self.best_epoch))
        return better

    def read(self) -> Seen:
        """One copy from the device. Synchronises."""
        known = self.best_epoch, self.finite_steps, self.finite, self.finite_parameters, self.figures
        rows = torch.stack(known).tolist()
        return Seen(rows[0], rows[1], list(map(bool, rows[2])), list(map(bool, rows[3])), rows[4])
