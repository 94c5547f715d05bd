"""Image sets for out-of-distribution (OOD) detection, by name or path, resized to the input of a network."""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data.files import Root, download, find, first_existing, user_images
from lresnet.data.formats.unlabelled_images import UnlabelledImages, fill_frames, read_unlabelled, require_images
from lresnet.data.registry import OOD_SETS, reader
from lresnet.data.source import File, Files, OodSource

__all__ = ["OodSet", "load_ood_set"]


@dataclass(frozen=True, eq=False)
class OodSet:
    """Images without labels.

    Args:
        name: Name of the set.
        images: uint8 ``[N, H, W, 3]``.
        skipped: Files that could not be read as images, with the reason.
        note: What a reader of figures on this set should know, e.g. that the files are not the official ones; may be
            empty.

    Raises:
        ValueError: A dtype or shape is wrong, or there are no images.

    Example:
        >>> OodSet("black", torch.zeros(5, 32, 32, 3, dtype=torch.uint8)).images.shape
        torch.Size([5, 32, 32, 3])
    """

    name: str
    images: Tensor
    skipped: tuple[tuple[Path, str], ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[-1] != 3:
            raise ValueError(f"images must be uint8 [N, H, W, 3], got {self.images.dtype} {list(self.images.shape)}")
        require_images(self.name, len(self.images) if self.images.numel() else 0, self.skipped)


def load_ood_set(name: str | Path, *, size: int | tuple[int, int] = 32, root: Root = None, seed: int = 0) -> OodSet:
    """Load the images of a set.

    Images of another size are cropped around the centre to the proportions of ``size`` and resized (bilinear, with
    anti-aliasing). This equals resizing the short side and cropping the centre. The 28 x 28 images of MNIST and
    Fashion-MNIST first get a black margin of 2 if ``size`` is larger. Grey images get three equal channels.

    Args:
        name: A name of :data:`lresnet.data.OOD_SETS`, or the path of a folder of images, at any depth, or of a ``.npz``
            file (see :func:`~lresnet.data.formats.unlabelled_images.read_unlabelled`). A set from a path is named after
            the last part of the path, or after the whole path if that part is the name of a known set.
        size: Side of the images, or their height and width.
        root: Data roots, see :func:`lresnet.data.files.data_roots`.
        seed: Seed of generated noise.

    Raises:
        FileNotFoundError: There is no such set, folder or file, and nothing can be downloaded.
        ValueError: A file is damaged or of another form, or there are no images.

    Example:
        >>> load_ood_set("noise_uniform", size=(24, 40)).images.shape
        torch.Size([10000, 24, 40, 3])
    """
    height_width = (size, size) if isinstance(size, int) else size
    if min(height_width) < 1:
        raise ValueError(f"size is {size}; the side of an image must be at least 1 pixel")
    if isinstance(name, str) and name in OOD_SETS:
        source, label = OOD_SETS[name], name
        files = _files(source, root)
        found: UnlabelledImages = reader(source)(files, height_width, seed)
        note = _note(source, files, found)
    else:
        path = _existing(Path(name))
        found, label = read_unlabelled(path, height_width), _name_of(path)
        note = _substitute(found.images) or ""
    return OodSet(label, torch.from_numpy(fill_frames(found.images, height_width)), found.skipped, note)


def _files(source: OodSource, root: Root) -> dict[str, Path]:
    """Return the files of ``source``, after a check: no parser gets a file that is not official.

    Raises:
        ValueError: A file is not the official one.
    """
    if source.folder:
        return {source.name: user_images(source, root)}
    paths = {}
    for file in source.files:
        paths[file.name] = _official(file, root) or _unpacked(file.unpacked, root) or download(file, root)
    return paths


def _unpacked(file: File | None, root: Root) -> Path | None:
    if file is None:
        return None
    return _official(file, root) if file.is_verified else first_existing([file.path], root)


def _official(file: File, root: Root) -> Path | None:
    try:
        return find(file, root)
    except ValueError as error:
        raise ValueError(f"{error}; other images can be used by the path of their folder or .npz file") from error


def _note(source: OodSource, files: Files, found: UnlabelledImages) -> str:
    """Return what to mention about files that are not the official ones; empty if they are."""
    if source.folder:
        return _substitute(found.images) or found.note
    for file in source.files:
        if files[file.name].name != file.name and not (file.unpacked and file.unpacked.is_verified):
            caveat = f"{len(found.images):,} images of an unpacked file, for which no checksum is published"
            return _substitute(found.images) or caveat
    return ""


def _substitute(images: NDArray[np.uint8]) -> str | None:
    """Return the description of a known substitute for an official set, recognised by its pixels."""
    digest = hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()
    known = (source.substitutes.get(digest) for source in OOD_SETS.values())
    return next((text for text in known if text), None)


def _name_of(path: Path) -> str:
    """Return the last part of the path, or the whole path if that part is the name of a known set."""
    path = path.resolve()
    name = path.name.removesuffix(".npz")
    return str(path) if name.lower() in OOD_SETS else name


def _existing(path: Path) -> Path:
    if path.is_dir() or (path.suffix == ".npz" and path.is_file()):
        return path
    if path.exists():
        raise FileNotFoundError(
            f"{path} is neither a folder nor a .npz file; give one of these, or one of {', '.join(OOD_SETS)}"
        )
    near = difflib.get_close_matches(str(path), OOD_SETS, n=1)
    raise FileNotFoundError(
        f"there is no image set {str(path)!r}{f' (did you mean {near[0]}?)' if near else ''}; choose one of "
        f"{', '.join(OOD_SETS)}, or give the path of a folder of images or of a .npz file"
    )
