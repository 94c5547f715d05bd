"""One run in a folder: whole, resumed to the same numbers, evaluated once."""

import dataclasses
import json
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lresnet.data import ImageSet
from lresnet.models import LorentzResNet
from lresnet.runs.folder import evaluate_folder, train_in_folder, usable_device
from lresnet.runs.single import command_of, single_image_run, single_run
from lresnet.train import LinkPrediction, NodeClassification
from lresnet_paper.run import Run, execute
from tests.coloured import coloured_data, write_coloured

CONFIG = {"epochs": 12, "eval_every": 2, "hidden": 4, "dropout": 0.2}


def run(cell: str = "disease_tree/nc", **config: object) -> Run:
    return single_run(cell, config=CONFIG | config)


def trained(folder: Path, run: Run, **options: object) -> dict[str, object]:
    return train_in_folder(run, folder, command=command_of(run), **options)


@pytest.mark.parametrize("cell", ["disease_tree/nc", "disease_tree/lp"])
def test_training_leaves_run_checkpoint_and_model(tmp_path: Path, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object) -> None:
        raise AssertionError("training must not read the test set")

    with monkeypatch.context() as patch:
        for objective in (LinkPrediction, NodeClassification):
            patch.setattr(objective, "test", forbidden)
        record = trained(tmp_path / "a", run(cell))
    assert {p.name for p in (tmp_path / "a").iterdir()} == {"run.json", "checkpoint.pt", "curve.jsonl", "model"}
    assert json.loads((tmp_path / "a" / "run.json").read_text()) == record
    assert {"config", "command", "versions", "hardware", "seconds", "best_epoch"} <= record.keys()
    assert "value" not in record
    # The figures are those of the same run without a folder, and the saved model is the trained one.
    same, model = execute(dataclasses.replace(run(cell), stage="final"), command="")
    assert record["validation"] == same["validation"]
    saved = load_file(tmp_path / "a" / "model" / "model.safetensors")
    assert all(torch.equal(saved[name], tensor) for name, tensor in model.state_dict().items())
    assert evaluate_folder(tmp_path / "a")["metrics"] == same["metrics"]


class Interruption(Exception):
    pass


@pytest.mark.parametrize("cell", ["disease_tree/nc", "disease_tree/lp"])
def test_an_interrupted_run_goes_on_to_the_same_numbers(tmp_path: Path, cell: str) -> None:
    def stop(epoch: int, best: float | None) -> None:
        if epoch >= 8:
            raise Interruption

    whole = trained(tmp_path / "whole", run(cell))
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", run(cell), checkpoint_every=5, on_epoch=stop)
    assert json.loads((tmp_path / "torn" / "run.json").read_text())["validation"] is None
    with pytest.raises(ValueError, match="has not finished"):
        evaluate_folder(tmp_path / "torn")
    epochs: list[int] = []
    torn = trained(tmp_path / "torn", run(cell), on_epoch=lambda epoch, best: epochs.append(epoch))
    assert min(epochs) > 5  # it did not begin anew
    assert (torn["validation"], torn["best_epoch"]) == (whole["validation"], whole["best_epoch"])
    a, b = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "torn"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first = trained(tmp_path, run())
    before = (tmp_path / "run.json").stat().st_mtime_ns
    assert trained(tmp_path, run(), on_start=lambda *args: pytest.fail("it trains again")) == first
    assert (tmp_path / "run.json").stat().st_mtime_ns == before


def test_the_test_set_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path, run())
    first = evaluate_folder(tmp_path)
    assert json.loads((tmp_path / "evaluation.json").read_text()) == first
    assert first["value"] == first["metrics"]["f1_binary"]
    assert first["stage"] == "final"
    assert first["command"].endswith("; lresnet evaluate")
    monkeypatch.setattr(NodeClassification, "test", lambda *args: pytest.fail("read again"))
    assert evaluate_folder(tmp_path) == first


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (run(epochs=13), "epochs is 12 there, not 13"),
        (run(margin=2.0), "margin is None there, not 2.0"),
        (single_run("disease_tree/nc", "space", config=CONFIG), "method is lorentz there, not space"),
        (single_run("disease_tree/nc", seed=1, config=CONFIG), "seed is 0 there, not 1"),
    ],
)
def test_a_folder_holds_one_run(tmp_path: Path, other: Run, words: str) -> None:
    trained(tmp_path, run())
    with pytest.raises(ValueError, match=words):
        trained(tmp_path, other)


