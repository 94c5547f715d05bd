"""What the rest of the library learns from: graphs and images by name, tasks with their splits, and users' files."""

from lresnet.data.augment import Augmentation, augment, normalise
from lresnet.data.cells import CELLS, load_task
from lresnet.data.graph import Graph
from lresnet.data.image_load import load_images
from lresnet.data.images import ImageData, ImageSet, hold_out, mean_colour
from lresnet.data.load import load_graph, read_graph
from lresnet.data.negatives import NegativeSampler
from lresnet.data.ood_sets import OodSet, load_ood_set
from lresnet.data.space_file import read_space
from lresnet.data.synthetic import disease_tree
from lresnet.data.tasks import LinkTask, NodeTask, Task

__all__ = [
    "CELLS",
    "Augmentation",
    "Graph",
    "ImageData",
    "ImageSet",
    "LinkTask",
    "NegativeSampler",
    "NodeTask",
    "OodSet",
    "Task",
    "augment",
    "disease_tree",
    "hold_out",
    "load_graph",
    "load_images",
    "load_ood_set",
    "load_task",
    "mean_colour",
    "normalise",
    "read_graph",
    "read_space",
]
