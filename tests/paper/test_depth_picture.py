"""The pictures of depth show the runs; the claims about depth are answered from them."""

import json
from pathlib import Path
from typing import Any

import pytest

from lresnet_paper.__main__ import main
from lresnet_paper.pages.claims import HOLDS, NOT_MEASURED, PARTLY, REFUTED, UNDECIDED, depth_claims
from lresnet_paper.pages.depth_page import all_runs_by_depth, depth_protocols, differences_by_seed, runs_by_depth
from lresnet_paper.pages.depth_picture import (
    auc_picture,
    connections_picture,
    depth_picture,
    draw_depth,
    layers_picture,
)

DEPTHS = (4, 8, 16, 32)
GAIN = {"none": 0.0, "lorentz": 2.0, "tangent": 1.0, "parallel_transport": -1.0, "parallel_transport_textbook": -1.0}


def run(cell: str, method: str, depth: int, seed: int, value: float | None) -> dict[str, Any]:
    layers = {name: [10.0**-layer + seed for layer in range(depth)] for name in ("radius", "distance", "gradient")}
    record = {"table": "oversmoothing", "cell": f"{cell}/{depth}", "method": method, "protocol": "legacy", "seed": seed}
    record |= {"split": None, "stage": "final", "config": {"num_layers": depth}, "validation": value, "value": value}
    return record | {"initial_layers": layers} | ({} if value is None else {"layers": layers})


@pytest.fixture
def runs() -> list[dict[str, Any]]:
    """Gaps of GAIN for each doubling from 2 layers on; with exp and log nothing from 16 layers on."""
    found = []
    for cell in ("disease/lp", "airport/lp"):
        for method, gain in GAIN.items():
            for doublings, depth in enumerate(DEPTHS, 1):
                for seed in range(3):
                    value = 90 - 5 * doublings + 3 * seed + gain * doublings + 0.01 * seed * (method == "lorentz")
                    lost = method.endswith("textbook") and depth >= 16
                    found.append(run(cell, method, depth, seed, None if lost else value))
    return found


def change(runs: list[dict[str, Any]], amount: float | None, **where: Any) -> None:
    chosen = [r for r in runs if all(r[name] == value for name, value in where.items())]
    assert chosen
    for record in chosen:
        record["value"] = None if amount is None else record["value"] + amount


def test_differences_are_paired_over_seeds(runs):
    change(runs, None, cell="disease/lp/8", method="none", seed=1)
    gaps = differences_by_seed("none", runs_by_depth(runs)["disease/lp"], "tangent")
    assert list(gaps) == list(DEPTHS)
    assert gaps[4] == pytest.approx({0: 1.0, 1: 1.0, 2: 1.0})
    assert gaps[8] == pytest.approx({0: 2.0, 2: 2.0})


def test_protocols_are_separate(runs):
    deep = [record | {"protocol": "legacy-deep"} for record in runs if record["config"]["num_layers"] >= 16]
    both = [*deep, *runs]
    assert depth_protocols(both) == ["legacy", "legacy-deep"]
    assert runs_by_depth(both) == runs_by_depth(runs)
    assert list(all_runs_by_depth(both)) == [
        "disease/lp",
        "airport/lp",
        "disease/lp, legacy-deep",
        "airport/lp, legacy-deep",
    ]
    titles = [axes.get_title(loc="left") for axes in depth_picture(both, protocol="legacy-deep").axes]
    assert titles[0] == "disease/lp, legacy-deep"
    assert [axes.get_title(loc="left") for axes in auc_picture(both).axes] == list(all_runs_by_depth(both))
    lead = "On disease/lp, legacy-deep, the lead of Lorentz over none is +6.0 at 16 layers, +8.0 at 32 layers: +2.00 ("
    assert lead in depth_claims(both)[0].evidence
    change(deep, -30.0, cell="disease/lp/32", method="lorentz")
    assert answers([*deep, *runs])[0] == PARTLY


def test_other_tables_and_searches_do_not_count(runs):
    strangers = [runs[0] | {"table": "gnn", "cell": "disease/lp"}, runs[0] | {"stage": "search"}]
    assert runs_by_depth(strangers) == {}
    assert runs_by_depth([*runs, *strangers]) == runs_by_depth(runs)


