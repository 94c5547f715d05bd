"""Comparisons of methods: same seeds on both sides, the right interval, verdicts after Holm's correction."""

from typing import Any

import pytest
from scipy import stats

from lresnet.data import load_task
from lresnet_paper.comparisons import compare_methods, resampling_ratio
from lresnet_paper.pages.results_page import markdown_page
from lresnet_paper.pages.text_tables import verdict_text
from lresnet_paper.results import aggregate, method_key

LORENTZ = [97.0, 98.0, 96.0, 97.5]


def run(method: str, seed: int, value: float | None, **more: Any) -> dict[str, Any]:
    place = {"table": "gnn", "cell": "disease/lp", "protocol": "legacy"}
    return place | {"method": method, "seed": seed, "value": value, "validation": 90.0} | more


def records(shift: float, other: str = "none", **more: Any) -> list[dict[str, Any]]:
    pairs = list(enumerate(zip(LORENTZ, (0.1, -0.1, 0.05, 0.0), strict=True)))
    lorentz = [run("lorentz", seed, value, **more) for seed, (value, _) in pairs]
    return lorentz + [run(other, seed, value - shift + noise, **more) for seed, (value, noise) in pairs]


@pytest.mark.parametrize(("shift", "verdict"), [(1.0, "better"), (-1.0, "worse"), (0.0, "no difference shown")])
def test_mean_interval_and_verdict(shift: float, verdict: str) -> None:
    (found,) = compare_methods(records(shift))
    expected = stats.ttest_1samp([shift - e for e in (0.1, -0.1, 0.05, 0.0)], 0.0).confidence_interval()
    assert found.difference.mean == pytest.approx(shift - 0.0125)
    assert (found.difference.low, found.difference.high) == pytest.approx((expected.low, expected.high))
    assert (found.difference.n, found.method, found.verdict) == (4, "none", verdict)


def test_only_shared_finished_final_runs_count() -> None:
    lines = records(1.0)
    lines += [run("none", 9, 50.0), run("lorentz", 8, None), run("none", 8, 50.0), run("none", 7, 1.0, stage="search")]
    (found,) = compare_methods(lines)
    assert found.difference.n == 4


def test_the_interval_is_wider_where_every_run_has_its_own_split() -> None:
    (fixed,) = compare_methods(records(1.0, cell="airport/nc"))
    (resampled,) = compare_methods(records(1.0, cell="airport/nc", protocol="disjoint"))
    assert resampled.difference.mean == fixed.difference.mean
    assert resampled.difference.half_width == pytest.approx(fixed.difference.half_width * (1 + 4 * 15 / 70) ** 0.5)
    (published,) = compare_methods(records(1.0, cell="chameleon/nc", protocol="official_splits-released"))
    assert published.difference.half_width == pytest.approx(fixed.difference.half_width * (1 + 4 * 20 / 48) ** 0.5)


def splits_and_seeds(method: str, values: list[list[float]], **more: Any) -> list[dict[str, Any]]:
    """Return runs with ``values[split][seed]``."""
    place = {"cell": "chameleon", "table": "graph_transformer", "protocol": "fresh_splits-sgformer"} | more
    return [
        run(method, seed, value, split=split, **place)
        for split, own in enumerate(values)
        for seed, value in enumerate(own)
    ]


def test_several_seeds_on_a_split_are_averaged_first() -> None:
    ours = [[44.0, 45.0, 46.0], [41.0, 40.0, 42.0], [43.0, 44.0, 42.5]]
    theirs = [[43.0, 44.5, 44.0], [42.0, 40.5, 41.0], [42.0, 41.0, 44.0]]
    (found,) = compare_methods(splits_and_seeds("lorentz", ours) + splits_and_seeds("euclidean", theirs))
    means = [sum(a - b for a, b in zip(*rows, strict=True)) / 3 for rows in zip(ours, theirs, strict=True)]
    error = stats.tstd(means) * (1 / 3 + 20 / 48) ** 0.5
    assert found.difference.n == 3
    assert found.difference.mean == pytest.approx(sum(means) / 3)
    assert found.difference.half_width == pytest.approx(stats.t.ppf(0.975, 2) * error)
    once = [[own[0]] * 3 for own in ours], [[own[0]] * 3 for own in theirs]  # the same seed three times tells no more
    (repeated,) = compare_methods(splits_and_seeds("lorentz", once[0]) + splits_and_seeds("euclidean", once[1]))
    single = [[own[0]] for own in ours], [[own[0]] for own in theirs]
    (alone,) = compare_methods(splits_and_seeds("lorentz", single[0]) + splits_and_seeds("euclidean", single[1]))
    assert repeated.difference == alone.difference


def test_a_seed_that_one_method_lacks_counts_for_neither() -> None:
    ours, theirs = [[44.0, 90.0], [41.0], [43.0]], [[43.0], [42.0], [41.0, 0.0]]
    (found,) = compare_methods(splits_and_seeds("lorentz", ours) + splits_and_seeds("euclidean", theirs))
    assert found.difference.mean == pytest.approx((1.0 - 1.0 + 2.0) / 3)


