"""fit and Run: one run in its folder, resumed bit-identically, evaluated once."""

import dataclasses
import json
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import lresnet
from lresnet.data import ImageSet, LinkTask, load_task
from lresnet.metrics import untrained_link_scores
from lresnet.models import LorentzResNet
from lresnet.runs import GCNConfig, GraphTaskConfig, Run, RunConfig
from lresnet.runs.config import configure
from lresnet.runs.device import usable_device
from lresnet.runs.presets import run_config
from lresnet.runs.record import read_evaluation, read_record
from lresnet.runs.training import fit
from lresnet.train import LinkPrediction, NodeClassification, TrainConfig
from tests.coloured import coloured_data, write_coloured
from tests.runs.folders import forget_checksums, opened, trained, unverified

CONFIG = {"epochs": 12, "eval_every": 2, "hidden": 4, "dropout": 0.2}


def run(task: str = "disease_tree/nc", **settings: object) -> RunConfig:
    return run_config(task, settings=CONFIG | settings)


def in_memory(config: RunConfig) -> Run:
    return fit(config.task, config.model, config.train, device="cpu")


@pytest.mark.parametrize("task", ["disease_tree/nc", "disease_tree/lp"])
def test_training_leaves_run_checkpoint_and_model(tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object) -> None:
        raise AssertionError("training must not read the test set")

    with monkeypatch.context() as patch:
        for objective in (LinkPrediction, NodeClassification):
            patch.setattr(objective, "test", forbidden)
        record = trained(tmp_path / "a", run(task)).record
    assert {p.name for p in (tmp_path / "a").iterdir()} == {"run.json", "checkpoint.pt", "curve.jsonl", "model"}
    written = json.loads((tmp_path / "a" / "run.json").read_text())
    assert written.pop("checksum")
    assert written == record.as_dict()
    assert {"format", "task", "model", "train", "command", "versions", "hardware", "seconds"} <= written.keys()
    assert "value" not in written
    assert record.config == run(task)
    # The metrics are those of the same run without a folder, and the saved model is the trained one.
    same = in_memory(run(task))
    assert record.validation == same.record.validation
    saved = load_file(tmp_path / "a" / "model" / "model.safetensors")
    assert all(torch.equal(saved[name], tensor) for name, tensor in same.model.state_dict().items())
    assert opened(tmp_path / "a").evaluate() == same.evaluate()


class Interruption(Exception):
    pass


