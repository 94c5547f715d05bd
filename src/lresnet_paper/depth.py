"""Diagnosis of deep networks: the output of every layer, and the gradient that reaches it.

A network over-smooths if the distances between its nodes shrink from layer to layer; it cannot be trained if gradients
vanish or explode on their way back. :func:`diagnose` measures both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lresnet.geometry.checks import check_nowhere
from lresnet.metrics import roc_auc
from lresnet.models.graph_model import GraphModel
from lresnet.nn.pair_distance import lorentz_distance2
from lresnet.train import LinkPrediction, Objective

__all__ = ["Diagnosis", "diagnose", "training_state"]

Diagnosis = dict[str, list[float | None]]
"""``radius``, ``distance`` and ``gradient``, one number per layer; None: the number is not finite."""

# Enough for a mean: its standard error is 1/45 of the deviation among pairs.
_PAIRS = 2000


def diagnose(model: torch.nn.Module, objective: Objective[Any]) -> Diagnosis:
    r"""Measure the output of every layer of ``model``, and the gradient of the loss that reaches it.

    .. math:: \sqrt\kappa \, \overline{|x_i|}, \qquad \sqrt\kappa \, \overline{d(x_i, x_j)}, \qquad
        \Big|\frac{\partial L}{\partial x}\Big|

    ``radius`` is the mean norm of the space parts and ``distance`` the mean geodesic distance over a fixed sample of
    pairs of nodes, both in radii of curvature (plain lengths for the Euclidean baseline). ``gradient`` is the norm of
    the gradient of the training loss with respect to all space coordinates of all nodes. The output of a layer is taken
    after the residual connection, without dropout; the model names the modules by ``layer_modules()``. The model, its
    gradients and the objective's generators are left unchanged.

    Example:
        >>> from lresnet_paper.run import Run, build
        >>> run = Run("train", "disease_tree/lp", "none", "disjoint", 0, {"num_layers": 3})
        >>> [len(values) for values in diagnose(*build(run)[:2]).values()]
        [3, 3, 3]
    """
    return _by_layer(model, _backward(model, objective))


def training_state(model: torch.nn.Module, objective: LinkPrediction) -> dict[str, Any]:
    """Measure a network during its training: :func:`diagnose`, and what explains it.

    Returns:
        ``distance``, ``gradient`` and ``ranking`` by layer, ``loss``, ``validation`` and ``parameter_gradient``.
        ``ranking`` is the AUC of the validation pairs if they are ranked by their distance after that layer,
        ``parameter_gradient`` the norm of the gradient of all parameters, before clipping. Metrics are in percent.

    Example:
        >>> from lresnet_paper.run import Run, build
        >>> run = Run("train", "disease_tree/lp", "none", "disjoint", 0, {"num_layers": 3})
        >>> state = training_state(*build(run)[:2])
        >>> len(state["ranking"]), 0 <= state["validation"] <= 100
        (3, True)
    """
    passed = _backward(model, objective)
    by_layer = _by_layer(model, passed)
    with torch.no_grad(), check_nowhere():
        parameters = torch.stack([torch.linalg.vector_norm(g.double()) for g in passed.parameter_gradients])
        ranking = [100 * float(_ranking(model, objective, z)) for z in passed.outputs]
        training = model.training
        validation = 100 * float(objective.validation(model.eval()))  # type: ignore[arg-type]
        model.train(training)
    loss, parameter_gradient, validation_value = _short([float(passed.loss), float(parameters.norm()), validation])
    return {
        "loss": loss,
        "validation": validation_value,
        "parameter_gradient": parameter_gradient,
        "distance": by_layer["distance"],
        "gradient": by_layer["gradient"],
        "ranking": _short(ranking),
    }


class _Pass(NamedTuple):
    """A forward and backward pass: the output of every layer, the loss, and its gradients."""

    outputs: Sequence[Tensor]
    loss: Tensor
    gradients: Sequence[Tensor]
    parameter_gradients: Sequence[Tensor]


def _backward(model: torch.nn.Module, objective: Objective[Any]) -> _Pass:
    """Return a pass without dropout; model and objective are left unchanged."""
    if not isinstance(model, GraphModel) or not model.layer_modules():
        raise TypeError(f"only a graph network with layer_modules() can be diagnosed, got {type(model).__name__}")
    training, drawn = model.training, objective.state_dict()
    outputs, loss = _outputs_and_loss(model.eval(), objective)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients: Sequence[Tensor | None] = torch.autograd.grad(loss, [*outputs, *parameters], allow_unused=True)
    model.train(training)
    objective.load_state_dict(drawn)
    found = [torch.zeros_like(z) if g is None else g for z, g in zip(outputs, gradients, strict=False)]
    of_parameters = [g for g in gradients[len(outputs) :] if g is not None]
    return _Pass([z.detach() for z in outputs], loss.detach(), found, of_parameters)


def _by_layer(model: torch.nn.Module, passed: _Pass) -> Diagnosis:
    assert isinstance(model, GraphModel)
    with torch.no_grad(), check_nowhere():
        # In float64 the square of a finite float32 does not overflow.
        rows = [_measure(model, z.double(), g.double()) for z, g in zip(passed.outputs, passed.gradients, strict=True)]
        radius, distance, gradient = torch.stack(rows, dim=1).tolist()
    return {"radius": _short(radius), "distance": _short(distance), "gradient": _short(gradient)}


def _ranking(model: torch.nn.Module, objective: LinkPrediction, z: Tensor) -> Tensor:
    """Return the AUC of the validation pairs by their distance in z; equal distances count one half."""
    assert isinstance(model, GraphModel)
    pairs = torch.cat([objective.task.val_edges, objective.task.val_negatives], dim=1)
    kappa = None if model.euclidean else float(model.manifold.kappa)
    scores = -lorentz_distance2(z.double(), pairs, kappa)
    return roc_auc(scores, torch.arange(len(scores), device=scores.device) < objective.task.val_edges.shape[1])


def _outputs_and_loss(model: GraphModel, objective: Objective[Any]) -> tuple[list[Tensor], Tensor]:
    outputs: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: Any, output: Tensor) -> None:
        outputs.append(output)

    modules = model.layer_modules()
    handles = [module.register_forward_hook(keep) for module in modules]
    try:
        with check_nowhere():  # a number that is not finite is recorded, not refused
            loss = objective.loss(model)
    finally:
        for handle in handles:
            handle.remove()
    if len(outputs) != len(modules):
        raise ValueError(
            f"{len(outputs)} of {len(modules)} layers could be measured: on a CPU so large a graph is computed "
            "in blocks of rows; use a GPU"
        )
    return outputs, loss


def _measure(model: GraphModel, z: Tensor, gradient: Tensor) -> Tensor:
    """Return radius, distance and gradient of one layer, ``[3]``."""
    i, j = _pairs(z.shape[0]).to(z.device)
    if model.euclidean:
        unit, distance = 1.0, torch.linalg.vector_norm(z[i] - z[j], dim=-1)
    else:
        unit, distance = math.sqrt(model.manifold.kappa), model.manifold.dist(z[i], z[j])
    radius = torch.linalg.vector_norm(z, dim=-1)
    return torch.stack([unit * radius.mean(), unit * distance.mean(), torch.linalg.vector_norm(gradient)])


def _pairs(nodes: int) -> Tensor:
    """Return pairs of different nodes, ``[2, pairs]``, the same for every layer, run and method."""
    generator = torch.Generator().manual_seed(0)
    i = torch.randint(nodes, (_PAIRS,), generator=generator)
    return torch.stack([i, (i + torch.randint(1, nodes, (_PAIRS,), generator=generator)) % nodes])


def _short(values: list[float]) -> list[float | None]:
    """Round to four significant digits: a gradient of 1e-9 is not zero."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]
