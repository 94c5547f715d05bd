"""Defaults that the command line and the functions of runs share. The module imports without torch."""

__all__ = [
    "GENERATED_TOKENS",
    "LISTED_ANCESTORS",
    "LISTED_LINKS",
    "LISTED_NEIGHBOURS",
    "LISTED_PARENTS",
    "OOD_DRAWS",
    "TEMPERATURE",
    "TOP_K",
]

LISTED_NEIGHBOURS = 10
"""Number of nearest neighbours that ``lresnet neighbours`` and :meth:`Run.neighbours` list."""

LISTED_LINKS = 50
"""Number of missing links that ``lresnet predict --links`` and :meth:`Run.links` list."""

LISTED_ANCESTORS = 10
"""Number of candidates that ``lresnet ancestors`` and :meth:`Run.ancestors` list."""

LISTED_PARENTS = 10
"""Number of candidates for each term that ``lresnet predict --parents`` and :meth:`Run.parents` list."""

GENERATED_TOKENS, TEMPERATURE, TOP_K = 200, 0.8, 40
"""Length and settings of the random draws of ``lresnet generate`` and :meth:`Run.generate`."""

OOD_DRAWS = 10
"""Number of random draws of an out-of-distribution set, as in the paper; the metrics are means over them."""
