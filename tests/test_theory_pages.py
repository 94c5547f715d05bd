"""The formulas, figures and pictures of the start and theory pages are those of the library and of results/."""

import json
import math
import re
import runpy
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lresnet
from lresnet import Lorentz
from lresnet.functional import (
    equivalent_weights,
    lorentz_residual,
    parallel_transport_residual,
    space_residual,
    tangent_residual,
)
from lresnet.residual.registry import METHODS, make_residual
from lresnet_paper.pages.collapse_table import collapse_table, collapsed_at, share_of_margin
from lresnet_paper.pages.verdict_page import claim_counts_of_folder
from lresnet_paper.pages.when_page import taxonomy_differences

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [DOCS / "index.md", *sorted((DOCS / "theory").glob("*.md"))]
PAGES += [DOCS / "start" / f"{name}.md" for name in ("install", "tour", "choosing")]
CURVATURES = [-0.1, -1.0, -3.0]


def points(count: int = 50) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(2 * torch.randn(2, count, 5, dtype=torch.float64, generator=generator))  # type: ignore[return-value]


def product(p: Tensor, q: Tensor) -> Tensor:
    return (p[..., 1:] * q[..., 1:]).sum(-1) - p[..., 0] * q[..., 0]


# --- formulas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", CURVATURES)
def test_hyperboloid_time_distance_and_charts(K: float) -> None:
    M, (x, y) = Lorentz(K), points()
    root, (p, q) = math.sqrt(-K), (M.lift(x), M.lift(y))
    torch.testing.assert_close(M.time(x), (x.square().sum(-1) - 1 / K).sqrt())
    torch.testing.assert_close(product(p, p), torch.full((50,), 1 / K, dtype=torch.float64))
    torch.testing.assert_close(torch.cosh(root * M.dist(x, y)), K * product(p, q))
    torch.testing.assert_close(M.dist0(x), torch.asinh(root * x.norm(dim=-1)) / root)
    length = root * x.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(M.expmap0(x), torch.sinh(length) / length * x)
    torch.testing.assert_close(M.logmap0(x), torch.asinh(length) / length * x)
    torch.testing.assert_close(M.to_poincare(x), x / (1 + root * M.time(x).unsqueeze(-1)))
    torch.testing.assert_close(M.to_klein(x), x / M.time(x).unsqueeze(-1))


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("w", [0.25, 1.0, 4.0])
def test_lorentz_residual_is_the_sum_divided_by_its_normaliser(K: float, w: float) -> None:
    M, (x, y) = Lorentz(K), points()
    s = M.lift(x) + w * M.lift(y)
    cosh = torch.cosh(math.sqrt(-K) * M.dist(x, y))
    n = ((1 + w) ** 2 + 2 * w * (cosh - 1)).sqrt()
    torch.testing.assert_close(K * product(s, s), n.square())
    assert bool((n >= 1 + w).all())
    z = lorentz_residual(x, y, w, K=K)
    torch.testing.assert_close(z, (x + w * y) / n.unsqueeze(-1))
    torch.testing.assert_close(M.lift(z), s / n.unsqueeze(-1))  # the time of the sum too
    torch.testing.assert_close(lorentz_residual(x, y, w, 2.5, K=K), 2.5 * z)
    assert bool((z.abs() <= torch.maximum(x.abs(), y.abs())).all())  # an average


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("w", [0.25, 1.0, 4.0])
def test_lorentz_residual_is_on_the_geodesic_where_the_page_says(K: float, w: float) -> None:
    M, (x, y), root = Lorentz(K), points(), math.sqrt(-K)
    z, d = lorentz_residual(x, y, w, K=K), M.dist(x, y)
    n = ((1 + w) ** 2 + 2 * w * (torch.cosh(root * d) - 1)).sqrt()
    torch.testing.assert_close(M.dist(x, z) + M.dist(z, y), d)
    torch.testing.assert_close(torch.sinh(root * M.dist(x, z)), w / n * torch.sinh(root * d))
    if w == 1:
        torch.testing.assert_close(M.dist(x, z), M.dist(z, y))
        torch.testing.assert_close(z, M.expmap(x, M.logmap(x, y) / 2))


