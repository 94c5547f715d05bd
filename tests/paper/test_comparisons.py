"""Comparisons of methods: same seeds on both sides, the right interval, verdicts after Holm's correction."""

from typing import Any

import pytest
from scipy import stats

from lresnet.data import load_task
from lresnet_paper.comparisons import compare_methods, resampling_ratio
from lresnet_paper.pages.results_page import markdown_page

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


def test_the_ratio_of_test_to_training_nodes_is_that_of_a_disjoint_split() -> None:
    task = load_task("disease_tree/nc", split="disjoint")
    ratio = len(task.test_index) / len(task.train_index)
    assert resampling_ratio("disease_tree/nc", "disjoint") == pytest.approx(ratio)
    assert resampling_ratio("airport/nc", "legacy") is None
    assert resampling_ratio("cora/nc", "class-random-deep") == pytest.approx(1000 / 140)
    assert resampling_ratio("pubmed/nc", "class-random") == pytest.approx(1000 / 60)
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
