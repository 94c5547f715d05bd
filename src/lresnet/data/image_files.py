"""Labelled images that stay in their files: worker processes decode them, batch by batch, when they are needed."""

from __future__ import annotations

import functools
import hashlib
import io
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from lresnet._files import read_file
from lresnet.data.formats.image_file import read_pixels, require_small_file, why_unreadable

__all__ = ["ImageFiles", "ImageStream", "default_workers", "exact_statistics", "scan_files"]

# Most worker processes by default, and the number of files from which starting them pays.
_MOST_WORKERS, _WORTH_WORKERS = 8, 1000
# Images that a worker decodes at once where nothing else decides it.
_TOGETHER = 64


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files and their classes: what :class:`~lresnet.data.ImageSet` is for images that do not fit in memory.

    Args:
        files: Paths of N readable images.
        labels: int64 ``[N]``, classes 0, 1, ...
        shape: Height, width and channels of an image after it has been decoded.
        size: Side of the squares to which images are resized; None: they have the shape already.
        workers: Number of processes that decode images; 0 decodes in this process.
        digests: sha256 of each image's label (8 bytes, little endian) and pixels.
        moments: Sum and sum of squares of each channel's pixels, int64 ``[N, 2, C]``.
    """

    files: tuple[str, ...]
    labels: Tensor
    shape: tuple[int, int, int]
    size: int | None
    workers: int
    digests: tuple[bytes, ...]
    moments: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def images(self) -> Tensor:
        """All images, uint8 ``[N, H, W, C]``, decoded now; they must fit in memory."""
        return self.read(torch.arange(len(self)))

    def read(self, index: Tensor) -> Tensor:
        """Decode the images with these numbers, uint8 ``[n, H, W, C]``."""
        rows = list(index.split(_TOGETHER)) if len(index) else []
        workers = self.workers if len(index) >= _WORTH_WORKERS else 0
        parts = list(ImageStream(self, workers).batches(rows))
        return torch.cat(parts) if parts else torch.empty(0, *self.shape, dtype=torch.uint8)

    def pick(self, index: Tensor) -> ImageFiles:
        """Return the part with these numbers."""
        rows = index.tolist()
        return replace(
            self,
            files=tuple(self.files[row] for row in rows),
            labels=self.labels[index.to(self.labels.device)],
            digests=tuple(self.digests[row] for row in rows),
            moments=self.moments[np.asarray(rows, dtype=np.int64)],
        )

    def to(self, device: torch.device | str) -> ImageFiles:
        """Return the same files with their labels on ``device``; images go there batch by batch."""
        return replace(self, labels=self.labels.to(device))


class ImageStream:
    """Decodes batches of :class:`ImageFiles` in worker processes, which live as long as the stream.

    Workers only decode and resize: all random numbers are drawn elsewhere, so that batches do not depend on the number
    of workers.

    Args:
        part: The files.
        workers: Number of processes; None: that of ``part``.
    """

    def __init__(self, part: ImageFiles, workers: int | None = None) -> None:
        self._part = part
        self._workers = part.workers if workers is None else workers
        self._sampler = _Batches()
        self._loader: DataLoader[Any] | None = None
        self._unfinished = False

    def batches(self, rows: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the images with the given numbers, uint8 ``[n, H, W, C]``, one batch for each tensor of numbers.

        Raises:
            OSError: A file can no longer be read, or a worker has ended.
        """
        if self._loader is None or self._unfinished:  # results of an abandoned pass would mix with those of this one
            reader = _Reader(self._part.files, self._part.size, self._part.shape)
            self._loader = _loader(reader, self._sampler, self._workers)
        self._sampler.rows = [batch.tolist() for batch in rows]
        self._unfinished = True
        for batch in _checked(self._loader):
            if isinstance(batch, str):
                raise OSError(batch)
            yield batch
        self._unfinished = False


class Scanned(NamedTuple):
    """What one pass over image files has found. Everything but ``keys`` and ``problems`` is of readable files only."""

    rows: list[int]
    """Numbers of the readable files."""
    images: Tensor | None
    """Their pixels, uint8 ``[N, H, W, C]``; None: they were not kept."""
    shape: tuple[int, int, int]
    keys: list[bytes]
    """sha256 of the content of each readable file."""
    digests: list[bytes]
    """sha256 of the label and the pixels of each readable image."""
    moments: NDArray[np.int64]
    problems: list[tuple[int, str]]
    """Numbers of the files that could not be read, with the reason."""


def scan_files(files: Sequence[Path], labels: Sequence[int], size: int | None, *, workers: int, keep: bool) -> Scanned:
    """Read every file once: checksums, pixel sums, damaged files, and with ``keep`` the pixels.

    Raises:
        ValueError: Two images have different sizes, and ``size`` is None.
    """
    chunks = [list(range(start, min(start + _TOGETHER, len(files)))) for start in range(0, len(files), _TOGETHER)]
    scanner = _Scanner(tuple(map(str, files)), tuple(labels), size)
    loader = _loader(scanner, _Batches(chunks), workers if len(files) >= _WORTH_WORKERS else 0)
    rows, kept, keys, digests, moments = list[int](), list[Tensor](), list[bytes](), list[bytes](), list[Any]()
    problems, first = list[tuple[int, str]](), None
    for found in _checked(loader):
        problems += found.problems
        for row, shape in zip(found.rows, found.shapes, strict=True):
            first = first or (row, shape)
            if shape != first[1]:
                raise ValueError(
                    f"{files[row]} has {shape[1]} x {shape[0]} pixels and {files[first[0]]} has "
                    f"{first[1][1]} x {first[1][0]}; give a size (--size PIXELS, size=) to resize all images to "
                    "squares of that side"
                )
        rows += found.rows
        keys += found.keys
        digests += found.digests
        moments.append(found.moments)
        if keep and found.images is not None:
            kept.append(found.images.clone())  # the worker's shared memory is freed
    shape = (0, 0, 3) if first is None else first[1]
    images = None
    if keep:
        images = torch.cat(kept) if kept else torch.empty(0, *shape, dtype=torch.uint8)
    joined = np.concatenate(moments) if moments else np.empty((0, 2, 3), np.int64)
    return Scanned(rows, images, shape, keys, digests, joined, problems)