def test_limits_of_the_weight() -> None:
    x, y = points()
    torch.testing.assert_close(lorentz_residual(x, y, 0.0), x)
    torch.testing.assert_close(lorentz_residual(x, y, 1e12), y)


@pytest.mark.parametrize("w", [0.25, 1.0, 4.0])
def test_flat_limit(w: float) -> None:
    (x, y), K = points(), -1e-12
    near: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(lorentz_residual(x, y, w, K=K), (x + w * y) / (1 + w), **near)
    torch.testing.assert_close(lorentz_residual(x, y, w, 1 + w, K=K), x + w * y, **near)
    torch.testing.assert_close(tangent_residual(x, y, w, K=K), x + w * y, **near)
    torch.testing.assert_close(parallel_transport_residual(x, y, K=K), x + y, **near)
    torch.testing.assert_close(space_residual(x, y), x + y)


def test_gradients_through_a_chain_of_averages_and_sums(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "theory" / "residuals.md").read_text()
    code, printed = re.search(r"```python\n(branches = .*?)```\s+```text\n(.*?)```", page, re.DOTALL).groups()  # type: ignore[union-attr]
    exec(code, {"torch": torch, "lresnet": lresnet})
    assert capsys.readouterr().out == printed
    reach = [line.split(": ")[1] for line in printed.splitlines()]
    choosing = read("start/choosing.md")
    assert f"the average passes a share of {reach[0]} of the gradient back to the input" in choosing
    assert f"to the input, and the sum {float(reach[1]):.2f} (" in choosing


def test_norm_bound_of_points_at_an_angle() -> None:
    for K, theta in ((-1.0, 0.5), (-0.1, 2.0)):
        bound = 1 / math.tan(theta / 2) / math.sqrt(-K)
        for r in (1.0, 1e2, 1e6):
            x, y = (torch.tensor([r * math.cos(a), r * math.sin(a)], dtype=torch.float64) for a in (0.0, theta))
            norm = float(lorentz_residual(x, y, K=K).norm())
            assert norm < bound * (1 + 1e-9)
        assert norm == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("K", CURVATURES)
def test_parallel_transport_has_the_closed_form(K: float) -> None:
    M, (x, y), root = Lorentz(K), points(), math.sqrt(-K)
    factor = root * M.time(y) - K * (x * y).sum(-1) / (1 + root * M.time(x))
    expected = y + factor.unsqueeze(-1) * x
    torch.testing.assert_close(parallel_transport_residual(x, y, K=K), expected)
    transported = M.transp(torch.zeros_like(x), x, M.logmap0(y))
    torch.testing.assert_close(M.expmap(x, transported), expected)
    w_x, w_y, _ = equivalent_weights(x, y, "parallel_transport", K=K)
    torch.testing.assert_close(w_x / w_y, factor)


@pytest.mark.parametrize("method", ["parallel_transport", "tangent", "space"])
def test_proposition_4_2(method: str) -> None:
    M, (x, y) = Lorentz(-0.7), points()
    w_x, w_y, gamma = equivalent_weights(x, y, method, K=-0.7)
    expected = make_residual(method, M)(x, y)
    torch.testing.assert_close(lorentz_residual(x, y, w_y / w_x, gamma, K=-0.7), expected)


def test_the_curvature_is_a_unit_of_length() -> None:
    x, y = points()
    for K in CURVATURES:
        root = math.sqrt(-K)
        torch.testing.assert_close(lorentz_residual(x, y, 0.7, K=K), lorentz_residual(root * x, root * y, 0.7) / root)
        torch.testing.assert_close(Lorentz(K).dist(x, y), Lorentz(-1.0).dist(root * x, root * y) / root)


def test_commutativity_column() -> None:
    text = (DOCS / "theory" / "residuals.md").read_text(encoding="utf-8")
    for name in ("lorentz", "space", "tangent", "parallel_transport"):
        row = re.search(rf"^\| `{name}` \| (yes|no)\b", text, flags=re.MULTILINE)
        assert row is not None
        assert (row[1] == "yes") == METHODS[name].commutative
        x, y = points()
        residual = make_residual(name, Lorentz(-1.0))
        assert torch.equal(residual(x, y), residual(y, x)) == METHODS[name].commutative


