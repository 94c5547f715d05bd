"""The study of hierarchy completion: queries and negatives, baselines, one training of every family, resuming."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from lresnet.train.results import append_result, read_results
from lresnet_paper.__main__ import main
from lresnet_paper.completion import study
from lresnet_paper.completion.data import (
    NEGATIVE_KINDS,
    PROTOCOLS,
    TASKS,
    Cell,
    Nouns,
    make_cell,
    noun_subtree,
    sampled_negatives,
)
from lresnet_paper.completion.evaluation import completion_metrics, mean_reciprocal_rank
from lresnet_paper.completion.study import (
    arm_settings,
    chosen_settings,
    own_lines,
    planned_trainings,
    read_plan,
    run_study,
    run_untrained,
)
from lresnet_paper.completion.trained import _distances, _radius, train
from lresnet_paper.completion.untrained import untrained_names, untrained_scorers
from lresnet_paper.pages.completion_page import (
    _style,
    completion_page,
    completion_picture,
    curvature_answers,
    registered_contrasts,
)
from lresnet_paper.results import read_runs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "completion.jsonl"
EVALUATION = {"validation_pairs": 50, "test_pairs": 200}
NODES = 121


def tree() -> Nouns:
    """Return a tree whose glosses are the names of node and parent and the branch; nodes 4 to 12 have most children."""
    n = NODES
    parents = [-1, *((node - 1) // 3 for node in range(1, 40)), *(4 + node % 9 for node in range(40, n))]
    edges = torch.tensor([list(range(1, n)), parents[1:]])
    names = [f"word{node}" for node in range(n)]
    branch = [node if node < 4 else 0 for node in range(n)]
    for node in range(4, n):
        branch[node] = branch[parents[node]]
    rows = [row for node in range(1, n) for row in (node, node, node)]
    columns = [column for node in range(1, n) for column in (node, parents[node], n + branch[node])]
    counts = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n + 4))
    vocabulary = [*names, *(f"branch{number}" for number in range(4))]
    files = np.array([min(node, 3) % 2 for node in branch], dtype=np.int64)
    return Nouns("tree", edges, names, files, counts, vocabulary)


@pytest.fixture(scope="module")
def cells() -> dict[str, Cell]:
    nouns = tree()
    return {task: make_cell(nouns, task, 0, EVALUATION, validation=0.2, test=0.2) for task in TASKS}


def true_pairs(nouns: Nouns, task: str) -> set[tuple[int, int]]:
    return set(map(tuple, (nouns.edges if task == "leaves" else nouns.closure).T.tolist()))


# --- plan -------------------------------------------------------------------------------------------------------------


def test_plan_gives_every_arm_a_search_of_the_same_size():
    plan = read_plan()
    for form in plan["forms"]:
        search = planned_trainings(plan, form)
        counts = Counter((one.cell, one.protocol, one.arm, one.dimension) for one in search)
        assert set(counts.values()) == {plan["search_trainings"]}
        assert {one.stage for one in search} == {"search"}
        assert {one.split for one in search} == {plan["search_split"]}
        assert plan["search_split"] not in plan["splits"]
    assert len(plan["splits"]) == 10


def test_plan_names_known_arms_protocols_and_contrasts():
    plan = read_plan()
    for form in plan["forms"].values():
        for task in TASKS:
            assert set(form["arms"][task]) <= plan["arms"].keys()
            assert set(form["protocols"][task]) <= set(PROTOCOLS)
            shallow = [arm for arm in form["arms"][task] if plan["arms"][arm].get("family") == "shallow"]
            assert not (task == "leaves" and shallow)  # they know nothing about a held-out leaf
    for contrast in plan["contrasts"]:
        assert {contrast["ours"], contrast["theirs"]} <= set(plan["forms"]["full"]["arms"]["closure"])


# --- queries ----------------------------------------------------------------------------------------------------------


def test_no_method_sees_an_edge_of_a_held_out_leaf(cells):
    cell = cells["leaves"]
    held_out = set(cell.split.test[0].tolist()) | set(cell.split.val[0].tolist())
    for seen in (cell.message_edges, cell.split.train, cell.split.edges):
        assert not held_out & set(seen.flatten().tolist())


@pytest.mark.parametrize("task", TASKS)
def test_held_out_pairs_are_not_in_training(cells, task):
    cell = cells[task]
    train_pairs = set(map(tuple, cell.split.train.T.tolist()))
    ranked = {
        (q, c) if one.side == "ancestor" else (c, q)
        for part in (cell.val, cell.test)
        for one in part
        for q, c in one.answers.T.tolist()
    }
    assert ranked
    assert not ranked & train_pairs
    assert ranked <= true_pairs(cell.nouns, task)


def test_cells_move_to_a_device(cells):
    cell = cells["closure"]
    moved = cell.to("cpu:0")
    assert moved is not cell
    assert all(torch.equal(a, b) for a, b in zip(moved.split, cell.split, strict=True))
    for one, other in zip(moved.test, cell.test, strict=True):
        assert one.side == other.side
        assert torch.equal(one.answers, other.answers)
        assert torch.equal(one.known, other.known)
        assert all(torch.equal(one.negatives[kind], other.negatives[kind]) for kind in NEGATIVE_KINDS)


@pytest.mark.parametrize("task", TASKS)
def test_negatives_are_wrong_and_of_their_kind(cells, task):
    cell = cells[task]
    true = true_pairs(cell.nouns, task)
    for one in cell.test:
        for kind in NEGATIVE_KINDS:
            checked = 0
            for (query, answer), drawn in zip(one.answers.T.tolist(), one.negatives[kind].tolist(), strict=True):
                own = [other for other in drawn if other >= 0]
                checked += len(own)
                pairs = {(query, other) if one.side == "ancestor" else (other, query) for other in own}
                assert not pairs & true
                assert query not in own
                if kind == "same_file":
                    assert {cell.nouns.files[other] for other in own} <= {cell.nouns.files[answer]}
            assert checked


def test_degree_matched_negatives_are_nearer_in_degree_than_uniform_ones():
    rng = np.random.default_rng(0)
    values = np.arange(5000, dtype=np.int64)
    answers = torch.stack([torch.arange(50), torch.arange(50) * 90])
    drawn = sampled_negatives(answers, answers, values, "degree_matched", rng)
    assert bool(((drawn - answers[1][:, None]).abs() <= 200).all())


def test_metrics_equal_a_ranking_by_hand(cells):
    cell = cells["closure"]
    n = cell.nouns.num_nodes
    scores = torch.randn(n, n, generator=torch.Generator().manual_seed(3)).round(decimals=1)  # with ties
    true = true_pairs(cell.nouns, "closure")
    ranks = []
    for one in cell.test:
        for query, answer in one.answers.T.tolist():
            rank = 1.0
            for other in range(n):
                pair = (query, other) if one.side == "ancestor" else (other, query)
                if other != query and pair not in true:
                    rank += float(scores[query, other] > scores[query, answer])
                    rank += float(scores[query, other] == scores[query, answer]) / 2
            ranks.append(rank)
    found = completion_metrics(lambda queries, side: scores[queries], cell.test, n)
    assert found["mrr"] == pytest.approx(100 * np.mean([1 / rank for rank in ranks]), rel=1e-9)
    assert found["hits@10"] == pytest.approx(100 * np.mean([rank <= 10 for rank in ranks]))
    assert found["mean_rank"] == pytest.approx(np.mean(ranks))
    assert found["auc_degree_matched"] == pytest.approx(50, abs=6)


# --- glosses ----------------------------------------------------------------------------------------------------------


def test_names_of_ancestors_leave_the_glosses():
    nouns = tree()
    every, without = nouns.features("all"), nouns.features("without_ancestors")
    column = {word: number for number, word in enumerate(nouns.vocabulary)}
    above = {}
    for node, ancestor in nouns.closure.T.tolist():
        above.setdefault(node, set()).add(column[nouns.names[ancestor]])
    for node, own in above.items():
        left = set(without[[node]].nonzero()[1].tolist())
        assert not left & own
        assert left == set(every[[node]].nonzero()[1].tolist()) - own
    lengths = np.sqrt(every.power(2).sum(axis=1))[1:]
    np.testing.assert_allclose(lengths, 1.0)


def test_subtree_of_nouns_keeps_names_and_glosses():
    nouns = tree()
    own = noun_subtree(nouns, "word1")
    assert own.num_nodes == 1 + int((nouns.closure[1] == 1).sum())
    assert own.name == "tree:word1"
    assert {(own.names[a], own.names[b]) for a, b in own.edges.T.tolist()} == {
        (nouns.names[a], nouns.names[b])
        for a, b in nouns.edges.T.tolist()
        if nouns.names[b] in set(own.names) and nouns.names[a] in set(own.names)
    }
    place = nouns.names.index(own.names[7])
    assert (own.glosses[[7]] != nouns.glosses[[place]]).nnz == 0
    with pytest.raises(ValueError, match="no noun"):
        noun_subtree(nouns, "unicorn")


# --- methods ----------------------------------------------------------------------------------------------------------


def chance(cell: Cell) -> float:
    """Return the mean MRR of 20 random scores."""
    n, generator = cell.nouns.num_nodes, torch.Generator().manual_seed(0)
    return float(
        np.mean(
            [
                mean_reciprocal_rank(lambda q, _: torch.rand(q.numel(), n, generator=generator), cell.test, n)
                for _ in range(20)
            ]
        )
    )


@pytest.mark.parametrize("task", TASKS)
def test_untrained_scores_are_at_least_chance(cells, task):
    cell = cells[task]
    found = {
        (one.method, one.protocol, one.dimension): completion_metrics(one.scorer, cell.test, cell.nouns.num_nodes)
        for one in untrained_scorers(cell, ["all", "without_ancestors"], (4, 16))
    }
    assert list(found) == untrained_names(task, ["all", "without_ancestors"], (4, 16))
    del found["chance", "none", None]
    least = chance(cell)
    for name, metrics in found.items():
        assert metrics["mrr"] >= least, name
    assert found["svd", "all", 16]["mrr"] > 1.5 * least
    if task == "closure":
        assert found["reachability", "none", None]["mrr"] == 100.0


ARMS = ["lorentz", "parallel_transport_limit", "none", "euclidean", "mlp", "gae"]
SHALLOW = ["shallow_lorentz", "shallow_poincare", "shallow_euclidean", "shallow_lorentz_limit"]
SCHEDULE = {"steps": 60, "eval_every": 20, "batch_pairs": 256, "negatives": 5, "hidden_leaves": 0.5}


def trained(cell: Cell, arm: str, dimension: int = 8):
    plan = read_plan()
    settings = arm_settings(plan, arm, tuple((name, max(own)) for name, own in plan["arms"][arm]["grid"].items()))
    features = None if arm in SHALLOW else cell.nouns.features("all")
    return train(cell, features, settings, dimension, SCHEDULE, seed=0)


@pytest.mark.parametrize(("task", "arm"), [*(("leaves", arm) for arm in ARMS), *(("closure", arm) for arm in SHALLOW)])
def test_training_ranks_above_chance_and_keeps_the_best_step(cells, task, arm):
    cell = cells[task]
    outcome = trained(cell, arm)
    n = cell.nouns.num_nodes
    assert mean_reciprocal_rank(outcome.scorer, cell.test, n) > 1.3 * chance(cell)
    assert mean_reciprocal_rank(outcome.scorer, cell.val, n) == pytest.approx(outcome.validation)
    assert outcome.step in (20, 40, 60)


def test_shallow_limit_is_the_euclidean_training(cells):
    settings = {"family": "shallow", "lr": 0.03, "init": 0.1}
    found = [
        train(cells["closure"], None, settings | own, 4, SCHEDULE | {"steps": 5}, seed=0)
        for own in (
            {"geometry": "lorentz", "kappa": 1e-6},
            {"geometry": "euclidean"},
            {"geometry": "lorentz", "kappa": 1.0},
        )
    ]
    limit, flat, curved = (outcome.scorer(torch.arange(10), "ancestor").float() for outcome in found)
    torch.testing.assert_close(limit, flat, rtol=1e-3, atol=1e-3)
    assert float((curved - flat).abs().max()) > 0.05


def test_training_that_diverges_scores_every_candidate_alike(cells):
    settings = {"family": "shallow", "geometry": "lorentz", "kappa": 1.0, "lr": 1e30, "init": 0.1}
    outcome = train(cells["closure"], None, settings, 4, SCHEDULE, seed=0)
    assert outcome[1:] == (0.0, 0)
    assert outcome.scorer(torch.arange(3), "node").unique().numel() == 1


def test_distances_at_the_limit_are_euclidean():
    z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    pairs = torch.stack([torch.arange(20), torch.arange(20).roll(1)])
    torch.testing.assert_close(_distances(z, pairs, -1e-6), _distances(z, pairs, None), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(_radius(z, -1e-6), _radius(z, None), rtol=1e-4, atol=1e-4)


# --- study ------------------------------------------------------------------------------------------------------------


def small_plan() -> dict:
    plan = json.loads(json.dumps(read_plan()))
    plan["dimensions"], plan["splits"] = [4], [0, 1]
    form = plan["forms"]["mammal"]
    form["evaluation"] = EVALUATION
    form["training"] = {task: SCHEDULE | {"steps": 2, "eval_every": 1} for task in TASKS}
    form["shares"] = {task: {"validation": 0.2, "test": 0.2} for task in TASKS}
    form["protocols"] = {"leaves": ["all"], "closure": []}
    form["arms"] = {"leaves": ["lorentz", "euclidean"], "closure": ["shallow_lorentz", "shallow_euclidean"]}
    for arm in plan["arms"].values():
        arm["grid"] = {name: own[:1] for name, own in arm["grid"].items()}
    return plan


def mammals() -> Nouns:
    nouns = tree()
    return Nouns("wordnet:mammal", *list(vars(nouns).values())[1:6])


def test_study_tests_final_trainings_only_and_resumes(tmp_path: Path, monkeypatch):
    plan, out = small_plan(), tmp_path / "lines.jsonl"
    ranked = []
    monkeypatch.setattr(
        study, "completion_metrics", lambda *arguments: ranked.append(1) or completion_metrics(*arguments)
    )
    quiet = {"nouns": mammals(), "report": lambda _: None}
    run_untrained(plan, "mammal", out, **quiet)
    untrained = len(own_lines(out))
    assert not run_study(plan, "mammal", out, minutes=-1.0, **quiet)
    ranked.clear()
    assert run_study(plan, "mammal", out, **quiet)
    lines = own_lines(out)
    assert Counter(line["stage"] for line in lines[untrained:]) == {"search": 4, "final": 8}
    assert len(ranked) == 8
    assert all("metrics" not in line for line in lines if line["stage"] == "search")
    keys = {
        "table",
        "cell",
        "method",
        "protocol",
        "seed",
        "split",
        "config",
        "command",
        "versions",
        "hardware",
        "seconds",
    }
    assert all(keys <= line.keys() for line in lines)
    run_untrained(plan, "mammal", out, **quiet)
    assert run_study(plan, "mammal", out, **quiet)
    assert len(list(read_results(out))) == len(lines)


def test_several_workers_make_the_lines_of_one(tmp_path: Path, monkeypatch):
    plan, lines = small_plan(), {}
    monkeypatch.setattr(study, "worker_pool", lambda _: ThreadPoolExecutor(1))  # the seed of torch is the process's
    monkeypatch.setattr(study, "hierarchy_of", lambda _: mammals())
    for workers in (1, 2):
        out = tmp_path / f"{workers}.jsonl"
        assert not run_study(plan, "mammal", out, workers=workers, minutes=-1.0, report=lambda _: None)
        assert own_lines(out) == []
        assert run_study(plan, "mammal", out, workers=workers, report=lambda _: None)
        lines[workers] = sorted(
            (line["cell"], line["method"], line["split"], line["validation"]) for line in own_lines(out)
        )
    assert lines[1] == lines[2]


def test_highest_validation_of_the_search_is_chosen():
    def line(stage, lr, validation):
        config = {"dimension": 4, "settings": {"lr": lr}}
        own = {"cell": "c", "protocol": "p", "method": "m", "config": config}
        return own | {"stage": stage, "validation": validation}

    lines = [line("search", 0.1, 5.0), line("search", 0.3, 7.0), line("search", 1.0, 6.0), line("final", 9.0, 99.0)]
    assert chosen_settings(lines) == {("c", "p", "m", 4): (("lr", 0.3),)}


def test_recorded_results_are_those_of_the_plan():
    plan, lines = read_plan(), own_lines(RESULTS)
    planned = {one for form in plan["forms"] for one in planned_trainings(plan, form, lines)}
    trained_runs = {study._key(line) for line in lines if line["method"] in plan["arms"]}
    assert trained_runs <= planned
    assert all(line["metrics"]["mrr"] == line["value"] for line in lines if line["stage"] == "final")
    for line in lines:
        if line["method"] in plan["arms"]:
            own = arm_settings(plan, line["method"], tuple(line["config"]["settings"].items()))
            assert own.items() <= line["config"].items()


# --- page -------------------------------------------------------------------------------------------------------------

LEADS = {4: 5.0, 8: 2.0, 16: 0.0, 64: -3.0}
"""Differences of shallow Lorentz and Euclidean embeddings in made-up lines, by dimension."""


def final_line(method: str, dimension: int | None, split: int, value: float) -> dict:
    metrics = dict.fromkeys(("mrr", "hits@1", "hits@10", "mrr_degree_matched", "auc_degree_matched"), value)
    return {
        "table": "completion",
        "cell": "wordnet:mammal/closure",
        "method": method,
        "protocol": "none",
        "seed": split,
        "split": split,
        "stage": "final",
        "config": {"dimension": dimension, "settings": {}},
        "pairs": {"train": 900, "test": 100},
        "metrics": metrics,
        "value": value,
        "validation": value,
        "seconds": 3.0,
        "command": "python -m lresnet_paper completion --subtree mammal",
        "versions": {"torch": "2.13.0"},
        "hardware": "CPU",
    }


def made_up_lines() -> list[dict]:
    noise = [0.3, -0.2, 0.1, 0.0, -0.1]
    lines = [
        final_line(method, dimension, split, 40 + lead * (method == "shallow_lorentz") + noise[split] * sign)
        for dimension, lead in LEADS.items()
        for method, sign in (("shallow_lorentz", 1), ("shallow_euclidean", -1))
        for split in range(5)
    ]
    return [*lines, *(final_line("degree", None, split, 30.0 + split) for split in range(5))]


def test_answer_is_the_largest_dimension_up_to_which_curvature_is_better():
    contrasts = registered_contrasts(made_up_lines(), read_plan())
    assert {one.dimension: one.verdict for one in contrasts} == {
        4: "better",
        8: "better",
        16: "no difference shown",
        64: "worse",
    }
    assert {one.dimension: round(one.difference.mean, 1) for one in contrasts} == {4: 5.0, 8: 2.0, 16: 0.0, 64: -3.0}
    (answer,) = curvature_answers(contrasts)
    assert [one.dimension for one in answer.helps] == [4, 8]
    page = completion_page(made_up_lines())
    assert "No such dimension is shown." not in page
    assert "yes, up to dimension 8, by +2.0 to +5.0 points of MRR; in dimension 64 it is worse." in page
    (late,) = curvature_answers(one for one in contrasts if one.dimension >= 16)
    assert not late.helps


def test_page_reports_searches_at_the_end_of_their_grid_and_a_score_that_falls_with_the_dimension():
    lines = made_up_lines()
    for arm, rate in (("shallow_lorentz", 1.0), ("shallow_euclidean", 0.5)):
        grid = planned_trainings(read_plan(), "mammal")
        own = [one for one in grid if (one.arm, one.dimension) == (arm, 4)]
        assert len(own) == 6
        for one in own:
            settings = dict(one.settings)
            found = final_line(arm, 4, one.split, 50.0 + (settings["lr"] == rate))
            lines.append(found | {"stage": "search", "config": {"dimension": 4, "settings": settings}})
    lines.append(lines[-1] | {"config": {"dimension": 8, "settings": {"lr": 1.0}}})  # an unfinished search
    page = completion_page(lines)
    assert "In 1 of 2 finished searches the chosen learning rate is the highest of the grid" in page
    falling = next(line for line in page.splitlines() if line.startswith("**The grid.**"))
    assert (
        "lower in the largest dimension than in the smallest for shallow Lorentz (wordnet:mammal/closure)." in falling
    )
    assert "**The grid.**" not in completion_page(made_up_lines())
    assert "In 0 of the 2 contrasts" in page  # the Euclidean learning rate of 0.5 is inside of its grid


def test_page_names_leads_over_a_flat_embedding_that_another_one_exceeds():
    lines = made_up_lines()
    lines += [final_line("euclidean", 4, split, 60.0 + split) | {"protocol": "all"} for split in range(5)]
    assert "weak baseline" not in completion_page(lines)  # it reads glosses, and the shallow embeddings do not
    lines = [line | {"protocol": "none"} if line["method"] == "euclidean" else line for line in lines]
    page = completion_page(lines)
    assert (
        "In dimension 4 of wordnet:mammal/closure, Euclidean baseline (glosses `none`) scores 62.0 and shallow Lorentz "
        "(glosses `none`) 45.0, so the lead there is over a weak baseline."
    ) in page


def test_an_answer_names_both_the_dimensions_that_are_better_and_those_that_are_worse():
    lines = [
        line
        | {"value": line["value"] - 20 * (line["config"]["dimension"] == 4 and line["method"] == "shallow_lorentz")}
        for line in made_up_lines()
    ]
    assert "better in dimension 8, but not in all smaller ones; worse in dimension 4, 64." in completion_page(lines)


def test_picture_shows_cells_with_trained_methods_and_every_method_in_its_own_style():
    untrained = [final_line("svd", 4, split, 9.0) | {"cell": "wordnet/leaves"} for split in range(2)]
    limit = [final_line("shallow_lorentz_limit", 4, split, 9.0) for split in range(2)]
    assert [axis.get_title("left") for axis in completion_picture(untrained).axes] == ["wordnet/leaves"]
    (axis,) = completion_picture([*made_up_lines(), *untrained, *limit]).axes
    assert axis.get_title("left") == "wordnet:mammal/closure"
    assert next(line.get_label() for line in axis.lines) == "max degree"
    plan = read_plan()
    named = [*plan["arms"], "svd"]
    styles = {name: _style(name, plan) for name in named}
    looks = {name: (own["color"], own["marker"], own["linestyle"]) for name, own in styles.items()}
    for form in plan["forms"].values():
        for arms in form["arms"].values():
            assert len({looks[name] for name in [*arms, "svd"]}) == len(arms) + 1


def test_page_is_the_one_in_the_docs():
    page = completion_page(own_lines(RESULTS))
    assert page == (ROOT / "docs" / "reproduction" / "completion.md").read_text(encoding="utf-8")


def test_page_renders_with_untrained_scores_only_and_names_what_is_missing():
    lines = [line for line in made_up_lines() if line["method"] == "degree"]
    page = completion_page(lines)
    assert "No contrast of hyperbolic and flat embeddings has been measured yet" in page
    assert "| wordnet:mammal/closure | 32.0, max degree | not measured |" in page
    assert "| max degree | none | 32.0 ± 1.6 (5) |" in page
    assert "5 of 10 splits" in page
    assert "shallow Poincaré" in page[page.index("Not measured:") :].splitlines()[0]
    assert (
        "The study on mammals has untrained scores only (0 of 1,600 trainings). "
        "The study on all nouns has untrained scores only (0 of 1,216 trainings)."
    ) in page
    with pytest.raises(ValueError, match="no final runs"):
        completion_page([])
    with pytest.raises(ValueError, match="to draw"):
        completion_picture(lines)


def test_an_arm_that_misses_one_protocol_is_named_with_it():
    lines = [dict(line) for line in made_up_lines() if line["method"] == "degree"]
    one = dict(lines[0]) | {"method": "mlp", "protocol": "all", "cell": "wordnet:mammal/leaves"}
    one |= {"config": {"dimension": 4, "settings": {}}}
    page = completion_page([*lines, one])
    (listed,) = [line for line in page.splitlines() if "Not measured:" in line and "MLP on glosses" in line]
    everywhere, there = listed.split("Not measured: ")[1].split(" Not measured with glosses `without_ancestors`: ")
    assert there == "MLP on glosses."
    assert "graph autoencoder" in everywhere
    assert "MLP" not in everywhere


def test_command_writes_page_and_picture_and_other_pages_leave_the_study_out(tmp_path: Path, capsys):
    for line in made_up_lines():
        append_result(tmp_path / "completion.jsonl", line)
    out, picture = tmp_path / "page.md", tmp_path / "page.png"
    assert main(["pages", "completion", str(tmp_path), "--out", str(out), "--picture", str(picture)]) == 0
    assert out.read_text(encoding="utf-8") == completion_page(own_lines(tmp_path / "completion.jsonl"))
    assert picture.stat().st_size > 1000
    assert read_runs(tmp_path) == []
    (axis,) = completion_picture(made_up_lines()).axes
    drawn = {line.get_label(): dict(zip(*map(list, line.get_data()), strict=True)) for line in axis.lines}
    assert drawn["shallow Lorentz"] == pytest.approx({4: 45.02, 8: 42.02, 16: 40.02, 64: 37.02})
    capsys.readouterr()


def test_unknown_subtree_is_a_wrong_call(capsys):
    assert main(["completion", "--subtree", "mammals"]) == 2
    assert "did you mean" in capsys.readouterr().err
