"""The images of a run: what has changed about them is noticed, whatever is asked of the run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from lresnet.studies.image_run import image_data
from lresnet.studies.run import Run
from lresnet.studies.run_folder import evaluate_folder, train_in_folder
from lresnet.studies.single import command_of, single_image_run
from tests.coloured import coloured_data, coloured_set, write_coloured


class Interruption(Exception):
    pass


def stop(epoch: int, best: float | None) -> None:
    raise Interruption


def trained(folder: Path, run: Run, **options: object) -> dict[str, object]:
    image_data.cache_clear()  # as another process reads them
    return train_in_folder(run, folder, command=command_of(run), **options)


def evaluated(folder: Path) -> float:
    image_data.cache_clear()
    return evaluate_folder(folder)["value"]


def run_on(path: Path) -> Run:
    return single_image_run(str(path), config={"model": "lorentz_resnet20", "epochs": 1, "batch_size": 20})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": np.array(["red", "blue", "green"])}, "other classes than"),
        ({"train_images": coloured_set(60, seed=5).images.numpy()}, "other pixels than"),
        ({"test_images": 255 - coloured_set(30, seed=1).images.numpy()}, "other test images or test labels than"),
        ({"test_labels": np.arange(30) // 10}, "other test images or test labels than"),
    ],
    ids=["classes", "training images", "test images", "test labels"],
)
def test_images_that_changed_are_neither_evaluated_nor_gone_on_with_nor_taken_for_trained_on(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    run = run_on(path := write_coloured(tmp_path / "mine.npz"))
    trained(tmp_path / "whole", run)
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", run, on_epoch=stop)
    write_coloured(path, **change)
    sentence = f"mine.npz has {words} when the run in .* was begun; bring them back"
    with pytest.raises(ValueError, match=sentence):
        evaluated(tmp_path / "whole")
    with pytest.raises(ValueError, match=sentence):
        trained(tmp_path / "torn", run)
    with pytest.raises(ValueError, match=sentence):
        trained(tmp_path / "whole", run)


def test_test_images_in_another_order_or_of_an_older_version_s_run_are_evaluated(tmp_path: Path) -> None:
    run = run_on(path := write_coloured(tmp_path / "mine.npz"))
    record = trained(tmp_path / "run", run)
    shutil.copytree(tmp_path / "run", tmp_path / "older")
    test = coloured_data().test
    write_coloured(path, test_images=test.images.flip(0).numpy(), test_labels=test.labels.flip(0).numpy())
    assert 0 <= evaluated(tmp_path / "run") <= 100
    del record["images"]["test_digest"]
    (tmp_path / "older" / "run.json").write_text(json.dumps(record))
    write_coloured(path, test_images=255 - test.images.numpy())
    assert 0 <= evaluated(tmp_path / "older") <= 100  # what they were, nobody knows