@pytest.mark.parametrize("task", ["disease_tree/nc", "disease_tree/lp"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, task: str) -> None:
    def stop(epoch: int, best: float | None) -> None:
        if epoch >= 8:
            raise Interruption

    whole = trained(tmp_path / "whole", run(task))
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", run(task), checkpoint_every=5, on_epoch=stop)
    assert json.loads((tmp_path / "torn" / "run.json").read_text())["validation"] is None
    with pytest.raises(ValueError, match="has not finished"):
        opened(tmp_path / "torn").evaluate()
    epochs: list[int] = []
    torn = trained(tmp_path / "torn", run(task), on_epoch=lambda epoch, best: epochs.append(epoch))
    assert min(epochs) > 5  # it resumed
    assert (torn.record.validation, torn.record.best_epoch) == (whole.record.validation, whole.record.best_epoch)
    a, b = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "torn"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first = trained(tmp_path, run()).record
    before = (tmp_path / "run.json").stat().st_mtime_ns
    assert trained(tmp_path, run(), on_start=lambda *args: pytest.fail("it trains again")).record == first
    assert (tmp_path / "run.json").stat().st_mtime_ns == before


def test_the_test_set_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path, run())
    first = opened(tmp_path).evaluate()
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert written["metrics"] == first
    assert written["value"] == first["f1_binary"]
    assert written["command"].endswith("; lresnet evaluate")
    monkeypatch.setattr(NodeClassification, "test", lambda *args: pytest.fail("read again"))
    assert opened(tmp_path).evaluate() == first


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (run(epochs=13), "epochs is 12 there, not 13"),
        (run(margin=2.0), "margin is None there, not 2.0"),
        (run_config("disease_tree/nc", "space", settings=CONFIG), "method is lorentz there, not space"),
        (run_config("disease_tree/nc", seed=1, settings=CONFIG), "seed is 0 there, not 1"),
    ],
)
def test_a_folder_holds_one_run(tmp_path: Path, other: RunConfig, words: str) -> None:
    trained(tmp_path, run())
    with pytest.raises(ValueError, match=words):
        trained(tmp_path, other)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": -1.0}, "lr must be positive"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"patience": 3, "keep": "last"}, "patience=3 stops by the best validation pass"),
        ({"heads": 2}, "heads is not a setting of lorentz_gcn, but of lorentz_sgformer"),
        ({"cutout": 2}, "--cutout is for images, but disease_tree/nc is a task on graphs"),
    ],
)
def test_a_wrong_setting_is_reported_when_the_configuration_is_made(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run(**settings)


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        (run(), {"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        (run(), {"device": "nowhere"}, "unknown kind of device 'nowhere'; use auto"),
        (run(), {"device": "meta"}, "device 'meta' cannot be used here"),
        (configure(GraphTaskConfig("disease_tree/nc", "legacy"), "lorentz", 0, {}), {}, "no split 'legacy'"),
    ],
)
def test_an_impossible_run_writes_nothing(
    tmp_path: Path, config: RunConfig, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        trained(tmp_path / "a", config, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        trained(tmp_path / "file" / "run", run())
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"\x80\x02junk"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint.pt is damaged; delete it"):
        trained(tmp_path, run())


def test_a_checkpoint_without_its_record_is_refused(tmp_path: Path) -> None:
    """Its run may have had another seed."""
    trained(tmp_path, run())
    (tmp_path / "run.json").unlink()
    with pytest.raises(ValueError, match=r"checkpoint.pt has no run.json beside it"):
        trained(tmp_path, run_config("disease_tree/nc", seed=1, settings=CONFIG))


def test_a_folder_without_a_run_cannot_be_evaluated(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no run"):
        opened(tmp_path).evaluate()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run.json is not what `lresnet train` writes"):
        opened(tmp_path).evaluate()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": None}, "its model is None, not a table of settings"),
        ({"train": {"seed": 0, "epochs": -1}}, "epochs must be at least 1, got -1"),
        ({"train": {"seed": 0, "nosuch": 1}}, "nosuch"),
        ({"task": {"kind": "graph"}}, "its task has no name"),
        ({"format": 3}, "its format is 3, and this version reads formats 1 and 2"),
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    tree = run().as_dict() | {"format": 2, "best_epoch": 1, "command": "c", "device": "cpu", "versions": {}}
    (tmp_path / "run.json").write_text(json.dumps(tree | {"hardware": ""} | change))
    with pytest.raises(ValueError, match=words):
        opened(tmp_path)


FORMAT_1 = {
    "table": "train",
    "cell": "disease_tree/nc",
    "method": "space",
    "protocol": "disjoint",
    "seed": 3,
    "config": {"epochs": 12, "hidden": 4, "num_layers": 2, "features": "raw", "loss": "margin", "scale": 2.0},
    "split": None,
    "stage": "train",
    "validation": 81.5,
    "best_epoch": 10,
    "epochs": 12,
    "seconds": 1.5,
    "command": "lresnet train disease_tree/nc",
    "device": "cpu",
    "versions": {"torch": "2.13.0"},
    "hardware": "CPU",
}


def test_a_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(FORMAT_1))
    record = read_record(tmp_path)
    assert record is not None
    settings = {"epochs": 12, "hidden": 4, "num_layers": 2, "features": "raw", "loss": "margin", "scale": 2.0}
    assert record.config == configure(GraphTaskConfig("disease_tree/nc", "disjoint"), "space", 3, settings)
    assert (record.validation, record.best_epoch, record.seconds) == (81.5, 10, 1.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config": None}, "its config is None, not a table of settings"),
        ({"cell": 5}, "its cell is 5, not the name of a task"),
        ({"config": {"nosuch": 1}}, "'nosuch' is not a setting of a run"),
    ],
)
def test_a_damaged_record_of_an_earlier_version_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    (tmp_path / "run.json").write_text(json.dumps(FORMAT_1 | change))
    with pytest.raises(ValueError, match=f"is not what `lresnet train` writes: {words}"):
        opened(tmp_path)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    path = write_coloured(tmp_path_factory.mktemp("images") / "coloured.npz")
    config = {"model": "lorentz_resnet20", "epochs": 4, "eval_every": 1, "batch_size": 20, "lr": 0.05}
    return run_config(str(path), settings=config)


def digest(part: ImageSet) -> str:
    pairs = zip(part.images.numpy(), part.labels.tolist(), strict=True)
    each = sorted(sha256(label.to_bytes(8, "little") + image.tobytes()).digest() for image, label in pairs)
    return sha256(b"".join(each)).hexdigest()


def test_a_run_on_images_keeps_what_prediction_needs(tmp_path: Path, images: RunConfig) -> None:
    record = trained(tmp_path, images).record
    data = coloured_data()
    size = {"height": 8, "width": 8, "channels": 3}
    kept = {"classes": ["red", "green", "blue"], "mean": list(data.mean), "std": list(data.std)}
    counts = {"training_images": 60, "test_images": 30}
    digests = {"training_digest": digest(data.train), "test_digest": digest(data.test)}
    order = {"training_order": sha256(data.train.images.numpy().tobytes()).hexdigest()}
    assert record.images == size | kept | counts | digests | order
    assert json.loads((tmp_path / "run.json").read_text()).items() >= record.as_dict().items()
    same = in_memory(images)
    assert record.validation == same.record.validation
    assert opened(tmp_path).evaluate() == same.evaluate()


def test_a_resumed_run_on_images_equals_an_uninterrupted_one(tmp_path: Path, images: RunConfig) -> None:
    def stop(epoch: int, best: float | None) -> None:
        if epoch == 3:
            raise Interruption

    whole = trained(tmp_path / "whole", images)
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", images, checkpoint_every=2, on_epoch=stop)
    torn = trained(tmp_path / "torn", images)
    assert dataclasses.replace(torn.record, seconds=0) == dataclasses.replace(whole.record, seconds=0)
    a, b = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "torn"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_without_validation_finishes(tmp_path: Path, images: RunConfig) -> None:
    config = dataclasses.replace(images, task=dataclasses.replace(images.task, holdout=0.0))
    record = trained(tmp_path, config).record
    assert (record.validation, record.best_epoch) == (None, 4)
    assert trained(tmp_path, config, on_start=lambda *args: pytest.fail("it trains again")).record == record
    assert 0 <= next(iter(opened(tmp_path).evaluate().values())) <= 100


def test_a_run_does_not_resume_on_another_kind_of_device(tmp_path: Path) -> None:
    def stop(epoch: int, best: float | None) -> None:
        raise Interruption

    with pytest.raises(Interruption):
        trained(tmp_path, run(), on_epoch=stop)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["device"] == "cpu"
    (tmp_path / "run.json").write_text(unverified(record | {"device": "cuda"}))
    with pytest.raises(ValueError, match=r"was started on cuda and cannot resume on cpu; use --device cuda"):
        trained(tmp_path, run())


def test_a_model_with_other_classes_than_the_data_is_refused(tmp_path: Path, images: RunConfig) -> None:
    trained(tmp_path, images)
    LorentzResNet(20, num_classes=5).save_pretrained(tmp_path / "model")
    forget_checksums(tmp_path)
    with pytest.raises(ValueError, match="the model has 5 classes, but coloured has 3"):
        opened(tmp_path).evaluate()
    assert not (tmp_path / "evaluation.json").exists()


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert usable_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda *args, **options: torch.tensor(0.0))
    assert usable_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["cpu:0", "cpu:7"])
