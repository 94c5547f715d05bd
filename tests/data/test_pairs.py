"""Numbers of pairs of nodes."""

from itertools import combinations, combinations_with_replacement

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lresnet.data.pairs import PairNumbering, both_directions, kth_free, undirected


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("diagonal", [False, True])
def test_pairs_are_numbered_row_by_row(nodes: int, diagonal: bool) -> None:
    pairs = list((combinations_with_replacement if diagonal else combinations)(range(nodes), 2))
    numbering = PairNumbering(nodes, diagonal)
    assert numbering.total == len(pairs)
    tensor = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    numbers = torch.arange(len(pairs))
    assert torch.equal(numbering.encode(tensor), numbers)
    assert torch.equal(numbering.encode(tensor.flip(0)), numbers)
    assert torch.equal(numbering.decode(numbers), tensor)


def test_pairs_of_a_large_graph_are_exact() -> None:
    numbering = PairNumbering(3_000_000)
    pairs = torch.tensor([[0, 2_999_998, 1_234_567], [2_999_999, 2_999_999, 1_234_568]])
    assert torch.equal(numbering.decode(numbering.encode(pairs)), pairs)
    assert numbering.encode(pairs)[1] == numbering.total - 1


@given(st.sets(st.integers(0, 30)), st.integers(31, 40))
def test_kth_free_number_skips_the_taken_ones(taken: set[int], total: int) -> None:
    free = [number for number in range(total) if number not in taken]
    numbers = torch.tensor(sorted(taken), dtype=torch.int64)
    assert kth_free(numbers, torch.arange(len(free))).tolist() == free


def test_undirected_edges_and_both_directions() -> None:
    edges = torch.tensor([[2, 0, 1, 1, 2], [0, 2, 0, 1, 0]])
    once = undirected(edges, 3)
    assert once.tolist() == [[0, 0, 1], [1, 2, 1]]
    assert both_directions(once, 3).tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