def exact_statistics(moments: NDArray[np.int64], pixels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std of each channel for pixels in [0, 1], equal to those of ``channel_statistics`` bit for bit.

    Args:
        moments: Sums and sums of squares, int64 ``[N, 2, C]``.
        pixels: Number of pixels of an image.
    """
    from lresnet.data.image_data import mean_and_std

    totals = [[int(value) for value in row] for row in np.sum(moments.astype(object), axis=0)]  # never overflows
    count = len(moments) * pixels
    mean, std = zip(*(mean_and_std(count, total, squares) for total, squares in zip(*totals, strict=True)), strict=True)
    return mean, std


def default_workers(count: int | None = None) -> int:
    """Return the number of processes that decode images: ``count``, or one per core that this process may use."""
    if count is not None:
        return count
    local = max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or "1"))  # processes of torchrun share the cores
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_WORKERS, cores // local))


class _Batches(Sampler[list[int]]):
    """Lists of numbers; they are exchanged between two passes."""

    def __init__(self, rows: Sequence[list[int]] = ()) -> None:
        self.rows = list(rows)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class _Reader(Dataset[Any]):
    """The images of a list of numbers, or one line that says which file is missing or has changed."""

    def __init__(self, files: tuple[str, ...], size: int | None, shape: tuple[int, int, int]) -> None:
        self.files, self.size, self.shape = files, size, shape

    def __getitem__(self, rows: list[int]) -> Tensor | str:
        images: NDArray[np.uint8] = np.empty((len(rows), *self.shape), np.uint8)
        for place, row in enumerate(rows):
            try:
                pixels = read_pixels(Path(self.files[row]), self.size)
            except Exception as error:
                return f"{self.files[row]} can no longer be read ({why_unreadable(error)}); restore it and try again"
            if pixels.shape != self.shape:
                return f"{self.files[row]} has changed: it has another size; restore it and try again"
            images[place] = pixels
        return torch.from_numpy(images)


class _Found(NamedTuple):
    rows: list[int]
    images: Tensor | None
    shapes: list[tuple[int, int, int]]
    keys: list[bytes]
    digests: list[bytes]
    moments: NDArray[np.int64]
    problems: list[tuple[int, str]]


class _Scanner(Dataset[Any]):
    """Pixels, checksums and sums of a list of files."""

    def __init__(self, files: tuple[str, ...], labels: tuple[int, ...], size: int | None) -> None:
        self.files, self.labels, self.size = files, labels, size

    def __getitem__(self, rows: list[int]) -> _Found:
        read, keys, images, problems = list[int](), list[bytes](), list[NDArray[np.uint8]](), list[tuple[int, str]]()
        for row in rows:
            try:
                require_small_file(Path(self.files[row]))
                content = read_file(Path(self.files[row]))
                images.append(read_pixels(io.BytesIO(content), self.size))
            except Exception as error:  # decoders raise many kinds of errors on a damaged file
                problems.append((row, why_unreadable(error)))
                continue
            read.append(row)
            keys.append(hashlib.sha256(content).digest())
        shapes: list[tuple[int, int, int]] = [(*image.shape[:2], image.shape[2]) for image in images]
        labels = [self.labels[row].to_bytes(8, "little") for row in read]
        digests = [hashlib.sha256(a + b.tobytes()).digest() for a, b in zip(labels, images, strict=True)]
        moments = np.array([_sums(image) for image in images], np.int64).reshape(len(images), 2, 3)
        same = len(set(shapes)) == 1
        return _Found(
            read, torch.from_numpy(np.stack(images)) if same else None, shapes, keys, digests, moments, problems
        )


def _sums(image: NDArray[np.uint8]) -> list[NDArray[np.int64]]:
    wide = image.reshape(-1, image.shape[-1]).astype(np.int64)
    return [wide.sum(axis=0), (wide * wide).sum(axis=0)]


def _same(value: Any) -> Any:
    return value


def _loader(dataset: Dataset[Any], sampler: _Batches, workers: int) -> DataLoader[Any]:
    """Return a loader whose items are whole batches; it does not draw from torch's own generator."""
    if multiprocessing.current_process().daemon:  # it may not start processes
        workers = 0
    make = functools.partial(DataLoader, dataset, batch_size=None, sampler=sampler, collate_fn=_same)
    return make(num_workers=workers, persistent_workers=workers > 0, generator=torch.Generator())


def _checked(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield the items of ``loader``; the end of a worker is one line."""
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise OSError(
            "a worker process that decodes images has ended, perhaps for lack of memory; use fewer (--workers 1, or "
            "--workers 0 for none); the same command resumes from its checkpoint"
        ) from error
