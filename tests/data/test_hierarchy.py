"""Hierarchy tasks: what is held out, that it does not leak into training, and features of texts."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lresnet.data import HierarchyTask, Taxonomy, hierarchy_task
from lresnet.data import hierarchy as module
from lresnet.data.text_features import text_features

PAIRS = [(f"n{i}", f"n{(i - 1) // 3}") for i in range(1, 200)]


def codes(pairs: Tensor, n: int) -> set[int]:
    return set((pairs[0] * n + pairs[1]).tolist())


def test_closure_split_keeps_every_edge_and_partitions_the_closure() -> None:
    task = hierarchy_task(PAIRS)
    n = task.num_nodes
    parts = [codes(part, n) for part in (task.train_pairs, task.val_pairs, task.test_pairs)]
    assert set.union(*parts) == codes(task.closure, n)
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(parts, 2))
    assert codes(task.parents, n) <= parts[0]
    assert task.edge_index.shape[1] == 2 * task.parents.shape[1]
    far = task.closure.shape[1] - task.parents.shape[1]
    assert [len(parts[1]), len(parts[2])] == [round(0.05 * far), round(0.10 * far)]


def test_leaves_split_hides_every_pair_and_edge_of_the_held_out_leaves() -> None:
    task = hierarchy_task(PAIRS, node_features="names")
    assert task.split == "leaves"
    held = torch.cat([task.val_pairs[0], task.test_pairs[0]])
    assert codes(torch.cat([task.val_pairs, task.test_pairs], 1), 200) <= codes(task.parents, 200)
    assert not torch.isin(held, task.parents[1]).any()
    assert not torch.isin(task.train_pairs, held).any()
    assert not torch.isin(task.edge_index, held).any()
    assert set(task.val_pairs[0].tolist()).isdisjoint(task.test_pairs[0].tolist())
    # Every parent of a held-out leaf still has a child in training.
    assert torch.isin(torch.cat([task.val_pairs[1], task.test_pairs[1]]), task.train_pairs[1]).all()


def test_measured_order_uses_training_pairs_in_closure_and_all_ancestors_of_held_out_leaves() -> None:
    closure = hierarchy_task(PAIRS)
    pairs, _ = closure.ancestors_in_order(closure.val_pairs)
    assert codes(pairs, 200) == codes(closure.train_pairs, 200)
    leaves = hierarchy_task(PAIRS, node_features="names")
    pairs, _ = leaves.ancestors_in_order(leaves.test_pairs)
    of_leaves = leaves.closure[:, torch.isin(leaves.closure[0], leaves.test_pairs[0])]
    assert codes(pairs, 200) == codes(of_leaves, 200)


@pytest.mark.parametrize("split", ["closure", "leaves"])
def test_steps_are_the_edges_of_the_shortest_way_up(split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DISTANCES", 600)  # several blocks of nodes
    extra = [(f"n{i}", f"n{(i - 1) // 9}") for i in range(50, 120, 7)]  # a second parent, further up
    task = hierarchy_task(PAIRS + extra, split=split)  # type: ignore[arg-type]
    parents: dict[int, set[int]] = {}
    for child, parent in task.parents.T.tolist():
        parents.setdefault(child, set()).add(parent)
    pairs, steps = task.ancestors_in_order(task.test_pairs)
    for node, ancestor, found in zip(*pairs.tolist(), steps.tolist(), strict=True):
        reached, expected = {node}, 0
        while ancestor not in reached:
            reached, expected = set().union(*(parents.get(each, set()) for each in reached)), expected + 1
        assert found == expected


def test_measured_order_of_a_large_taxonomy_takes_some_nodes_and_some_ancestors_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_ORDERED_NODES", 30)
    monkeypatch.setattr(module, "_ORDERED_ANCESTORS", 5)
    task = hierarchy_task([(f"n{i}", f"n{i - 1}") for i in range(1, 100)])
    pairs, steps = task.ancestors_in_order(task.val_pairs)
    nodes, count = pairs[0].unique(return_counts=True)
    assert 20 < nodes.numel() <= 30
    assert int(count.max()) == 5
    assert (steps == 1).sum() == nodes.numel()
    assert codes(pairs, 100) <= codes(task.train_pairs, 100)


def test_split_depends_on_the_seed_and_on_nothing_else() -> None:
    for split in ("closure", "leaves"):
        first, again, other = (
            hierarchy_task(PAIRS, split=split, seed=seed, node_features="names")
            for seed in (0, 0, 1)  # type: ignore[arg-type]
        )
        assert first.test_pairs.equal(again.test_pairs)
        assert not first.test_pairs.equal(other.test_pairs)


def test_structural_features_do_not_see_held_out_leaves() -> None:
    task = hierarchy_task(PAIRS, split="leaves", node_features="structural")
    assert (task.x[task.test_pairs[0], 0] == 0).all()  # the logarithm of the degree


def _texts(texts: Sequence[str] | None) -> Taxonomy:
    edges = np.array([[i, (i - 1) // 3] for i in range(1, 200)]).T
    return Taxonomy("t", tuple(f"n{i}" for i in range(200)), edges, None if texts is None else tuple(texts))


def test_texts_are_the_default_features() -> None:
    task = hierarchy_task(_texts([f"text of {i}" for i in range(200)]))
    assert task.split == "leaves"
    assert task.graph is not None
    assert task.graph.features is not None
    assert task.x.is_sparse


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "random"}, "unknown split"),
        ({"test": 0.97}, "shares"),
        ({"metric": "roc_auc"}, "unknown metric"),
        ({"node_features": "own"}, "has no texts"),
    ],
)
def test_impossible_tasks_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hierarchy_task(PAIRS, **options)  # type: ignore[arg-type]


def test_taxonomies_without_enough_to_hold_out_and_cycles_are_refused() -> None:
    with pytest.raises(ValueError, match="0 pairs of a node and an ancestor that is not its parent"):
        hierarchy_task([(f"leaf {i}", "root") for i in range(50)])
    with pytest.raises(ValueError, match="3 leaves"):
        hierarchy_task([("a", "x"), ("b", "x"), ("c", "x")], split="leaves", node_features="names")
    with pytest.raises(ValueError, match="1 leaf; at least 20"):
        hierarchy_task([("b", "a"), ("c", "b")], split="leaves", node_features="names")
    chains = [(f"{end} {i}", other) for i in range(30) for end, other in (("leaf", f"kind {i}"), ("kind", "root"))]
    with pytest.raises(ValueError, match="30 leaves, but 0 can be held out, since one child of every parent stays"):
        hierarchy_task(chains, split="leaves", node_features="names")
    with pytest.raises(ValueError, match=r"cycle: 'a' -> 'b' -> 'a'; remove one of these pairs"):
        hierarchy_task([*PAIRS, ("a", "b"), ("b", "a")])
    with pytest.raises(ValueError, match=r"cycle: 'a' -> 'a'"):
        hierarchy_task([*PAIRS, ("a", "a")])
    with pytest.raises(ValueError, match="at least one"):
        hierarchy_task([])


def test_text_features_have_length_one_and_no_order_or_case() -> None:
    x = text_features(["Brown bear", "bear brown", "", "?!", "Łoś 麋鹿"])
    assert x.shape == (5, 4096)
    assert np.allclose(np.sqrt(np.asarray(x.multiply(x).sum(axis=1))), [1, 1, 0, 0, 1])
    assert abs(x[[0]] - x[[1]]).max() == 0


def test_related_words_are_closer_than_others() -> None:
    x = text_features(["terrier", "terriers", "oak tree"])
    near = (x @ x.T).toarray()
    assert near[0, 1] > 0.3 > near[0, 2]


def test_a_task_moves_with_its_tensors() -> None:
    task = hierarchy_task(PAIRS).to("cpu")
    assert isinstance(task, HierarchyTask)
    assert "closure=[2, " in repr(task)


@pytest.mark.parametrize("split", ["closure", "leaves"])
def test_a_large_taxonomy_holds_out_no_more_than_can_be_ranked(monkeypatch: pytest.MonkeyPatch, split: str) -> None:
    rows = [(str(i), str((i - 1) // 3)) for i in range(1, 364)]
    whole = hierarchy_task(rows, split=split, node_features="names")  # type: ignore[arg-type]
    monkeypatch.setattr(module, "_MOST_SCORES", 364 * 5)
    task = hierarchy_task(rows, split=split, node_features="names")  # type: ignore[arg-type]
    assert task.val_pairs.shape[1] == task.test_pairs.shape[1] == 5
    assert whole.val_pairs.shape[1] > 5
    assert task.train_pairs.shape[1] > whole.train_pairs.shape[1]


def test_texts_of_a_file_are_counted(tmp_path: Path) -> None:
    texts = tmp_path / "texts.csv"
    texts.write_text("1,one\n2,two\n")
    task = hierarchy_task([(str(i), str((i - 1) // 3)) for i in range(1, 100)], node_features=texts)
    assert any("Texts: 2 of 100 names have one." in note for note in task.notes)


def test_held_out_leaves_without_features_are_reported() -> None:
    pairs = [(f"{i} kind", f"{(i - 1) // 3} kind") for i in range(1, 120)]
    words = "Nothing tells where a held-out leaf belongs"
    for features in ("learned", "structural"):
        assert words in hierarchy_task(pairs, split="leaves", node_features=features).notes[-1]
    assert words not in hierarchy_task(pairs, split="leaves", node_features="names").notes[-1]
    assert words not in hierarchy_task(pairs, split="closure").notes[-1]