def test_means_bands_and_layers_are_those_of_the_runs(runs):
    figure, _, gap, _, lost, _ = depth_picture(runs).axes
    radius = layers_picture(runs).axes[0]
    assert figure.get_title(loc="left") == "disease/lp"
    assert radius.get_title(loc="left") == "disease/lp, 32 layers"
    lines = {line.get_label(): line for line in gap.lines}
    assert list(lines["tangent"].get_xdata()) == list(DEPTHS)
    assert list(lines["tangent"].get_ydata()) == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert "none" not in lines
    drawn = [line.get_label() for line in figure.lines]
    assert list(figure.lines[drawn.index("none")].get_ydata()) == pytest.approx([88.0, 83.0, 78.0, 73.0])
    corners = figure.collections[drawn.index("none")].get_paths()[0].get_extents()
    assert (corners.ymin, corners.ymax) == pytest.approx((73.0 - 3.0, 88.0 + 3.0))  # seeds differ by 3
    shares = [text.get_text() for text in lost.texts]
    assert shares.count("3/3") == 2
    assert shares.count("0/3") == 18
    assert radius.lines[0].get_label() == "lorentz"
    assert list(radius.lines[0].get_ydata()) == pytest.approx([10.0**-layer + 1 for layer in range(32)])
    styles = {line.get_label(): line.get_linestyle() for line in radius.lines}
    assert styles["parallel transport, exp and log"] == ":"
    assert styles["lorentz"] == "-"


def test_data_sets_have_the_same_axes_and_that_of_the_auc_ends_at_100(runs):
    change(runs, 13.0, cell="airport/lp/4", method="lorentz", seed=2)  # 106: no result may widen the axis
    for picture in (depth_picture(runs), layers_picture(runs)):
        for left, right in zip(picture.axes[::2], picture.axes[1::2], strict=True):
            assert left.get_ylim() == right.get_ylim()
    for axes in (*depth_picture(runs).axes[:2], *auc_picture(runs).axes):
        assert axes.get_ylim() == (65.0, 100.0)


def test_methods_have_different_markers(runs):
    lines = depth_picture(runs).axes[0].lines
    assert len({line.get_marker() for line in lines}) == len({line.get_color() for line in lines}) == len(GAIN)


def test_a_line_ends_where_a_number_is_zero_or_not_finite(runs):
    for record in runs:
        if record["method"] == "none":
            record["layers"]["gradient"] = [None, 0.0, *record["layers"]["gradient"][2:]]
    gradient = layers_picture(runs, layers=8).axes[4]
    none = next(line for line in gradient.lines if line.get_label() == "none")
    assert [value > 0 for value in none.get_ydata()] == [False, False, *[True] * 6]


