"""The paper's claims, answered from figures made for the purpose."""

import dataclasses
import tomllib
from importlib import resources

import pytest

from lresnet_paper.pages.claims import (
    HOLDS,
    IN_PART,
    JUDGES,
    NO_DIFFERENCE,
    NOT_MEASURED,
    REFUTED,
    Claim,
    answer_claims,
    claims_markdown,
)
from lresnet_paper.results import Figure
from lresnet_paper.tables import paper_figure

METHODS = ("none", "parallel_transport", "tangent", "space", "lorentz")


def paper() -> dict[str, object]:
    return tomllib.loads(resources.files("lresnet_paper").joinpath("tables.toml").read_text())


def figure(table: str, cell: str, method: str, mean: float, **change: object) -> Figure:
    base = Figure(table, cell, method, "legacy", mean, 0.1, 10, 0, mean, None, None)
    return dataclasses.replace(base, **change)


def as_printed(table: str, methods: tuple[str, ...]) -> list[Figure]:
    """Our figures, were they the paper's to the last digit."""
    columns = paper()[table]["columns"]  # type: ignore[index]
    return [figure(table, cell, m, paper_figure(table, cell, m)[0] or 0.0) for cell in columns for m in methods]


def answers(
    figures: list[Figure],
    numerics: list[dict[str, object]] | None = None,
    benchmarks: list[dict[str, object]] | None = None,
) -> dict[str, Claim]:
    return {claim.sentence: claim for claim in answer_claims(figures, numerics or [], (), benchmarks or [])}


def test_every_judge_has_its_sentence_and_without_results_none_is_answered() -> None:
    sentences = [sentence for own in paper()["claims"].values() for sentence in own]  # type: ignore[attr-defined]
    claims = answer_claims([])
    assert [claim.sentence for claim in claims] == sentences
    assert set(JUDGES) <= set(sentences)
    assert {(claim.verdict, claim.evidence) for claim in claims} == {(NOT_MEASURED, "")}


def test_with_the_papers_own_figures_its_claims_about_graphs_hold() -> None:
    found = answers(as_printed("gnn", METHODS) + as_printed("graph_transformer", ("euclidean", *METHODS[1:])))
    for sentence in (
        "up to 4.2 % better (chameleon)",
        "up to 10.9 % over other residual methods",
        "up to 2.5 % better",
        "hyperbolic beats the Euclidean SGFormer in 2 of 3",
        "lorentz is best in 8 of 10 cells",
    ):
        assert found[sentence].verdict == HOLDS, found[sentence]


def test_a_count_is_settled_as_soon_as_it_can_be() -> None:
    sentence = "lorentz is best in 8 of 10 cells"
    printed = as_printed("gnn", METHODS)
    two = [f for f in printed if f.cell in ("disease/lp", "disease/nc")]
    assert answers(two)[sentence].verdict == NOT_MEASURED
    assert "2 of 2 cells measured (disease/lp, disease/nc)" in answers(two)[sentence].evidence
    worst = [dataclasses.replace(f, mean=0.0) if f.method == "lorentz" else f for f in printed]
    cells = ("disease/lp", "disease/nc", "airport/lp")
    assert answers([f for f in worst if f.cell in cells[:2]])[sentence].verdict == NOT_MEASURED
    assert answers([f for f in worst if f.cell in cells])[sentence].verdict == REFUTED
    assert (
        answers([f for f in printed if f.method != "space"])[sentence] == answers([])[sentence]
    )  # a method is missing


def test_one_node_classification_in_which_another_is_best_refutes_best_in_every_one() -> None:
    sentence = "better than the base in 9 of 10, best in every node classification"
    printed = as_printed("gnn", METHODS)
    ours = [dataclasses.replace(f, mean=99.0) if f.method == "lorentz" else f for f in printed]
    assert answers(ours)[sentence].verdict == HOLDS
    assert answers(ours[:15])[sentence].verdict == NOT_MEASURED
    spoilt = [dataclasses.replace(f, mean=99.5) if (f.cell, f.method) == ("cora/nc", "none") else f for f in ours]
    assert answers(spoilt)[sentence].verdict == REFUTED
    assert "best in 5 of 6" in answers(spoilt)[sentence].evidence