def test_a_cpu_has_no_number(name: str) -> None:
    with pytest.raises(ValueError, match=f"device '{name}' cannot be used here: a CPU has no number; use cpu"):
        usable_device(name)


def test_an_unusable_device_is_reported_with_the_first_sentence_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("Could not run on 'MPS'. This could be because of a long list.\nAnd more")

    monkeypatch.setattr(torch, "zeros", refuse)
    with pytest.raises(ValueError, match=r"device 'mps' cannot be used here: Could not run on 'MPS'$"):
        usable_device("mps")


def test_a_task_and_a_model_from_python_are_trained_evaluated_and_resumed(tmp_path: Path) -> None:
    task = lresnet.data.load_task("disease_tree/lp")
    torch.manual_seed(0)
    model = lresnet.create_model("lorentz_gcn", in_features=task.x.shape[1], hidden=4)
    config = lresnet.TrainConfig(epochs=4, eval_every=2)
    run = lresnet.fit(task, model, config, out=tmp_path, device="cpu")
    metrics = run.evaluate()
    assert set(metrics) == {"roc_auc", "average_precision"}
    again = Run.open(tmp_path, task=task, device="cpu")
    assert again.evaluate() == metrics
    pairs = task.test_edges[:, :5]
    assert torch.equal(again.predict(pairs), run.predict(pairs))
    assert again.embed().points.shape == (task.num_nodes, 4)
    with pytest.raises(ValueError, match="built in Python; pass it"):
        Run.open(tmp_path, device="cpu").embed()
    other = lresnet.data.load_task("disease_tree/lp", seed=1)
    with pytest.raises(ValueError, match="holds another run: the data of its task differ"):
        lresnet.fit(other, model, config, out=tmp_path, device="cpu")


