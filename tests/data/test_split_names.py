"""Names of splits: one table, older names, and the split of a protocol."""

import pytest

from lresnet.data.registry import TASKS
from lresnet.data.split_names import ALIASES, SPLITS, canonical_split, split_name, test_per_train


def test_every_split_of_every_task_is_in_the_table() -> None:
    assert {split for task in TASKS.values() for split in task.splits} == SPLITS.keys()


def test_a_split_has_a_ratio_of_test_to_training_examples_unless_it_is_fixed() -> None:
    for task in TASKS.values():
        for split in task.splits:
            assert (test_per_train(task, split) is None) == (SPLITS[split].drawn_by is None)


@pytest.mark.parametrize(
    ("protocol", "split"),
    [
        ("legacy", "legacy"),
        ("legacy-deep", "legacy"),
        ("class-random", "class-random"),
        ("class-random-deep", "class-random"),
        ("official_splits-released", "official_splits"),
        ("official", "official"),
        ("fresh_splits-released", "fresh_splits"),
        ("hgcn-plain", "hgcn"),
        ("publicity", "publicity"),
        ("long-cutmix", "long"),
    ],
)
def test_the_split_of_a_protocol(protocol: str, split: str) -> None:
    assert split_name(protocol) == split


def test_an_older_name_is_replaced_only_where_the_task_has_no_split_of_that_name() -> None:
    for task in TASKS.values():
        for older, now in ALIASES.items():
            found = canonical_split(older, task.splits)
            assert found == (older if older in task.splits else now if now in task.splits else older)
    assert canonical_split("legacy", TASKS["cora/nc"].splits) == "legacy"
    assert canonical_split("legacy", TASKS["airport/nc"].splits) == "hgcn"