def test_no_answer_waits_for_the_cell_whose_features_were_not_published() -> None:
    sentence = "up to 10.9 % over other residual methods"
    printed = as_printed("gnn", METHODS)
    modest = [dataclasses.replace(f, mean=90.0 + (f.method == "lorentz")) for f in printed if f.cell != "disease/nc"]
    assert answers(modest)[sentence].verdict == REFUTED
    assert "9 of 10 cells" in answers(modest)[sentence].evidence
    assert answers([f for f in modest if f.cell != "squirrel/nc"])[sentence].verdict == NOT_MEASURED


def test_the_tree_stands_in_for_the_unpublished_cell_and_that_is_said() -> None:
    sentence, words = "lorentz is best in 8 of 10 cells", "disease_tree/nc stands in for disease/nc"
    printed = as_printed("gnn", METHODS)
    tree = [figure("gnn", "disease_tree/nc", m, 90.0, protocol="disjoint") for m in METHODS]
    without = [f for f in printed if f.cell != "disease/nc"]
    assert answers(without + tree)[sentence].evidence.endswith(f"disease_tree/nc); {words}")
    assert "highest mean, the twin aside, in 8 of 10 cells" in answers(without + tree)[sentence].evidence
    for other in ("up to 10.9 % over other residual methods", "better than the base in 9 of 10, best in every node "):
        (found,) = [claim for claim in answer_claims(without + tree) if claim.sentence.startswith(other)]
        assert found.evidence.endswith(words)
    assert answers(printed + tree)[sentence] == answers(printed)[sentence]


def test_most_hyperbolic_transformers_must_be_ahead_of_the_euclidean_one() -> None:
    sentence, methods = "hyperbolic beats the Euclidean SGFormer in 2 of 3", ("euclidean", *METHODS[1:])
    printed = as_printed("graph_transformer", methods)
    assert answers(printed)[sentence].evidence.endswith("2 of 3 cells measured; of 4: chameleon 4, squirrel 3, actor 1")
    lone = [dataclasses.replace(f, mean=40.0 + (f.method == "lorentz")) for f in printed]
    assert answers(lone)[sentence].verdict == REFUTED
    assert answers([f for f in lone if f.cell == "actor"])[sentence].verdict == NOT_MEASURED
    assert answers([f for f in printed if f.method != "space"])[sentence].evidence == ""


def test_leads_that_a_paired_test_does_not_show_are_called_so() -> None:
    sentence, methods = "hyperbolic beats the Euclidean SGFormer in 2 of 3", ("euclidean", *METHODS[1:])
    cells = ("actor", "chameleon", "squirrel")
    for spread, verdict, shown in ((0.1, HOLDS, 4), (30.0, NO_DIFFERENCE, 0)):
        runs = [
            {
                "table": "graph_transformer",
                "cell": cell,
                "method": m,
                "protocol": "legacy",
                "seed": seed,
                "value": value,
            }
            for cell in cells
            for m in methods
            for seed in range(4)
            for value in [40.0 + (m != "euclidean") + spread * (seed % 2) * (m == "euclidean")]
        ]
        figures = [figure("graph_transformer", cell, m, 40.0 + (m != "euclidean")) for cell in cells for m in methods]
        claim = {c.sentence: c for c in answer_claims(figures, [], runs, [])}[sentence]
        assert claim.verdict == verdict
        assert claim.evidence.endswith(f"by more than chance: actor {shown}, chameleon {shown}, squirrel {shown}")


def test_of_two_protocols_the_whole_one_counts_and_of_equals_the_first_by_name() -> None:
    sentence, methods = "hyperbolic beats the Euclidean SGFormer in 2 of 3", ("euclidean", *METHODS[1:])
    first = [
        figure("graph_transformer", "actor", m, 40.0 + (m != "euclidean"), protocol="official_splits") for m in methods
    ]
    second = [dataclasses.replace(f, protocol="official_splits-released", mean=40.0) for f in first]
    assert answers(second + first)[sentence].evidence.endswith("actor 4")
    assert answers(second + first[1:])[sentence].evidence.endswith("actor 0")


