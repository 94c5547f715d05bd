"""Training on images that stay in their files: the same batches and runs as with images in memory, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

import lresnet
from lresnet.data import ImageTask, load_images
from lresnet.data.image_files import ImageFiles
from lresnet.runs.task_config import ImageTaskConfig
from lresnet.train import ImageClassification
from lresnet.train.config import Augment
from lresnet.train.distributed import ONE_PROCESS, Processes
from tests.coloured import CLASSES, coloured_set

AUGMENT = Augment(pad=2, flip=True, cutout=2, label_smoothing=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty images of three colours in a folder of classes."""
    root = tmp_path_factory.mktemp("streamed") / "colours"
    part = coloured_set(40, seed=3)
    for number, (image, label) in enumerate(zip(part.images, part.labels.tolist(), strict=True)):
        file = root / CLASSES[label] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.numpy()).save(file)
    return root


def objective(
    folder: Path, augment: Augment = AUGMENT, processes: Processes = ONE_PROCESS, **options: float
) -> ImageClassification:
    task = ImageTask("colours", load_images(folder, **options), holdout=0.2, stratified=True)  # type: ignore[arg-type]
    return ImageClassification(task, batch_size=8, augment=augment, seed=5, processes=processes)


def epochs(one: ImageClassification) -> Iterator[tuple[Tensor, ...]]:
    """Yield what the steps of two epochs read."""
    for _ in range(2):
        one.start_epoch()
        for step in range(one.steps_per_epoch):
            one.advance(step)
            yield tuple(tensor.clone() for tensor in one._targets)


@pytest.mark.parametrize("cutmix", [0.0, 0.5])
@pytest.mark.parametrize("rank", [None, 1])
def test_batches_are_those_of_images_in_memory(folder: Path, cutmix: float, rank: int | None) -> None:
    augment = Augment(pad=2, flip=True, cutout=2, cutmix=cutmix)
    processes = ONE_PROCESS if rank is None else Processes(rank, 2)
    kept = objective(folder, augment, processes)
    streamed = objective(folder, augment, processes, memory=0, workers=0)
    assert isinstance(streamed.train, ImageFiles)
    for one, other in zip(epochs(kept), epochs(streamed), strict=True):
        assert all(map(torch.equal, one, other))


def fitted(folder: Path, out: Path | None = None, stop: int | None = None, **options: float) -> lresnet.runs.Run:
    def on_epoch(epoch: int, best: float | None) -> None:
        if epoch == stop:
            raise KeyboardInterrupt

    torch.manual_seed(0)
    config = lresnet.TrainConfig(
        epochs=2, lr=0.05, optimizer="sgd", batch_size=8, eval_every=1, augment=AUGMENT, keep="last"
    )
    task = ImageTaskConfig(str(folder), holdout=0.2, stratified=True, **options)  # type: ignore[arg-type]
    return lresnet.fit(task, "lorentz_resnet20", config, out=out, device="cpu", checkpoint_every=1, on_epoch=on_epoch)


def require_equal(run: lresnet.runs.Run, other: lresnet.runs.Run) -> None:
    assert run.record.validation == other.record.validation
    assert run.evaluate() == other.evaluate()
    for name, values in other.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], values), name


def test_a_run_on_files_resumes_in_memory_to_the_same_result(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fitted(folder, tmp_path, stop=1, memory=0, workers=2)
    require_equal(fitted(folder, tmp_path), fitted(folder))


@pytest.mark.slow
def test_runs_are_bit_equal_in_memory_and_with_any_number_of_workers(folder: Path, tmp_path: Path) -> None:
    kept = fitted(folder)
    for workers in (0, 1, 2):
        require_equal(fitted(folder, memory=0, workers=workers), kept)
    with pytest.raises(KeyboardInterrupt):
        fitted(folder, tmp_path, stop=1)
    require_equal(fitted(folder, tmp_path, memory=0, workers=2), kept)
