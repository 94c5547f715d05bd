"""Presets and the configuration of a run: names, splits, recipes, settings, and the command that repeats a run."""

import json
from pathlib import Path

import pytest

from lresnet.runs import GCNConfig, GraphTaskConfig, ImageTaskConfig, RunConfig
from lresnet.runs.config import configure
from lresnet.runs.presets import find_task, run_config


def test_the_preset_supplies_what_is_not_given() -> None:
    run = run_config("disease/lp", "euclidean", seed=3, settings={"epochs": 7})
    assert run.task == GraphTaskConfig("disease/lp", "hgcn")
    assert (run.model.residual, run.train.seed, run.train.epochs) == ("euclidean", 3, 7)
    assert isinstance(run.model, GCNConfig)
    assert (run.model.hidden, run.model.activation) == (15, "relu")
    lorentz = run_config("disease/lp", "lorentz").model
    assert isinstance(lorentz, GCNConfig)
    assert lorentz.activation is None


def test_the_preset_is_that_of_the_split() -> None:
    assert run_config("airport/nc").task == GraphTaskConfig("airport/nc", "disjoint", features="standardised")
    legacy = run_config("airport/nc", split="legacy")
    assert isinstance(legacy.task, GraphTaskConfig)
    assert legacy.task.split == "hgcn"
    assert legacy == run_config("airport/nc", split="hgcn")
    assert legacy.train.margin != run_config("airport/nc").train.margin
    chameleon = run_config("chameleon/nc").model
    assert isinstance(chameleon, GCNConfig)
    assert (chameleon.self_loops, chameleon.weight) == (False, "learned")
    assert run_config("chameleon/nc", "space").model.weight is None


def test_a_preset_may_be_a_variant_of_a_split() -> None:
    run = run_config("cora/nc", split="legacy-hyperplane")
    assert isinstance(run.task, GraphTaskConfig)
    assert isinstance(run.model, GCNConfig)
    assert (run.task.split, run.model.layer) == ("legacy", "hyperplane")


def test_a_task_without_a_preset_has_the_defaults_of_the_library() -> None:
    assert run_config("wordnet/lp") == configure(GraphTaskConfig("wordnet/lp", "disjoint"))


@pytest.mark.parametrize(
    ("split", "name", "index"),
    [
        (None, "official_splits", 0),
        ("7", "official_splits", 7),
        (7, "official_splits", 7),
        ("official_splits", "official_splits", None),
        ("fresh_splits", "fresh_splits", None),
        ("disjoint", "disjoint", None),
    ],
)
def test_official_splits_by_number(split: str | int | None, name: str, index: int | None) -> None:
    task = run_config("chameleon/nc", split=split).task
    assert isinstance(task, GraphTaskConfig)
    assert (task.split, task.split_index) == (name, index)


def test_older_names_of_splits_are_accepted_and_the_current_ones_recorded() -> None:
    assert GraphTaskConfig("cora/nc", "official") == GraphTaskConfig("cora/nc", "public")
    assert GraphTaskConfig("cora/nc", "legacy").split == "legacy"
    assert GraphTaskConfig("cora/lp", "legacy").split == "hgcn"
    before = run_config("cora/lp").as_dict()
    before["task"]["split"] = "legacy"  # as an earlier version recorded it
    assert RunConfig.from_dict(before) == run_config("cora/lp")


def test_a_split_without_a_preset_has_the_settings_of_the_default_split() -> None:
    default, other = run_config("cora/nc"), run_config("cora/nc", split="class-random", split_index=3)
    assert isinstance(other.task, GraphTaskConfig)
    assert (other.task.split, other.task.split_index) == ("class-random", 3)
    assert (other.model, other.train) == (default.model, default.train)


