"""What the paper's tables need on top: search, seeds, resumable sweeps."""

from lresnet.studies.reproduce import FINAL_SEEDS, SEARCH_SEEDS, final_runs, run_all, search_runs
from lresnet.studies.run import METHODS, Run, execute
from lresnet.studies.search import best_configuration, draw, recipe

__all__ = [
    "FINAL_SEEDS",
    "METHODS",
    "SEARCH_SEEDS",
    "Run",
    "best_configuration",
    "draw",
    "execute",
    "final_runs",
    "recipe",
    "run_all",
    "search_runs",
]