def test_a_name_stands_for_a_task_or_a_model() -> None:
    run = lresnet.fit("disease_tree/nc", "lorentz_gcn", lresnet.TrainConfig(epochs=1, seed=5), device="cpu")
    assert run.record.task["name"] == "disease_tree/nc"
    assert run.record.seed == 5
    with pytest.raises(ValueError, match="unknown model 'lorentz_gnc'"):
        lresnet.fit("disease_tree/nc", "lorentz_gnc", device="cpu")
    with pytest.raises(TypeError, match=r"fit takes a model of lresnet.create_model.* got Linear"):
        lresnet.fit("disease_tree/nc", torch.nn.Linear(2, 2), device="cpu")


def test_scores_of_links_are_negative_squared_distances() -> None:
    run = lresnet.fit("disease_tree/lp", "lorentz_gcn", lresnet.TrainConfig(epochs=1), device="cpu")
    pairs = torch.tensor([[0, 3], [1, 9]])
    points = run.embed().points.double()
    cosh = torch.cosh(run.model.manifold.dist(points[pairs[0]], points[pairs[1]]))
    torch.testing.assert_close(run.predict(pairs).double(), -2 * (cosh - 1), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"pairs must have the shape \[2, m\]"):
        run.predict(torch.zeros(3, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="there is no node 1000"):
        run.predict([[0], [1000]])


def test_a_model_from_python_on_a_named_task_is_opened_and_compared(tmp_path: Path) -> None:
    def trained_with(hidden: int) -> Run:
        model = lresnet.create_model("lorentz_gcn", in_features=6, num_classes=2, hidden=hidden)
        return fit("disease_tree/nc", model, lresnet.TrainConfig(epochs=2), out=tmp_path / "a", device="cpu")

    first = trained_with(4)
    assert trained_with(4).record == first.record
    again = Run.open(tmp_path / "a", device="cpu")
    assert again.predict([0, 5]) == first.predict([0, 5])
    assert again.evaluate() == first.evaluate()
    with pytest.raises(ValueError, match="holds another run: hidden is 4 there, not 8"):
        trained_with(8)
    with pytest.raises(ValueError, match="holds another run: only one of the two models was built in Python"):
        fit("disease_tree/nc", "lorentz_gcn", lresnet.TrainConfig(epochs=2), out=tmp_path / "a", device="cpu")


def test_images_are_predicted_without_the_task_from_python(tmp_path: Path) -> None:
    task = lresnet.data.ImageTask("coloured", coloured_data(), holdout=0.0)
    model = lresnet.create_model("lorentz_resnet20", num_classes=len(task.data.classes), widths=(4, 4, 4))
    first = fit(task, model, lresnet.TrainConfig(epochs=1, batch_size=8), out=tmp_path / "a", device="cpu")
    files = [tmp_path / "one.png"]
    Image.fromarray(task.data.test.images[0].numpy()).save(files[0])
    assert Run.open(tmp_path / "a", device="cpu").predict(files) == first.predict(files)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            (3, "lorentz_gcn"),
            TypeError,
            "fit takes a task of lresnet.data, .*, or a torch Dataset or DataLoader, got 3",
        ),
        (
            ("disease_tree/nc", "lorentz_gcn", {"lr": 1}),
            TypeError,
            r"fit takes a lresnet.TrainConfig .*, got \{'lr': 1",
        ),
        (("disease_tree/nc", "lorentz_resnet18"), ValueError, "lorentz_resnet18 is not a network for graphs"),
        (("", "lorentz_gcn"), ValueError, "'' does not exist, and no shipped task has that name"),
    ],
)
def test_fit_names_what_it_cannot_take(arguments: tuple[object, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        fit(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("lorentz_gcn", {"in_features": 3, "num_classes": 2}, "in_features=3, but disease_tree/nc needs 6"),
        ("lorentz_gcn", {"in_features": 6, "num_classes": 7}, "num_classes=7, but disease_tree/nc needs 2"),
        ("lorentz_gcn", {"in_features": 6}, "num_classes=None, but disease_tree/nc needs 2"),
        ("lorentz_resnet20", {"num_classes": 2}, "lorentz_resnet is not a network for graphs"),
        ("lorentz_mlp", {"in_features": 6, "num_classes": 2}, "lorentz_mlp is not a network for graphs"),
    ],
)
def test_a_model_that_does_not_fit_the_graph_is_refused(name: str, config: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit("disease_tree/nc", lresnet.create_model(name, **config), lresnet.TrainConfig(epochs=1), device="cpu")


@pytest.mark.parametrize("items", ["17", [1.5], ["1", 2], [True]])
def test_predict_takes_a_list_of_whole_numbers_or_names(items: object) -> None:
    run = fit("disease_tree/nc", "lorentz_gcn", lresnet.TrainConfig(epochs=1), device="cpu")
    with pytest.raises(TypeError, match="predict takes"):
        run.predict(items)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="disease_tree/nc has no node 'a'"):
        run.predict(["a"])


def test_a_run_is_not_written_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match="file is a file, and a run needs a folder; use another folder"):
            fit("disease_tree/nc", "lorentz_gcn", lresnet.TrainConfig(epochs=1), out=path)
    with pytest.raises(NotADirectoryError, match="is a file, not the folder of a run"):
        Run.open(tmp_path / "file")


