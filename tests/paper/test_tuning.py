"""What the settings of one method cost another, from searches made for the purpose."""

from typing import Any

import pytest

from lresnet_paper.pages.claims import HOLDS, IN_PART, REFUTED, answer_claims
from lresnet_paper.pages.tuning import tuning_losses

SENTENCE = "a residual adds little tuning overhead"


def search(cell: str, method: str, values: dict[float, list[float | None]]) -> list[dict[str, Any]]:
    base = {"table": "gnn", "cell": cell, "method": method, "protocol": "legacy", "stage": "search", "value": None}
    return [
        base | {"config": {"lr": lr}, "seed": 1000 + seed, "validation": value}
        for lr, own in values.items()
        for seed, value in enumerate(own)
    ]


def cell(name: str, loss: float) -> list[dict[str, Any]]:
    """For none 0.1 is best; with it Lorentz is worse by ``loss`` than with 0.2."""
    return search(name, "none", {0.1: [90.0, 92.0], 0.2: [80.0, 80.0]}) + search(
        name, "lorentz", {0.1: [95.0 - loss, 95.0 - loss], 0.2: [94.0, 96.0]}
    )


def test_the_loss_is_against_its_own_best_of_the_same_search() -> None:
    assert tuning_losses(cell("cora/nc", 3.0)) == {"cora/nc, legacy": pytest.approx(3.0)}
    assert tuning_losses(cell("cora/nc", 0.0)) == {"cora/nc, legacy": 0.0}


def test_what_diverged_or_was_searched_elsewhere_does_not_count() -> None:
    lost = search("cora/nc", "none", {0.1: [99.0, None], 0.2: [80.0, 80.0]})
    lost += search("cora/nc", "lorentz", {0.1: [99.0, 99.0], 0.2: [90.0, 90.0]})
    assert tuning_losses(lost) == {"cora/nc, legacy": 9.0}  # the best of none that ended well is 0.2
    elsewhere = search("cora/nc", "none", {0.1: [90.0]}) + search("cora/nc", "lorentz", {0.3: [90.0]})
    assert tuning_losses(elsewhere) == {}
    assert tuning_losses([run | {"stage": "final"} for run in lost]) == {}


@pytest.mark.parametrize(("losses", "verdict"), [((0.2, 0.9), HOLDS), ((0.2, 3.0), IN_PART), ((2.0, 3.0), REFUTED)])
def test_the_answer(losses: tuple[float, float], verdict: str) -> None:
    runs = cell("cora/nc", losses[0]) + cell("disease/lp", losses[1])
    answer = next(claim for claim in answer_claims([], [], runs) if claim.sentence == SENTENCE)
    assert answer.verdict == verdict
    assert f"most on disease/lp, legacy, {losses[1]:.2f}" in answer.evidence
