"""The training loop of a stack: S runs at once, each of which ends as it would alone."""

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
from lresnet.optim.optimizers import adam_l2, adamw, decay_rates, device_rate
from lresnet.train.config import TrainConfig
from lresnet.train.engine import CapturedStep, Execution, Outcome, norm_statistics, require_criterion
from lresnet.train.non_finite import NonFiniteError, check_parameters, non_finite_loss
from lresnet.train.norm_statistics import reestimate_statistics
from lresnet.train.objective import Objective
from lresnet.train.stacking.model import ModelStack, StackError
from lresnet.train.stacking.objectives import stack_objectives

__all__ = ["StackedTrainingState", "fork_generator", "train_many"]


def fork_generator(device: torch.device | str) -> torch.Generator:
    """Return a generator with the current state of torch's own on ``device``, which does not advance.

    Example:
        >>> a, b = fork_generator("cpu"), torch.rand(1)
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
    config: TrainConfig,
    *,
    generators: Sequence[torch.Generator] = (),
    execution: Execution = "fast",
    on_epoch: Callable[[int, list[float | None]], None] | None = None,
) -> list[Outcome | NonFiniteError]:
    """Train ``models[s]`` on ``objectives[s]`` for all s as one computation; see :func:`lresnet.train.train_model`.

    A run that is out of patience keeps its best parameters; later epochs do not count for it. A run whose numbers stop
    being finite ends with the error that ``train_model`` would raise, and the others continue. Each model ends with the
    parameters to keep, in eval mode.

    Args:
        models: models of one architecture.
        objectives: one for each model, of one kind and shape; each draws from its own generators.
        config: optimiser (Adam), learning rate, stopping; shared by all runs.
        generators: one for each run, for its dropout; see :func:`fork_generator`. Required with dropout.
        execution: ``"fast"`` and ``"compiled"`` capture a training step and a validation pass as CUDA graphs;
            ``"eager"`` does not. On a CPU all three are the same.
        on_epoch: called as ``on_epoch(epoch, best validation scores so far)`` at every validation pass.

    Returns:
        The outcome of each run, or its error.

    Raises:
        StackError: the runs differ in shape or settings.

    Nothing is read from a GPU between two validation passes, and one small tensor then.
    """
    run = StackedTrainingState(models, objectives, config, generators, execution)
    started = time.perf_counter()
    with check_nowhere():
        while run.epoch < config.epochs and run.running:
            run.train_epoch()
            if run.epoch % config.eval_every == 0 or run.epoch == config.epochs:
                run.validate()
                if on_epoch is not None:
                    on_epoch(run.epoch, run.best_scores())
    return run.results((time.perf_counter() - started) / len(models))


class StackedTrainingState:
    """The state of S runs between two steps, for benchmarks and loops of your own; see :func:`train_many`.

    Steps and validation passes change tensors on the device in place. ``step`` takes one training step.
    """

    def __init__(
        self,
        models: Sequence[LorentzGCN],
        objectives: Sequence[Objective[Any]],
        config: TrainConfig,
        generators: Sequence[torch.Generator] = (),
        execution: Execution = "fast",
    ) -> None:
        _require_consistent(models, objectives, config, generators)
        for objective in objectives:
            require_criterion(objective, config)
        self.models, self.objectives, self.config = list(models), list(objectives), config
        self.stack, self.optimizers = _stack_and_optimizers(models, config)
        self.stack.model.generators = list(generators)
        self.objective = stack_objectives(objectives, self.stack.model)
        self.leaves = self.stack.leaves
        self.device = self.leaves[0].device
        self.average = None if config.average is None else [leaf.detach().clone() for leaf in self.leaves]
        self.kept = [leaf.detach().clone() for leaf in self.leaves]
        self.progress = _Progress(len(models), self.device)
        self.epoch, self.rate = 0, 1.0
        self.running = set(range(len(models)))
        self.ends: dict[int, int | NonFiniteError] = {}
        self.curves: list[list[tuple[int, float]]] = [[] for _ in models]
        fast = execution != "eager" and self.device.type == "cuda"
        drawn_from = [*self.objective.generators, *generators]
        self.step: Callable[[], None] = CapturedStep(self._step, drawn_from) if fast else self._step
        self._update_best: Callable[[], None] = CapturedStep(self._compare) if fast else self._compare

    def train_epoch(self) -> None:
        """Train for one pass over the data, which is one step for these objectives."""
        rate = self.config.factor(self.epoch)
        if rate != self.rate:
            self.optimizers.scale_lr(rate)
            self.rate = rate
        self.step()
        self.epoch += 1

    def _step(self) -> None:
        self.optimizers.zero_grad()
        self.stack.model.train()
        losses = self.stack.call(self.objective.loss)
        self.progress.record(losses.detach())
        if self.device.type == "cpu":  # reading is free here, and the parameters are still those of this step
            self._end_non_finite_losses(self.progress.finite_steps.tolist(), self.progress.finite.tolist())
        losses.sum().backward()
        if self.config.clip is not None:
            _clip(self.leaves, self.config.clip)
        self.optimizers.step()
        if self.average is not None and self.config.average is not None:
            torch._foreach_lerp_(self.average, [leaf.detach() for leaf in self.leaves], 1 - self.config.average)

    @torch.no_grad()
    def _compare(self) -> None:
        """Run a validation pass, and copy the parameters of the runs in which it is the best so far."""
        current = self._current()
        self.stack.model.eval()
        losses: Tensor | None = None
        if self.config.criterion == "loss":
            scores, losses = self.stack.call(self.objective.validation_with_loss, current)
        else:
            scores = self.stack.call(self.objective.validation, current)
        better = self.progress.compare(100 * scores, losses, _all_finite(self.leaves), self.config.keep)
        for kept, leaf in zip(self.kept, current, strict=True):
            kept.copy_(torch.where(_per_run(better, leaf), leaf, kept))

    def _current(self) -> list[Tensor]:
        """The tensors that would be kept now: the average of the parameters if there is one."""
        return self.leaves if self.average is None else self.average

    def validate(self) -> None:
        """Run a validation pass, and end the runs that are not finite or out of patience."""
        self.progress.epoch.fill_(self.epoch)
        self._update_best()
        now = self.progress.read()
        self._end_non_finite_losses(now.finite_steps, now.finite)
        for member in [i for i in sorted(self.running) if not now.finite_parameters[i]]:
            self._end_non_finite_parameters(member)
        patience = self.config.patience
        for member in sorted(self.running):
            self.curves[member].append((self.epoch, now.scores[member]))
            if patience is not None and self.epoch - now.best_epoch[member] >= patience:
                self._end(member, self.epoch)

    def _end_non_finite_losses(self, finite_steps: Sequence[float], finite: Sequence[bool]) -> None:
        for member in [i for i in sorted(self.running) if not finite[i]]:
            model, objective = self.models[member].train(), self.objectives[member]
            self.stack.write(member, model)
            self._end(member, non_finite_loss(model, partial(objective.loss, model), int(finite_steps[member])))

    def _end_non_finite_parameters(self, member: int) -> None:
        self.stack.write(member, self.models[member])
        try:
            check_parameters(self.models[member], self.epoch - 1)
        except NonFiniteError as error:
            self._end(member, error)

    def _end(self, member: int, end: int | NonFiniteError) -> None:
        self.running.remove(member)
        self.ends[member] = end
        self.progress.active[member].fill_(False)
        if not self.progress.best_epoch[member]:  # no score yet: the run ends with its current parameters
            for kept, leaf in zip(self.kept, self._current(), strict=True):
                kept[member].copy_(leaf[member].detach())

    def best_scores(self) -> list[float | None]:
        """Return the best validation score of each run so far, in percent."""
        return [None if math.isinf(score) else score for score in self.progress.best.tolist()]

    def results(self, seconds: float) -> list[Outcome | NonFiniteError]:
        """Give every model the parameters to keep, and return the outcomes; ``seconds`` is each run's share of time."""
        for member in sorted(self.running):
            self._end(member, self.epoch)
        scores, epochs = self.best_scores(), self.progress.best_epoch.tolist()
        results = list[Outcome | NonFiniteError]()
        for member, model in enumerate(self.models):
            end = self.ends[member]
            if isinstance(end, int):
                self.stack.write(member, model, self.kept)
                objective = self.objectives[member]
                reestimate_statistics(model, partial(objective.forward_training_data, model))
                chosen = norm_statistics(model, objective, self.config)
                results.append(Outcome(int(epochs[member]), scores[member], end, seconds, self.curves[member], chosen))
            else:
                results.append(end)
            model.eval()
        return results


