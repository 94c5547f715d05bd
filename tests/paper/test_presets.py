"""The presets of the library hold the settings that the recipes state as chosen."""

from collections.abc import Iterator
from typing import Any

import pytest

from lresnet.data import IMAGE_SETS, TASKS
from lresnet.data.split_names import ALIASES
from lresnet.residual.registry import RESIDUALS
from lresnet.runs.config import configure
from lresnet.runs.presets import image_recipes, run_config
from lresnet.runs.task_config import GraphTaskConfig, ImageTaskConfig
from lresnet_paper import run as paper_run
from lresnet_paper.plan import protocols, recipe, recipe_cells
from lresnet_paper.run import Run, complete

SEED = 3


def graph_plan(task: str, split: str | None) -> dict[str, Any]:
    """Return the recipe behind a preset: that of the table demo, else gnn; the default recipe for any other split."""
    table = next((name for name in ("demo", "gnn") if task in recipe_cells(name)), None)
    if table is None:
        return {"fixed": {}}
    older = next((name for name, now in ALIASES.items() if now == split), None)  # recipes keep the older names
    return recipe(table, task, next((name for name in (split, older) if name in protocols(table, task)), None))


def splits_of(task: str) -> list[str | None]:
    """Return every split of a task, every protocol of its recipes, and None for the default."""
    plans = [name for table in ("demo", "gnn") if task in recipe_cells(table) for name in protocols(table, task)]
    return [None, *dict.fromkeys([*TASKS[task].splits, *plans])]


def graph_cases() -> Iterator[tuple[str, str | None]]:
    return ((task, split) for task in TASKS for split in splits_of(task))


@pytest.mark.parametrize("method", RESIDUALS)
@pytest.mark.parametrize(("task", "split"), list(graph_cases()))
def test_a_graph_task_has_the_chosen_settings_of_its_recipe(task: str, split: str | None, method: str) -> None:
    plan = graph_plan(task, split)
    settings = complete(plan, method, plan.get("chosen", {}).get(method, {}))
    protocol = split or plan.get("protocol", TASKS[task].splits[0])
    index = 0 if split is None and protocol == "official_splits" else None
    expected = paper_run.run_config(Run("train", task, method, protocol, SEED, settings, index))
    assert run_config(task, method, seed=SEED, split=split) == expected


@pytest.mark.parametrize("method", RESIDUALS)
@pytest.mark.parametrize("task", [task for task in TASKS if task.endswith("/nc")])
def test_a_graph_transformer_has_the_chosen_settings_of_its_recipe(task: str, method: str) -> None:
    cell, settings = task.removesuffix("/nc"), {"model": "lorentz_sgformer"}
    if cell in recipe_cells("graph_transformer"):
        plan = recipe("graph_transformer", cell)
        settings |= complete(plan, method, plan["chosen"].get(method, {}))
    split = graph_plan(task, None).get("protocol", TASKS[task].splits[0])
    index = 0 if split == "official_splits" else None
    expected = configure(GraphTaskConfig(task, split, index), method, SEED, settings)
    assert run_config(task, method, seed=SEED, settings={"model": "lorentz_sgformer"}) == expected


@pytest.mark.parametrize("method", ["lorentz", "euclidean"])
@pytest.mark.parametrize("task", ["cora/nc", "pubmed/nc"])
def test_a_deep_network_has_the_published_settings_and_stopping_rule_of_gcnii(task: str, method: str) -> None:
    plan = recipe("deep", task, "public-loss")
    expected = paper_run.run_config(
        Run("train", task, method, "public-loss", SEED, complete(plan, method, plan["configurations"][0]), None)
    )
    assert run_config(task, method, seed=SEED, split="public", settings={"model": "lorentz_gcnii"}) == expected
    assert (expected.train.criterion, expected.train.patience) == ("loss", 100)


@pytest.mark.parametrize("method", RESIDUALS)
@pytest.mark.parametrize("name", [None, *image_recipes()])
@pytest.mark.parametrize("images", IMAGE_SETS)
def test_images_have_the_chosen_settings_of_their_recipe(images: str, name: str | None, method: str) -> None:
    """A method without chosen settings uses the first configuration of the search."""
    plan = recipe("image_classification", images, name)
    settings = complete(plan, method, plan["chosen"].get(method, plan["configurations"][0]), "train")
    expected = configure(ImageTaskConfig(images), method, SEED, settings)
    assert run_config(images, method, seed=SEED, recipe=name) == expected


def test_the_recipes_of_images_have_the_names_of_the_protocols() -> None:
    for images in IMAGE_SETS:
        assert set(image_recipes()) == set(protocols("image_classification", images))
        assert image_recipes()[0] == protocols("image_classification", images)[0]