def test_runs_that_all_diverged_are_drawn(runs, tmp_path):
    for record in runs:
        for own in ("layers", "initial_layers"):
            if own in record:
                record[own] = {name: [None] * record["config"]["num_layers"] for name in record[own]}
        record["value"] = None
    paths = draw_depth(tmp_path / "d.png", runs)
    assert [path.name for path in paths] == ["d.png", "d-layers.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)
    auc_picture(runs)


def test_another_network_is_drawn_beside_the_chain(runs, tmp_path):
    deeper = [
        run("disease/lp", "lorentz", depth, seed, 97.0 + seed) | {"protocol": "legacy-initial"}
        for depth in (16, 32)
        for seed in range(3)
    ]
    for record in deeper:
        record["config"]["model"] = "another_network"
    alone, both = depth_picture(runs).axes, depth_picture([*runs, *deeper], second_protocol="legacy-initial").axes
    lines = {line.get_label(): line for line in both[0].lines}
    assert {line.get_label() for line in alone[0].lines} == lines.keys() - {"lorentz, another_network"}
    line = lines["lorentz, another_network"]
    assert list(line.get_ydata()) == [98.0, 98.0]
    assert (line.get_color(), line.get_markerfacecolor()) == (lines["lorentz"].get_color(), "white")
    assert len(both[1].lines) == len(alone[1].lines)  # not on airport
    assert [text.get_text() for text in both[4].texts] == [text.get_text() for text in alone[4].texts]
    radius = layers_picture([*runs, *deeper], second_protocol="legacy-initial").axes[0]
    assert [line.get_label() for line in radius.lines].count("lorentz, another_network") == 1
    assert all(
        path.is_file() for path in draw_depth(tmp_path / "d.svg", [*runs, *deeper], second_protocol="legacy-initial")
    )
    with pytest.raises(ValueError, match="no final runs of the table oversmoothing"):
        depth_picture(runs, second_protocol="legacy-initial")


def test_a_chain_and_the_initial_residual_are_drawn_by_depth(tmp_path, capsys):
    found = []
    for protocol, connection, score in (("public-chain", "chain", 50.0), ("public-deep", "initial", 80.0)):
        for method, more in (("lorentz", 2.0), ("lorentz_limit", 1.0), ("euclidean", 0.0)):
            for depth in (4, 16):
                found += [run("cora/nc", method, depth, seed, score + more + seed) for seed in range(3)]
                for record in found[-3:]:
                    record |= {"table": "deep", "protocol": protocol}
                    record["config"]["connection"] = connection
    found += [record | {"protocol": "hgcn-chain", "cell": "airport/lp/4"} for record in found[:3]]  # no counterpart
    picture = connections_picture(found)
    picture.draw_without_rendering()
    for text in (*picture.legends, *picture.texts):
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= picture.bbox.width
    (axes,) = picture.axes
    assert axes.get_title(loc="left") == "cora/nc, public"
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines == {
        "lorentz": [53.0, 53.0],
        "lorentz, K → 0": [52.0, 52.0],
        "Euclidean baseline": [51.0, 51.0],
        "lorentz, initial": [83.0, 83.0],
        "lorentz, K → 0, initial": [82.0, 82.0],
        "Euclidean baseline, initial": [81.0, 81.0],
    }
    (tmp_path / "deep.jsonl").write_text("".join(json.dumps(record) + "\n" for record in found))
    assert main(["pages", "connections", str(tmp_path), "--out", str(tmp_path / "c.svg")]) == 0
    assert "lorentz, initial" in (tmp_path / "c.svg").read_text()
    with pytest.raises(ValueError, match="run `lresnet reproduce deep` first"):
        connections_picture(found[:18])


def test_a_picture_without_runs_is_refused(runs):
    with pytest.raises(ValueError, match="no final runs of the table oversmoothing; run `lresnet reproduce "):
        depth_picture([])
    with pytest.raises(ValueError, match="no runs with 5 layers; choose one of 4, 8, 16, 32"):
        layers_picture(runs, layers=5)


def answers(runs: list[dict[str, Any]]) -> list[str]:
    return [claim.verdict for claim in depth_claims(runs)]


def test_a_depth_at_which_a_method_diverged_does_not_count(runs):
    change(runs, None, cell="disease/lp/32", method="none")
    widens = depth_claims(runs)[0]
    assert widens.verdict == HOLDS
    assert "is +2.0 at 4 layers, +4.0 at 8 layers, +6.0 at 16 layers: +2.00 (" in widens.evidence


def test_the_verdicts(runs):
    assert answers([]) == [NOT_MEASURED] * 3
    assert answers(runs) == [HOLDS, REFUTED, HOLDS]
    widens, shrinks, breaks = [claim.evidence for claim in depth_claims(runs)]
    assert "+8.0 at 32 layers: +2.00 (+2.00 to +2.00) points per doubling of the depth." in widens
    assert shrinks.startswith("On disease/lp, the lead of tangent over none changes by +1.00 (+1.00 to +1.00) points")
    counts = "0 of 6 at 4 layers, 0 of 6 at 8 layers, {} of 6 at 16 layers, {} of 6 at 32 layers."
    assert f"exp and log that were not finite: {counts.format(6, 6)}" in breaks
    assert breaks.endswith(f"boost that were not finite: {counts.format(0, 0)}")


def test_the_verdicts_follow_the_data(runs):
    change(runs, -9.0, cell="disease/lp/32", method="tangent")
    assert answers(runs)[1] == PARTLY
    change(runs, -9.0, cell="airport/lp/16", method="tangent")
    assert answers(runs)[1] == HOLDS
    for record in runs:
        if record["cell"] == "disease/lp/16" and record["method"] == "parallel_transport_textbook":
            record["value"] = 80.0
    assert answers(runs)[2] == PARTLY
    for cell in ("disease/lp/32", "airport/lp/32"):
        change(runs, -30.0, cell=cell, method="lorentz")
    assert answers(runs)[0] == REFUTED


def test_an_interval_that_contains_zero_leaves_the_claim_undecided(runs):
    for cell in ("disease/lp/32", "airport/lp/32"):
        change(runs, -60.0, cell=cell, method="lorentz", seed=0)
    assert answers(runs)[0] == UNDECIDED


def test_one_data_set_that_shows_the_opposite_refutes_a_claim_undecided_on_another(runs):
    change(runs, -60.0, cell="disease/lp/32", method="lorentz", seed=0)
    change(runs, -30.0, cell="airport/lp/32", method="lorentz")
    assert answers(runs)[0] == REFUTED


def test_the_command_draws_the_picture_and_prints_the_claims(
    runs: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "oversmoothing.jsonl").write_text("".join(json.dumps(record) + "\n" for record in runs))
    call = ["pages", "depth", str(tmp_path), "--out", str(tmp_path / "depth.svg")]
    assert main([*call, "--layers", "16"]) == 0
    assert "disease/lp, 16 layers" in (tmp_path / "depth-layers.svg").read_text()
    printed = capsys.readouterr().out
    assert "the gap of lorentz over none widens with depth: holds. On disease/lp, the lead" in printed
    assert f"The pictures: {tmp_path / 'depth.svg'}, {tmp_path / 'depth-layers.svg'}" in printed.replace("\n", "")
    assert main([*call, "--protocol", "deep"]) == 2
    assert "unknown protocol with results 'deep'; choose one of legacy" in capsys.readouterr().err
