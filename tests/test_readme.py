"""The README: at most 900 words, its names exist, and its figures are those of the results."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import lresnet
from lresnet.train.results import read_results
from lresnet_paper.comparisons import compare_methods
from lresnet_paper.completion.study import read_plan
from lresnet_paper.pages.completion_page import registered_contrasts
from lresnet_paper.pages.verdict_page import claim_counts_of_folder
from lresnet_paper.pages.when_page import taxonomy_differences

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())
CODE = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_it_has_at_most_900_words() -> None:
    assert len(TEXT.split()) <= 900


def test_the_network_has_a_gradient_for_every_parameter() -> None:
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(CODE[0], names)
    net = torch.nn.Sequential(
        *(names["Block"](16) for _ in range(20)), lresnet.nn.LorentzMLR(16, 3, manifold=names["M"])
    )
    torch.nn.functional.cross_entropy(net(torch.randn(64, 16)), torch.randint(3, (64,))).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_the_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert {"demo", "test"} <= set(re.findall(r"make ([a-z-]+)", TEXT)) <= targets


def test_the_python_names_exist() -> None:
    for path in re.findall(r"lresnet\.([A-Za-z_.]+)", "".join(CODE)):
        found: object = lresnet
        for name in path.split("."):
            found = getattr(found, name)


def test_the_formula_is_the_function() -> None:
    x, y = torch.randn(2, 100, 8, dtype=torch.float64)
    w, K = 0.7, -2.0
    distance = lresnet.Lorentz(K).dist(x, y) * (-K) ** 0.5  # in radii of curvature
    n = ((1 + w) ** 2 + 2 * w * (distance.cosh() - 1)).sqrt()
    expected = (x + w * y) / n[:, None]
    torch.testing.assert_close(lresnet.functional.lorentz_residual(x, y, w, K=K), expected)


def test_the_version_is_that_of_the_package() -> None:
    assert f"lresnet-{lresnet.__version__}-py3" in TEXT
    assert f"version: {lresnet.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## [{lresnet.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version = {{{lresnet.__version__}}}" in (ROOT / "docs/project/citing.md").read_text()


def test_the_error_in_float32_is_that_of_the_page() -> None:
    page = " ".join((ROOT / "docs/performance/numerics.md").read_text().split())  # rendered from results/numerics.jsonl
    ratio = re.search(r"is at most ([\d.]+) times the smallest possible error", page)
    radii = re.search(r"formula is off by up to (\d+) radii", page)
    assert ratio
    assert radii
    assert f"at most {ratio[1]} times that of rounding" in WORDS
    assert f"off by up to {radii[1]} radii" in WORDS


def test_the_ratios_of_time_are_those_of_the_page() -> None:
    page = (ROOT / "docs/performance/benchmarks.md").read_text()  # rendered from results/benchmarks.jsonl
    page = page[: page.index("\n## CPU")]
    step = re.search(r"lorentz_resnet18/512, training step: time relative to the Euclidean baseline \| ([\d.]+)", page)
    epoch = re.search(r"lorentz_sgformer: chameleon\n\n.*\n.*\n\| lorentz \| [^|]+ \| [^|]+ \| ([\d.]+)", page)
    graphs = re.findall(
        r"lorentz_gcn: (?:disease|airport)/lp\n\n.*\n.*\n.*\n\| 1 seed \| [^|]+ \| [^|]+ \|  \| ([\d.]+)", page
    )
    assert step
    assert epoch
    assert f"takes {step[1]} times as long as its Euclidean baseline" in WORDS
    assert f"`lorentz_sgformer` {float(epoch[1]):.2f} times, of `lorentz_gcn` {' to '.join(graphs)} times" in WORDS


def test_the_number_of_pairs_of_seeds_below_the_baseline() -> None:
    table = {"paper", "fast", "long", "long-cutmix"}
    values: dict[tuple[str, str, int], dict[str, float]] = {}
    for run in read_results(ROOT / "results" / "image_classification.jsonl"):
        if run["stage"] == "final" and run["protocol"] in table and run["method"] in ("lorentz", "euclidean"):
            values.setdefault((run["cell"], run["protocol"], run["seed"]), {})[run["method"]] = run["value"]
    behind = sum(pair["lorentz"] < pair["euclidean"] for pair in values.values())
    assert f"in {behind} of {len(values)} pairs of seeds" in WORDS


@pytest.mark.parametrize(("method", "text"), [("lorentz", "on disease/lp ({:.1f}"), ("none", "against {:.1f})")])
def test_the_result_on_disease(method: str, text: str) -> None:
    runs = [run for run in read_results(ROOT / "results" / "gnn.jsonl") if run.get("stage") == "final"]
    own = [
        run["value"]
        for run in runs
        if (run["cell"], run["method"], run["protocol"]) == ("disease/lp", method, "legacy")
    ]
    assert len(own) == 10
    assert text.format(sum(own) / len(own)) in WORDS


def test_the_taxonomies() -> None:
    found = taxonomy_differences(read_results(ROOT / "results" / "taxonomies.jsonl"))
    known, new = ([one for (_, split), one in found.items() if split == held_out] for held_out in ("closure", "leaves"))
    assert [verdict for _, verdict in known] == ["better"] * 3
    assert not [verdict for _, verdict in new if verdict == "better"]
    means = [estimate.mean for estimate, _ in known]
    assert f"(MRR {min(means):.1f} to {max(means):.1f} points higher)" in WORDS


def test_the_verdict_on_the_claims() -> None:
    counts = claim_counts_of_folder(ROOT / "results")
    total = sum(counts.values())
    assert counts["not measured"] == 0
    expected = (
        f"Of {total} claims of the paper that we tested, {counts['holds']} hold, {counts['partly holds']} hold partly, "
        f"{counts['undecided']} are undecided and {counts['does not hold']} do not hold"
    )
    assert expected in WORDS


def test_deep_graph_networks() -> None:
    lines = [line for line in read_results(ROOT / "results" / "deep.jsonl") if line["cell"].count("/") == 1]
    compared = [one for one in compare_methods(lines) if one.method == "euclidean"]
    better = {(one.cell, one.protocol) for one in compared if one.verdict == "better"}
    assert not any(one.verdict == "worse" for one in compared)
    assert f"better than GCNII in {len(better)} of [{len(compared)} cells]" in TEXT
    assert {cell for cell, _ in better} == {"airport/lp"}


def test_the_completion_of_wordnet() -> None:
    found = registered_contrasts(read_results(ROOT / "results" / "completion.jsonl"), read_plan())
    flat = [one for one in found if one.theirs.endswith("euclidean")]
    points = [one for one in flat if one.ours == "shallow_lorentz" and one.cell == "wordnet/closure"]
    assert {one.verdict for one in points} == {"better"}
    assert [one.dimension for one in points] == [4, 8, 16, 64]
    leads = [one.difference.mean for one in points]
    words = f"{min(leads):.1f} to {max(leads):.1f}"
    assert f"on WordNet's 82,192 nouns too ({words}), but not parents of new terms" in WORDS
    mammals = [one for one in flat if one.ours == "shallow_lorentz" and one.cell == "wordnet:mammal/closure"]
    words_of_mammals = f"{sum(one.verdict == 'better' for one in mammals)} of {len(mammals)}"
    home = " ".join((ROOT / "docs" / "index.md").read_text(encoding="utf-8").split())
    assert f"rank known ancestors {words} points better in 4 to 64 dimensions ({points[0].difference.n} splits)" in home

    assert f"On 1,182 mammals they are better in {words_of_mammals} dimensions." in home

    networks = {
        cell: [one for one in flat if one.ours == "lorentz" and one.cell == f"{cell}/closure"]
        for cell in ("wordnet:mammal", "wordnet")
    }
    better = {cell: [one for one in own if one.verdict == "better"] for cell, own in networks.items()}
    counts = {cell: f"{len(better[cell])} of {len(own)}" for cell, own in networks.items()}
    assert (
        f"better in {counts['wordnet']} dimensions on the nouns and in {counts['wordnet:mammal']} on the mammals"
        in home
    )
    leads = [one.difference.mean for own in better.values() for one in own]
    new = [one for one in flat if one.cell.endswith("/leaves")]
    assert "better" not in {one.verdict for one in new}
    worse = sum(one.verdict == "worse" for one in new)
    choosing = (ROOT / "docs" / "start" / "choosing.md").read_text(encoding="utf-8")
    assert (
        f"in {counts['wordnet:mammal']} dimensions on 1,182 mammals and in {counts['wordnet']} on all 82,192 nouns, by "
        f"{min(leads):.1f} to {max(leads):.1f} points of MRR, and new terms in 0 of {len(new)}, worse in {worse}"
    ) in choosing


def test_the_baseline_on_links_of_airport_is_below_an_untrained_score() -> None:
    when = (ROOT / "docs" / "start" / "when.md").read_text(encoding="utf-8")
    assert "GCNII scores less than an untrained score on airport/lp (`hgcn`), airport/lp (`disjoint`)" in when
    assert "both links of airport, where GCNII is below an untrained score" in WORDS


def test_graph_transformers() -> None:
    compared = compare_methods(read_results(ROOT / "results" / "graph_transformer.jsonl"))
    flat = [one for one in compared if one.method == "euclidean"]
    assert len(flat) == 10
    decided = [one for one in flat if one.verdict in ("better", "worse")]
    assert [(one.cell, one.protocol, one.verdict) for one in decided] == [("actor", "fresh_splits-sgformer", "worse")]
    lead = f"{-decided[0].difference.mean:.1f}"
    assert f"in one of ten rows (actor), the Euclidean network is {lead} points better" in WORDS
    home = " ".join((ROOT / "docs" / "index.md").read_text(encoding="utf-8").split())
    assert f"worse in 1 of 10 rows (actor, -{lead} points)" in home


def test_the_raw_feature_on_disease() -> None:
    runs = [run for run in read_results(ROOT / "results" / "untrained.jsonl") if run["cell"] == "disease/lp"]
    assert f"without any training scores {max(run['value'] for run in runs):.1f}" in WORDS