class _Snapshot(NamedTuple):
    """The progress of all runs on the host, one number per run."""

    best_epoch: list[float]
    finite_steps: list[float]
    finite: list[bool]
    finite_parameters: list[bool]
    scores: list[float]


class _Progress:
    """Scores and finiteness of each run, in tensors [S] that stay at their place in memory."""

    def __init__(self, members: int, device: torch.device) -> None:
        self.best = torch.full((members,), -math.inf, dtype=torch.float64, device=device)
        """Score of the best validation pass, percent."""
        self.best_loss = torch.full_like(self.best, math.inf)
        """Loss of the best validation pass, if losses are compared."""
        self.scores = torch.zeros_like(self.best)
        """Scores of the last validation pass."""
        self.best_epoch = torch.zeros_like(self.best)
        self.epoch = torch.zeros((), dtype=torch.float64, device=device)
        self.active = torch.ones(members, dtype=torch.bool, device=device)
        """Whether the run continues."""
        self.finite = torch.ones_like(self.active)
        """Whether all losses so far were finite."""
        self.finite_steps = torch.zeros_like(self.best)
        """Number of steps before the first loss that was not finite."""
        self.finite_parameters = torch.ones_like(self.active)

    def record(self, losses: Tensor) -> None:
        """Record which losses are not finite. Does not synchronise, and can be captured."""
        # x - x is 0 only for finite numbers; it needs half the kernels of isfinite.
        self.finite.logical_and_(losses - losses == 0)
        self.finite_steps.add_(self.finite)

    def compare(
        self, scores: Tensor, losses: Tensor | None, finite_parameters: Tensor, keep: Literal["best", "last"]
    ) -> Tensor:
        """Return in which runs this pass is the best so far, by ``losses`` if they are given, and record it."""
        self.finite_parameters.copy_(finite_parameters)
        self.scores.copy_(scores)
        better = self.active & self.finite & finite_parameters
        if keep == "best":
            better = better & (scores > self.best if losses is None else losses < self.best_loss)
        self.best.copy_(torch.where(better, scores, self.best))
        if losses is not None:
            self.best_loss.copy_(torch.where(better, losses, self.best_loss))
        self.best_epoch.copy_(torch.where(better, self.epoch, self.best_epoch))
        return better

    def read(self) -> _Snapshot:
        """Return a copy on the host, with one transfer. Synchronises."""
        known = self.best_epoch, self.finite_steps, self.finite, self.finite_parameters, self.scores
        rows = torch.stack(known).tolist()
        return _Snapshot(rows[0], rows[1], list(map(bool, rows[2])), list(map(bool, rows[3])), rows[4])


