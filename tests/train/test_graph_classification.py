"""Classification of whole graphs: batches of graphs, their logits and their order."""

import pytest
import torch

from lresnet import create_model
from lresnet.data import GraphLevelTask, graph_task
from lresnet.train import graph_classification
from lresnet.train.graph_classification import GraphClassification, graph_logits, graphs_of


def _task(**options: object) -> GraphLevelTask:
    generator = torch.Generator().manual_seed(0)
    graphs = [(torch.randint(n, (2, 3 * n), generator=generator), n) for n in [4, 5, 6, 7] * 6]
    return graph_task(graphs, [0, 1, 1, 0] * 6, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [[0], [5, 2], [3, 1, 20, 7]])
def test_a_batch_has_the_nodes_and_edges_of_its_graphs(index: list[int]) -> None:
    task = _task()
    found = graphs_of(task, torch.tensor(index))
    rows, edges = [], []
    for number, graph in enumerate(sorted(index)):
        nodes = (task.batch == graph).nonzero().squeeze(1).tolist()
        place = {node: len(rows) + position for position, node in enumerate(nodes)}
        edges += [(place[i], place[j]) for i, j in task.edge_index.T.tolist() if i in place]
        rows += [(node, number) for node in nodes]
    assert torch.equal(found.x, task.x[[node for node, _ in rows]])
    assert found.batch.tolist() == [number for _, number in rows]
    assert sorted(map(tuple, found.edge_index.T.tolist())) == sorted(edges)


@pytest.mark.parametrize("name", ["lorentz_gcn", "lorentz_sage"])
def test_logits_do_not_depend_on_the_other_graphs_of_a_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = _task()
    torch.manual_seed(0)
    model = create_model(name, in_features=15, num_classes=2, hidden=4).eval()
    together = graph_logits(model, task)
    monkeypatch.setattr(graph_classification, "_GRAPHS_PER_BATCH", 5)
    torch.testing.assert_close(graph_logits(model, task), together, rtol=1e-5, atol=1e-6)
    alone = torch.cat([graph_logits(model, task, torch.tensor([graph])) for graph in range(task.num_graphs)])
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-6)
    some = torch.tensor([9, 2, 4])
    torch.testing.assert_close(graph_logits(model, task, some), together[[2, 4, 9]], rtol=1e-5, atol=1e-6)


def test_an_epoch_visits_every_training_graph_once_in_a_seeded_order() -> None:
    task = _task()
    orders = []
    for seed in (0, 0, 1):
        objective = GraphClassification(task, batch_size=4, seed=seed)
        objective.start_epoch()
        visited = [int(i) for i in objective._order]
        assert sorted(visited) == task.train_index.tolist()
        orders.append(visited)
    assert orders[0] == orders[1] != orders[2]
    assert GraphClassification(task, batch_size=4).steps_per_epoch == -(-task.train_index.numel() // 4)
    assert GraphClassification(task).steps_per_epoch == 1


@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_loss_is_the_mean_over_the_graphs_of_the_batch(batch_size: int | None) -> None:
    task = _task(metric="roc_auc")
    torch.manual_seed(0)
    model = create_model("lorentz_sage", in_features=15, num_classes=2, hidden=4).eval()
    objective = GraphClassification(task, batch_size=batch_size)
    objective.start_epoch()
    objective.advance(0)
    index = objective._order[:batch_size].sort().values
    expected = torch.nn.functional.cross_entropy(graph_logits(model, task)[index], task.y[index])
    torch.testing.assert_close(objective.loss(model), expected, rtol=1e-5, atol=1e-6)
    assert list(objective.test(model)) == ["roc_auc", "accuracy"]


def test_the_validation_loss_is_the_mean_over_the_validation_graphs() -> None:
    task = _task()
    torch.manual_seed(0)
    model = create_model("lorentz_sage", in_features=15, num_classes=2, hidden=4).eval()
    objective = GraphClassification(task)
    score, loss = objective.validation_with_loss(model)
    expected = torch.nn.functional.cross_entropy(graph_logits(model, task)[task.val_index], task.y[task.val_index])
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    assert score == objective.validation(model)


@pytest.mark.parametrize("name", ["lorentz_gcn", "lorentz_gcnii", "lorentz_sage"])
def test_graphs_take_the_precision_of_the_model(name: str) -> None:
    task = _task()
    model = create_model(name, in_features=15, num_classes=2, hidden=4).double().eval()
    found = graph_logits(model, task)
    expected = model(task.x.double(), task.edge_index, batch=task.batch)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
