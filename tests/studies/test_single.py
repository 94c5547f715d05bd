"""A run as a person asks for it."""

import pytest

from lresnet.studies.single import command_of, single_run


def test_the_recipe_supplies_what_is_not_said() -> None:
    run = single_run("disease/lp", "euclidean", seed=3, config={"epochs": 7})
    assert (run.protocol, run.split, run.seed, run.method) == ("legacy", None, 3, "euclidean")
    assert run.config["epochs"] == 7
    assert run.config["hidden"] == 15
    assert run.config["activation"] == "relu"
    assert "activation" not in single_run("disease/lp", "lorentz").config


def test_the_demo_s_cells_have_the_chosen_settings() -> None:
    assert single_run("disease_tree/lp", "none").config["margin"] == 150.0


def test_a_cell_without_a_recipe_has_the_library_s_defaults() -> None:
    assert single_run("pubmed/lp").config == {}
    assert single_run("pubmed/lp").protocol == "disjoint"


@pytest.mark.parametrize(
    ("split", "protocol", "number"),
    [(None, "official_splits", 0), ("7", "official_splits", 7), ("disjoint", "disjoint", None)],
)
def test_official_splits_by_number(split: str | None, protocol: str, number: int | None) -> None:
    run = single_run("chameleon/nc", split=split)
    assert (run.protocol, run.split) == (protocol, number)


@pytest.mark.parametrize(
    ("cell", "method", "words"),
    [
        ("desease/lp", "lorentz", "unknown cell 'desease/lp'; did you mean 'disease/lp'"),
        ("disease/lp", "lorenz", "unknown method 'lorenz'; did you mean 'lorentz'"),
    ],
)
def test_a_wrong_name_gets_the_nearest(cell: str, method: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        single_run(cell, method)


def test_the_command_spells_everything_out() -> None:
    run = single_run("pubmed/lp", "space", 2, config={"num_layers": 3, "lr": 0.05, "learn_curvature": True})
    assert command_of(run) == (
        "lresnet train pubmed/lp --method space --seed 2 --split disjoint --layers 3 --lr 0.05 --learn-curvature"
    )