def test_separation_and_distance_of_the_numerics_page() -> None:
    (x, y), K = points(), -0.6
    root, M = math.sqrt(-K), Lorentz(K)
    r_x, r_y = (root * v.norm(dim=-1) for v in (x, y))
    apart = (torch.nn.functional.normalize(x, dim=-1) - torch.nn.functional.normalize(y, dim=-1)).square().sum(-1)
    S = torch.cosh(torch.asinh(r_x) - torch.asinh(r_y)) - 1 + r_x * r_y * apart / 2
    torch.testing.assert_close(S, torch.cosh(root * M.dist(x, y)) - 1)
    torch.testing.assert_close(2 / root * torch.asinh((S / 2).sqrt()), M.dist(x, y))


# --- figures ----------------------------------------------------------------------------------------------------------


def read(page: str) -> str:
    return " ".join((DOCS / page).read_text(encoding="utf-8").split())


def lines(table: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROOT / "results" / f"{table}.jsonl").read_text("utf-8").splitlines()]


def test_shares_of_the_input_by_depth() -> None:
    text = (DOCS / "theory" / "depth.md").read_text(encoding="utf-8")
    for label, weight in (("$w = 1$", lambda _: 1.0), ("$w = 1/L$", lambda L: 1 / L)):
        row = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
        cells = [float(cell) for cell in row.split("|")[2:-1]]
        expected = [(1 + weight(L)) ** -L for L in (4, 16, 64)]
        assert cells == pytest.approx(expected, rel=0.03)


def test_figures_of_the_depth_page() -> None:
    runs = [run for run in lines("oversmoothing") if run["stage"] == "final"]

    def chosen(cell: str, protocol: str, method: str = "lorentz") -> list[dict[str, Any]]:
        return [run for run in runs if (run["cell"], run["protocol"], run["method"]) == (cell, protocol, method)]

    def auc(cell: str, protocol: str, method: str = "lorentz") -> str:
        return f"{statistics.mean(run['value'] for run in chosen(cell, protocol, method)):.1f}"

    def distance(cell: str, protocol: str, when: str) -> float:
        return statistics.median(run[when]["distance"][-1] for run in chosen(cell, protocol))

    text = read("theory/depth.md")
    shallow = [auc(f"disease/lp/{depth}", "legacy") for depth in (4, 16, 32)]
    assert "{} % at 4 layers, {} % at 16 and {} % at 32".format(*shallow) in text
    apart = [distance(f"{graph}/lp/64", "legacy", "initial_layers") for graph in ("disease", "airport")]
    assert "are {:.2f} radii apart (airport: {:.2f})".format(*apart) in text
    assert max(distance(f"{graph}/lp/64", "legacy", "layers") for graph in ("disease", "airport")) < 1.5e-6
    tuned = [distance(f"{graph}/lp/64", "legacy-deep", "layers") for graph in ("disease", "airport")]
    assert "are {:.1f} radii apart (airport: {:.1f})".format(*tuned) in text
    assert f"reaches {auc('disease/lp/64', 'legacy-deep')} % at 64 layers" in text
    space, lorentz = auc("airport/lp/64", "legacy", "space"), auc("airport/lp/64", "legacy-deep")
    assert (
        f"keeps {space} % at 64 layers without any tuning, where the tuned Lorentz residual reaches {lorentz} %" in text
    )
    by_weight = [chosen(f"{graph}/lp/{L}", "legacy-deep") for graph in ("disease", "airport") for L in (16, 32, 64)]
    assert sum("weight" in cell[0]["config"] for cell in by_weight) == 5


