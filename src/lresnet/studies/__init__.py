"""What the paper's tables need on top: search, seeds, resumable sweeps."""

from lresnet.studies.planned_runs import FINAL_SEEDS, SEARCH_SEEDS, final_runs, search_runs
from lresnet.studies.reproduce import reproduce_cell
from lresnet.studies.run import METHODS, Run, execute
from lresnet.studies.search import best_configuration, draw, recipe, recipe_cells
from lresnet.studies.sweep import run_all

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
    "recipe_cells",
    "reproduce_cell",
    "run_all",
    "search_runs",
]
