"""Defaults that the command line and the functions of runs share. The module imports without torch."""

__all__ = ["LISTED_NEIGHBOURS", "OOD_DRAWS"]

LISTED_NEIGHBOURS = 10
"""Number of nearest neighbours that ``lresnet neighbours`` and :meth:`Run.neighbours` list."""

OOD_DRAWS = 10
"""Number of random draws of an out-of-distribution set, as in the paper; the metrics are means over them."""