def test_figures_of_the_study_during_training() -> None:
    runs = list(lines("collapse"))
    text = " ".join(read("theory/depth.md").split())
    for row in collapse_table(runs).rows:
        assert f"| {row.name} | {' | '.join(row.cells)} |" in text

    def chosen(setting: str, layers: int) -> list[dict[str, Any]]:
        return [run for run in runs if (run["setting"], run["config"]["num_layers"]) == (setting, layers)]

    def score(setting: str, layers: int) -> str:
        return f"{statistics.fmean(run['states'][-1]['validation'] for run in chosen(setting, layers)):.1f}"

    def middle(setting: str, layers: int, state: int, name: str, layer: int) -> float:
        return statistics.median(run["states"][state][name][layer] for run in chosen(setting, layers))

    def loss(setting: str, layers: int) -> str:
        own = chosen(setting, layers)
        return f"{statistics.median(share_of_margin(run, run['states'][-1]) for run in own):.2f}"

    def collapsed(setting: str, layers: int) -> int:
        return sum(collapsed_at(run) is not None for run in chosen(setting, layers))

    counts = [collapsed(setting, 32) for setting in ("sum", "average", "none")]
    assert (
        "collapses as a sum ({} of 3 runs), as an average ({} of 3) and without a residual ({} of 3)".format(*counts)
        in text
    )
    assert f"(loss {loss('sum', 16)} against {loss('average', 16)})" in text
    assert f"as badly ({score('sum', 16)} against {score('average', 16)})" in text
    pairs = [score(setting, layers) for layers in (16, 32) for setting in ("sum, weight 1/L", "weight 1/L")]
    assert "the sum is better: {} against {} at 16 layers, {} against {} at 32".format(*pairs) in text
    worst = min(run["states"][-1]["validation"] for run in chosen("sum, weight 1/L", 32))
    assert f"one of its three runs is at {worst:.1f}" in text
    first, last = (middle("average", 32, 0, "gradient", layer) for layer in (0, -1))
    assert f"has the norm {first:.1f}, at the last one {last:.2f}" in text
    ten = runs[0]["state_epochs"].index(10)
    assert f"after ten steps it is {middle('average', 32, ten, 'gradient', 0):.0e}" in text
    assert f"32-layer chain are {middle('average', 32, 0, 'distance', -1):.2f} radii apart" in text
    step = max(collapsed_at(run) or 0 for run in chosen("average", 32))
    assert f"From step {step} on, the loss of all three runs is that of one point" in text
    apart = [middle("average", 16, state, "distance", -1) for state in (0, -1)]
    assert "move apart, from {:.2f} to {:.1f} radii".format(*apart) in text
    assert collapsed("average, rate / 10", 32) == collapsed("weight 1/L", 32) == collapsed("average", 16) == 0
    assert f"{collapsed('average, warm-up', 32)} of 3 runs collapse later" in text
    rate = (
        f"it scores {score('average, rate / 10', 32)} on validation pairs, and the weight 1/L {score('weight 1/L', 32)}"
    )
    assert rate in text
    assert f"16 layers does not train either (loss {loss('average, no clipping', 16)})" in text
    hyperbolic = {run["setting"] for run in runs} - {"euclidean"}
    assert min(hyperbolic, key=lambda setting: float(loss(setting, 16))) == "sum"
    assert f"{len(runs)} trainings" in text


def test_counts_of_rows_and_claims_are_those_of_the_results_page() -> None:
    results, home, choosing = read("reproduction/results.md"), read("index.md"), read("start/choosing.md")
    gnn = re.search(r"## gnn .*?better in (\d+), worse in (\d+), and no difference is shown in (\d+)", results)
    assert gnn is not None
    better, worse, same = gnn.groups()
    total = sum(map(int, gnn.groups()))
    assert f"better in {better} of {total} rows, worse in {worse}, and no difference is shown in {same}" in home
    assert f"better in {better} of {total}, worse in {worse}, and no difference is shown in {same}" in choosing
    found = claim_counts_of_folder(ROOT / "results")
    counts = [found[verdict] for verdict in ("holds", "partly holds", "undecided", "does not hold")]
    words = "Of {} claims of the paper that we tested, {} hold, {} hold partly, {} are undecided and {} do not hold"
    assert words.format(sum(counts), *counts) in home


