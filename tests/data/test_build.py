"""Tasks on a user's graph: splits, negatives, weights, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from lresnet.data import Graph, GraphLevelTask, LinkTask, NodeTask, graph_task, link_task, node_task, read_graph
from lresnet.data.splits import require_shares, stratified

PARTS = ("train", "val", "test")


def _random_graph(nodes: int = 60, edges: int = 150, seed: int = 0, **options: object) -> Graph:
    rng = np.random.default_rng(seed)
    return Graph.checked("random", None, rng.integers(nodes, size=(2, edges)), num_nodes=nodes, **options)  # type: ignore[arg-type]


def _pairs(edges: torch.Tensor) -> set[tuple[int, int]]:
    return {(min(i, j), max(i, j)) for i, j in edges.T.tolist()}


_LABELS = st.lists(st.integers(-1, 4), min_size=12, max_size=80).map(torch.tensor)


@given(_LABELS, st.integers(0, 3), st.sampled_from([(0.2, 0.2), (0.1, 0.1), (0.4, 0.4)]))
def test_a_random_split_is_disjoint_covers_the_labelled_nodes_and_has_equal_shares(
    labels: torch.Tensor, seed: int, shares: tuple[float, float]
) -> None:
    parts = stratified(labels, seed, *shares)
    every = torch.cat(list(parts))
    assert every.unique().numel() == every.numel()
    assert set(every.tolist()) == set((labels >= 0).nonzero().squeeze(1).tolist())
    assert all(torch.equal(one, other) for one, other in zip(parts, stratified(labels, seed, *shares), strict=True))
    for label in labels[labels >= 0].unique():
        train, val, test = (int((labels[part] == label).sum()) for part in parts)
        count = train + val + test
        assert train >= 1
        assert test >= (count > 1)
        assert val >= (count > 2)
        if count >= 10:
            assert abs(val - shares[0] * count) <= 1
            assert abs(test - shares[1] * count) <= 1


def test_another_seed_gives_another_split() -> None:
    labels = torch.arange(60) % 3
    assert not torch.equal(stratified(labels, 0, 0.2, 0.2).test, stratified(labels, 1, 0.2, 0.2).test)


@given(st.integers(0, 20), st.booleans(), st.booleans())
def test_link_splits_are_disjoint_and_no_negative_is_an_edge(seed: int, directed: bool, weighted: bool) -> None:
    weights = np.random.default_rng(seed).random(150) + 0.5 if weighted else None
    graph = _random_graph(seed=seed, directed=directed, weights=weights)
    task = link_task(graph, seed=seed)
    parts = [_pairs(getattr(task, f"{part}_edges")) for part in PARTS]
    negatives = [_pairs(task.val_negatives), _pairs(task.test_negatives)]
    proper = {pair for pair in _pairs(graph.edges) if pair[0] != pair[1]}
    assert sum(map(len, parts)) == len(proper)
    assert set.union(*parts) == proper
    assert [len(part) for part in negatives] == [len(part) for part in parts[1:]]
    assert not proper & (negatives[0] | negatives[1])
    assert not negatives[0] & negatives[1]
    assert all(i != j for part in negatives for i, j in part)
    assert _pairs(task.edge_index) == parts[0], "held-out edges pass no messages"
    if weighted:
        assert graph.weights is not None
        known: dict[tuple[int, int], list[float]] = {}
        for (i, j), weight in zip(graph.edges.T.tolist(), graph.weights.tolist(), strict=True):
            known.setdefault((min(i, j), max(i, j)), []).append(weight)
        assert task.edge_weight is not None
        for (i, j), weight in zip(task.edge_index.T.tolist(), task.edge_weight.tolist(), strict=True):
            assert weight == pytest.approx(np.mean(known[min(i, j), max(i, j)]), rel=1e-5), "mean of both ways"


def test_the_seed_decides_a_link_split() -> None:
    graph = _random_graph()
    one, same, other = link_task(graph, seed=1), link_task(graph, seed=1), link_task(graph, seed=2)
    for part in ("train_edges", "val_edges", "test_edges", "val_negatives", "test_negatives"):
        assert torch.equal(getattr(one, part), getattr(same, part))
    assert not torch.equal(one.test_edges, other.test_edges)


def _labelled(masks: dict[str, torch.Tensor] | None = None) -> Graph:
    labels = np.arange(60) % 3
    labels[[4, 17]] = -1
    return _random_graph(labels=labels, masks=masks)


def test_a_mask_numbers_a_mapping_and_a_file_give_the_same_task(tmp_path: Path) -> None:
    order = torch.tensor([i for i in torch.randperm(60).tolist() if i not in (4, 17)])
    numbers = dict(zip(PARTS, (order[:30], order[30:44], order[44:]), strict=True))
    masks = {part: torch.zeros(60, dtype=torch.bool).index_fill(0, nodes, True) for part, nodes in numbers.items()}
    several = {part: torch.stack([~mask, mask], 1) for part, mask in masks.items()}
    file = tmp_path / "split.csv"
    rows = [f"{node},{part}" for part, nodes in numbers.items() for node in nodes.tolist()]
    file.write_text("\n".join(["node,part", *rows]))
    tasks = [
        node_task(_labelled(), split=numbers),
        node_task(_labelled(), split=masks),
        node_task(_labelled(), split={part: nodes.tolist() for part, nodes in numbers.items()}),
        node_task(_labelled(masks)),
        node_task(_labelled(several), split=1),
        node_task(_labelled(), split=file),
        node_task(_labelled(), split=str(file)),
    ]
    for task in tasks:
        for part in PARTS:
            assert torch.equal(getattr(task, f"{part}_index"), numbers[part].sort().values)
    assert "Split of the graph's masks: 30 nodes to train on" in tasks[3].notes[0]


def test_random_ignores_the_masks_of_the_graph() -> None:
    mask = torch.arange(60) < 20
    graph = _labelled({"train": mask & (torch.arange(60) != 4) & (torch.arange(60) != 17), "test": ~mask})
    task = node_task(graph, split="random")
    assert task.train_index.numel() == 58 - task.val_index.numel() - task.test_index.numel()
    assert task.val_index.numel() == 3 * round(0.2 * 58 / 3)


def test_without_validation_nodes_a_fifth_of_the_training_nodes_is_held_out() -> None:
    train = [i for i in range(40) if i not in (4, 17)]
    task = node_task(_labelled(), split={"train": train, "test": range(40, 60)})
    assert set(task.train_index.tolist()) | set(task.val_index.tolist()) == set(train)
    assert not set(task.train_index.tolist()) & set(task.val_index.tolist())
    assert abs(task.val_index.numel() - len(train) / 5) <= 3
    assert "a fifth of the training nodes held out" in task.notes[0]


def test_nodes_without_a_label_are_in_no_part() -> None:
    task = node_task(_labelled())
    for part in PARTS:
        assert bool((task.y[getattr(task, f"{part}_index")] >= 0).all())
    assert "Nodes without a label, which only pass messages: 2 of 60." in task.notes
    masked = node_task(_labelled(), split={"train": range(20), "val": range(20, 40), "test": range(40, 60)})
    assert masked.train_index.tolist() == [i for i in range(20) if i not in (4, 17)]


def test_classes_of_one_and_two_nodes_are_in_training_first_and_reported() -> None:
    labels = np.zeros(60, dtype=int)
    labels[:20] = 1
    labels[20], labels[21:23] = 2, 3
    task = node_task(_random_graph(labels=labels))
    assert [int((task.y[getattr(task, f"{part}_index")] == 2).sum()) for part in PARTS] == [1, 0, 0]
    assert [int((task.y[getattr(task, f"{part}_index")] == 3).sum()) for part in PARTS] == [1, 0, 1]
    assert any(note.endswith("which are not in every part of the split: 2, 3.") for note in task.notes)


def test_a_directed_graph_keeps_its_direction_for_nodes_and_not_for_links() -> None:
    graph = _random_graph(directed=True, labels=np.arange(60) % 2)
    task = node_task(graph)
    proper = graph.edges[:, graph.edges[0] != graph.edges[1]]
    assert torch.equal(task.edge_index, proper)
    assert "Links are predicted without a direction: a distance is the same both ways." in link_task(graph).notes


def test_a_link_split_may_be_given_as_edges_or_as_a_file(tmp_path: Path) -> None:
    names = [f"node {i}" for i in range(60)]
    graph = _random_graph(names=names)
    proper = graph.edges[:, graph.edges[0] != graph.edges[1]]
    val, test = proper[:, :5], proper[:, 5:12].flip(0)
    file = tmp_path / "split.csv"
    rows = [f"{names[i]},{names[j]},{part}" for part, e in (("dev", val), ("test", test)) for i, j in e.T.tolist()]
    file.write_text("\n".join(rows))
    for given_split in ({"val": val, "test": test}, file):
        task = link_task(graph, split=given_split)
        assert _pairs(task.val_edges) == _pairs(val)
        assert _pairs(task.test_edges) == _pairs(test)
        assert _pairs(task.train_edges) == _pairs(proper) - _pairs(val) - _pairs(test)
        assert not _pairs(proper) & (_pairs(task.val_negatives) | _pairs(task.test_negatives))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: node_task(_random_graph()), "has no labels, which node classification needs"),
        (lambda: node_task(_labelled(), split=3), "has no split of its own"),
        (lambda: node_task(_labelled(), split={"train": [0], "tset": [1]}), "an unknown part 'tset'"),
        (lambda: node_task(_labelled(), split={"train": [0]}), "no part 'test'"),
        (lambda: node_task(_labelled(), split={"train": [0, 1], "val": [1], "test": [2]}), "1 is in train and val"),
        (lambda: node_task(_labelled(), split={"train": [0], "val": [4], "test": [2]}), "4, which has no label"),
        (lambda: node_task(_labelled(), split={"train": [0], "val": [99], "test": [2]}), "lists 99; the numbers are 0"),
        (lambda: node_task(_labelled(), split={"train": [0.5], "val": [1], "test": [2]}), "give a mask of booleans"),
        (
            lambda: node_task(_labelled(), split={"train": [], "val": [1], "test": [2]}),
            "train part of the split is empty",
        ),
        (lambda: node_task(_labelled(), split={"train": [True], "val": [1], "test": [2]}), "it needs 60 entries"),
        (lambda: node_task(_labelled(), metric="mrr"), "unknown metric 'mrr' of a classification"),
        (lambda: node_task(_labelled(), metric="f1_binary"), "f1_binary is for two classes, but there are 3"),
        (lambda: node_task(_labelled(), validation=0.6, test=0.4), "leave nothing for training"),
        (lambda: link_task(_random_graph(), metric="accuracy"), "unknown metric 'accuracy' of links"),
        (lambda: link_task(_random_graph(), test=0.0), "share held out for test must be above 0"),
        (lambda: link_task(_random_graph(edges=19)), "edges; holding out 5 % needs at least 20"),
        (lambda: link_task(_random_graph(), split={"val": [[0], [0]], "test": [[1], [2]]}), "is not an edge"),
        (lambda: link_task(_random_graph(), split={"val": [0, 1], "test": [[1], [2]]}), "edges are .2, m."),
        (lambda: link_task(_random_graph(), node_features="own"), "has no features; use learned or structural"),
        (lambda: graph_task([], []), "there are no graphs"),
        (lambda: graph_task([_random_graph()], [0, 1]), "2 labels for 1 graphs"),
        (lambda: graph_task([_random_graph()] * 8, [0, 1] * 3 + [None, 1]), "every graph needs a label"),
        (lambda: graph_task([_random_graph()] * 4, [1] * 4), "all labels are 1"),
        (lambda: graph_task([_random_graph()] * 4, [0, 1, 0, 1]), "4 labelled graphs are too few for a random split"),
    ],
)
def test_impossible_tasks_are_refused_in_one_line(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        call()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "words"),
    [("e,val", "the val part lists node 'e', which has no label"), ("a,test", "node 'a' occurs again")],
)
def test_a_wrong_split_file_is_refused_with_the_name_of_the_node(part: str, words: str, tmp_path: Path) -> None:
    edges = "\n".join(f"{a},{b}" for a, b in zip("abcde", "bcdea", strict=True))
    files = {"edges": edges, "labels": "a,x\nb,y\nc,x\nd,y\n", "splits": f"a,train\nb,train\nc,test\nd,val\n{part}\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        node_task(tmp_path)


def test_a_complete_graph_has_no_negatives() -> None:
    edges = torch.combinations(torch.arange(12)).T
    with pytest.raises(ValueError, match="the graph has only 0 pairs without an edge; 9 negatives are needed"):
        link_task((edges, 12))


def test_shares_must_leave_something() -> None:
    require_shares(0.5, 0.4)
    for wrong in ((0.0, 0.1), (0.1, 1.0), (0.5, 0.5), (-0.1, 0.2)):
        with pytest.raises(ValueError, match=r"share|leave"):
            require_shares(*wrong)


def _data(kind: int, nodes: int) -> Data:
    """Return a ring or a star."""
    others = torch.arange(1, nodes)
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
    return Data(edge_index=ring if kind else torch.stack([0 * others, others]), num_nodes=nodes, y=torch.tensor([kind]))


def test_whole_graphs_are_one_graph_of_unconnected_parts() -> None:
    data = [_data(k % 2, 4 + k % 5) for k in range(30)]
    task = graph_task(data)
    assert isinstance(task, GraphLevelTask)
    assert task.y.tolist() == [k % 2 for k in range(30)]
    assert task.batch.bincount().tolist() == [one.num_nodes for one in data]
    assert torch.equal(task.batch[task.edge_index[0]], task.batch[task.edge_index[1]])
    every = torch.cat([task.train_index, task.val_index, task.test_index])
    assert every.sort().values.tolist() == list(range(30))
    assert task.x.shape == (task.num_nodes, 15), "structural features: learned points belong to one graph"
    same = graph_task([(one.edge_index, one.num_nodes) for one in data], ["star", "ring"] * 15)
    assert same.classes == ("ring", "star")
    assert torch.equal(same.y, 1 - task.y)
    assert torch.equal(same.x, task.x)


@pytest.mark.parametrize("labels", [[1, -1] * 15, ["1", "-1"] * 15, torch.tensor([1, -1] * 15)])
def test_minus_1_is_a_class_of_a_graph(labels: object) -> None:
    task = graph_task([_data(k % 2, 5) for k in range(30)], labels)  # type: ignore[arg-type]
    assert task.classes == ("-1", "1")
    assert task.y.tolist() == [1, 0] * 15


def test_weighted_and_plain_graphs_join_with_weights_of_1() -> None:
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    weighted = Graph.checked("w", np.ones((3, 2)), edges, weights=[2.0, 3.0, 4.0])
    plain = Graph.checked("p", np.ones((3, 2)), edges)
    task = graph_task([weighted, plain] * 6, [0, 1] * 6)
    assert task.edge_weight is not None
    weight = {
        tuple(pair): value for pair, value in zip(task.edge_index.T.tolist(), task.edge_weight.tolist(), strict=True)
    }
    assert (weight[0, 1], weight[1, 2], weight[2, 0], weight[3, 4], weight[5, 3]) == (2.0, 3.0, 4.0, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"different numbers of features"):
        graph_task([weighted, _random_graph()] * 6, [0, 1] * 6)


def test_pyg_data_is_a_source_of_both_tasks() -> None:
    x = torch.randn(40, 5)
    ring = torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40])
    data = Data(x=x, edge_index=torch.cat([ring, ring.flip(0)], 1), y=torch.arange(40) % 2)
    node, link = node_task(data), link_task(data)
    assert isinstance(node, NodeTask)
    assert isinstance(link, LinkTask)
    assert node.x.shape == link.x.shape == (40, 5)
    assert node.name == f"{read_graph(data).name}/node"


def test_a_task_prints_shapes_and_not_its_tensors() -> None:
    ring = torch.arange(40)
    data = Data(edge_index=torch.stack([ring, (ring + 1) % 40]), x=torch.randn(40, 8), y=ring // 20)
    assert repr(node_task(data)) == (
        "NodeTask(name='graph/node', x=[40, 8], edge_index=[2, 40], y=[40], train_index=[24], val_index=[8], "
        "test_index=[8], num_classes=2, metric='accuracy', graph=Graph(name='graph', features=[40, 8], edges=[2, 40], "
        "labels=[40], directed=True, notes=[1], num_nodes=40), notes=[3])"
    )
