import numpy as np
import pytest

from lresnet.data.shuffle import front_of_shuffle


@pytest.mark.parametrize(
    ("n", "k"),
    [(1, 1), (2, 1), (2, 2), (10, 3), (1000, 1000), (1024, 7), (1025, 7), (65_536, 10), (70_000, 500), (300_000, 4000)],
)
@pytest.mark.parametrize("seed", [0, 1234])
def test_the_front_is_that_of_the_whole_shuffled_list(n: int, k: int, seed: int) -> None:
    whole = np.arange(n)
    np.random.RandomState(seed).shuffle(whole)
    assert np.array_equal(front_of_shuffle(np.random.RandomState(seed), n, k), whole[:k])


def test_it_starts_where_the_generator_stands() -> None:
    whole, ours = np.random.RandomState(5), np.random.RandomState(5)
    for rng in (whole, ours):
        rng.shuffle(np.arange(77))
    expected = np.arange(5000)
    whole.shuffle(expected)
    assert np.array_equal(front_of_shuffle(ours, 5000, 20), expected[:20])


def test_a_list_too_long_for_32_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="2\\^32"):
        front_of_shuffle(np.random.RandomState(0), 2**32 + 1, 1)