def test_figures_of_taxonomies_and_of_links_in_a_tree_are_those_of_the_results() -> None:
    home, choosing, when = read("index.md"), read("start/choosing.md"), read("start/when.md")
    found = taxonomy_differences(lines("taxonomies"))
    known, new = ([one for (_, split), one in found.items() if split == held_out] for held_out in ("closure", "leaves"))
    better = [verdict for _, verdict in known].count("better")
    none, worse = ([verdict for _, verdict in new].count(word) for word in ("better", "worse"))
    means = [estimate.mean for estimate, _ in known]
    words = "in three taxonomies of 2,000 rows, hyperbolic points rank ancestors better than flat ones"
    assert f"{words} (MRR {min(means):.1f}" in home
    assert f"{max(means):.1f} points higher), but not parents of new terms" in home
    assert (
        f"in {better} of {len(known)} for known nodes, and in {none} of {len(new)}, worse in {worse}, for" in choosing
    )
    untrained = re.search(r"disease/lp without its column: Lorentz [\d.]+ ± [\d.]+, .*?, untrained ([\d.]+)", when)
    assert untrained is not None
    assert f"an untrained score reaches {untrained[1]} " in choosing


def test_figures_of_deep_graph_networks_are_those_of_their_page() -> None:
    choosing, deep = read("start/choosing.md"), (DOCS / "reproduction" / "deep.md").read_text()
    depths = deep[deep.index("## Depth") : deep.index("## Chosen settings")]

    def deepest(cell: str, split: str, connection: str, network: str) -> str:
        row = rf"^\| {cell} \| `{split}` \| {connection} \| [\d.]+ \| {network} \|.*\| ([\d.]+) ± [^|]*\|$"
        found = re.search(row, depths, flags=re.MULTILINE)
        assert found is not None
        return found[1]

    assert "| 64 layers |\n" in depths
    initial, chain = (deepest("cora/nc", "public", kind, "Lorentz") for kind in ("initial", "chain"))
    flat = deepest("cora/nc", "public", "initial", "GCNII")
    row = r"^\| cora/nc \| `public`, by loss \| ([\d.]+) ± [^|]*\|[^|]*\| ([\d.]+) ± "
    by_loss = re.search(row, deep, flags=re.MULTILINE)
    assert by_loss is not None
    assert f"On cora with 64 layers it reaches {by_loss[1]} % and GCNII {by_loss[2]} %" in choosing
    assert f"On cora, 64 layers reach {by_loss[1]} % with either" in read("index.md")
    assert by_loss[1] == by_loss[2]
    assert f"it reaches {initial} %, GCNII {flat} % and a chain of Lorentz residuals {chain} %" in choosing
    assert f"with 64 layers reaches {deepest('airport/lp', 'hgcn', 'initial', 'Lorentz')} % on airport" in choosing
    verdict = re.search(r"better than GCNII in (\d+), worse in 0 and not shown to differ in (\d+) of (\d+) cells", deep)
    assert verdict is not None
    better, same, cells = verdict.groups()
    assert "It is better on airport/lp (`disjoint`), airport/lp (`hgcn`).\n" in deep
    home = read("index.md")
    assert f"in {better} of {cells} cells (graph, task, split and recipe), both links of airport, where GCNII" in home
    assert f"no difference is shown in the other {same} (" in home
    chosen = re.findall(r"^\| (?:airport|chameleon|squirrel)/.*num_layers (\d+)", deep, flags=re.MULTILINE)
    assert f"chose {min(map(int, chosen))} to {max(map(int, chosen))} layers on airport, chameleon and" in choosing


def test_figures_of_numerics_and_speed_are_those_of_their_pages() -> None:
    numerics, speed = read("performance/numerics.md"), read("performance/benchmarks.md")
    for page in ("index.md", "theory/numerics.md"):
        text = read(page)
        worst = re.search(r"is at most ([\d.]+) times the smallest possible error", numerics)
        off = re.search(r"published formula is off by up to (\d+) radii", numerics)
        assert worst is not None
        assert off is not None
        assert f"is at most {worst[1]} times that of rounding alone" in text
        assert f"off by up to {off[1]} radii" in text
    step = re.search(r"lorentz_resnet18/512, training step: time relative to the Euclidean baseline \| ([\d.]+)", speed)
    assert step is not None
    for page in ("index.md", "start/choosing.md"):
        assert f"step of `lorentz_resnet18` takes {step[1]} times as long" in read(page)


