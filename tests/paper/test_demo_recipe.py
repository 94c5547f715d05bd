"""The recipes of the demo: configurations drawn in advance and searched on seeds that the demo does not use."""

import pytest

from lresnet.residual.registry import compared_methods
from lresnet.runs.demo import DEMO_SEEDS, DEMO_TASKS
from lresnet.runs.search import draw
from lresnet_paper.plan import SEARCH_SEEDS, recipe


@pytest.mark.parametrize("task", DEMO_TASKS)
def test_settings_were_drawn_and_chosen_on_other_seeds(task: str) -> None:
    plan = recipe("demo", task)
    assert plan["configurations"] == draw(plan["space"], plan["count"], plan["seed"])
    assert plan["chosen"].keys() == set(compared_methods())
    assert all(chosen in plan["configurations"] for chosen in plan["chosen"].values())
    assert not set(DEMO_SEEDS) & set(SEARCH_SEEDS)