def test_the_curvature_matters_where_means_vary_more_than_the_papers() -> None:
    sentence, settings = "not sensitive to the curvature", ("-0.5", "-1.0", "-1.5", "-2.0", "trainable")
    cells = paper()["curvature"]["columns"]  # type: ignore[index]
    printed = [
        figure("curvature", cell, "lorentz", mean, paper_mean=mean, paper_std=0.1, curvature=K)
        for cell in cells
        for K in settings
        for mean in (paper_figure("curvature", cell, "lorentz", K)[0] or 0.0,)
    ]
    assert answers(printed)[sentence].verdict == HOLDS
    assert answers(printed[:5])[sentence].verdict == NOT_MEASURED
    assert "in the paper by 1.0" in answers(printed[:5])[sentence].evidence  # by its own cell that varies most
    published = [f for f in printed if f.cell != "disease/nc"]
    assert answers(published)[sentence].verdict == HOLDS  # what cannot be had is not waited for
    assert answers([f for f in published if f.cell != "airport/nc"])[sentence].verdict == NOT_MEASURED
    moved = [dataclasses.replace(printed[0], mean=printed[0].mean - 3), *printed[1:]]
    assert answers(moved)[sentence].verdict == REFUTED
    assert answers(printed[:4])[sentence].evidence == ""


@pytest.mark.parametrize(
    ("gaps", "order", "direction"),
    [
        ((5.0, -5.0), HOLDS, HOLDS),
        ((5.0, 5.0), HOLDS, REFUTED),
        ((5.0, 0.001), HOLDS, NO_DIFFERENCE),
        ((0.001, -0.001), NO_DIFFERENCE, NO_DIFFERENCE),
        ((0.001,), NO_DIFFERENCE, NOT_MEASURED),
        ((5.0,), HOLDS, NOT_MEASURED),
    ],
)
def test_directions_of_parallel_transport(gaps: tuple[float, ...], order: str, direction: str) -> None:
    figures = [
        figure("commutativity", f"cell {k}/lp", method, mean)
        for k, gap in enumerate(gaps)
        for method, mean in (("parallel_transport", 80 + gap), ("parallel_transport_reversed", 80.0))
    ]
    found = answers(figures)
    assert found["commutative, unlike parallel transport"].verdict == order
    assert found["which direction of parallel transport is better is unpredictable"].verdict == direction


def test_speed_counts_only_by_clocks_that_wait() -> None:
    def seconds(protocol: str, slow: float) -> list[Figure]:
        times = {"parallel_transport": slow, "tangent": 2 * slow, "lorentz": 0.001}
        return [figure("runtime", "2048/10000", m, t, protocol=protocol) for m, t in times.items()]

    sentence = "over 2000 times faster"
    found = answers(seconds("eager", 0.004) + seconds("eager, not synchronised", 9.0))[sentence]
    assert found.verdict == REFUTED
    assert (
        found.evidence
        == "at most 4.0 times as fast as both, our fastest form against the slowest of each, at 2048/10000"
    )
    both = seconds("eager", 0.004) + seconds("compiled", 0.009)
    assert answers(both)[sentence].evidence.startswith("at most 9.0 times")
    assert answers(seconds("eager", 2.5))[sentence].verdict == HOLDS
    assert answers(seconds("eager, not synchronised", 9.0))[sentence].verdict == NOT_MEASURED


