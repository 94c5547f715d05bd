"""Paired differences: the same seed on both sides, Student's interval, a verdict that can go either way."""

import pytest
from scipy import stats

from lresnet_paper.pages.markdown_page import markdown_page
from lresnet_paper.pages.paired import PairedDifference, paired_differences, paired_sentence
from lresnet_paper.results import aggregate

LORENTZ = [97.0, 98.0, 96.0, 97.5]


def run(method, seed, value, **more):
    place = {"table": "gnn", "cell": "disease/lp", "protocol": "legacy"}
    return place | {"method": method, "seed": seed, "value": value} | more


def records(shift, noise=(0.1, -0.1, 0.05, 0.0)):
    pairs = list(enumerate(zip(LORENTZ, noise, strict=True)))
    return [run("lorentz", s, v) for s, (v, _) in pairs] + [run("none", s, v - shift + e) for s, (v, e) in pairs]


@pytest.mark.parametrize(("shift", "verdict"), [(1.0, "better"), (-1.0, "worse"), (0.0, "no difference shown")])
def test_mean_interval_and_verdict(shift, verdict):
    (difference,) = paired_differences(records(shift))
    expected = stats.ttest_1samp([shift - e for e in (0.1, -0.1, 0.05, 0.0)], 0.0).confidence_interval()
    assert difference.mean == pytest.approx(shift - 0.0125)
    assert difference.interval == pytest.approx((expected.low, expected.high))
    assert (difference.n, difference.method, difference.verdict) == (4, "none", verdict)


def test_only_shared_finished_final_runs_count():
    lines = records(1.0)
    lines += [run("none", 9, 50.0), run("lorentz", 8, None), run("none", 8, 50.0), run("none", 7, 1.0, stage="search")]
    (difference,) = paired_differences(lines)
    assert difference.n == 4


def test_the_page_shows_it():
    figures = aggregate([line | {"validation": 90.0} for line in records(1.0)])
    page = markdown_page(figures, paired_differences(records(1.0)))
    assert "Lorentz minus the other, paired (n = 4): better than none (+0.99 ± 0.14).\n" in page
    assert "| none 96.14 | better, +0.99 |" in page
    assert "+0.99" not in markdown_page(figures)
    here, *_ = figures
    notes = {(here.table, here.cell, here.protocol): "more", ("curvature", here.cell, here.protocol): "less"}
    assert "\nmore\n" in markdown_page(figures, notes=notes)
    assert "less" not in markdown_page(figures, notes=notes)


def test_how_many_pairs_is_said_from_the_fewest_to_the_most() -> None:
    found = [PairedDifference("gnn", "cora/nc", "legacy", f"m{n}", 1.0, (0.5, 1.5), n) for n in (9, 5, 10)]
    assert "paired (n = 5 to 10):" in paired_sentence(found)
