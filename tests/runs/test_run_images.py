"""The images of a run: what has changed about them is noticed, whatever is asked of the run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from lresnet.runs import Run, RunConfig, tasks
from lresnet.runs.presets import run_config
from tests.coloured import coloured_data, coloured_set, write_coloured
from tests.runs.folders import opened, unverified
from tests.runs.folders import trained as train

SWAPPED = coloured_set(60, seed=0).images.numpy()[[1, 0, *range(2, 60)]]  # two images in each other's class


class Interruption(Exception):
    pass


def stop(epoch: int, best: float | None) -> None:
    raise Interruption


def trained(folder: Path, config: RunConfig, **options: object) -> Run:
    tasks._images.cache_clear()  # as in another process
    return train(folder, config, **options)


def evaluated(folder: Path) -> float:
    tasks._images.cache_clear()
    return next(iter(opened(folder).evaluate().values()))


def run_on(path: Path) -> RunConfig:
    return run_config(str(path), settings={"model": "lorentz_resnet20", "epochs": 1, "batch_size": 20})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": np.array(["red", "blue", "green"])}, "other classes than"),
        ({"train_images": coloured_set(60, seed=5).images.numpy()}, "other pixels than"),
        ({"train_labels": np.arange(60) // 20}, "other training images or training labels than"),
        ({"train_images": SWAPPED}, "other training images or training labels than"),
        ({"test_images": 255 - coloured_set(30, seed=1).images.numpy()}, "other test images or test labels than"),
        ({"test_labels": np.arange(30) // 10}, "other test images or test labels than"),
    ],
    ids=["classes", "training pixels", "training labels", "training images", "test images", "test labels"],
)
def test_changed_images_are_refused_in_evaluation_and_training(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    config = run_on(path := write_coloured(tmp_path / "mine.npz"))
    trained(tmp_path / "whole", config)
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", config, on_epoch=stop)
    write_coloured(path, **change)
    sentence = f"mine.npz has {words} when the run in .* was started; restore them"
    with pytest.raises(ValueError, match=sentence):
        evaluated(tmp_path / "whole")
    with pytest.raises(ValueError, match=sentence):
        trained(tmp_path / "torn", config)
    with pytest.raises(ValueError, match=sentence):
        trained(tmp_path / "whole", config)


@pytest.mark.parametrize("moved", ["photos/mine.npz", "photos"], ids=["images", "their folder"])
def test_a_run_resumes_through_a_link_to_moved_images(tmp_path: Path, moved: str) -> None:
    (path := tmp_path / "photos" / "mine.npz").parent.mkdir()
    write_coloured(path)
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", run_on(path), on_epoch=stop)
    (tmp_path / moved).rename(tmp_path / "elsewhere")
    (tmp_path / moved).symlink_to(tmp_path / "elsewhere")
    assert trained(tmp_path / "torn", run_on(path)).record.best_epoch == 1


def test_a_run_resumes_by_another_path_to_its_images_but_not_with_other_images(tmp_path: Path) -> None:
    """As from the folder itself, which the system calls by its real name; older versions kept that name."""
    (real := tmp_path / "real").mkdir()
    (link := tmp_path / "link").symlink_to(real)
    write_coloured(real / "mine.npz")
    shutil.copy(real / "mine.npz", tmp_path / "mine.npz")
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", run_on(link / "mine.npz"), on_epoch=stop)
    with pytest.raises(ValueError, match=r"holds another run: task is .*/real/mine\.npz there, not .*/mine\.npz"):
        trained(tmp_path / "torn", run_on(tmp_path / "mine.npz"))
    whole = trained(tmp_path / "torn", run_on(real / "mine.npz")).record
    assert trained(tmp_path / "torn", run_on(link / "mine.npz")).record == whole


def test_another_order_of_the_images_matters_only_when_a_run_resumes(tmp_path: Path) -> None:
    config = run_on(path := write_coloured(tmp_path / "mine.npz"))
    record = trained(tmp_path / "run", config).record
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", config, on_epoch=stop)
    data = coloured_data()
    parts = {"train": data.train, "test": data.test}
    write_coloured(
        path,
        **{f"{name}_images": part.images.flip(0).numpy() for name, part in parts.items()},
        **{f"{name}_labels": part.labels.flip(0).numpy() for name, part in parts.items()},
    )
    assert trained(tmp_path / "run", config).record == record
    assert 0 <= evaluated(tmp_path / "run") <= 100
    with pytest.raises(
        ValueError, match=r"mine.npz has its training images in another order .*; restore the file names"
    ):
        trained(tmp_path / "torn", config)


def test_facts_that_an_older_version_did_not_record_are_not_compared(tmp_path: Path) -> None:
    config = run_on(path := write_coloured(tmp_path / "mine.npz"))
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", config, on_epoch=stop)
    record = json.loads((tmp_path / "torn" / "run.json").read_text())
    for name in ("training_digest", "test_digest", "training_order"):
        del record["images"][name]
    (tmp_path / "torn" / "run.json").write_text(unverified(record))
    write_coloured(path, train_images=SWAPPED, test_images=255 - coloured_data().test.images.numpy())
    whole = trained(tmp_path / "torn", config).record.as_dict()
    assert whole["images"].keys() > record["images"].keys()  # from here on it is known
    (tmp_path / "torn" / "run.json").write_text(unverified(whole | {"images": record["images"]}))
    write_coloured(path)
    assert 0 <= evaluated(tmp_path / "torn") <= 100
