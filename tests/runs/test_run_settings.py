"""Runs of one method that differ in more than the seed are told apart, by what differs."""

from __future__ import annotations

from typing import Any

import pytest

from lresnet.runs.run_settings import named_settings
from lresnet_paper.pages.overview import overview
from lresnet_paper.pages.paired import paired_differences
from lresnet_paper.results import aggregate


def run(value: float, seed: int = 0, method: str = "lorentz", **config: Any) -> dict[str, Any]:
    place = {"table": "train", "cell": "disease_tree/lp", "protocol": "disjoint", "method": method}
    return place | {"seed": seed, "value": value, "validation": value, "config": config}


@pytest.mark.parametrize(
    ("configs", "settings"),
    [
        ([{"lr": 0.1}, {"lr": 0.1}], [None, None]),
        ([{"warmup": 5}, {"warmup": 5.0}], [None, None]),
        ([{"lr": 0.1, "epochs": 3}, {"lr": 0.2, "epochs": 3}], ["lr 0.1", "lr 0.2"]),
        ([{"lr": 0.1}, {"lr": 0.1, "flip": False}], ["flip default", "flip False"]),
        (
            [{"lr": 0.1}, {"model": "lorentz_sgformer", "heads": 2}, {"lr": 0.2}],
            ["model default, lr 0.1", "model lorentz_sgformer", "model default, lr 0.2"],
        ),
    ],
)
def test_what_differs_is_named(configs: list[dict[str, Any]], settings: list[str | None]) -> None:
    named = named_settings(run(50.0, **config) for config in configs)
    assert [one.get("settings") for one in named] == settings


def test_only_runs_of_the_same_settings_are_averaged() -> None:
    runs = [run(80.0, 0, lr=0.1), run(82.0, 1, lr=0.1), run(60.0, 0, lr=0.2), run(50.0, 0, "space", lr=0.2)]
    figures = aggregate(named_settings(runs))
    shown = [(figure.name, figure.mean, figure.n) for figure in figures]
    assert shown == [("lorentz, lr 0.1", 81.0, 2), ("lorentz, lr 0.2", 60.0, 1), ("space", 50.0, 1)]
    assert [figure.as_dict().get("settings") for figure in figures] == ["lr 0.1", "lr 0.2", None]


def test_differences_are_of_one_setting() -> None:
    lorentz = [run(80.0, 0, lr=0.1), run(82.0, 1, lr=0.1)]
    other = [run(50.0 + seed, seed, "space", lr=lr) for lr in (0.1, 0.2) for seed in (0, 1)]
    runs = named_settings([*lorentz, *other])
    differences = paired_differences(runs)
    assert [(d.method, d.n) for d in differences] == [("space, lr 0.1", 2), ("space, lr 0.2", 2)]
    (line,) = overview(aggregate(runs), differences)
    assert line.difference in differences
    several = named_settings([*lorentz, *other, run(70.0, 0, lr=0.3), run(70.0, 1, lr=0.3)])
    assert paired_differences(several) == []  # which of the two would be compared?
    assert overview(aggregate(several), []) == []
