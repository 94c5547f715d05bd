"""Names of the splits of shipped graph tasks: the rule of each, what draws it, and its share of test examples.

Results are only ever compared within one split. Importing this module imports neither torch nor NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from lresnet.data.source import TaskSource

__all__ = ["ALIASES", "SPLITS", "SplitRule", "canonical_split", "require_index", "split_name", "test_per_train"]


@dataclass(frozen=True)
class SplitRule:
    """What a split name means.

    Args:
        name: Name of the split.
        rule: The rule with its sizes, in one sentence.
        drawn_by: ``None``: one fixed split. ``"index"``: ten published splits, chosen by their number. ``"seed"``: the
            seed of the run draws the split. ``"index or seed"``: the given number is the seed of the split; without a
            number, the seed of the run is.
        test_per_train: Returns the number of test examples per example that is not tested, which the interval over
            resampled splits needs; None for a fixed split.
    """

    name: str
    rule: str
    drawn_by: Literal["index", "seed", "index or seed"] | None = None
    test_per_train: Callable[[TaskSource], float] | None = None

    @property
    def has_index(self) -> bool:
        """Whether a number selects one of several splits of this name."""
        return self.drawn_by in ("index", "index or seed")

    @property
    def follows_seed(self) -> bool:
        """Whether a run without a number draws the split with its own seed."""
        return self.drawn_by in ("seed", "index or seed")


def _of_disjoint(task: TaskSource) -> float:
    if task.name.endswith("/lp"):
        return 10 / 85
    if task.name == "disease/nc":  # balanced classes in validation and test
        return 254 / 748
    return 15 / 70


def _of_class_random(task: TaskSource) -> float:
    """The interval estimates how much splits have in common by the share of the nodes that are tested.

    This split leaves most nodes out, so the share is that of all nodes, not of training and test nodes.
    """
    if task.nodes is None:
        raise ValueError(f"{task.name} has the split class-random, but its number of nodes is not stated")
    return 1000 / (task.nodes - 1000)


def _of_48_32_20(task: TaskSource) -> float:
    return 20 / 48


SPLITS: dict[str, SplitRule] = {
    rule.name: rule
    for rule in (
        SplitRule(
            "public",
            "Planetoid's split: 20 training nodes per class, 500 validation and 1,000 test nodes.",
        ),
        SplitRule(
            "legacy",
            "Planetoid's split with 1,000 validation nodes, as in the paper's released code.",
        ),
        SplitRule(
            "class-random",
            "20 random training nodes per class, then 500 validation and 1,000 test nodes among the others.",
            "index or seed",
            _of_class_random,
        ),
        SplitRule(
            "hgcn",
            "HGCN's split with seed 1234: of edges 85/5/10 %; of airport's nodes it overlaps.",
        ),
        SplitRule(
            "disjoint",
            "A random split without overlap: of edges 85/5/10 %, of nodes 70/15/15 % (disease/nc: 748/42/254).",
            "seed",
            _of_disjoint,
        ),
        SplitRule(
            "official_splits",
            "The ten published splits of the nodes, about 48/32/20 %.",
            "index",
            _of_48_32_20,
        ),
        SplitRule(
            "fresh_splits",
            "A random split of the nodes, 48/32/20 %, not stratified, like the published ones.",
            "index or seed",
            _of_48_32_20,
        ),
    )
}
"""The splits of the shipped graph tasks, by name."""

ALIASES = {"official": "public", "legacy": "hgcn"}
"""Older names of splits, for tasks that have no split of the older name itself. They keep their meaning."""


def canonical_split(split: str, splits: Iterable[str]) -> str:
    """Return the current name of a split of a task that has ``splits``; an unknown name is returned unchanged.

    Example:
        >>> canonical_split("legacy", ["disjoint", "hgcn"]), canonical_split("legacy", ["public", "legacy"])
        ('hgcn', 'legacy')
    """
    known = tuple(splits)
    alias = ALIASES.get(split)
    return alias if alias in known and split not in known else split


def require_index(split: str, index: int | None) -> None:
    """Check that ``index`` may select a split of this name. An unknown name is not checked.

    Raises:
        ValueError: The split has no numbers, or the number is negative.
    """
    if index is None or split not in SPLITS:
        return
    if not SPLITS[split].has_index:
        numbered = ", ".join(name for name, rule in SPLITS.items() if rule.has_index)
        raise ValueError(f"the split {split} has no number, but {index} was given; splits with numbers: {numbered}")
    if index < 0:
        raise ValueError(f"the number of a split must be at least 0, got {index}")


def split_name(recipe: str) -> str:
    """Return the split of a recipe: the longest known split name that is the recipe's name or its part before a hyphen.

    A second recipe on a split has a suffix after a hyphen. Of an unknown name, the part before the first hyphen is
    returned.

    Example:
        >>> [split_name(name) for name in ("legacy", "legacy-deep", "class-random", "class-random-deep")]
        ['legacy', 'legacy', 'class-random', 'class-random']
    """
    found = [name for name in (*SPLITS, *ALIASES) if recipe == name or recipe.startswith(f"{name}-")]
    return max(found, key=len, default=recipe.partition("-")[0])


def test_per_train(task: TaskSource, split: str) -> float | None:
    """Return the number of test examples per training example where runs may have different splits of one name.

    Args:
        task: A task on a shipped graph.
        split: Name of the split.

    Returns:
        None for a fixed split, and for an unknown name.

    Example:
        >>> from lresnet.data.registry import TASKS
        >>> round(test_per_train(TASKS["cora/nc"], "class-random"), 2), test_per_train(TASKS["cora/nc"], "public")
        (0.59, None)
    """
    rule = SPLITS.get(canonical_split(split, task.splits))
    return None if rule is None or rule.test_per_train is None else rule.test_per_train(task)


test_per_train.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it where a test imports it