@pytest.mark.parametrize("epochs", [1.5, True, "3"])
def test_epochs_are_a_whole_number(epochs: object) -> None:
    with pytest.raises(ValueError, match="epochs must be at least 1, got"):
        lresnet.TrainConfig(epochs=epochs)  # type: ignore[arg-type]


@pytest.mark.parametrize(("on_images", "every"), [(False, 200), (True, 10)], ids=["graph", "images"])
def test_checkpoints_are_rarer_for_graphs_than_for_images(
    on_images: bool, every: int, images: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reached(Exception):
        pass

    def train(*_: object, checkpoint_every: int, **__: object) -> None:
        assert checkpoint_every == every
        raise Reached

    monkeypatch.setattr("lresnet.runs.training.train_model", train)
    with pytest.raises(Reached):
        trained(tmp_path, images if on_images else run())


def test_untrained_scores_are_read_with_the_test_set_and_kept(tmp_path: Path) -> None:
    config = run_config("disease_tree/lp", seed=1, settings={"epochs": 1, "hidden": 3})
    run = fit(config.task, config.model, config.train, out=tmp_path / "run", device="cpu")
    before = run.untrained()
    assert all(one.metrics is None for one in before)
    assert not (tmp_path / "run" / "evaluation.json").exists()
    run.evaluate()
    after = run.untrained()
    assert [one.name for one in after] == [one.name for one in before]
    assert all(one.metrics is not None and list(one.metrics) == list(run.evaluate()) for one in after)
    opened = Run.open(tmp_path / "run", device="cpu")
    assert opened.untrained() == after
    # An evaluation of an earlier version has no such scores; its test set has been read.
    file = tmp_path / "run" / "evaluation.json"
    values = json.loads(file.read_text())
    del values["untrained"]
    file.write_text(unverified(values))
    older = Run.open(tmp_path / "run", device="cpu")
    older.evaluate()
    assert older.record.untrained is None
    assert [one.as_dict() for one in older.untrained()] == [one.as_dict() for one in after]


def test_untrained_scores_of_a_task_from_python_are_those_of_its_features() -> None:
    task = load_task("disease_tree/lp", features="raw")
    assert isinstance(task, LinkTask)
    run = fit(task, GCNConfig("lorentz_gcn", hidden=3), TrainConfig(epochs=1), device="cpu")
    assert run.untrained() == untrained_link_scores(task, test=False)


def test_only_links_have_untrained_scores() -> None:
    config = run_config("disease_tree/nc", settings={"epochs": 1, "hidden": 3})
    run = fit(config.task, config.model, config.train, device="cpu")
    with pytest.raises(
        ValueError, match="predicts neither links nor ancestors; untrained scores are for link prediction"
    ):
        run.untrained()
    run.evaluate()
    assert run.record.untrained is None


@pytest.mark.parametrize(
    "wrong", [{}, ["hops"], [{"name": "hops", "validation": 1.0, "metrics": {}}], [{"name": "hops"}]]
)
def test_damaged_untrained_scores_are_refused(tmp_path: Path, wrong: object) -> None:
    config = run_config("disease_tree/lp", settings={"epochs": 1, "hidden": 3})
    fit(config.task, config.model, config.train, out=tmp_path, device="cpu").evaluate()
    file = tmp_path / "evaluation.json"
    file.write_text(unverified(json.loads(file.read_text()) | {"untrained": wrong}))
    with pytest.raises(ValueError, match="is not what `lresnet evaluate` writes: its untrained scores are"):
        read_evaluation(tmp_path)
