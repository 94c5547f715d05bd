"""What the rest of the library learns from: graphs by name, tasks with their splits, negatives, and users' files."""

from lresnet.data.cells import CELLS, load_task
from lresnet.data.graph import Graph
from lresnet.data.load import load_graph, read_graph
from lresnet.data.negatives import NegativeSampler
from lresnet.data.space_file import read_space
from lresnet.data.synthetic import disease_tree
from lresnet.data.tasks import LinkTask, NodeTask, Task

__all__ = [
    "CELLS",
    "Graph",
    "LinkTask",
    "NegativeSampler",
    "NodeTask",
    "Task",
    "disease_tree",
    "load_graph",
    "load_task",
    "read_graph",
    "read_space",
]
