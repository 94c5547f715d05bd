"""A run as a person asks for it."""

from pathlib import Path
from typing import Any

import pytest

from lresnet.runs.single import command_of, find_data, single_image_run, single_run
from lresnet_paper.search import recipe


def test_the_recipe_supplies_what_is_not_said() -> None:
    run = single_run("disease/lp", "euclidean", seed=3, config={"epochs": 7})
    assert (run.protocol, run.split, run.seed, run.method) == ("legacy", None, 3, "euclidean")
    assert run.config["epochs"] == 7
    assert run.config["hidden"] == 15
    assert run.config["activation"] == "relu"
    assert "activation" not in single_run("disease/lp", "lorentz").config


def test_the_recipe_is_that_of_the_split() -> None:
    assert single_run("airport/nc").protocol == "disjoint"
    assert single_run("airport/nc", split="legacy").protocol == "legacy"
    assert single_run("chameleon/nc").config["self_loops"] is False
    assert single_run("chameleon/nc").config["weight"] == "learned"
    assert "weight" not in single_run("chameleon/nc", "space").config


def test_the_demo_s_cells_have_the_chosen_settings() -> None:
    assert single_run("disease_tree/lp", "none").config["margin"] == 150.0


def test_a_cell_without_a_recipe_has_the_library_s_defaults() -> None:
    assert single_run("wordnet/lp").config == {}
    assert single_run("wordnet/lp").protocol == "disjoint"


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
    run = single_run("wordnet/lp", "space", 2, config={"num_layers": 3, "lr": 0.05, "learn_curvature": True})
    assert command_of(run) == (
        "lresnet train wordnet/lp --method space --seed 2 --split disjoint --layers 3 --lr 0.05 --learn-curvature"
    )


def test_numbers_are_spelt_one_way() -> None:
    run = single_run("wordnet/lp", config={"warmup": 5.0, "average": 0.999, "epochs": 7, "learn_curvature": False})
    assert command_of(run).endswith("--warmup 5 --average 0.999 --epochs 7 --no-learn-curvature")


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """CIFAR-10's fast recipe as it was before its search."""
    plan = recipe("image_classification", "cifar10", "fast")
    plan.pop("chosen", None)
    monkeypatch.setattr("lresnet.runs.single.recipe", lambda *args: plan)
    return plan


def test_images_take_the_recipe_s_first_configuration_and_what_it_says_of_single_runs(plan: dict[str, Any]) -> None:
    run = single_image_run("cifar10", "space", seed=3)
    assert (run.cell, run.protocol, run.method, run.seed, run.stage) == ("cifar10", "fast", "space", 3, "train")
    assert run.config == plan["fixed"] | plan["configurations"][0] | plan["train"]


def test_what_the_search_chose_goes_before_the_first_configuration(plan: dict[str, Any]) -> None:
    first, second = ({**plan["configurations"][0], "lr": lr} for lr in (0.25, 0.75))
    plan |= {"configurations": [first, second], "chosen": {"lorentz": second}}
    assert single_image_run("cifar10").config["lr"] == 0.75
    assert single_image_run("cifar10", "space").config["lr"] == 0.25


def test_another_recipe_and_settings_of_one_s_own() -> None:
    run = single_image_run("cifar100", protocol="paper", config={"lr": 0.5, "flip": False})
    assert (run.protocol, run.config["lr"], run.config["flip"]) == ("paper", 0.5, False)
    assert run.config["batch_size"] == recipe("image_classification", "cifar100", "paper")["fixed"]["batch_size"]


def test_warm_up_stays_the_same_share_of_a_shorter_run(plan: dict[str, Any]) -> None:
    plan["fixed"] |= {"epochs": 100, "warmup": 5}
    assert single_image_run("cifar10").config["warmup"] == 5
    assert single_image_run("cifar10", config={"epochs": 10}).config["warmup"] == pytest.approx(0.5)
    assert single_image_run("cifar10", config={"epochs": 10, "warmup": 2}).config["warmup"] == 2


def test_images_of_one_s_own_are_kept_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = single_image_run("my images.npz")
    assert run.cell == str(tmp_path / "my images.npz")
    assert run.config["model"] == recipe("image_classification", "cifar10", "fast")["fixed"]["model"]
    assert f"lresnet train '{run.cell}' --method lorentz --seed 0 --recipe fast" in command_of(run)


def test_a_path_is_kept_with_its_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("disk/photos/deep", "photos/deep"):
        Path(folder).mkdir(parents=True)
    Path("link").symlink_to("disk/photos")
    for typed in ("link", "link/", "./link/.", str(tmp_path / "link"), "photos/../link", f"../{tmp_path.name}/link"):
        assert single_image_run(typed).cell == str(tmp_path / "link")
    assert single_image_run("link/deep").cell == str(tmp_path / "link" / "deep")
    assert single_image_run("link/../photos").cell == str(tmp_path / "disk" / "photos")  # not what it looks like
    monkeypatch.chdir("disk/photos")
    assert single_image_run(".").cell == str(tmp_path / "disk" / "photos")


def test_no_such_recipe_or_method() -> None:
    with pytest.raises(ValueError, match=r"protocol slow; there are: fast, fast-learned, long, long-cutmix, paper"):
        single_image_run("cifar10", protocol="slow")
    with pytest.raises(ValueError, match="did you mean 'lorentz'"):
        single_image_run("cifar10", "lorenz")


def test_data_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("disease/lp").mkdir(parents=True)
    assert find_data(None) == ("graphs", "disease_tree/lp")
    assert find_data(None, "images") == ("images", "cifar10")
    assert find_data("cifar100") == ("images", "cifar100")
    assert find_data("disease") == ("images", "disease")  # a folder
    assert find_data("disease/lp") == ("graphs", "disease/lp")  # a cell goes before a folder
    assert find_data("disease/lp", "images") == ("images", "disease/lp")
    assert find_data("gone.npz") == ("images", "gone.npz")


@pytest.mark.parametrize(("name", "near"), [("cifar1", "cifar10"), ("cora", "cora/nc"), ("cora/cn", "cora/nc")])
def test_unknown_data_get_the_nearest_and_all_there_is(name: str, near: str) -> None:
    with pytest.raises(
        ValueError, match=rf"unknown data '{name}'; did you mean '{near}'\? Graphs: disease/lp, .*"
    ) as e:
        find_data(name)
    assert "images: cifar10, cifar100" in str(e.value)


def test_images_of_ones_own_are_trained_with_clipped_gradients(tmp_path: Path) -> None:
    assert single_image_run(str(tmp_path)).config["clip"] == 1.0
    assert single_image_run(str(tmp_path), config={"clip": 3.0}).config["clip"] == 3.0
    assert "clip" not in single_image_run("cifar10").config
    assert "--clip 1 " in command_of(single_image_run(str(tmp_path))) + " "


def test_images_of_ones_own_are_not_trained_at_a_rate_that_only_large_sets_bear(tmp_path: Path) -> None:
    assert single_image_run("cifar10").config["lr"] == 0.8  # what its search chose
    assert single_image_run(str(tmp_path)).config["lr"] == 0.4
    assert single_image_run(str(tmp_path), config={"lr": 0.8}).config["lr"] == 0.8
    assert single_image_run(str(tmp_path), protocol="paper").config["lr"] == 0.1
