"""The disk of a taxonomy: colours of branches, and the order of names."""

import numpy as np
import torch

from lresnet import Lorentz
from lresnet.data import hierarchy_task
from lresnet.plots.embedding import disk_embedding, general_first, largest_branches
from lresnet.runs.embedding import Embedding


def task_of(rows: list[tuple[str, str]]):  # type: ignore[no-untyped-def]
    task = hierarchy_task(rows)
    return task, task.graph.names  # type: ignore[union-attr]


def test_the_largest_branch_is_split_until_there_are_enough() -> None:
    rows = [("big", "root"), ("small", "root"), ("tiny", "root")]
    rows += [(kind, "big") for kind in ("left", "right")]
    sizes = {"left": 30, "right": 20, "small": 10}
    rows += [(f"{kind} {i}", kind) for kind, count in sizes.items() for i in range(count)]
    task, names = task_of([*rows, ("left 0", "small")])
    branch, tops = largest_branches(task, 3)
    assert [names[top] for top in tops] == ["left", "right", "small"]
    of = {name: int(number) for name, number in zip(names, branch, strict=True)}
    assert np.bincount(branch).tolist() == [31, 21, 11, 3]
    assert of["left 0"] == of["left"] == 0  # it is below small, too
    assert {name for name, number in of.items() if number == 3} == {"root", "big", "tiny"}


def test_no_branch_is_below_another_one_and_four_are_not_split_into_too_many() -> None:
    rows = [(kind, "shop") for kind in ("audio", "food", "fashion", "garden", "sport")]
    rows += [("earphones", "audio"), ("earphones", "sport")]
    rows += [(f"sport {kind}", "sport") for kind in "abcd"]
    rows += [(f"{kind} {i}", kind) for kind in ("earphones", "food", "fashion", "garden") for i in range(20)]
    rows += [(f"sport {kind} {i}", f"sport {kind}") for kind in "abcd" for i in range(20)]
    task, names = task_of(rows)
    branch, tops = largest_branches(task, 6)
    assert [names[top] for top in tops] == ["sport", "audio", "food", "fashion", "garden"]
    branch, tops = largest_branches(task, 8)
    found = {names[top] for top in tops}
    assert found == {"audio", "food", "fashion", "garden", *(f"sport {kind}" for kind in "abcd")}
    assert (np.bincount(branch)[:-1] > 0).all()


def test_branches_that_are_never_enough_are_the_first_choice_with_most() -> None:
    task, names = task_of([(f"{kind}{i}", f"{kind}{i - 1}" if i else "root") for kind in "ab" for i in range(30)])
    branch, tops = largest_branches(task, 6)
    assert [names[top] for top in tops] == ["a0", "b0"]
    assert np.bincount(branch).tolist() == [30, 30, 1]


def test_the_disk_has_the_branches_as_classes_and_a_chain_has_none() -> None:
    manifold = Lorentz(-1.0)
    for rows, classes in (
        ([(f"{kind}{i}", f"{kind}{i - 1}" if i else "root") for kind in "ab" for i in range(30)], True),
        ([(f"a{i}", f"a{i - 1}") for i in range(1, 30)], False),
    ):
        task, names = task_of(rows)
        nodes = Embedding("some", "node", torch.randn(len(names), 2), manifold, names, edges=task.parents)
        found = disk_embedding(nodes, "some", task)
        assert found.order is not None
        assert found.order.tolist() == general_first(task).tolist()
        assert found.classes == (("a0", "b0", "other nodes") if classes else ())
        assert ("Colours show the largest branches." in found.note) == classes
