"""The histograms of `lresnet ood`: a panel a set and score, and no trouble with scores of one value."""

import warnings
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib.axes
import pytest
import torch
from PIL import Image

from lresnet.plots.score_histograms import draw_score_histograms
from lresnet.runs.detection import ScoredSet, Scores


def scores(count: int, seed: int, shift: float = 0.0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    names = ("energy", "origin_distance")
    return {name: torch.randn(count, generator=generator) + shift for name in names}


def test_a_panel_for_every_set_and_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles = []
    monkeypatch.setattr(matplotlib.axes.Axes, "set_title", lambda axes, title, **_: titles.append(title))
    sets = [ScoredSet("low", "", scores(300, 1, -9.0)), ScoredSet("photos/of/last/summer", "", scores(50, 2, 9.0))]
    path = draw_score_histograms(tmp_path / "scores.png", Scores(scores(400, 0), sets))
    assert titles == ["low, all 300: AUROC 100.0 %"] * 2 + ["…otos/of/last/summer, all 50: AUROC 0.0 %"] * 2
    with Image.open(path) as picture:
        assert min(picture.size) > 500
        assert len(picture.convert("RGB").getcolors(2**24) or ()) > 50


def test_told_apart_without_colour(tmp_path: Path) -> None:
    found = Scores(scores(400, 0), [ScoredSet("other", "", scores(300, 1))])
    tree = ET.parse(draw_score_histograms(tmp_path / "scores.svg", found))
    svg = "{http://www.w3.org/2000/svg}"
    assert tree.findall(f".//{svg}pattern")  # the test images are hatched
    dashed = [path for path in tree.iter(f"{svg}path") if "stroke-dasharray" in path.get("style", "")]
    assert len(dashed) >= 2  # the threshold in each of two panels


@pytest.mark.parametrize("value", [0.0, 1.0, -1e9])
def test_scores_of_one_value_and_scores_far_away(tmp_path: Path, value: float) -> None:
    inside = {"energy": torch.full((3000,), value)}
    far = ScoredSet("far", "", {"energy": torch.tensor([value + 1e6])})
    same = ScoredSet("same", "", {"energy": torch.full((5,), value)})
    assert draw_score_histograms(tmp_path / "scores.pdf", Scores(inside, [far, same])).stat().st_size > 1000


@pytest.mark.parametrize("name", ["$x^$", "one\ntwo", "not \udcff text", "[bold]"])
def test_a_set_may_be_called_anything(tmp_path: Path, name: str) -> None:
    found = Scores(scores(40, 0), [ScoredSet(name, "", scores(30, 1))])
    assert draw_score_histograms(tmp_path / "scores.png", found).stat().st_size > 1000


def test_scores_that_are_not_finite_are_refused_without_a_warning(tmp_path: Path) -> None:
    nothing = {"energy": torch.full((5,), torch.nan)}
    with warnings.catch_warnings(action="error"), pytest.raises(ValueError, match="in-distribution score 0 is nan"):
        draw_score_histograms(tmp_path / "scores.png", Scores(nothing, [ScoredSet("other", "", nothing)]))


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no set to draw"):
        draw_score_histograms(tmp_path / "scores.png", Scores(scores(10, 0), []))
