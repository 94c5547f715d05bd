"""Tasks by name: every split, their features, and image tasks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lresnet.data import (
    TASKS,
    Graph,
    ImageData,
    ImageSet,
    ImageTask,
    LinkTask,
    NodeTask,
    disease_tree,
    hold_out,
    load_graph,
    load_task,
)
from lresnet.data.graph import FeatureKind, prepare_features
from tests.data import official

WRITERS: dict[str, Any] = {
    "disease_lp": lambda root: official.write_disease(root, "disease_lp"),
    "disease_nc": lambda root: official.write_disease(root, "disease_nc"),
    "airport": official.write_airport,
    "cora": lambda root: official.write_planetoid(root, "cora", nodes=1600),
    "pubmed": lambda root: official.write_planetoid(root, "pubmed", nodes=1600),
    "chameleon": lambda root: official.write_heterophilous(root, "chameleon_filtered"),
    "squirrel": lambda root: official.write_heterophilous(root, "squirrel_filtered"),
    "actor": lambda root: official.write_heterophilous(root, "actor"),
    "wordnet": official.write_wordnet,
    "disease_tree": lambda root: None,
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, write in WRITERS.items():
        write(tmp_path)
        official.use(monkeypatch, tmp_path, name)
    return tmp_path


@pytest.mark.parametrize(("name", "split"), [(name, split) for name in TASKS for split in TASKS[name].splits])
def test_every_name_and_split_gives_a_task(data: Path, name: str, split: str) -> None:
    task = load_task(name, split=split, seed=3)
    assert task.name == name
    assert task.x.shape[0] == task.num_nodes
    assert task.x.dtype == torch.float32
    assert torch.isfinite(task.x).all()
    assert (task.edge_index[0] != task.edge_index[1]).all()
    assert torch.equal(task.edge_index.flip(0).unique(dim=1), task.edge_index)
    if isinstance(task, LinkTask):
        assert name.endswith("/lp")
        proper = task.train_edges[:, task.train_edges[0] != task.train_edges[1]]
        assert task.edge_index.shape[1] == 2 * proper.shape[1]
        assert task.val_edges.shape == task.val_negatives.shape
        assert task.test_edges.shape == task.test_negatives.shape
    else:
        assert isinstance(task, NodeTask)
        assert name.endswith("/nc")
        assert task.num_classes == task.y.max() + 1
        index = torch.cat([task.train_index, task.val_index, task.test_index])
        assert (index >= 0).all()
        assert (index < task.num_nodes).all()
        if (name, split) != ("airport/nc", "hgcn"):
            assert index.unique().numel() == index.numel()


def test_airport_features_include_degrees_of_the_training_graph(data: Path) -> None:
    task = load_task("airport/lp", split="disjoint", seed=1)
    raw = load_graph("airport").x
    assert task.x.shape == (80, 12)
    assert torch.allclose(task.x[:, :5], raw / raw.sum(dim=1, keepdim=True))
    degree = torch.bincount(task.edge_index[0], minlength=80).clamp_max(5)
    assert torch.equal(task.x[:, 5:11].argmax(dim=1), degree)
    assert torch.equal(task.x[:, 5:11].sum(dim=1), torch.ones(80))
    assert torch.equal(task.x[:, 11], torch.ones(80))


def test_airport_features_exclude_the_label(data: Path) -> None:
    task = load_task("airport/nc")
    raw = load_graph("airport").x[:, :4]
    assert task.x.shape == (80, 11)
    assert torch.allclose(task.x[:, :4], raw / raw.sum(dim=1, keepdim=True))
    assert load_task("airport/nc", features="raw").x.shape == (80, 4)


def test_published_standardised_and_raw_features(data: Path) -> None:
    published, standardised, raw = (
        load_task("cora/nc", features=kind).x for kind in ("published", "standardised", "raw")
    )
    assert torch.equal(raw, load_graph("cora").x)
    assert torch.allclose(published, raw / raw.sum(dim=1, keepdim=True))
    assert torch.allclose(standardised.mean(dim=0), torch.zeros(6), atol=1e-5)
    assert torch.allclose(standardised.std(dim=0, correction=0), torch.ones(6), atol=1e-4)
    assert torch.equal(load_task("disease/lp").x, load_graph("disease_lp").x)
    with pytest.raises(ValueError, match="features='scaled'; choose"):
        load_task("cora/nc", features="scaled")  # type: ignore[arg-type]


def test_row_of_zeros_stays_zero() -> None:
    tree = disease_tree(nodes=30)
    tree.features[4] = 0.0
    object.__setattr__(tree, "name", "another graph")
    assert torch.equal(prepare_features(tree, tree.edges, "published")[4], torch.zeros(6))


def _parts(name: str, **options: Any) -> list[torch.Tensor]:
    task = load_task(name, **options)
    if isinstance(task, NodeTask):
        return [task.train_index, task.val_index, task.test_index]
    assert isinstance(task, LinkTask)
    return [task.train_edges, task.val_edges, task.val_negatives, task.test_edges, task.test_negatives]


def _equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, some, others))


def test_planetoid_splits(data: Path) -> None:
    public, legacy = load_task("cora/nc"), load_task("cora/nc", split="legacy")
    assert isinstance(public, NodeTask)
    assert isinstance(legacy, NodeTask)
    assert public.val_index.tolist() == list(range(20, 520))
    assert legacy.val_index.tolist() == list(range(20, 1020))
    assert torch.equal(public.test_index, legacy.test_index)


def test_older_names_of_splits_keep_their_meaning(data: Path) -> None:
    assert _equal(_parts("cora/nc", split="official"), _parts("cora/nc", split="public"))
    for name in ("airport/nc", "airport/lp", "cora/lp", "disease/nc"):
        assert _equal(_parts(name, split="legacy"), _parts(name, split="hgcn"))


@pytest.mark.parametrize(("name", "split"), [("cora/nc", "class-random"), ("actor/nc", "fresh_splits")])
def test_the_number_of_a_random_split_is_its_seed(data: Path, name: str, split: str) -> None:
    third = _parts(name, split=split, index=3, seed=8)
    assert _equal(third, _parts(name, split=split, index=3))
    assert _equal(third, _parts(name, split=split, seed=3))
    assert not _equal(third, _parts(name, split=split, index=4))


@pytest.mark.parametrize(
    ("name", "split", "index", "words"),
    [
        ("cora/nc", "public", 1, "the split public has no number, but 1 was given; splits with numbers: class-random"),
        ("disease_tree/lp", "disjoint", 0, "the split disjoint has no number"),
        ("cora/nc", "class-random", -1, "must be at least 0, got -1"),
    ],
)
def test_a_number_that_selects_nothing_is_refused(name: str, split: str, index: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_task(name, split=split, index=index)


def test_official_splits_are_chosen_by_number(data: Path) -> None:
    third = load_task("actor/nc", split="official_splits", index=3)
    assert isinstance(third, NodeTask)
    assert torch.equal(third.test_index, load_task("actor/nc", split=3).test_index)  # type: ignore[union-attr]
    assert third.test_index.tolist() == load_graph("actor").test_mask[:, 3].nonzero().flatten().tolist()
    with pytest.raises(ValueError, match="splits 0 to 9, not 10"):
        load_task("actor/nc", split=10)


def test_metrics_are_those_of_the_literature() -> None:
    assert {name for name, facts in TASKS.items() if facts.metric == "f1_binary"} == {"disease/nc", "disease_tree/nc"}


def test_another_graph_may_be_given(tmp_path: Path) -> None:
    task = load_task("disease_tree/lp", graph=disease_tree(nodes=200, seed=9), root=tmp_path)
    assert task.num_nodes == 200


def test_task_moves_to_a_device() -> None:
    task = load_task("disease_tree/nc").to("meta")
    assert task.x.device.type == task.y.device.type == task.test_index.device.type == "meta"
    assert task.metric == "f1_binary"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "cora"}, "there is no task 'cora'; choose one of actor/nc, airport/lp"),
        (
            {"name": "cora/nc", "split": "random"},
            "cora/nc has no split 'random'; choose one of public, legacy",
        ),
        ({"name": "disease_tree/lp", "split": "legacy"}, "choose one of disjoint"),
    ],
)
def test_unknown_names_and_splits_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_task(**arguments)


def _image_task(images: int = 50, holdout: float = 0.0) -> ImageTask:
    pixels = torch.arange(images, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(images, 2, 2, 3)
    part = ImageSet(pixels.contiguous(), torch.arange(images) % 2)
    return ImageTask("toy", ImageData("toy", part, part, ("a", "b"), (0.5,) * 3, (0.5,) * 3), holdout)


def test_image_task_holds_out_the_same_images_every_time() -> None:
    task = _image_task(holdout=0.1)
    train, validation = task.split()
    assert validation is not None
    assert (len(train), len(validation), task.validation_count) == (45, 5, 5)
    expected = hold_out(task.data.train, 5, seed=0)
    assert torch.equal(train.images, expected[0].images)
    assert torch.equal(validation.images, expected[1].images)
    assert (task.num_classes, task.in_channels) == (2, 3)
    assert torch.equal(task.to("cpu").data.test.images, task.data.test.images)


def test_image_task_without_holdout_trains_on_all_images() -> None:
    task = _image_task()
    assert task.split() == (task.data.train, None)


@pytest.mark.parametrize(
    ("holdout", "words"),
    [
        (1.0, "holdout must be a share, at least 0 and below 1, got 1.0"),
        (-0.1, "got -0.1"),
        (0.001, "holdout 0.001 of 50 images is 0; choose a share"),
        (0.999, "holdout 0.999 of 50 images is 50; choose a share"),
    ],
)
def test_invalid_holdout_is_refused(holdout: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _image_task(holdout=holdout)


def test_another_graph_is_not_given_the_features_of_the_task():
    other = Graph.checked("webkb", np.eye(30), np.array([np.arange(29), np.arange(1, 30)]), np.arange(30) % 2)
    with pytest.raises(ValueError, match=r"airport/nc prepares .* use lresnet\.data\.node_task\(graph\)"):
        load_task("airport/nc", graph=other)


@pytest.mark.parametrize("kind", ["published", "standardised", "raw"])
def test_dropped_columns_are_left_out_before_the_features_are_prepared(kind: FeatureKind) -> None:
    for name in ("disease_tree/lp", "disease_tree/nc"):
        whole = load_task(name, features=kind)
        part = load_task(name, features=kind, drop_columns=(5, 1, 1))
        assert part.x.shape == (whole.x.shape[0], whole.x.shape[1] - 2)
        assert torch.equal(part.edge_index, whole.edge_index)
        if kind != "published":  # there a row is divided by its sum
            assert torch.equal(part.x, whole.x[:, [0, 2, 3, 4]])


def test_a_published_row_is_divided_by_the_sum_of_the_columns_that_are_left() -> None:
    graph = Graph.checked("own", np.array([[1.0, 3.0, 4.0], [2.0, 2.0, 2.0]]), np.array([[0], [1]]))
    x = prepare_features(graph, graph.edges, "published", drop_columns=(2,))
    assert x.tolist() == [[0.25, 0.75], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("columns", "words"), [((6,), "columns 0 to 5, not 6"), (tuple(range(6)), "lists all of them")]
)
def test_columns_that_cannot_be_dropped_are_named(columns: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_task("disease_tree/lp", drop_columns=columns)
