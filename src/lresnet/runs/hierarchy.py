"""Ancestors of a node and parents of a new term, ranked by a run on a taxonomy."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from scipy import sparse
from torch import Tensor

from lresnet.data.hierarchy import HierarchyTask, feature_tensor
from lresnet.data.text_features import text_features
from lresnet.nn.hierarchy_energy import DEFAULT_ALPHA
from lresnet.runs.defaults import LISTED_ANCESTORS, LISTED_PARENTS
from lresnet.runs.node_inputs import NodeInputs, inputs_of_run
from lresnet.train.hierarchy_completion import ancestor_scores
from lresnet.train.objective import make_objective

if TYPE_CHECKING:
    from lresnet.runs.run import Run

__all__ = ["Ancestor", "RankedAncestors", "rank_ancestors", "rank_parents", "ranked_as_csv", "ranked_as_json"]

Relation = Literal["parent", "ancestor", "held-out parent", "held-out ancestor", "descendant", ""]
"""What the taxonomy says of a candidate; ``""``: neither above nor below the node."""


class Ancestor(NamedTuple):
    """A candidate for an ancestor, in the order of the scores."""

    rank: int
    number: int
    name: str
    score: float
    """Minus an energy of distance and generality; higher is better."""
    depth: int
    relation: Relation


@dataclasses.dataclass(frozen=True)
class RankedAncestors:
    """Candidates for the ancestors of a node, or for the parents of a new term, the best first.

    Args:
        name: the node or the term.
        source: what messages call the taxonomy.
        found: the candidates.
        candidates: number of candidates that were ranked.
        is_new: whether the taxonomy does not have the term.
    """

    name: str
    source: str
    found: tuple[Ancestor, ...]
    candidates: int
    is_new: bool = False


def rank_ancestors(run: Run, node: str, *, top: int = LISTED_ANCESTORS) -> RankedAncestors:
    """Rank all other nodes as ancestors of a node.

    Args:
        run: a finished run on a taxonomy.
        node: its name, or its number.
        top: number of candidates.

    Raises:
        ValueError: the run is not on a taxonomy, there is no such node (the message suggests a name), or ``top`` is
            below 1.
    """
    task = _task(run, top)
    inputs = inputs_of_run(run)
    number = inputs.number(node)
    is_new = task.split == "leaves" and bool((torch.cat([task.val_pairs[0], task.test_pairs[0]]) == number).any())
    scores = _scores(run, inputs.points(run), [number], [is_new])[0]
    scores[number] = -torch.inf
    found = _best(task, inputs, scores, min(top, task.num_nodes - 1), number)
    return RankedAncestors(inputs.names[number], inputs.source, found, task.num_nodes - 1)


def rank_parents(run: Run, terms: Sequence[str], *, top: int = LISTED_PARENTS) -> list[RankedAncestors]:
    """Rank all nodes as parents of new terms, which are described by their words.

    Args:
        run: a finished run on a taxonomy, with names or texts as features.
        terms: the terms, each with its text if the features are those of texts: ``"okapi: a relative of the giraffe"``.
        top: number of candidates for each term.

    Raises:
        ValueError: the run is not on a taxonomy, its features are not those of texts, there are no terms, a term has no
            letters, or ``top`` is below 1.
    """
    task = _task(run, top)
    features = None if task.graph is None else task.graph.features
    if features is None:
        raise ValueError(
            f"the network of {run.place} knows a node by its place in the taxonomy, and a new term has none; train "
            "with texts (a third column, or --node-features FILE) or --node-features names, or see `lresnet ancestors`"
        )
    blank = [term for term in terms if not any(letter.isalnum() for letter in term)]
    if blank or not terms:
        got = f", got {blank[0]!r}" if blank else ""
        raise ValueError(f"--parents needs terms with letters or digits{got}; e.g. --parents 'polar fox'")
    inputs = inputs_of_run(run)
    wide = sparse.vstack([sparse.csr_array(features), text_features(terms, features.shape[1])], format="csr")
    extended = dataclasses.replace(inputs, x=feature_tensor(wide), num_nodes=inputs.num_nodes + len(terms))
    points, n = extended.points(run), task.num_nodes
    # A term that the taxonomy has keeps its own features, with its text.
    known = [inputs.number(term) if inputs.has(term) and not term.isdecimal() else None for term in terms]
    rows = [n + i if number is None else number for i, number in enumerate(known)]
    scores = _scores(run, points, rows, [number is None for number in known])[:, :n]
    ranked = []
    for term, number, row in zip(terms, known, scores, strict=True):
        is_new = number is None
        if number is not None:
            row[number] = -torch.inf
        candidates = n if is_new else n - 1
        found = _best(task, inputs, row, min(top, candidates), number)
        ranked.append(RankedAncestors(term, inputs.source, found, candidates, is_new))
    return ranked


def ranked_as_json(ranked: Sequence[RankedAncestors]) -> str:
    """Return one JSON object: ``ranked`` with the name and its candidates."""
    content = [
        {"name": one.name, "new": one.is_new, "candidates": [each._asdict() for each in one.found]} for one in ranked
    ]
    return json.dumps({"ranked": content}, indent=2)


def ranked_as_csv(ranked: Sequence[RankedAncestors]) -> str:
    """Return a table with a header: of, rank, number, name, score, depth, relation."""
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["of", *Ancestor._fields])
    for one in ranked:
        writer.writerows([one.name, *each._replace(score=round(each.score, 6))] for each in one.found)
    return buffer.getvalue()


def _task(run: Run, top: int) -> HierarchyTask:
    if top < 1:
        raise ValueError(f"--top must be at least 1, got {top}")
    if run.record.images is not None or run.record.on_dataset or not isinstance(run.task, HierarchyTask):
        raise ValueError(
            f"{run.place} holds a run on {run.record.data_name}; this needs one on a taxonomy: lresnet train FILE "
            "--task hierarchy"
        )
    return run.task


def _scores(run: Run, points: Tensor, nodes: Sequence[int], is_new: Sequence[bool]) -> Tensor:
    """Return the scores of all points as ancestors of some nodes, float64 ``[b, N]``.

    Args:
        is_new: whether training has not seen the node.
    """
    model: Any = run.model
    kappa = None if model.euclidean else float(model.manifold.kappa.detach())
    wide, loss = points.double(), run.train_config.loss or "ranking"
    alphas = [DEFAULT_ALPHA] * len(nodes)
    if any(is_new):
        objective: Any = make_objective(run.task, run.train_config, run.device)
        chosen = objective.new_term_alpha(model.eval())
        alphas = [chosen if new else DEFAULT_ALPHA for new in is_new]
    rows = [
        ancestor_scores(wide[[node]], wide, kappa, loss, alpha)  # type: ignore[arg-type]
        for node, alpha in zip(nodes, alphas, strict=True)
    ]
    scores = torch.cat(rows)
    if not bool(scores.isfinite().all()):
        raise ValueError(f"the predictions of {run.place} are not finite, so its network cannot be used")
    return scores


def _best(task: HierarchyTask, inputs: NodeInputs, scores: Tensor, top: int, node: int | None) -> tuple[Ancestor, ...]:
    order = scores.argsort(descending=True, stable=True)[:top].tolist()
    relation = {} if node is None else _relations(task, node)
    return tuple(
        Ancestor(
            rank,
            number,
            inputs.names[number],
            float(scores[number]),
            int(task.depths[number]),
            relation.get(number, ""),
        )
        for rank, number in enumerate(order, 1)
    )


def _relations(task: HierarchyTask, node: int) -> dict[int, Relation]:
    def of(pairs: Tensor, column: int = 0) -> set[int]:
        return set(pairs[1 - column, pairs[column] == node].tolist())

    found: dict[int, Relation] = dict.fromkeys(of(task.closure, 1), "descendant")
    trained, parents = of(task.train_pairs), of(task.parents)
    for each in of(task.closure):
        if each in trained:
            found[each] = "parent" if each in parents else "ancestor"
        else:
            found[each] = "held-out parent" if each in parents else "held-out ancestor"
    return found