@pytest.mark.parametrize(
    ("wrong", "options", "words"),
    [
        (run(lr=-1.0), {}, "lr must be positive"),
        (run(epochs=0), {}, "epochs must be at least 1"),
        (run(), {"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        (run(), {"device": "nowhere"}, "device 'nowhere' cannot be used here: there is no such kind; take auto"),
        (run(), {"device": "meta"}, "device 'meta' cannot be used here"),
        (run(patience=3, keep="last"), {}, "patience waits for a better validation figure"),
        (dataclasses.replace(run(), protocol="legacy"), {}, "no split 'legacy'"),
    ],
)
def test_what_cannot_be_run_leaves_nothing(tmp_path: Path, wrong: Run, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trained(tmp_path / "a", wrong, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        trained(tmp_path / "file" / "run", run())
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"\x80\x02junk"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint.pt is damaged .* delete it"):
        trained(tmp_path, run())


def test_a_checkpoint_that_nobody_owns_is_not_gone_on_from(tmp_path: Path) -> None:
    """Its run may have had another seed."""
    trained(tmp_path, run())
    (tmp_path / "run.json").unlink()
    with pytest.raises(ValueError, match=r"checkpoint.pt has no run.json beside it"):
        trained(tmp_path, single_run("disease_tree/nc", seed=1, config=CONFIG))


def test_a_folder_without_a_run_cannot_be_evaluated(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no run"):
        evaluate_folder(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run.json is not what `lresnet train` writes"):
        evaluate_folder(tmp_path)


def test_settings_that_are_no_table_are_refused(tmp_path: Path) -> None:
    record = dataclasses.asdict(run()) | {"config": None, "best_epoch": 1, "command": "c"}
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="its config is None, not a table of settings"):
        evaluate_folder(tmp_path)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = write_coloured(tmp_path_factory.mktemp("images") / "coloured.npz")
    config = {"model": "lorentz_resnet20", "epochs": 4, "eval_every": 1, "batch_size": 20, "lr": 0.05}
    return single_image_run(str(path), config=config)


def digest(part: ImageSet) -> str:
    pairs = zip(part.images.numpy(), part.labels.tolist(), strict=True)
    each = sorted(sha256(label.to_bytes(8, "little") + image.tobytes()).digest() for image, label in pairs)
    return sha256(b"".join(each)).hexdigest()


def test_a_run_on_images_keeps_what_prediction_needs(tmp_path: Path, images: Run) -> None:
    record = trained(tmp_path, images)
    data = coloured_data()
    size = {"height": 8, "width": 8, "channels": 3}
    kept = {"classes": ["red", "green", "blue"], "mean": list(data.mean), "std": list(data.std)}
    counts = {"training_images": 60, "test_images": 30}
    digests = {"training_digest": digest(data.train), "test_digest": digest(data.test)}
    order = {"training_order": sha256(data.train.images.numpy().tobytes()).hexdigest()}
    assert record["images"] == size | kept | counts | digests | order
    assert json.loads((tmp_path / "run.json").read_text()) == record
    same, _ = execute(dataclasses.replace(images, stage="final"), command="")
    assert record["validation"] == same["validation"]
    assert evaluate_folder(tmp_path)["metrics"] == same["metrics"]


def test_an_interrupted_run_on_images_goes_on_to_the_same_numbers(tmp_path: Path, images: Run) -> None:
    def stop(epoch: int, best: float | None) -> None:
        if epoch == 3:
            raise Interruption

    whole = trained(tmp_path / "whole", images)
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", images, checkpoint_every=2, on_epoch=stop)
    torn = trained(tmp_path / "torn", images)
    assert {**torn, "seconds": 0} == {**whole, "seconds": 0}
    a, b = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "torn"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_without_validation_is_finished_all_the_same(tmp_path: Path, images: Run) -> None:
    run = dataclasses.replace(images, config=images.config | {"holdout": 0.0})
    record = trained(tmp_path, run)
    assert (record["validation"], record["best_epoch"]) == (None, 4)
    assert trained(tmp_path, run, on_start=lambda *args: pytest.fail("it trains again")) == record
    assert 0 <= evaluate_folder(tmp_path)["value"] <= 100


def test_a_run_does_not_change_over_to_another_kind_of_device(tmp_path: Path) -> None:
    def stop(epoch: int, best: float | None) -> None:
        raise Interruption

    with pytest.raises(Interruption):
        trained(tmp_path, run(), on_epoch=stop)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["device"] == "cpu"
    (tmp_path / "run.json").write_text(json.dumps(record | {"device": "cuda"}))
    with pytest.raises(ValueError, match=r"was begun on cuda and cannot go on on cpu; take --device cuda"):
        trained(tmp_path, run())


def test_a_model_of_other_classes_than_the_data_s_is_refused(tmp_path: Path, images: Run) -> None:
    trained(tmp_path, images)
    LorentzResNet(20, num_classes=5).save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="the model has 5 classes, but coloured has 3"):
        evaluate_folder(tmp_path)
    assert not (tmp_path / "evaluation.json").exists()


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert usable_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda *args, **options: torch.tensor(0.0))
    assert usable_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["cpu:0", "cpu:7"])
def test_a_cpu_has_no_number(name: str) -> None:
    with pytest.raises(ValueError, match=f"device '{name}' cannot be used here: a CPU has no number; take cpu"):
        usable_device(name)


def test_of_torchs_reason_the_first_sentence_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("Could not run on 'MPS'. This could be because of a long list.\nAnd more")

    monkeypatch.setattr(torch, "zeros", refuse)
    with pytest.raises(ValueError, match=r"device 'mps' cannot be used here: Could not run on 'MPS'$"):
        usable_device("mps")