def test_speed_is_answered_by_benchmarks_at_the_papers_sizes_too() -> None:
    def lines(cell: str, hardware: str, part: str = "forward") -> list[dict[str, object]]:
        times = {"parallel_transport": 0.03, "tangent": 0.02, "lorentz": 0.001}
        base = {"table": "benchmarks", "study": "residual", "cell": cell, "hardware": hardware, "part": part}
        return [base | {"method": method, "value": seconds} for method, seconds in times.items()]

    sentence, cell = "over 2000 times faster", "4096/100000"
    missing = {"study": "residual", "part": "forward", "cell": cell, "method": "lorentz", "value": None}
    found = answers([], None, [*lines(cell, "a GPU"), missing])[sentence]
    assert found.verdict == REFUTED
    assert (
        found.evidence
        == "at most 20.0 times as fast as both, our fastest form against the slowest of each, at 4096/100000 on a GPU"
    )
    for strange in (lines("256/4000", "a GPU"), lines(cell, "a GPU", "backward"), [{"study": "copy"}]):
        assert answers([], None, strange)[sentence].verdict == NOT_MEASURED
    two = [*lines(cell, "a GPU")[:2], *lines(cell, "a CPU")[2:]]  # never one device against another
    assert answers([], None, two)[sentence].verdict == NOT_MEASURED
    table = [
        figure("runtime", cell, m, t) for m, t in (("parallel_transport", 9.0), ("tangent", 9.0), ("lorentz", 3.0))
    ]
    assert answers(table, None, lines(cell, "a GPU"))[sentence].evidence.startswith("at most 3.0 times")


def test_stability_of_our_form_and_of_the_printed_one() -> None:
    def line(ours: float, textbook: float | None, **change: object) -> dict[str, object]:
        base = {"method": "lorentz", "dtype": "float32", "norm": 100.0, "ours": ours, "floor": 1e-6}
        return base | {"textbook": textbook} | change

    sentence = "numerically stable by the lemma"
    assert answers([], [line(2e-6, 12.0)])[sentence].verdict == IN_PART
    assert answers([], [line(2e-6, None)])[sentence].verdict == IN_PART
    assert answers([], [line(2e-6, 3e-6)])[sentence].verdict == HOLDS
    assert answers([], [line(2e-4, 3e-6)])[sentence].verdict == REFUTED
    assert answers([], [{"origin, ours": 1.0}])[sentence].verdict == NOT_MEASURED
    tangent = [line(1e-6, error, method="tangent", norm=norm) for norm, error in ((0.1, 1e-9), (1e4, 5.0))]
    assert answers([], tangent)["mapping errors of tangent methods far from the origin"].verdict == HOLDS


def test_images_wait_for_robustness() -> None:
    sentence = "up to 0.5 % better, and more robust"
    printed = as_printed("image_classification", METHODS[1:])
    assert answers(printed)[sentence].verdict == NOT_MEASURED
    assert "+0.50 points" in answers(printed)[sentence].evidence
    assert "(means of" not in answers(printed)[sentence].evidence
    more = [dataclasses.replace(f, n=5) if f.method == "lorentz" else f for f in printed]
    assert (
        "points over the best other residual on cifar100 (means of 5 and of 10 runs)"
        in answers(more)[sentence].evidence
    )
    worse = [dataclasses.replace(f, mean=50.0) if f.method == "lorentz" else f for f in printed]
    assert answers(worse)[sentence].verdict == NOT_MEASURED
    assert answers(worse)[sentence].evidence.startswith(
        "24.30 points behind the best other residual on cifar100, the least in 2 of 2 cells"
    )


def test_the_papers_split_counts_and_methods_that_diverged_do_not() -> None:
    sentence = "lorentz is best in 8 of 10 cells"
    best = [figure("gnn", "airport/nc", m, 90.0 + (m == "lorentz")) for m in METHODS]
    other = [dataclasses.replace(f, protocol="disjoint", mean=90.0 - (f.method == "lorentz")) for f in best]
    for figures in (best + other, other + best):
        assert (
            answers(figures)[sentence].evidence == "highest mean, the twin aside, in 1 of 1 cells measured (airport/nc)"
        )
    lost = dataclasses.replace(best[1], n=0, mean=float("nan"), std=float("nan"), diverged=5)
    assert answers([best[0], lost, *best[2:]])[sentence].evidence == ""


def test_markdown_has_a_row_a_claim() -> None:
    claims = answer_claims(as_printed("gnn", METHODS))
    lines = claims_markdown(claims).splitlines()
    assert len(lines) == 4 + len(claims)
    assert lines[4].startswith(
        "| gnn | lorentz is best in 8 of 10 cells | holds | highest mean, the twin aside, in 8 of 10"
    )
