"""Users' labelled images in folders: ``CLASS/*.jpg``, or ``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import torch

from lresnet.data.formats.image_file import SUFFIXES, fill_frame, image_size, open_image
from lresnet.data.image_data import ImageData, ImageSet, stratified_part
from lresnet.data.image_files import ImageFiles, Scanned, default_workers, exact_statistics, scan_files

__all__ = [
    "MEMORY_LIMIT",
    "SUFFIXES",
    "TEST_FRACTION",
    "ImageLayout",
    "fill_frame",
    "find_layout",
    "image_sizes",
    "images_below",
    "open_image",
    "read_image_folder",
]

TEST_FRACTION = 0.2
"""Fraction of the images of each class that become the test set where there is no folder ``test``."""
MEMORY_LIMIT = 2.0
"""Gigabytes of decoded images that are kept in memory; larger sets stay in their files."""

# Names of the folders of the parts, in lower case.
_PARTS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


class ImageLayout(NamedTuple):
    """Which files of a folder are images of which class and part.

    Args:
        path: The folder.
        classes: Class names in alphabetical order; a label is a number in this order.
        parts: Files and labels, by part: ``train``, ``val`` and ``test``, as far as they have folders. A folder of
            classes is ``train`` alone.
        folders: Folder of each part.
        notes: What was ignored, one sentence each.
    """

    path: Path
    classes: tuple[str, ...]
    parts: dict[str, list[tuple[Path, int]]]
    folders: dict[str, Path]
    notes: tuple[str, ...]

    @property
    def images(self) -> int:
        """Number of image files."""
        return sum(map(len, self.parts.values()))


def find_layout(path: str | Path) -> ImageLayout:
    """Return the classes and image files of a folder by their names; no file is opened.

    The folder has parts if it holds a folder ``train`` (or ``training``) with folders in it; ``val`` (or ``valid``,
    ``validation``) and ``test`` (or ``testing``) are optional, and capitals do not matter. Otherwise its folders are
    the classes. Files without an image suffix (see :data:`SUFFIXES`)
    and hidden files are ignored; images may be in folders of any depth below their class, but not behind links there.

    Raises:
        FileNotFoundError: There is no such folder, or it holds no folders of images.
        ValueError: There is one class only, only ``test`` or ``val`` has a class, or a class has no training images.
    """
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    folders = _part_folders(path)
    if not folders:
        return _flat_layout(path)
    classes = tuple(_folders(folders["train"]))
    parts = {}
    for part, folder in folders.items():
        if unknown := sorted(set(_folders(folder)) - set(classes)):
            raise ValueError(f"{folder} has the class {unknown[0]!r}, but {folders['train']} does not")
        parts[part] = [
            (file, label)
            for label, name in enumerate(classes)
            if (folder / name).is_dir()  # a class may have no test images
            for file in images_below(folder / name, follow_links=False)
        ]
        if not parts[part]:
            raise ValueError(f"{folder} holds no images; image files end with {', '.join(sorted(SUFFIXES))}")
    return ImageLayout(path, classes, parts, folders, ())


def _part_folders(path: Path) -> dict[str, Path]:
    """Return the folders of the parts; none: the folders are classes. A class called train holds no folders."""
    named = {name: path / name for name in _folders(path)}
    folders = dict[str, Path]()
    for part, words in _PARTS.items():
        found = [folder for name, folder in named.items() if name.lower() in words and _folders(folder)]
        if len(found) > 1:
            raise ValueError(f"{path} has both {found[0].name}/ and {found[1].name}/; keep one of them")
        if found:
            folders[part] = found[0]
    if folders and "train" not in folders:
        given = next(iter(folders.values())).name
        raise FileNotFoundError(
            f"{path} has {given}/CLASS/ but no train/CLASS/; add it, or put all images into {path}/CLASS/"
        )
    return folders


def _flat_layout(path: Path) -> ImageLayout:
    files = {name: images_below(path / name, follow_links=False) for name in _folders(path)}
    classes = tuple(name for name in files if files[name])
    if not classes:
        raise FileNotFoundError(
            f"{path} holds no folders of images; put the images of each class into a folder of its own, "
            f"{path / 'CLASS'}/*.jpg, or into train/CLASS/ and test/CLASS/ (a graph needs edges.csv)"
        )
    if len(classes) == 1:
        raise ValueError(
            f"{path} holds images in one folder only, {classes[0]!r}; give a folder that holds a folder for each class"
        )
    notes = []
    if empty := [name for name in files if not files[name]]:
        notes.append(f"{_count(len(empty), 'folder')} without images, ignored: {_some(empty)}.")
    if loose := [file.name for file in path.iterdir() if _is_image_file(file) and not file.name.startswith(".")]:
        notes.append(f"{_count(len(loose), 'image')} outside the folders of classes, ignored: {_some(sorted(loose))}.")
    pairs = [(file, label) for label, name in enumerate(classes) for file in files[name]]
    return ImageLayout(path, classes, {"train": pairs}, {"train": path}, tuple(notes))


def image_sizes(layout: ImageLayout) -> Counter[tuple[int, int]]:
    """Return how many images have which width and height, from the headers of the files."""
    sizes = (image_size(file) for pairs in layout.parts.values() for file, _ in pairs)
    return Counter(size for size in sizes if size is not None)


def read_image_folder(
    path: str | Path,
    size: int | None = None,
    *,
    test_fraction: float | None = None,
    split_seed: int = 0,
    memory: float | None = None,
    workers: int | None = None,
) -> ImageData:
    """Read a folder of classes, ``path/CLASS/*``, or ``path/train/CLASS/*`` and ``path/test/CLASS/*``.

    Where there is no folder ``test``, a part of the images of every class becomes the test set. It is chosen by the
    content of the files, and byte-identical files stay in one part (:func:`~lresnet.data.image_data.stratified_part`).
    A folder ``val`` holds validation images. See :func:`find_layout` for what is ignored.

    Images are turned upright according to their EXIF data and converted to RGB; an alpha channel is dropped. Images
    that :func:`open_image` refuses are left out and listed in ``skipped`` with the reason.

    Args:
        path: The folder.
        size: Side of the squares to which images are resized, see :func:`fill_frame`. None keeps their size, which must
            be the same for all.
        test_fraction: Fraction of the images of each class for the test set; None: :data:`TEST_FRACTION`. Only where
            there is no folder ``test``.
        split_seed: Another seed gives another test set.
        memory: Gigabytes of decoded images that are kept in memory. A larger set is read once for its checksums and
            statistics, and then stays in its files (:class:`~lresnet.data.image_files.ImageFiles`). None:
            :data:`MEMORY_LIMIT`; 0: no images are kept.
        workers: Number of processes that decode images; None: one per core, at most 8; 0: this process.

    Returns:
        Images ``[N, H, W, 3]``, sorted by class and then by file name, with the mean and std of the training images.

    Raises:
        FileNotFoundError: There is no such folder, or it holds no folders of images.
        ValueError: Images have two sizes, a class has no training images, or only one of the parts has a class.
    """
    if size is not None and size < 1:
        raise ValueError(f"size is {size}; the side of an image must be at least 1 pixel")
    if test_fraction is not None and not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must be above 0 and below 1, got {test_fraction}")
    for name, value in (("memory", memory), ("workers", workers)):
        if value is not None and value < 0:
            raise ValueError(f"{name} must be 0 or more, got {value}")
    layout = find_layout(path)
    if "test" in layout.parts and test_fraction is not None:
        raise ValueError(f"{layout.path} has a folder test, so no test images are chosen; leave test_fraction out")
    keep = _decoded_bytes(layout, size) <= 1e9 * (MEMORY_LIMIT if memory is None else memory)
    count = default_workers(workers)
    found = {part: _read_part(pairs, size, count, keep, layout.folders[part]) for part, pairs in layout.parts.items()}
    train, notes = found["train"], list(layout.notes)
    for label in sorted(set(range(len(layout.classes))) - set(train.labels)):
        _refuse_empty(layout.folders["train"] / layout.classes[label], train.skipped)
    skipped = tuple(pair for part in found.values() for pair in part.skipped)
    if "test" not in found:
        train, found["test"], note = _split(layout, train, test_fraction or TEST_FRACTION, split_seed)
        notes += note
    else:
        notes += _shared(train, found)
    kept = {part: each.images(size, count) for part, each in (found | {"train": train}).items()}
    height, width, _ = train.scanned.shape
    mean, std = exact_statistics(train.scanned.moments, height * width)
    return ImageData(
        layout.path.resolve().name,
        kept["train"],
        kept["test"],
        layout.classes,
        mean,
        std,
        skipped,
        val=kept.get("val"),
        contents=tuple(train.scanned.keys),
        notes=tuple(notes),
    )


def images_below(folder: Path, *, follow_links: bool = True) -> list[Path]:
    """Return the image files in ``folder``, at any depth, sorted by path. Hidden files are ignored.

    Files are recognised by their suffix. Links to folders are followed unless ``follow_links`` is False; a folder that
    is reached twice is read once. A broken link is included, so that it is counted as a file that cannot be read.

    Raises:
        OSError: One of the folders cannot be read.
    """
    found, seen = list[Path](), set[str]()
    for parent, folders, names in os.walk(folder, onerror=_raise, followlinks=follow_links):
        real = os.path.realpath(parent)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        if real not in seen:
            found += [Path(parent, name) for name in names if not name.startswith(".")]
        seen.add(real)
    return sorted(file for file in found if _is_image_file(file))


class _Part(NamedTuple):
    scanned: Scanned
    files: list[Path]  # readable ones
    labels: list[int]
    skipped: list[tuple[Path, str]]  # files that could not be read, with the reason

    def pick(self, rows: Sequence[int]) -> _Part:
        one, index = self.scanned, torch.tensor(rows, dtype=torch.int64)
        picked = one._replace(
            images=None if one.images is None else one.images[index],
            keys=[one.keys[row] for row in rows],
            digests=[one.digests[row] for row in rows],
            moments=one.moments[index.numpy()],
        )
        return self._replace(
            scanned=picked, files=[self.files[row] for row in rows], labels=[self.labels[row] for row in rows]
        )

    def images(self, size: int | None, workers: int) -> ImageSet | ImageFiles:
        labels, one = torch.tensor(self.labels, dtype=torch.int64), self.scanned
        if one.images is not None:
            return ImageSet(one.images, labels)
        files = tuple(os.path.abspath(file) for file in self.files)  # noqa: PTH100 - links are kept
        return ImageFiles(files, labels, one.shape, size, workers, tuple(one.digests), one.moments)


def _decoded_bytes(layout: ImageLayout, size: int | None) -> float:
    """Return the memory that all images would need; without a size, all have that of the first readable one."""
    if size is not None:
        return 3 * size * size * layout.images
    sizes = (image_size(file) for pairs in layout.parts.values() for file, _ in pairs)
    width, height = next((each for each in sizes if each is not None), (0, 0))
    return 3 * width * height * layout.images


def _read_part(pairs: list[tuple[Path, int]], size: int | None, workers: int, keep: bool, folder: Path) -> _Part:
    files = [file for file, _ in pairs]
    scanned = scan_files(files, [label for _, label in pairs], size, workers=workers, keep=keep)
    skipped = [(files[row], reason) for row, reason in scanned.problems]
    if not scanned.rows:
        _refuse_empty(folder, skipped)
    return _Part(scanned, [files[row] for row in scanned.rows], [pairs[row][1] for row in scanned.rows], skipped)


def _split(layout: ImageLayout, pool: _Part, fraction: float, seed: int) -> tuple[_Part, _Part, list[str]]:
    """Return the training and the test part of a folder without ``test``, and what is reported of it."""
    keys, labels = pool.scanned.keys, pool.labels
    chosen = stratified_part(labels, keys, fraction, seed)
    if not chosen:
        raise ValueError(
            f"{layout.path}: every class has a single image, so none can be test images; add images, or make "
            "train/CLASS/ and test/CLASS/"
        )
    inside = set(chosen)
    rest = [row for row in range(len(labels)) if row not in inside]
    notes = [
        f"There is no folder test: {fraction:.0%} of each class are the test set, {len(chosen):,} of {len(labels):,} "
        "images, chosen by file content and the same in every run (--test-fraction, --split-seed)."
    ]
    if repeated := len(keys) - len(set(keys)):
        notes.append(f"{_count(repeated, 'file')} byte-identical to another one; copies are kept in the same part.")
    classes_of: dict[bytes, set[int]] = {}
    for key, label in zip(keys, labels, strict=True):
        classes_of.setdefault(key, set()).add(label)
    if twice := [key for key, found in classes_of.items() if len(found) > 1]:
        example = pool.files[keys.index(twice[0])]
        notes.append(
            f"warning: {_count(len(twice), 'image')} in two classes with the same content, e.g. {example}; keep each "
            "image in one class"
        )
    tested = {labels[row] for row in chosen}
    if missing := [name for label, name in enumerate(layout.classes) if label not in tested]:
        notes.append(
            f"{_count(len(missing), 'class')} without test images, with a single image each: {_some(missing)}."
        )
    return pool.pick(rest), pool.pick(chosen), notes


def _shared(train: _Part, parts: dict[str, _Part]) -> list[str]:
    """Return warnings about files that are in the training part and in another one."""
    notes, known = [], set(train.scanned.keys)
    for part in ("val", "test"):
        if part in parts:
            same = [file for file, key in zip(parts[part].files, parts[part].scanned.keys, strict=True) if key in known]
            if same:
                notes.append(
                    f"warning: {part}/ shares {len(same):,} image{'s' if len(same) > 1 else ''} with the training "
                    f"images, byte for byte, e.g. {same[0]}; remove them from one of the two"
                )
    return notes


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _is_image_file(file: Path) -> bool:
    """Whether ``file`` has an image suffix. A broken link or a named pipe counts as unreadable; a folder does not."""
    return file.suffix.lower() in SUFFIXES and not file.is_dir()


def _refuse_empty(folder: Path, skipped: Iterable[tuple[Path, str]]) -> NoReturn:
    reasons = [reason for file, reason in skipped if folder in file.parents]
    why = f" ({len(reasons)} could not be read, e.g. {reasons[0]})" if reasons else ""
    raise ValueError(f"{folder} holds no readable image{why}; add some")


def _raise(error: OSError) -> NoReturn:
    raise error


def _count(count: int, noun: str) -> str:
    """Return e.g. "1 image is" or "3 images are"."""
    plural = {"class": "classes"}.get(noun, f"{noun}s")
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {plural} are"


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", ..." if names[3:] else "")
