"""The published files. The tests run only if ``LRESNET_DATA`` is a folder that contains them."""

import hashlib
import os

import numpy as np
import pytest
import torch
from torch import Tensor

from lresnet.data import DATASETS, TASKS, LinkTask, NodeTask, load_task, load_tree, read_graph
from lresnet.data.files import find, list_datasets, verify
from lresnet.data.splits import legacy_nodes

ROOT = os.environ.get("LRESNET_DATA")
PRESENT = {row.name for row in list_datasets(ROOT) if row.files and row.present == row.files} if ROOT else set()

# nodes, edges without self loops, self loops, features, classes
SHAPES = {
    "disease_lp": (2665, 2664, 0, 11, 2),
    "disease_nc": (1044, 1043, 0, 1000, 2),
    "airport": (3188, 18630, 1, 5, 4),
    "cora": (2708, 5278, 0, 1433, 7),
    "pubmed": (19717, 44324, 3, 500, 3),
    "chameleon": (890, 8854, 0, 2325, 5),
    "squirrel": (2223, 46998, 0, 2089, 5),
    "actor": (7600, 26659, 0, 932, 5),
    "wordnet": (117791, 184083, 0, 1000, 45),
}

# First 16 hexadecimal digits of the sha256 of the int64 pairs, row by row: validation edges and negatives, then test.
LINKS = {
    "disease/lp": "e11c66a4434d5f28 52bcc2c5b8f8d0c4 b41fc88f4199b377 b87ae8781aaee738",
    "airport/lp": "4fe4c4e89c9beb61 2ec819181671ff00 e816c3d67b23afda aeeb5e0adc468001",
    "cora/lp": "50f97f44e4fc60d4 53d1d7e302038bbc 97084a912d91d99c 10ec173278807f64",
}


def _digest(numbers: Tensor) -> str:
    return hashlib.sha256(np.ascontiguousarray(numbers.numpy()).tobytes()).hexdigest()[:16]


def _present(names: dict[str, str]) -> list[str]:
    return [name for name in names if TASKS[name].dataset in PRESENT]


if PRESENT:

    @pytest.mark.parametrize("name", sorted(PRESENT & SHAPES.keys()))
    def test_graph_sizes_are_the_published_ones(name: str) -> None:
        assert {row.state for row in verify([name], ROOT)} == {"right"}
        graph = read_graph(name, ROOT)
        loops = int((graph.edges[0] == graph.edges[1]).sum())
        shape = (graph.num_nodes, graph.edges.shape[1] - loops, loops, graph.features.shape[1], graph.num_classes)
        assert shape == SHAPES[name]


if "wordnet" in PRESENT:

    def test_the_noun_tree_has_one_root_and_the_main_hypernyms() -> None:
        tree = load_tree("wordnet", ROOT)
        assert tree.num_nodes == 82_192
        assert [tree.names[root] for root in tree.roots.tolist()] == ["entity"]
        assert int(tree.height.max()) == 19
        assert tree.names[int(tree.parent[tree.names.index("person")])] == "organism"  # and not "causal_agent"


if _present(LINKS):

    @pytest.mark.parametrize("name", _present(LINKS))
    def test_legacy_link_splits_are_the_published_ones(name: str) -> None:
        task = load_task(name, split="legacy", root=ROOT)
        assert isinstance(task, LinkTask)
        parts = (task.val_edges, task.val_negatives, task.test_edges, task.test_negatives)
        assert " ".join(_digest(part.T) for part in parts) == LINKS[name]


if "airport" in PRESENT:

    def test_legacy_airport_nodes_are_the_published_ones() -> None:
        task = load_task("airport/nc", split="legacy", root=ROOT)
        assert isinstance(task, NodeTask)
        digests = [_digest(part) for part in (task.val_index, task.test_index, task.train_index)]
        assert digests == ["a569280560b17bca", "a8212f3895c11fcf", "b508637a2a178aa8"]
        assert torch.bincount(task.y).tolist() == [521, 1443, 999, 225]


LABELS = next(file for file in DATASETS["disease_nc"].files if file.path.endswith("labels.npy"))

if ROOT and find(LABELS, ROOT):  # the labels suffice, the features are not needed

    def test_legacy_disease_nodes_are_the_published_ones() -> None:
        path = find(LABELS, ROOT)
        assert path is not None
        split = legacy_nodes(torch.from_numpy(np.load(path)).long(), 0.10, 0.60)
        digests = [_digest(part) for part in (split.val, split.test, split.train)]
        assert digests == ["83d3cc808b0d4b4e", "a4f511887c6368a8", "6e3947408cb9050f"]