def test_times_of_one_residual_are_those_of_the_benchmarks() -> None:
    text, page = (DOCS / "performance" / "benchmarks.md").read_text(encoding="utf-8"), read("theory/residuals.md")

    def ratio(table: str, method: str, form: str) -> str:
        rows = text[text.index(f"### One residual, {table}") :]
        row = re.search(rf"^\| {form} \|.*$", rows[rows.index(f"| **{method}** |") :], flags=re.MULTILINE)
        assert row is not None
        return row[0].split("|")[6].strip()

    forward, both = ("forward: 10,000 points", "forward + backward: 10,000 points")
    for method in ("lorentz", "tangent", "parallel_transport"):
        row = next(line for line in page.split(" | ") if line == ratio(forward, method, "kernels"))
        assert row
        assert f"{float(ratio(both, method, 'kernels')):.1f}" == "2.8"
    textbook = [ratio(forward, method, "textbook") for method in ("lorentz", "tangent", "parallel_transport")]
    words = "takes {} times as long as x + y, tangent {} times and parallel transport {} times"
    assert words.format(*textbook) in page
    assert f"takes {ratio('forward: 4,000 points', 'lorentz', 'reference')} times as long as x + y forward" in page


def test_extremes_of_the_curvature_table() -> None:
    means: dict[str, dict[str, float]] = {}
    for run in lines("curvature"):
        if run["stage"] == "final":
            config = run["config"]
            key = "learned" if config.get("learn_curvature") else str(config["curvature"])
            means.setdefault(run["cell"], {}).setdefault(key, 0.0)
            means[run["cell"]][key] += run["value"] / 10
    for cell in ("disease/lp", "airport/lp"):
        assert min(means[cell], key=means[cell].__getitem__) == "learned"
    spread = {
        cell: max(fixed) - min(fixed)
        for cell, found in means.items()
        for fixed in [[value for key, value in found.items() if key != "learned"]]
    }
    others = sorted(round(value, 1) for cell, value in spread.items() if cell != "disease/lp")
    text = read("start/choosing.md")
    assert f"differ by {spread['disease/lp']:.1f} points on disease/lp (best at −0.5)" in text
    assert "by {}, {} and {} points in three other cells".format(*others) in text
    assert f"({means['disease/lp']['learned']:.1f} against {means['disease/lp']['-0.5']:.1f} at K = −0.5)" in text


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "pictures.py"))


def test_every_picture_of_the_pages_exists_and_has_alternative_text_and_a_caption() -> None:
    shown = set()
    for page in PAGES:
        for alt, target, after in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)\n\n(.)", page.read_text(encoding="utf-8")):
            assert len(alt) > 20
            assert after == "*", f"{page.name}: a caption in italics follows a picture"
            path = (page.parent / target).resolve()
            assert path.stat().st_size < 250_000
            shown.add(path.stem)
    assert shown >= {"residuals", "hyperboloid", "charts", "weights", "curvature", "depth-by-layer", "numerics"}


def test_every_drawn_picture_is_on_a_page(pictures: dict[str, Any]) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in pictures["PICTURES"] if f"images/{name}.png" not in text] == []


def test_the_tree_of_the_curvature_picture_has_edges_of_length_1(pictures: dict[str, Any]) -> None:
    tree, nearest_leaves = pictures["tree"], pictures["nearest_leaves"]
    text = read("theory/curvature.md")
    for K, words in ((-0.1, "nearest leaves are {:.2f} apart"), (-1.5, "nearest leaves, siblings, are {:.2f} apart")):
        M = Lorentz(K)
        at, edges, level = tree(M)
        lengths = torch.stack([M.dist(at[a], at[b]) for a, b in edges])
        torch.testing.assert_close(lengths, torch.ones_like(lengths))
        assert len(edges) == len(at) - 1
        assert words.format(nearest_leaves(M, at, level)) in text


def test_circumference(pictures: dict[str, Any]) -> None:
    radius = torch.linspace(0.1, 4, 5, dtype=torch.float64).numpy()
    for K in CURVATURES:
        root = math.sqrt(-K)
        expected = [2 * math.pi / root * math.sinh(root * r) for r in radius]
        assert pictures["circumference"](Lorentz(K), radius) == pytest.approx(expected)


@pytest.mark.slow
def test_pictures_are_redrawn_as_they_are(pictures: dict[str, Any], tmp_path: Path) -> None:
    main: Callable[..., None] = pictures["main"]
    main((), tmp_path)
    for name in pictures["PICTURES"]:
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