@pytest.mark.parametrize(
    ("task", "split", "index", "words"),
    [
        ("cora/nc", "class-random", 3, ["--split", "class-random", "--split-index", "3"]),
        ("cora/nc", "class-random", None, ["--split", "class-random"]),
        ("cora/nc", "official", None, ["--split", "public"]),
        ("actor/nc", "official_splits", 3, ["--split", "3"]),
        ("actor/nc", "fresh_splits", 3, ["--split", "fresh_splits", "--split-index", "3"]),
    ],
)
def test_the_command_selects_the_same_split(task: str, split: str, index: int | None, words: list[str]) -> None:
    run = run_config(task, split=split, split_index=index)
    typed = run.command().split()
    assert typed[typed.index("--split") :][: len(words)] == words
    again = {"split": words[1]} | ({"split_index": int(words[3])} if len(words) > 2 else {})
    assert run_config(task, **again) == run  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "split", "index", "words"),
    [
        ("cora/nc", "public", 0, "the split public has no number"),
        ("chameleon/nc", "3", 4, "--split 3 is a number, so --split-index 4"),
        ("cifar10", None, 4, "--split is for graphs"),
    ],
)
def test_a_number_of_a_split_that_selects_nothing_is_refused(
    task: str, split: str | None, index: int, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        run_config(task, split=split, split_index=index)


def test_the_transformer_has_presets_of_its_own() -> None:
    run = run_config("squirrel/nc", "tangent", seed=2, settings={"model": "lorentz_sgformer", "lr": 0.1})
    assert (run.model.name, run.train.epochs, run.train.lr) == ("lorentz_sgformer", 500, 0.1)
    other = run_config("cora/nc", settings={"model": "lorentz_sgformer"})  # not the settings of lorentz_gcn
    assert other == configure(GraphTaskConfig("cora/nc", "legacy"), settings={"model": "lorentz_sgformer"})


@pytest.mark.parametrize(
    ("task", "method", "words"),
    [
        ("desease/lp", "lorentz", "'desease/lp' does not exist, and no shipped task .*; did you mean 'disease/lp'"),
        ("disease/lp", "lorenz", "unknown method 'lorenz'; did you mean 'lorentz'"),
        ("cifar10", "lorenz", "unknown method 'lorenz'; did you mean 'lorentz'"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(task: str, method: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run_config(task, method)


def test_the_command_spells_out_every_setting() -> None:
    run = run_config("wordnet/lp", "space", seed=2, settings={"num_layers": 3, "lr": 0.05, "learn_curvature": True})
    assert run.command() == (
        "lresnet train wordnet/lp --method space --seed 2 --split disjoint --model lorentz_gcn --learn-curvature "
        "--layers 3 --epochs 1000 --lr 0.05 --weight-decay 0 --lr-schedule constant --eval-every 5 --optimizer adam "
        "--decay matrices --warmup 0 --keep best --criterion score --features published"
    )
    assert run.command(4).startswith("torchrun --nproc-per-node=4 -m lresnet train wordnet/lp --method space")


def test_a_whole_number_is_written_without_a_point() -> None:
    run = run_config("wordnet/lp", settings={"warmup": 5.0, "average": 0.999, "epochs": 7, "learn_curvature": False})
    assert "--no-learn-curvature" in run.command()
    assert "--warmup 5 --keep best --criterion score --average 0.999" in run.command()


def test_a_recipe_and_settings_of_images() -> None:
    run = run_config("cifar100", recipe="paper", settings={"lr": 0.5, "flip": False})
    assert (run.train.lr, run.train.augment.flip, run.train.batch_size) == (0.5, False, 128)
    assert run_config("cifar10").train.lr == 0.8
    assert run_config("cifar10", "space").train.lr == 0.4


def test_the_warm_up_keeps_its_fraction_of_the_epochs() -> None:
    assert run_config("cifar10").train.warmup == 5
    assert run_config("cifar10", settings={"epochs": 10}).train.warmup == pytest.approx(0.5)
    assert run_config("cifar10", settings={"epochs": 10, "warmup": 2}).train.warmup == 2


def test_own_images_are_named_by_their_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_config("my images.npz")
    assert run.task == ImageTaskConfig(str(tmp_path / "my images.npz"), holdout=run.task.holdout)
    assert run.model.name == "lorentz_resnet18"
    assert f"lresnet train '{run.task.name}' --method lorentz --seed 0" in run.command()


def test_a_path_is_kept_with_its_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("disk/photos/deep", "photos/deep"):
        Path(folder).mkdir(parents=True)
    Path("link").symlink_to("disk/photos")
    for typed in ("link", "link/", "./link/.", str(tmp_path / "link"), "photos/../link", f"../{tmp_path.name}/link"):
        assert run_config(typed).task.name == str(tmp_path / "link")
    assert run_config("link/deep").task.name == str(tmp_path / "link" / "deep")
    assert run_config("link/../photos").task.name == str(tmp_path / "disk" / "photos")  # .. follows the link
    monkeypatch.chdir("disk/photos")
    assert run_config(".").task.name == str(tmp_path / "disk" / "photos")


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown recipe 'slow'; .*fast, fast-learned, long, long-cutmix, paper"):
        run_config("cifar10", recipe="slow")


def test_options_of_another_kind_of_task_are_refused() -> None:
    with pytest.raises(ValueError, match="--recipe is for images and texts, but disease/lp is a task on graphs"):
        run_config("disease/lp", recipe="fast")
    with pytest.raises(ValueError, match="--split is for graphs, but cifar10 is a task on images"):
        run_config("cifar10", split="0")
    with pytest.raises(ValueError, match="--hidden is for graphs, but cifar10 is a task on images"):
        run_config("cifar10", settings={"hidden": 3})
    with pytest.raises(ValueError, match="lorentz_gcn is not a network for images, as cifar10 needs"):
        run_config("cifar10", settings={"model": "lorentz_gcn"})


def test_tasks_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("disease/lp").mkdir(parents=True)
    assert find_task(None) == ("graphs", "disease_tree/lp")
    assert find_task(None, "images") == ("images", "cifar10")
    assert find_task("cifar100") == ("images", "cifar100")
    assert find_task("disease") == ("images", "disease")  # a folder
    assert find_task("disease/lp") == ("graphs", "disease/lp")  # a shipped task takes precedence
    assert find_task("disease/lp", "images") == ("images", "disease/lp")
    assert run_config("disease/lp", kind="images").task.name == str(tmp_path / "disease" / "lp")
    assert find_task("gone.npz") == ("images", "gone.npz")


@pytest.mark.parametrize(("name", "near"), [("cifar1", "cifar10"), ("cora", "cora/nc"), ("cora/cn", "cora/nc")])
def test_unknown_data_get_a_suggestion_and_the_list(name: str, near: str) -> None:
    with pytest.raises(
        ValueError, match=rf"'{name}' does not exist.*; did you mean '{near}'\? Graphs: actor/nc, .*"
    ) as e:
        find_task(name)
    assert "images: cifar10, cifar100" in str(e.value)


def test_own_images_are_trained_with_clipped_gradients_and_a_smaller_rate(tmp_path: Path) -> None:
    assert run_config(str(tmp_path)).train.clip == 1.0
    assert run_config(str(tmp_path), settings={"clip": 3.0}).train.clip == 3.0
    assert run_config("cifar10").train.clip is None
    assert "--clip 1 " in run_config(str(tmp_path)).command()
    assert run_config("cifar10").train.lr == 0.8  # selected by its search
    assert run_config(str(tmp_path)).train.lr == 0.4
    assert run_config(str(tmp_path), settings={"lr": 0.8}).train.lr == 0.8
    assert run_config(str(tmp_path), recipe="paper").train.lr == 0.1


@pytest.mark.parametrize("task", ["disease_tree/lp", "chameleon/nc", "cifar10"])
@pytest.mark.parametrize("method", ["lorentz", "euclidean", "tangent_textbook"])
def test_a_configuration_survives_json(task: str, method: str) -> None:
    run = run_config(task, method, seed=4)
    assert RunConfig.from_dict(run.as_dict()) == run


def test_dropped_columns_are_part_of_the_run_and_of_its_command() -> None:
    run = run_config("disease/lp", settings={"drop_columns": [10, 2, 10]})
    assert isinstance(run.task, GraphTaskConfig)
    assert run.task.drop_columns == (2, 10)
    assert "--drop-columns 2 10" in run.command()
    values = json.loads(json.dumps(run.as_dict()))
    assert values["task"] == run.as_dict()["task"]  # JSON has no tuples
    assert RunConfig.from_dict(values) == run
    assert run.same_run(run_config("disease/lp")) == "drop_columns is None there, not (2, 10)"
    assert run_config("disease/lp", settings={"drop_columns": []}) == run_config("disease/lp")


@pytest.mark.parametrize("columns", [[-1], [1.5], [True], 10, "10"])
def test_dropped_columns_are_a_list_of_numbers(columns: object) -> None:
    with pytest.raises(ValueError, match="drop_columns must be a list of whole numbers, 0 or more, got"):
        run_config("disease/lp", settings={"drop_columns": columns})


def test_columns_of_an_own_graph_are_left_out_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match="--drop-columns is for shipped tasks; leave the columns out of the file"):
        run_config(str(tmp_path / "g.csv"), graph_task="link", settings={"drop_columns": [1]})
