"""The images of a run: what has changed about them is noticed, whatever is asked of the run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from lresnet.runs.folder import evaluate_folder, train_in_folder
from lresnet.runs.single import command_of, single_image_run
from lresnet_paper.run import Run, image_data
from tests.coloured import coloured_data, coloured_set, write_coloured

SWAPPED = coloured_set(60, seed=0).images.numpy()[[1, 0, *range(2, 60)]]  # two images in each other's class


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
        ({"train_labels": np.arange(60) // 20}, "other training images or training labels than"),
        ({"train_images": SWAPPED}, "other training images or training labels than"),
        ({"test_images": 255 - coloured_set(30, seed=1).images.numpy()}, "other test images or test labels than"),
        ({"test_labels": np.arange(30) // 10}, "other test images or test labels than"),
    ],
    ids=["classes", "training pixels", "training labels", "training images", "test images", "test labels"],
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


@pytest.mark.parametrize("moved", ["photos/mine.npz", "photos"], ids=["images", "their folder"])
def test_a_training_goes_on_by_a_link_to_where_its_images_are_now(tmp_path: Path, moved: str) -> None:
    (path := tmp_path / "photos" / "mine.npz").parent.mkdir()
    write_coloured(path)
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", run_on(path), on_epoch=stop)
    (tmp_path / moved).rename(tmp_path / "elsewhere")
    (tmp_path / moved).symlink_to(tmp_path / "elsewhere")
    assert trained(tmp_path / "torn", run_on(path))["best_epoch"] == 1


def test_a_training_goes_on_by_another_way_to_its_images_and_not_with_other_ones(tmp_path: Path) -> None:
    """As from the folder itself, which the system calls by its real name; older versions kept that name."""
    (real := tmp_path / "real").mkdir()
    (link := tmp_path / "link").symlink_to(real)
    write_coloured(real / "mine.npz")
    shutil.copy(real / "mine.npz", tmp_path / "mine.npz")
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", run_on(link / "mine.npz"), on_epoch=stop)
    with pytest.raises(ValueError, match=r"holds another run: cell is .*/real/mine\.npz there, not .*/mine\.npz"):
        trained(tmp_path / "torn", run_on(tmp_path / "mine.npz"))
    whole = trained(tmp_path / "torn", run_on(real / "mine.npz"))
    assert trained(tmp_path / "torn", run_on(link / "mine.npz")) == whole


def test_images_in_another_order_are_the_same_where_no_training_goes_on(tmp_path: Path) -> None:
    run = run_on(path := write_coloured(tmp_path / "mine.npz"))
    record = trained(tmp_path / "run", run)
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", run, on_epoch=stop)
    data = coloured_data()
    parts = {"train": data.train, "test": data.test}
    write_coloured(
        path,
        **{f"{name}_images": part.images.flip(0).numpy() for name, part in parts.items()},
        **{f"{name}_labels": part.labels.flip(0).numpy() for name, part in parts.items()},
    )
    assert trained(tmp_path / "run", run) == record
    assert 0 <= evaluated(tmp_path / "run") <= 100
    with pytest.raises(ValueError, match=r"mine.npz has its training images in another order .*; name the files as"):
        trained(tmp_path / "torn", run)


def test_what_an_older_version_has_not_kept_of_images_is_not_asked_for(tmp_path: Path) -> None:
    run = run_on(path := write_coloured(tmp_path / "mine.npz"))
    with pytest.raises(Interruption):
        trained(tmp_path / "torn", run, on_epoch=stop)
    record = json.loads((tmp_path / "torn" / "run.json").read_text())
    for name in ("training_digest", "test_digest", "training_order"):
        del record["images"][name]
    (tmp_path / "torn" / "run.json").write_text(json.dumps(record))
    write_coloured(path, train_images=SWAPPED, test_images=255 - coloured_data().test.images.numpy())
    whole = trained(tmp_path / "torn", run)
    assert whole["images"].keys() > record["images"].keys()  # from here on it is known
    (tmp_path / "torn" / "run.json").write_text(json.dumps(whole | {"images": record["images"]}))
    write_coloured(path)
    assert 0 <= evaluated(tmp_path / "torn") <= 100
