"""The verbs that the reproduction adds to the command line: ``reproduce`` and ``bench``."""

from lresnet_paper.cli.bench import bench
from lresnet_paper.cli.reproduce import reproduce

__all__ = ["bench", "reproduce"]
