"""The table ood from artificial lines: what counts, what stands next to it, and what the page says about it."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from rich.console import Console
from scipy import stats

from lresnet.runs.statistics import mean_interval
from lresnet_paper.comparisons import compare_methods
from lresnet_paper.pages.claims import HOLDS, NOT_MEASURED, PARTLY, REFUTED, UNDECIDED, Claim, answer_claims
from lresnet_paper.pages.html_page import html_page
from lresnet_paper.pages.ood_page import (
    Cell,
    detection_counts,
    detection_differences,
    first_protocol,
    mean_detection_differences,
    mean_score_differences,
    ood_answers,
    ood_markdown,
    ood_reading,
    ood_runs,
    ood_tables,
    ood_terminal,
    score_differences,
    spearman,
)
from lresnet_paper.pages.planned import missing_sentences
from lresnet_paper.pages.results_page import markdown_page
from lresnet_paper.results import aggregate
from lresnet_paper.tables import paper_detection, paper_figure

NOTE = "not the official images"
TRAININGS = [(images, network) for images in ("cifar10", "cifar100") for network in ("r20", "r32")]
SETS = ("places", "svhn", "textures")


def line(cell: str, method: str, seed: int, auroc: float | None, **change: Any) -> dict[str, Any]:
    record = {"table": "ood", "cell": cell, "method": method, "protocol": "fast", "seed": seed, "split": None}
    record |= {"stage": "final", "config": {}, "value": auroc, "validation": None, "note": NOTE}
    if auroc is not None:
        scores = {"origin_distance": {"auroc": auroc - 2 + seed / 10}, "boundary_distance": {"auroc": auroc + seed - 1}}
        metrics = {"auroc": auroc, "fpr95": 100 - auroc, "aupr": auroc + 5, "accuracy": 90.0 + seed, "scores": scores}
        record |= {"metrics": metrics, "norm_confidence": {"spearman": 0.5 + seed / 100, "pearson": 0.4}}
    return record | change


def table(gain: float, cells: int = 12, **change: Any) -> list[dict[str, Any]]:
    """Return runs in which Lorentz is better than euclidean by about ``gain`` and equals space, in the first cells."""
    names = [f"{images}/{ood}/{network}" for images, network in TRAININGS for ood in SETS][:cells]
    offsets = {"lorentz": gain, "euclidean": 0.0, "space": gain}
    return [
        line(cell, method, seed, 80 + offset + seed + (method == "lorentz") * (seed - 1) / 50, **change)
        for cell in names
        for method, offset in offsets.items()
        for seed in (0, 1, 2)
    ]


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_the_papers_values() -> None:
    assert paper_detection("cifar100/textures/r32", "poincare") == {"fpr95": 84.2, "auroc": 68.8, "aupr": 91.5}
    assert paper_figure("ood", "cifar100/textures/r32", "lorentz") == (69.1, None)
    assert paper_figure("ood", "cifar10/svhn/r20", "tangent") == (None, None)
    assert paper_detection("cifar10/svhn/r44", "lorentz") == paper_detection("cifar10/mars/r20", "lorentz") == {}


def test_differences_are_paired_over_the_seeds_that_both_have() -> None:
    cell = "cifar10/svhn/r20"
    runs = [line(cell, "lorentz", seed, value) for seed, value in enumerate((81.0, 82.0, 85.0, 99.0, None))]
    runs += [line(cell, "euclidean", seed, value) for seed, value in enumerate((80.0, 81.5, 83.0))]
    runs += [line(cell, "euclidean", 9, 10.0), line("cifar10/r20", "lorentz", 1000, None, stage="search")]
    found = detection_differences(ood_runs(runs))
    assert found == {(Cell("fast", "cifar10", "svhn", "r20"), "euclidean"): mean_interval([1.0, 0.5, 2.0])}
    (difference,) = score_differences(ood_runs(runs), "lorentz", "boundary_distance").values()
    assert difference.mean == pytest.approx(statistics.fmean((-1, 0, 1, 2)))
    assert score_differences(ood_runs(runs), "lorentz", "softmax") == {}


def test_the_first_protocol_counts_and_a_network_counts_once() -> None:
    runs = ood_runs(table(0.0, 3) + table(5.0, 3, protocol="paper", norm_confidence={"spearman": -1.0, "pearson": 0}))
    assert {cell.protocol for cell in runs} == {"fast", "paper"}
    assert {cell.protocol for cell in first_protocol(runs)} == {"fast"}
    assert spearman(runs, "lorentz") == {"cifar10/r20": mean_interval([0.5, 0.51, 0.52])}
    assert Cell("fast", "cifar10", "svhn", "r20").training == "cifar10/r20"


def test_a_result_without_a_published_deviation_has_no_verdict_and_keeps_its_note() -> None:
    runs = [line("cifar10/svhn/r20", "lorentz", seed, 80.0 + seed) for seed in (0, 1)]
    (result,) = aggregate(runs)
    assert (result.mean, result.n, result.paper_mean, result.paper_std) == (80.5, 2, 90.8, None)
    assert (result.verdict, result.as_dict()["note"]) == ("", NOTE)
    (official,) = aggregate([run | {"note": ""} for run in runs])
    assert official.verdict == ""
    (other,) = aggregate([run | {"table": "gnn", "note": None} for run in runs])
    assert "note" not in other.as_dict()


def test_a_training_is_one_test_over_its_sets() -> None:
    values = {"places": (1.0, 2.0, 6.0), "svhn": (-1.0, 0.0, 3.0), "textures": (3.0, 4.0, 0.0)}
    runs = [
        line(f"cifar10/{name}/r20", method, seed, 80.0 + (gain if method == "lorentz" else 0.0))
        for name, gains in values.items()
        for seed, gain in enumerate(gains)
        for method in ("lorentz", "euclidean")
    ]
    runs.append(line("cifar10/svhn/r20", "lorentz", 3, 99.0))  # a seed that neither the baseline nor other sets have
    expected = mean_interval([statistics.fmean(own) for own in zip(*values.values(), strict=True)])
    assert expected is not None
    (found,) = mean_detection_differences(ood_runs(runs)).values()
    assert (found.mean, found.low, found.n) == pytest.approx((expected.mean, expected.low, 3))
    (found,) = mean_score_differences(ood_runs(runs), "lorentz", "origin_distance").values()
    assert (found.mean, found.n) == (pytest.approx(-1.9), 3)


def test_differences_agree_with_the_comparisons_of_the_table() -> None:
    runs = table(2.0)
    ours = {(str(cell), other): found for (cell, other), found in detection_differences(ood_runs(runs)).items()}
    for one in compare_methods(runs):
        found = ours[one.cell, one.method]
        assert (found.mean, found.low, found.n) == pytest.approx(
            (one.difference.mean, one.difference.low, one.difference.n)
        )


def test_cells_are_counted_after_the_correction_and_a_lower_fpr95_is_better() -> None:
    for metric in ("auroc", "fpr95"):
        assert detection_counts(ood_runs(table(2.0)), metric) == {"space": (0, 0, 12), "euclidean": (12, 0, 12)}
        assert detection_counts(ood_runs(table(-2.0)), metric)["euclidean"] == (0, 12, 12)


# --- tables and sentences ---------------------------------------------------------------------------------------------


def test_a_table_has_our_rows_the_papers_and_the_quoted_ones_with_the_note() -> None:
    by_title = {found.title: found for found in ood_tables(table(2.0, 6))}
    assert [title for title in by_title if " against " in title] == [f"cifar10 against {name}, fast" for name in SETS]
    svhn = by_title["cifar10 against svhn, fast"]
    assert svhn.note == f"svhn: {NOTE}."
    assert svhn.columns == ("FPR95 R20", "FPR95 R32", "AUROC R20", "AUROC R32", "AUPR R20", "AUPR R32")
    assert [row.label for row in svhn.rows] == [
        "euclidean (3)",
        "space (3)",
        "lorentz (3)",
        "paper: lorentz",
        "quoted: euclidean",
        "quoted: hnnpp_head",
        "quoted: poincare",
    ]
    assert svhn.rows[0].cells == ("19.0 ± 1.0", "19.0 ± 1.0", "81.0 ± 1.0", "81.0 ± 1.0", "86.0 ± 1.0", "86.0 ± 1.0")
    assert svhn.rows[3].cells == ("39.0", "56.9", "90.8", "88.0", "98.0", "97.4")


def test_missing_runs_are_empty_and_diverged_ones_are_named() -> None:
    cell = "cifar10/svhn/r20"
    runs = [line(cell, "lorentz", 0, 81.0), line(cell, "lorentz", 1, None)]
    runs += [line(cell, "tangent", seed, None) for seed in (0, 1)]
    detection, accuracy = ood_tables(runs)  # a single network has no interval, so there are no differences
    assert [(row.label, row.cells[2:4]) for row in detection.rows[:2]] == [
        ("tangent (0 of 2)", ("diverged", "")),
        ("lorentz (1 of 2)", ("81.0", "")),
    ]
    assert [row.cells for row in accuracy.rows] == [("diverged", ""), ("90.0", "")]


def test_accuracies_and_other_scores_have_tables() -> None:
    accuracy, scores = ood_tables(table(2.0, 3))[-2:]
    assert accuracy.rows[-1] == ("lorentz (3)", ("91.0 ± 1.0", ""), "ours")
    assert scores.columns == ("places R20", "svhn R20", "textures R20")
    by_name = {row.name: row.cells for row in scores.rows}
    half = stats.t.ppf(0.975, 2) * stats.sem([-2.0, -1.9, -1.8])
    assert by_name["lorentz, origin_distance"] == (f"-1.9 ± {half:.1f}",) * 3
    assert set(by_name) == {
        f"{m}, {s}" for m in ("euclidean", "space", "lorentz") for s in ("origin_distance", "boundary_distance")
    }


def test_the_differences_have_tables() -> None:
    by_training, by_score, by_cell = ood_tables(table(2.0))[:3]
    assert by_training.columns == ("minus euclidean", "minus space")
    assert by_training.rows[0] == ("cifar10/r20", ("+2.00 ± 0.05 (3), better", "+0.00 ± 0.05 (3)"), "ours")
    assert by_score.columns == ("cifar10/r20", "cifar10/r32", "cifar100/r20", "cifar100/r32")
    assert [row.name for row in by_score.rows] == ["lorentz, origin_distance", "lorentz, boundary_distance"]
    assert by_score.rows[0].cells == ("-1.90 ± 0.25 (3), worse",) * 4
    assert by_score.rows[1].cells == ("+0.00 ± 2.48 (3)",) * 4
    assert by_cell.columns == ("minus space", "minus euclidean")
    assert len(by_cell.rows) == 12
    assert by_cell.rows[0] == ("cifar10/places/r20", ("+0.00 ± 0.05 (3)", "+2.00 ± 0.05 (3), better"), "ours")


def test_the_answers_count_trainings_and_cells() -> None:
    *_, residual, scores = ood_answers(table(2.0))
    assert residual.startswith(
        "Does the Lorentz residual help detection (protocol fast)? Its AUROC, averaged over the three OOD sets, is "
        "better than that of the Euclidean baseline in 4 of 4 trainings and worse in 0. Set by set, against "
    )
    better = "AUROC is better in 12 of 12 cells and worse in 0; FPR95 is better in 12 and worse in 0."
    none = "AUROC is better in 0 of 12 cells and worse in 0; FPR95 is better in 0 and worse in 0."
    assert f"against euclidean: {better}" in residual
    assert f"against space: {none}" in residual
    assert "Some comparisons rest on 3 seeds, which can only show large differences." in residual
    assert residual.endswith("what stands in for them: places, svhn, textures.")
    assert "stands in" not in ood_answers([run | {"note": ""} for run in table(2.0)])[-2]
    assert (
        "The score origin_distance of lorentz networks is better than the energy in 0 of 4 trainings and worse in 4"
        in (scores)
    )
    assert "set by set, it is better in 0 of 12 cells and worse in 12. The score boundary_distance" in scores
    worse = ood_answers(table(-2.0))[-2]
    assert "in 0 of 4 trainings and worse in 4." in worse
    assert "AUROC is better in 0 of 12 cells and worse in 12; FPR95 is better in 0 and worse in 12." in worse
    assert "in 0 of 4 trainings and worse in 0." in ood_answers(table(0.0))[-2]
    assert "in 2 of 4 trainings and worse in 2." in ood_answers(table(2.0, 6) + table(-2.0)[54:])[-2]


def test_planned_trainings_without_runs_are_counted() -> None:
    part, other = ood_answers(table(2.0))[:2]
    assert part == "The protocol fast is incomplete: 36 of 68 planned trainings have been run."
    assert other == "None of the 24 trainings planned for the protocol paper has been run yet."
    more = [
        line(f"{images}/svhn/{network}", method, seed, 80.0)
        for images, network in TRAININGS
        for method in ("parallel_transport", "tangent", "lorentz", "euclidean", "space")
        for seed in range(5)
    ]
    assert not any("incomplete" in sentence for sentence in ood_answers(table(2.0) + more))
    half = ood_answers(table(2.0) + more[:50])[0]
    assert half.endswith("56 of 68 planned trainings have been run. Complete: cifar10/r20, cifar10/r32.")


def test_planned_classifications_without_runs_are_counted() -> None:
    assert missing_sentences("image_classification", table(2.0)) == []  # none of it was run
    some = [run for run in accuracies(1.0) if run["seed"] < 2 and run["method"] != "euclidean"]
    fast, *rest = missing_sentences("image_classification", some)
    assert fast == "The protocol fast is incomplete: 16 of 38 planned trainings have been run."
    planned = {"fast-learned": 10, "long": 12, "long-cutmix": 12, "paper": 12}
    assert rest == [
        f"None of the {n} trainings planned for the protocol {name} has been run yet." for name, n in planned.items()
    ]


def test_a_set_smaller_than_the_draws_has_another_chance_level() -> None:
    def note(count: int) -> str:
        runs = [run | {"metrics": run["metrics"] | {"n_id": 10000, "n_ood": count}} for run in table(2.0, 1)]
        return next(found.note for found in ood_tables(runs) if " against " in found.title)

    assert note(1200) == (
        f"places: {NOTE}. This set has only 1,200 images, so all of them are used without draws. A random score then "
        "has an AUPR of 89.3 here and of 83.3 in the paper; do not compare the two AUPR values."
    )
    assert note(2000) == f"places: {NOTE}."


def test_the_reading_reports_how_far_other_definitions_are() -> None:
    assert "whole sets" not in ood_reading(table(2.0, 1))
    runs = table(2.0, 1)
    for seed, run in enumerate(runs):
        own = run["metrics"]
        own |= {"fpr95_first": own["fpr95"] + 0.1 * (seed == 2), "full": {"auroc": own["auroc"] - 0.2 * (seed == 3)}}
    text = ood_reading([*runs, line("cifar10/svhn/r20", "lorentz", 9, None)])
    assert "the two differ by at most 0.10 points" in text
    assert "AUROC on whole sets (at most 0.20 points away)" in text
    assert text in ood_markdown(runs)


def test_each_protocol_has_its_answers_and_its_differences() -> None:
    runs = table(2.0, 3) + table(-2.0, 3, protocol="paper")
    named = [("protocol fast" in text, "protocol paper" in text) for text in ood_answers(runs)]
    assert named == [(True, False), (False, True)] + [(True, False)] * 2 + [(False, True)] * 2
    page = markdown_page(runs)
    assert "| cifar10/svhn/r20 | +0.00 ± 0.05 (3) | -2.00 ± 0.05 (3), worse |" in page
    assert "| cifar10/svhn/r20 | +0.00 ± 0.05 (3) | +2.00 ± 0.05 (3), better |" in page
    assert page.count("## ood\n") == 1
    assert "### cifar10/svhn/r20, fast" not in page  # its own tables replace the general ones


def test_without_runs_there_is_no_section() -> None:
    assert ood_answers([]) == ood_tables([]) == []
    assert ood_markdown([]) == ""
    assert ood_tables([line("disease/lp", "lorentz", 0, 80.0, table="gnn")]) == []


def test_the_terminal_output_fits_eighty_columns() -> None:
    runs = table(2.0) + [run | {"method": "parallel_transport"} for run in table(1.0)]
    console = Console(width=80, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(ood_terminal(runs))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "parallel_transport (9)" in text  # three methods' lines under one name
    assert "quoted: hnnpp_head" in text
    assert NOTE in text


def test_the_html_page_answers_first_and_labels_quoted_rows() -> None:
    runs = table(2.0)
    page = html_page(runs, answer_claims(aggregate(runs), (), runs))
    section = page[page.index('<section id="ood"') :]
    assert section.index('<p class="verdict">The AUROC of the Lorentz residual') < section.index("<figure")
    assert f"<figcaption>svhn: {NOTE}.</figcaption>" in section
    assert section.count("<td>quoted</td>") == 3 * len(SETS) * 2
    assert "not the quoted Poincaré ResNet" in section


# --- claims -----------------------------------------------------------------------------------------------------------

ROBUST, NORM = "up to 0.5 % better, and more robust", "embedding norm correlates with confidence"


def accuracies(gain: float) -> list[dict[str, Any]]:
    """Return runs on classification in which the Lorentz residual is better by ``gain``."""
    others = dict.fromkeys(("parallel_transport", "tangent", "space", "euclidean"), 90.0)
    values = others | {"lorentz": 90.0 + gain}
    return [
        {"table": "image_classification", "cell": cell, "method": m, "protocol": "fast", "seed": s, "value": v}
        for cell in ("cifar10", "cifar100")
        for m, v in values.items()
        for s in range(5)
    ]


def answers(runs: list[dict[str, Any]]) -> dict[str, Claim]:
    return {claim.sentence: claim for claim in answer_claims(aggregate(runs), (), runs)}


def test_half_a_table_of_classification_is_no_answer() -> None:
    half = [run for run in accuracies(1.0) if run["seed"] < 2]
    claim = answers(half + table(2.0))[ROBUST]
    assert claim.verdict == UNDECIDED
    assert (
        "over the best other residual is 1.00 points, on cifar10 (2 of 2 cells measured). Some planned"
        in claim.evidence
    )


@pytest.mark.parametrize(
    ("accuracy", "detection", "verdict"),
    [
        (1.0, table(2.0), HOLDS),
        (1.0, table(-2.0), PARTLY),
        (0.0, table(2.0), PARTLY),
        (0.0, table(-2.0), REFUTED),
        (1.0, table(2.0, 6) + table(-2.0)[54:], PARTLY),
        (0.0, table(2.0, 6) + table(-2.0)[54:], REFUTED),  # as often worse as better
        (0.0, table(2.0, 6) + table(0.0)[54:], PARTLY),
        (1.0, table(2.0, 6), UNDECIDED),
        (1.0, [], UNDECIDED),
        (0.0, [], UNDECIDED),  # it may hold partly
    ],
)
def test_better_and_more_robust(accuracy: float, detection: list[dict[str, Any]], verdict: str) -> None:
    found = answers(accuracies(accuracy) + detection)[ROBUST]
    assert found.verdict == verdict
    assert ("Robustness has not been measured." in found.evidence) == (not detection)
    assert ("is better than that of euclidean in" in found.evidence) == bool(detection)


def test_the_norm_and_confidence() -> None:
    runs = table(0.0)
    found = answers(runs)[NORM]
    assert found.verdict == HOLDS
    assert "cifar100/r32 +0.51 (+0.49 to +0.53)." in found.evidence
    assert "For the Euclidean baseline: cifar10/r20" in found.evidence
    assert found.evidence.endswith("The correlation is therefore not particular to hyperbolic networks.")
    assert answers(table(0.0, 6))[NORM].verdict == UNDECIDED  # two of four trainings
    flat = [run | {"norm_confidence": {"spearman": run["seed"] - 1.0, "pearson": 0.0}} for run in runs]
    assert answers(flat)[NORM].verdict == REFUTED
    assert answers(runs[:27] + flat[27:])[NORM].verdict == PARTLY
    assert answers(accuracies(1.0))[NORM] == Claim("images", NORM, NOT_MEASURED, "")
