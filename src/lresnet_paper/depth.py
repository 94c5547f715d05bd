"""Depth: cells with a number of layers in their name, and what each layer of a trained network does.

A network over-smooths where the distances between its nodes shrink from layer to layer; it cannot be trained where
gradients vanish or explode on their way back. :func:`diagnose` measures both.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lresnet.data import TASKS
from lresnet.geometry.checks import check_nowhere
from lresnet.models import LorentzGCN
from lresnet.train import Objective
from lresnet_paper.search import protocols, recipe, recipe_cells

__all__ = ["Diagnosis", "cells_of", "depth_cell", "diagnose", "plan_of", "split_depth"]

Diagnosis = dict[str, list[float | None]]
"""``radius``, ``distance`` and ``gradient``, a number for each layer; None: it is not finite."""

# Enough for a mean: its deviation from that over all pairs is 1/45 of the deviation among pairs.
_PAIRS = 2000


def depth_cell(cell: str, layers: int) -> str:
    """The cell of a depth.

    Example:
        >>> depth_cell("disease/lp", 64)
        'disease/lp/64'
    """
    return f"{cell}/{layers}"


def split_depth(cell: str) -> tuple[str, int | None]:
    """A cell without its depth, and the depth; None: it has none.

    Example:
        >>> split_depth("disease/lp/64"), split_depth("disease/lp")
        (('disease/lp', 64), ('disease/lp', None))
    """
    base, _, last = cell.rpartition("/")
    return (base, int(last)) if base in TASKS and last.isdecimal() else (cell, None)


def cells_of(table: str, protocol: str | None = None) -> list[str]:
    """The cells of ``table`` that have a recipe (of this protocol, if one is named); of ``depths``, one for each.

    Raises:
        ValueError: the table has no recipes, or none of this protocol.

    Example:
        >>> cells_of("oversmoothing")[-2:]
        ['disease/lp/32', 'disease/lp/64']
    """
    found = []
    for cell in recipe_cells(table):
        if protocol in (None, *protocols(table, cell)):
            depths = recipe(table, cell, protocol).get("depths")
            found += [cell] if depths is None else [depth_cell(cell, layers) for layers in depths]
    if not found:
        known = sorted({name for cell in recipe_cells(table) for name in protocols(table, cell)})
        raise ValueError(f"no cell of {table} has a recipe with protocol {protocol}; there are: {', '.join(known)}")
    return found


def plan_of(table: str, cell: str, protocol: str | None = None) -> dict[str, Any]:
    """The recipe of a cell; its ``depths`` become ``variants``, of ``disease/lp/64`` that one, of ``disease/lp`` all.

    Raises:
        ValueError: there is no recipe, or none for this depth.
    """
    base, depth = split_depth(cell)
    plan = recipe(table, base, protocol)
    known = plan.get("depths", [])
    if depth is not None and depth not in known:
        raise ValueError(
            f"no recipe for {table} {cell}; there are those of {', '.join(map(str, known)) or 'no'} layers"
        )
    chosen = known if depth is None else [depth]
    return plan | ({"variants": [{"num_layers": layers} for layers in chosen]} if known else {})


def diagnose(model: torch.nn.Module, objective: Objective[Any]) -> Diagnosis:
    r"""What every layer of ``model`` puts out, and how much of the loss's gradient arrives there.

    .. math:: \sqrt\kappa \, \overline{|x_i|}, \qquad \sqrt\kappa \, \overline{d(x_i, x_j)}, \qquad
        \Big|\frac{\partial L}{\partial x}\Big|

    ``radius`` is the mean norm of the space parts and ``distance`` the mean geodesic distance over a fixed sample of
    pairs of nodes, both in radii of curvature (of the Euclidean twin, plain lengths). ``gradient`` is the norm of the
    gradient of the training loss in all space coordinates of all nodes. An output is that after the residual
    connection. Without dropout; model, parameters' gradients and the objective's generators are left as they were.

    Example:
        >>> from lresnet_paper.run import Run, build
        >>> run = Run("train", "disease_tree/lp", "none", "disjoint", 0, {"num_layers": 3})
        >>> [len(values) for values in diagnose(*build(run)[:2]).values()]
        [3, 3, 3]
    """
    if not isinstance(model, LorentzGCN):
        raise TypeError(f"only a LorentzGCN is looked at layer by layer, not a {type(model).__name__}")
    training, drawn = model.training, objective.state_dict()
    outputs, loss = _outputs_and_loss(model.eval(), objective)
    gradients = torch.autograd.grad(loss, outputs)
    model.train(training)
    objective.load_state_dict(drawn)
    with torch.no_grad(), check_nowhere():
        # In float64 no square overflows that was finite as a number.
        rows = [_measure(model, z.double(), g.double()) for z, g in zip(outputs, gradients, strict=True)]
        radius, distance, gradient = torch.stack(rows, dim=1).tolist()
    return {"radius": _short(radius), "distance": _short(distance), "gradient": _short(gradient)}


def _outputs_and_loss(model: LorentzGCN, objective: Objective[Any]) -> tuple[list[Tensor], Tensor]:
    outputs: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: Any, output: Tensor) -> None:
        outputs.append(output)

    handles = [module.register_forward_hook(keep) for module in (model.layers[0], *model.residuals)]
    try:
        with check_nowhere():  # a number that is not finite is to be written down, not to be refused
            loss = objective.loss(model)
    finally:
        for handle in handles:
            handle.remove()
    if len(outputs) != len(model.layers):
        raise ValueError(
            f"{len(outputs)} of {len(model.layers)} layers could be looked at: a graph this large is worked on some "
            "rows at a time on a CPU; take a GPU"
        )
    return outputs, loss


def _measure(model: LorentzGCN, z: Tensor, gradient: Tensor) -> Tensor:
    """[3]: radius, distance and gradient of one layer."""
    i, j = _pairs(z.shape[0]).to(z.device)
    if model.euclidean:
        unit, distance = 1.0, torch.linalg.vector_norm(z[i] - z[j], dim=-1)
    else:
        unit, distance = math.sqrt(model.manifold.kappa), model.manifold.dist(z[i], z[j])
    radius = torch.linalg.vector_norm(z, dim=-1)
    return torch.stack([unit * radius.mean(), unit * distance.mean(), torch.linalg.vector_norm(gradient)])


def _pairs(nodes: int) -> Tensor:
    """[2, pairs]: the same for every layer, run and method; never a node with itself."""
    generator = torch.Generator().manual_seed(0)
    i = torch.randint(nodes, (_PAIRS,), generator=generator)
    return torch.stack([i, (i + torch.randint(1, nodes, (_PAIRS,), generator=generator)) % nodes])


def _short(values: list[float]) -> list[float | None]:
    """To four digits, whatever the size: a gradient of 1e-9 is not zero."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]