def _clip(leaves: Sequence[Tensor], largest: float) -> None:
    """Clip each run by the norm of its own gradients, with the formula of torch's ``clip_grad_norm_``."""
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    norms = torch.linalg.vector_norm(torch.cat([gradient.flatten(1) for gradient in gradients], dim=1), dim=1)
    factors = (largest / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(_per_run(factors, gradient))


def _per_run(values: Tensor, like: Tensor) -> Tensor:
    """``values`` [S] with as many axes as ``like`` [S, ...]."""
    return values.view(-1, *[1] * (like.dim() - 1))


def _all_finite(leaves: Sequence[Tensor]) -> Tensor:
    """[S]: whether all parameters of a run are finite."""
    values = torch.cat([leaf.flatten(1) for leaf in leaves], dim=1)
    return (values - values == 0).all(1)


def _stack_and_optimizers(
    models: Sequence[LorentzGCN], config: TrainConfig
) -> tuple[ModelStack[LorentzGCN], Optimizers]:
    """Put parameters of equal weight decay into one tensor. Names decide, because a stack has one more axis."""
    groups = parameter_groups(models[0])
    rates = decay_rates(groups, config.weight_decay, config.decay, config.layer_decay)
    sections = {rate: [name for name in rates if rates[name] == rate] for rate in sorted(set(rates.values()))}
    stack = ModelStack(models, list(sections.values()), list(groups.manifold))
    flat = [{"params": [leaf], "weight_decay": rate} for leaf, rate in zip(stack.leaves, sections, strict=False)]
    adam = adam_l2 if config.optimizer == "adam_l2" else adamw
    optimizers: list[torch.optim.Optimizer] = [adam(flat, config.lr)]
    if points := stack.leaves[len(sections) :]:
        optimizers.append(RiemannianAdam(points, stack.curvature, device_rate(config.lr, points)))
    return stack, Optimizers(optimizers)


def _require_consistent(
    models: Sequence[LorentzGCN],
    objectives: Sequence[Objective[Any]],
    config: TrainConfig,
    generators: Sequence[torch.Generator],
) -> None:
    if not models:
        raise ValueError("models is empty; pass at least one model")
    if len(models) != len(objectives):
        raise ValueError(f"each model needs one objective, got {len(models)} models and {len(objectives)} objectives")
    if generators and len(generators) != len(models):
        raise ValueError(f"each model needs one generator, got {len(models)} models and {len(generators)} generators")
    if not generators and any(model.dropout > 0 for model in models):
        raise ValueError("dropout needs one generator per model; pass generators=[fork_generator(device), ...]")
    if norm_statistics(models[0], objectives[0], config) == "running":
        raise StackError(
            "a stack re-estimates the statistics of batch norms, but norm_statistics is 'running'; run them one by one"
        )
    if config.optimizer not in ("adam", "adam_l2"):
        raise StackError(f"a stack is trained with adam or adam_l2, not {config.optimizer!r}; run them one by one")
