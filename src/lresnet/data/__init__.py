"""Graphs, images and texts by name, tasks with their splits, and readers of users' own files.

The names below load on first use, so that :mod:`lresnet.data.registry` can be imported without torch.
"""

from typing import TYPE_CHECKING

from lresnet._lazy import lazy_names

if TYPE_CHECKING:
    from lresnet.data.ancestors import AncestorTask, ancestor_task
    from lresnet.data.augmentation import Augmentation, augment, cutmix, normalise
    from lresnet.data.build import graph_task, link_task, node_task
    from lresnet.data.formats.graph_set import read_graphs
    from lresnet.data.formats.space_file import read_space
    from lresnet.data.graph import Graph
    from lresnet.data.graphs.disease_tree import disease_tree
    from lresnet.data.hierarchy import HierarchyTask, hierarchy_task
    from lresnet.data.image_data import ImageData, ImageSet, hold_out, mean_colour
    from lresnet.data.image_files import ImageFiles
    from lresnet.data.load import load_graph, load_images, load_task, load_tree, read_graph
    from lresnet.data.negatives import NegativeSampler, NegativeSamplers
    from lresnet.data.neighbour_sampler import NeighbourSampler, make_sampler
    from lresnet.data.ood_sets import OodSet, load_ood_set
    from lresnet.data.registry import DATASETS, GRAPHS, IMAGE_SETS, OOD_SETS, TASKS, TEXTS
    from lresnet.data.rooted_tree import RootedTree, complete_tree, random_tree
    from lresnet.data.tasks import GraphLevelTask, GraphTask, ImageTask, LinkTask, NodeTask, Task
    from lresnet.data.taxonomy import Taxonomy, read_taxonomy
    from lresnet.data.text import TextTask, text_task
    from lresnet.data.tokenizer import Tokenizer
    from lresnet.data.torch_dataset import DatasetTask, dataset_task

__all__ = [
    "DATASETS",
    "GRAPHS",
    "IMAGE_SETS",
    "OOD_SETS",
    "TASKS",
    "TEXTS",
    "AncestorTask",
    "Augmentation",
    "DatasetTask",
    "Graph",
    "GraphLevelTask",
    "GraphTask",
    "HierarchyTask",
    "ImageData",
    "ImageFiles",
    "ImageSet",
    "ImageTask",
    "LinkTask",
    "NegativeSampler",
    "NegativeSamplers",
    "NeighbourSampler",
    "NodeTask",
    "OodSet",
    "RootedTree",
    "Task",
    "Taxonomy",
    "TextTask",
    "Tokenizer",
    "ancestor_task",
    "augment",
    "complete_tree",
    "cutmix",
    "dataset_task",
    "disease_tree",
    "graph_task",
    "hierarchy_task",
    "hold_out",
    "link_task",
    "load_graph",
    "load_images",
    "load_ood_set",
    "load_task",
    "load_tree",
    "make_sampler",
    "mean_colour",
    "node_task",
    "normalise",
    "random_tree",
    "read_graph",
    "read_graphs",
    "read_space",
    "read_taxonomy",
    "text_task",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and so still reports a misspelt name
    _MODULES = {
        "ancestors": "AncestorTask ancestor_task",
        "augmentation": "Augmentation augment cutmix normalise",
        "build": "graph_task link_task node_task",
        "torch_dataset": "DatasetTask dataset_task",
        "formats.graph_set": "read_graphs",
        "formats.space_file": "read_space",
        "graph": "Graph",
        "graphs.disease_tree": "disease_tree",
        "hierarchy": "HierarchyTask hierarchy_task",
        "image_data": "ImageData ImageSet hold_out mean_colour",
        "image_files": "ImageFiles",
        "load": "load_graph load_images load_task load_tree read_graph",
        "negatives": "NegativeSampler NegativeSamplers",
        "neighbour_sampler": "NeighbourSampler make_sampler",
        "ood_sets": "OodSet load_ood_set",
        "registry": "DATASETS GRAPHS IMAGE_SETS OOD_SETS TASKS TEXTS",
        "taxonomy": "Taxonomy read_taxonomy",
        "rooted_tree": "RootedTree complete_tree random_tree",
        "tasks": "GraphLevelTask GraphTask ImageTask LinkTask NodeTask Task",
        "text": "TextTask text_task",
        "tokenizer": "Tokenizer",
    }
    __getattr__, __dir__ = lazy_names(
        __name__, {name: module for module, names in _MODULES.items() for name in names.split()}
    )
