"""The verbs of the reproduction: ``reproduce``, ``bench``, ``pages`` and ``report``."""

from lresnet_paper.cli.bench import bench
from lresnet_paper.cli.pages import pages
from lresnet_paper.cli.report import report
from lresnet_paper.cli.reproduce import reproduce

__all__ = ["bench", "pages", "report", "reproduce"]
