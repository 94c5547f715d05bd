"""The table ood from lines made for the purpose: what is counted, what stands beside it, and what is said of it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy import stats

from lresnet import cli
from lresnet_paper.pages.claims import HOLDS, IN_PART, NOT_MEASURED, REFUTED, Claim, answer_claims
from lresnet_paper.pages.html_page import html_page
from lresnet_paper.pages.ood_answers import ood_answers, other_definitions
from lresnet_paper.pages.ood_figures import (
    Cell,
    Gap,
    first_protocol,
    ood_runs,
    residual_gaps,
    score_gaps,
    spearman,
    training_residual_gaps,
    training_score_gaps,
)
from lresnet_paper.pages.ood_table import ood_markdown, ood_sheets, ood_terminal
from lresnet_paper.pages.paired import paired_differences
from lresnet_paper.pages.planned import missing_sentences
from lresnet_paper.results import aggregate
from lresnet_paper.tables import paper_detection, paper_figure

NOTE = "Not the official images."
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
    """Lorentz better than euclidean by ``gain`` give or take a little, and just like space, in the first cells."""
    names = [f"{images}/{ood}/{network}" for images, network in TRAININGS for ood in SETS][:cells]
    offsets = {"lorentz": gain, "euclidean": 0.0, "space": gain}
    return [
        line(cell, method, seed, 80 + offset + seed + (method == "lorentz") * (seed - 1) / 50, **change)
        for cell in names
        for method, offset in offsets.items()
        for seed in (0, 1, 2)
    ]


def ood_sentences(runs: list[dict[str, Any]]) -> list[str]:
    return [" ".join(filter(None, said)) for said in ood_answers(runs)]


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_what_the_paper_prints() -> None:
    assert paper_detection("cifar100/textures/r32", "poincare") == {"fpr95": 84.2, "auroc": 68.8, "aupr": 91.5}
    assert paper_figure("ood", "cifar100/textures/r32", "lorentz") == (69.1, None)
    assert paper_figure("ood", "cifar10/svhn/r20", "tangent") == (None, None)
    assert paper_detection("cifar10/svhn/r44", "lorentz") == paper_detection("cifar10/mars/r20", "lorentz") == {}


def test_an_interval_is_students() -> None:
    values = [0.3, 0.5, 1.1]
    gap = Gap.of(values)
    assert gap is not None
    low, high = stats.t.interval(0.95, 2, statistics.fmean(values), stats.sem(values))
    assert (gap.mean, gap.low, gap.high) == pytest.approx((statistics.fmean(values), low, high))
    assert Gap.of([1.0]) is None
    assert [Gap(m, m - 1, m + 1).sign for m in (2, 0.5, -2)] == [1, 0, -1]


def test_gaps_are_paired_over_the_seeds_that_both_have() -> None:
    cell = "cifar10/svhn/r20"
    runs = [line(cell, "lorentz", seed, value) for seed, value in enumerate((81.0, 82.0, 85.0, 99.0, None))]
    runs += [line(cell, "euclidean", seed, value) for seed, value in enumerate((80.0, 81.5, 83.0))]
    runs += [line(cell, "euclidean", 9, 10.0), line("cifar10/r20", "lorentz", 1000, None, stage="search")]
    (gap,) = residual_gaps(ood_runs(runs), "euclidean").values()
    assert gap == Gap.of([1.0, 0.5, 2.0])
    assert residual_gaps(ood_runs(runs), "space") == {}
    (gap,) = score_gaps(ood_runs(runs), "lorentz", "boundary_distance").values()
    assert gap.mean == pytest.approx(statistics.fmean((-1, 0, 1, 2)))
    assert score_gaps(ood_runs(runs), "lorentz", "softmax") == {}


def test_of_two_protocols_the_first_counts_and_a_network_counts_once() -> None:
    runs = ood_runs(table(0.0, 3) + table(5.0, 3, protocol="paper", norm_confidence={"spearman": -1.0, "pearson": 0}))
    assert {cell.protocol for cell in runs} == {"fast", "paper"}
    assert {cell.protocol for cell in first_protocol(runs)} == {"fast"}
    assert spearman(runs, "lorentz") == {"cifar10/r20": Gap.of([0.5, 0.51, 0.52])}
    assert Cell("fast", "cifar10", "svhn", "r20").training == "cifar10/r20"


def test_a_figure_on_other_images_than_the_papers_has_no_verdict_and_says_why() -> None:
    runs = [line("cifar10/svhn/r20", "lorentz", seed, 80.0 + seed) for seed in (0, 1)]
    (figure,) = aggregate(runs)
    assert (figure.mean, figure.n, figure.paper_mean, figure.paper_std) == (80.5, 2, 90.8, None)
    assert (figure.verdict, figure.as_dict()["note"]) == ("", NOTE)
    (official,) = aggregate([run | {"note": ""} for run in runs])
    assert official.verdict == "worse"
    (other,) = aggregate([run | {"table": "gnn", "note": None} for run in runs])
    assert "note" not in other.as_dict()


# --- tables and sentences ---------------------------------------------------------------------------------------------


def test_a_sheet_has_our_rows_the_papers_and_the_quoted_ones_with_the_caveat() -> None:
    sheets = ood_sheets(table(2.0, 6))
    assert [sheet.title for sheet in sheets[:3]] == [f"cifar10 against {name}, fast" for name in SETS]
    svhn = sheets[1]
    assert svhn.note == f"svhn: {NOTE}"
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


def test_what_is_missing_is_left_empty_and_what_diverged_is_named() -> None:
    cell = "cifar10/svhn/r20"
    runs = [line(cell, "lorentz", 0, 81.0), line(cell, "lorentz", 1, None)]
    runs += [line(cell, "tangent", seed, None) for seed in (0, 1)]
    sheet, accuracy, *rest = ood_sheets(runs)
    assert [(row.label, row.cells[2:4]) for row in sheet.rows[:2]] == [
        ("tangent (0 of 2)", ("diverged", "")),
        ("lorentz (1 of 2)", ("81.0", "")),
    ]
    assert [row.cells for row in accuracy.rows] == [("diverged", ""), ("90.0", "")]
    assert rest == []  # one network shows no spread


def test_accuracies_and_other_scores_have_sheets_of_their_own() -> None:
    accuracy, scores = ood_sheets(table(2.0, 3))[3:]
    assert accuracy.rows[-1] == ("lorentz (3)", ("91.0 ± 1.0", ""), "ours")
    assert scores.columns == ("places R20", "svhn R20", "textures R20")
    by_name = {row.name: row.cells for row in scores.rows}
    half = stats.t.ppf(0.975, 2) * stats.sem([-2.0, -1.9, -1.8])
    assert by_name["lorentz, origin_distance"] == (f"-1.9 ± {half:.1f}",) * 3
    assert set(by_name) == {
        f"{m}, {s}" for m in ("euclidean", "space", "lorentz") for s in ("origin_distance", "boundary_distance")
    }


def test_the_sentences_answer_first_and_count_cells() -> None:
    *_, residual, scores = ood_sentences(table(2.0))
    assert residual.startswith(
        "Does the Lorentz residual help detection (fast)? Against its Euclidean twin, over the three sets together: "
        "better in 4 of 4 trainings; set by set better in 12 and worse in 0 of 12 cells. AUROC, the mean over the "
        "three sets, Lorentz minus euclidean: cifar10/r20 +2.00 ± 0.05 (n = 3), "
    )
    assert "; minus space: cifar10/r20 +0.00 ± 0.05 (n = 3), " in residual
    assert (
        "against euclidean, AUROC better in 12 of 12 cells and worse in 0, FPR95 better in 12 and worse in 0"
        in residual
    )
    assert "against space, AUROC better in 0 of 12 cells and worse in 0, FPR95 better in 0 and worse in 0" in residual
    assert "not corrected for their number; 3 seeds show large differences only." in residual
    assert residual.endswith("Stand-ins, see the notes: places, svhn, textures.")
    assert "Stand-ins" not in ood_sentences([run | {"note": ""} for run in table(2.0)])[-2]
    assert "(fast)? origin_distance: worse in 4 of 4 trainings; boundary_distance: no difference shown. AUROC" in scores
    assert "origin_distance cifar10/r20 -1.90 ± 0.25 (n = 3), " in scores
    assert "(better in 0 of 12 cells, worse in 12); boundary_distance" in scores
    worse = ood_sentences(table(-2.0))[-2]
    assert "together: worse in 4 of 4 trainings; set by set better in 0 and worse in 12 of 12 cells." in worse
    assert "AUROC better in 0 of 12 cells and worse in 12, FPR95 better in 0 and worse in 12" in worse
    assert "together: no difference shown; set by set" in ood_sentences(table(0.0))[-2]
    mixed = ood_sentences(table(2.0, 6) + table(-2.0)[54:])[-2]
    assert "together: better in 2 and worse in 2 of 4 trainings; set by set" in mixed


def test_a_training_is_one_test_over_its_sets() -> None:
    values = {"places": (1.0, 2.0, 6.0), "svhn": (-1.0, 0.0, 3.0), "textures": (3.0, 4.0, 0.0)}
    runs = [
        line(f"cifar10/{name}/r20", method, seed, 80.0 + (gain if method == "lorentz" else 0.0))
        for name, gains in values.items()
        for seed, gain in enumerate(gains)
        for method in ("lorentz", "euclidean")
    ]
    runs.append(line("cifar10/svhn/r20", "lorentz", 3, 99.0))  # a seed that the twin has not, nor the other sets
    expected = Gap.of([statistics.fmean(own) for own in zip(*values.values(), strict=True)])
    assert expected is not None
    (found,) = training_residual_gaps(ood_runs(runs), "euclidean").values()
    assert (found.mean, found.low, found.n) == pytest.approx((expected.mean, expected.low, 3))
    (found,) = training_score_gaps(ood_runs(runs), "lorentz", "origin_distance").values()
    assert (found.mean, found.n) == (pytest.approx(-1.9), 3)


def test_what_the_recipes_plan_and_nobody_ran_is_counted() -> None:
    part, other = ood_sentences(table(2.0))[:2]
    assert part == "Not complete (fast): 36 of the 68 trainings that the recipes plan."
    assert other == "Not run yet (paper): the 24 trainings that the recipes plan."
    more = [
        line(f"{images}/svhn/{network}", method, seed, 80.0)
        for images, network in TRAININGS
        for method in ("parallel_transport", "tangent", "lorentz", "euclidean", "space")
        for seed in range(5)
    ]
    assert not any("Not complete" in sentence for sentence in ood_sentences(table(2.0) + more))
    half = ood_sentences(table(2.0) + more[:50])[0]
    assert half.endswith("56 of the 68 trainings that the recipes plan; complete: cifar10/r20, cifar10/r32.")


def test_so_it_is_for_classification() -> None:
    assert missing_sentences("image_classification", table(2.0)) == []  # nothing of it was run
    some = [run for run in accuracies(1.0) if run["seed"] < 2 and run["method"] != "euclidean"]
    fast, *rest = missing_sentences("image_classification", some)
    assert fast == "Not complete (fast): 16 of the 38 trainings that the recipes plan."
    planned = {"fast-learned": 10, "long": 12, "long-cutmix": 12, "paper": 12}
    assert rest == [f"Not run yet ({name}): the {n} trainings that the recipes plan." for name, n in planned.items()]


def test_a_set_smaller_than_the_draws_has_another_chance() -> None:
    def sized(count: int) -> list[dict[str, Any]]:
        runs = table(2.0, 1)
        return [run | {"metrics": run["metrics"] | {"n_id": 10000, "n_ood": count}} for run in runs]

    assert ood_sheets(sized(1200))[0].note == (
        f"places: {NOTE}; all 1,200, no draws, so AUPR by chance is 89.3 here and 83.3 in the paper: the two are not "
        "to be compared"
    )
    assert ood_sheets(sized(2000))[0].note == f"places: {NOTE}"


def test_the_other_definitions_are_said_to_be_close() -> None:
    assert other_definitions(table(2.0, 1)) == ""
    runs = table(2.0, 1)
    for seed, run in enumerate(runs):
        own = run["metrics"]
        own |= {"fpr95_first": own["fpr95"] + 0.1 * (seed == 2), "full": {"auroc": own["auroc"] - 0.2 * (seed == 3)}}
    words = other_definitions([*runs, line("cifar10/svhn/r20", "lorentz", 9, None)])
    assert "at most 0.10 points from what is shown" in words
    assert "AUROC on whole sets (at most 0.20 points away)" in words
    assert words in ood_markdown(runs)


def test_each_protocol_has_its_sentences_and_its_paired_rows(tmp_path: Path) -> None:
    runs = table(2.0, 3) + table(-2.0, 3, protocol="paper")
    named = [("(fast)" in sentence, "(paper)" in sentence) for sentence in ood_sentences(runs)]
    assert named == [(True, False), (False, True)] + [(True, False)] * 2 + [(False, True)] * 2
    (tmp_path / "ood.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    assert cli.main(["report", str(tmp_path), "--markdown", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text()
    assert "*cifar10/svhn/r20, paper*: Lorentz minus the other, paired (n = 3): worse than euclidean (-2.00 ±" in page
    assert "*cifar10/svhn/r20, fast*: Lorentz minus the other, paired (n = 3): better than euclidean (+2.00 ±" in page
    assert page.count("## ood") == 1
    assert "| cifar10/svhn/r20 | lorentz |" not in page  # the sheets stand in place of the plain table


def test_nothing_is_said_without_runs() -> None:
    assert ood_answers([]) == ood_sheets([]) == []
    assert ood_markdown([]) == ""
    assert ood_sheets([line("disease/lp", "lorentz", 0, 80.0, table="gnn")]) == []


def test_the_terminal_has_eighty_columns_and_loses_nothing() -> None:
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


def test_the_page_answers_first_and_labels_what_is_quoted() -> None:
    runs = table(2.0)
    page = html_page(runs, answer_claims(aggregate(runs), (), runs))
    section = page[page.index('<section id="ood"') :]
    assert section.index("Does the Lorentz residual help detection") < section.index("<figure>")
    assert f"<caption><span>svhn: {NOTE}</span></caption>" in section
    assert section.count("<td>quoted</td>") == 3 * len(SETS) * 2
    assert "not the quoted Poincaré ResNet" in section


# --- claims -----------------------------------------------------------------------------------------------------------

ROBUST, NORM = "up to 0.5 % better, and more robust", "embedding norm correlates with confidence"


def accuracies(gain: float) -> list[dict[str, Any]]:
    """Of the table of classification, in which the Lorentz residual is better by ``gain``."""
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
    assert claim.verdict == NOT_MEASURED
    assert "+1.00 points over the best other residual on cifar10, the most in 2 of 2 cells, with trainings to come" in (
        claim.evidence
    )


@pytest.mark.parametrize(
    ("accuracy", "detection", "verdict"),
    [
        (1.0, table(2.0), HOLDS),
        (1.0, table(-2.0), IN_PART),
        (0.0, table(2.0), IN_PART),
        (0.0, table(-2.0), REFUTED),
        (1.0, table(2.0, 6) + table(-2.0)[54:], IN_PART),
        (0.0, table(2.0, 6) + table(-2.0)[54:], REFUTED),  # as often worse as better
        (0.0, table(2.0, 6) + table(0.0)[54:], IN_PART),
        (1.0, table(2.0, 6), NOT_MEASURED),
        (1.0, [], NOT_MEASURED),
        (0.0, [], NOT_MEASURED),  # it may hold in part
    ],
)
def test_better_and_more_robust(accuracy: float, detection: list[dict[str, Any]], verdict: str) -> None:
    found = answers(accuracies(accuracy) + detection)[ROBUST]
    assert found.verdict == verdict
    assert ("robustness not measured yet" in found.evidence) == (not detection)
    assert ("better than euclidean in" in found.evidence) == bool(detection)


def test_the_norm_and_confidence() -> None:
    runs = table(0.0)
    found = answers(runs)[NORM]
    assert found.verdict == HOLDS
    assert "cifar100/r32 +0.51 (+0.49 to +0.53)" in found.evidence
    assert "of the Euclidean twin cifar10/r20" in found.evidence
    assert found.evidence.endswith("so it is not particular to hyperbolic networks")
    assert answers(table(0.0, 6))[NORM].verdict == NOT_MEASURED  # two of four trainings
    flat = [run | {"norm_confidence": {"spearman": run["seed"] - 1.0, "pearson": 0.0}} for run in runs]
    assert answers(flat)[NORM].verdict == REFUTED
    assert answers(runs[:27] + flat[27:])[NORM].verdict == IN_PART
    assert answers(accuracies(1.0))[NORM] == Claim("images", NORM, NOT_MEASURED, "")


def test_pairs_of_the_library_agree_with_those_of_the_sheet() -> None:
    runs = table(2.0)
    ours = {f"{c.images}/{c.ood}/{c.network}": gap for c, gap in residual_gaps(ood_runs(runs), "euclidean").items()}
    for difference in paired_differences(runs):
        if difference.method == "euclidean":
            gap = ours[difference.cell]
            assert (gap.mean, gap.low, gap.high) == pytest.approx((difference.mean, *difference.interval))