@pytest.mark.parametrize(("shift", "expected"), [(0.0, True), (-0.8, False), (5.0, True)])
def test_non_inferior_is_an_interval_above_the_margin(shift: float, expected: bool) -> None:
    theirs = [[43.0], [42.0], [41.0], [44.0]]
    ours = [[own[0] + shift + e] for own, e in zip(theirs, (0.2, -0.2, 0.1, -0.1), strict=True)]
    (found,) = compare_methods(splits_and_seeds("lorentz", ours) + splits_and_seeds("euclidean", theirs))
    assert (found.margin, found.non_inferior) == (1.0, expected)
    assert found.non_inferior is (found.difference.low > -1.0)


def test_without_a_margin_in_the_recipe_nothing_is_said_about_non_inferiority() -> None:
    (found,) = compare_methods(records(1.0))
    assert (found.margin, found.non_inferior) == (None, None)
    assert verdict_text(found) == "better"


def test_the_limit_of_a_method_follows_it() -> None:
    names = ["euclidean", "lorentz_limit", "lorentz", "unknown_limit", "space"]
    assert sorted(names, key=method_key) == ["space", "lorentz", "lorentz_limit", "euclidean", "unknown_limit"]


def test_the_results_page_shows_the_limit_and_non_inferiority() -> None:
    theirs = [[43.0], [42.0], [41.0], [44.0]]
    ours = [[own[0] + e] for own, e in zip(theirs, (0.2, -0.2, 0.1, -0.1), strict=True)]
    methods = ("euclidean", "lorentz_limit")
    lines = splits_and_seeds("lorentz", ours) + [one for name in methods for one in splits_and_seeds(name, theirs)]
    page = markdown_page(lines)
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| lorentz, K → 0")]
    assert [row[-1] for row in rows] == ["no difference shown, non-inferior |"]
    assert not any(one.verdict for one in aggregate(lines))  # the paper has other splits


def test_the_ratio_of_test_to_training_nodes_is_that_of_a_disjoint_split() -> None:
    task = load_task("disease_tree/nc", split="disjoint")
    ratio = len(task.test_index) / len(task.train_index)
    assert resampling_ratio("disease_tree/nc", "disjoint") == pytest.approx(ratio)
    assert resampling_ratio("airport/nc", "legacy") is None
    assert resampling_ratio("cora/nc", "class-random-deep") == pytest.approx(1000 / 1708)
    assert resampling_ratio("pubmed/nc", "class-random") == pytest.approx(1000 / 18717)
    assert resampling_ratio("chameleon", "fresh_splits") == pytest.approx(20 / 48)


def test_runs_on_different_splits_are_never_compared() -> None:
    lorentz = [run("lorentz", seed, 90.0 + seed, cell="cora/nc", protocol="public") for seed in range(3)]
    for protocol in ("class-random", "legacy"):
        others = [run("none", seed, 80.0, cell="cora/nc", protocol=protocol) for seed in range(3)]
        assert compare_methods(lorentz + others) == []
    numbered = [
        run(name, 0, 80.0, protocol="class-random", cell="cora/nc", split=k)
        for k, name in enumerate(("lorentz", "none") * 3)
    ]
    assert compare_methods(numbered) == []  # no two runs share a split


def test_seeds_on_one_split_are_averaged_before_the_splits_are_compared() -> None:
    where = {"cell": "chameleon/nc", "protocol": "fresh_splits"}
    one_seed = [
        run(name, 0, value, split=split, **where)
        for name, values in (("lorentz", (90.0, 93.0, 91.0)), ("none", (90.0, 91.0, 90.0)))
        for split, value in enumerate(values)
    ]
    more = [line | {"seed": seed, "value": line["value"] + seed} for line in one_seed for seed in (1, 2)]
    (alone,), (averaged,) = compare_methods(one_seed), compare_methods(one_seed + more)
    assert averaged.difference == alone.difference
    assert averaged.difference.n == 3


def test_the_comparisons_of_one_table_are_corrected_together() -> None:
    (alone,) = compare_methods(records(0.2))
    assert (alone.verdict, alone.difference.p < 0.05) == ("better", True)
    many = [line for cell in "abcd" for line in records(0.2, cell=cell)]
    assert {one.verdict for one in compare_methods(many)} == {"no difference shown"}
    apart = [line for table in "abcd" for line in records(0.2, table=table)]
    assert {one.verdict for one in compare_methods(apart)} == {"better"}


def test_any_method_can_be_compared() -> None:
    (found,) = compare_methods(records(1.0), "none")
    assert (found.method, found.verdict) == ("lorentz", "worse")
    assert found.difference.mean == pytest.approx(-0.9875)


def test_the_results_page_shows_the_difference_and_the_verdict() -> None:
    page = markdown_page(records(1.0))
    assert "| 96.14 ± 0.80 | 4 | 90.00 | 96.8 ± 0.4 | no difference shown, -0.66 | +0.99 ± 0.14 (4) | better |" in page
    assert "| better, +0.99 | none 96.14 |" in page
