"""Sets of images that a network was not trained on, by name or path, at the size the network takes.

=================== ==================================================================================================
``svhn``            26,032 house numbers: ``svhn/test_32x32.mat`` under a data root, else downloaded
``places``          scenes: a folder ``ood/places/`` of images at any depth, or ``ood/places.npz``, under a data root
``textures``        textures (DTD): ``ood/textures/`` or ``ood/textures.npz`` likewise
``mnist``           10,000 digits: ``mnist/t10k-images-idx3-ubyte``, plain or .gz, under a data root, else downloaded
``fashion_mnist``   10,000 clothes: ``fashion_mnist/t10k-images-idx3-ubyte`` likewise
``noise_gaussian``  10,000 images, each value normal with mean 127.5 and deviation 64, rounded, cut off at 0 and 255
``noise_uniform``   10,000 images, each value 0 to 255 alike
=================== ==================================================================================================
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data.files import ROOT_VARIABLE, Root, data_roots, download, problem_with
from lresnet.data.idx import read_idx_images
from lresnet.data.registry import dataset
from lresnet.data.source import Source
from lresnet.data.svhn import read_svhn
from lresnet.data.unlabelled import Unlabelled, fill_frames, read_unlabelled_arrays, read_unlabelled_folder

__all__ = ["OOD_SETS", "OodSet", "load_ood_set"]

OOD_SETS = ("svhn", "places", "textures", "mnist", "fashion_mnist", "noise_gaussian", "noise_uniform")

_NOISE_IMAGES = 10_000
_TEXTURES = 5640  # images of the Describable Textures Dataset
_GREY_FRAME = 32  # digits of 28 x 28 get a black margin up to this, as LeNet-5 took them

# Known stand-ins, by the sha256 of their pixels [N, H, W, 3]: the files around them (dates, compression) may differ.
_STAND_INS = {
    "58962deeb036da4aef48d486fca5b4e6073f4b0c0b99b9a50e4782204a27dfbf": (
        "the 26,032 test digits cropped anew from the photographs, not the pixels of the official test_32x32.mat"
    ),
    "d38db0c9120702f6410c0d3f462b55d011a54c8760b9c3b187bc15647d274269": (
        "the 10,000 validation images of MiniPlaces (100 scenes), in place of Places365"
    ),
    "13c6296e3309533350b31ea2b016f2d7df6cace7250aca79efc75097ffdf16c3": (
        "1,200 images of 10 of the 47 classes of the Describable Textures Dataset"
    ),
}


@dataclass(frozen=True, eq=False)
class OodSet:
    """Images without labels.

    Args:
        name: what to call it.
        images: uint8 ``[N, H, W, 3]``.
        skipped: files that could not be read as images, and why.
        note: what to know beside every figure of it, e.g. that the files are not the official ones; may be empty.

    Raises:
        ValueError: a dtype or shape that does not fit, or no images.

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
            raise ValueError(f"images are uint8 [N, H, W, 3], not {self.images.dtype} {list(self.images.shape)}")
        _require_images(self.name, len(self.images) if self.images.numel() else 0, self.skipped)


def load_ood_set(name: str | Path, *, size: int | tuple[int, int] = 32, root: Root = None, seed: int = 0) -> OodSet:
    """The images called ``name``.

    Images of another size are cut to the frame's proportions in the centre and resized (bilinear, with anti-aliasing):
    what is called resizing the short side and cropping the centre. MNIST's and Fashion-MNIST's 28 x 28 get a black
    margin of 2 first unless the frame is no larger; grey becomes three equal channels.

    Args:
        name: one of :data:`OOD_SETS`, or else the path of a folder of images, at any depth, or of a ``.npz`` (see
            :func:`~lresnet.data.unlabelled.read_unlabelled_arrays`). Such a set is called by the last part of its path,
            by all of it where that is the name of a set.
        size: of the images: the side of a square, or height and width.
        root: the data roots, see :func:`lresnet.data.files.data_roots`.
        seed: of noise.

    Raises:
        FileNotFoundError: there is nothing of that name, and no address that answers.
        ValueError: what is there is not as it should be, or holds no images.

    Example:
        >>> load_ood_set("noise_uniform", size=(24, 40)).images.shape
        torch.Size([10000, 24, 40, 3])
    """
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise ValueError(f"size is {size}; the side of an image is 1 pixel or more")
    if name in ("noise_gaussian", "noise_uniform"):
        return OodSet(str(name), torch.from_numpy(_noise(str(name), (height, width), seed)))
    if name == "svhn":
        found, note = _svhn(root)
    elif name in ("mnist", "fashion_mnist"):
        found, note = _grey(str(name), root, min(height, width))
    elif name in ("places", "textures"):
        found = _read(_located(str(name), root), height, width)
        note = _STAND_INS.get(_digest(found.images)) or _scope(str(name), len(found.images))
    else:
        found = _read(_existing(Path(name)), height, width)
        note = _STAND_INS.get(_digest(found.images), "")
    images = torch.from_numpy(fill_frames(found.images, height, width))
    return OodSet(str(name) if name in OOD_SETS else _own_name(Path(name)), images, found.skipped, note)


def _own_name(path: Path) -> str:
    """The last part of the path, but all of it where it would pass for a set of :data:`OOD_SETS`."""
    path = path.resolve()
    name = path.name.removesuffix(".npz")
    return str(path) if name.lower() in OOD_SETS else name


def _noise(name: str, frame: tuple[int, int], seed: int) -> NDArray[np.uint8]:
    random = np.random.RandomState(seed)  # NumPy's old generator: its streams are frozen
    shape = (*frame, 3)
    if name == "noise_uniform":
        return random.randint(256, size=(_NOISE_IMAGES, *shape), dtype=np.uint8)
    images = np.empty((_NOISE_IMAGES, *shape), dtype=np.uint8)
    for image in images:  # one by one: all of them in float64 would be eight times the memory
        image[:] = random.normal(127.5, 64, shape).round().clip(0, 255)
    return images


def _svhn(root: Root) -> tuple[Unlabelled, str]:
    (source,) = dataset("svhn").files
    path = _under_roots([source.path], root) or download(source, root)
    found = Unlabelled(read_svhn(path))
    note = _caveat(path, source, len(found.images))
    return found, _STAND_INS.get(_digest(found.images), note) if note else ""


def _grey(name: str, root: Root, frame: int) -> tuple[Unlabelled, str]:
    (source,) = dataset(name).files
    plain = source.path.removesuffix(".gz")
    path = _under_roots([source.path, plain], root) or download(source, root)
    images = read_idx_images(path)
    margin = max(0, _GREY_FRAME - max(images.shape[1:])) // 2 if frame > max(images.shape[1:]) else 0
    images = np.pad(images, ((0, 0), (margin, margin), (margin, margin)))
    unpacked = f"{len(images):,} images of an unpacked file, for which no checksum is published"
    note = _caveat(path, source, len(images)) if path.suffix == ".gz" else unpacked
    return Unlabelled(np.repeat(images[..., None], 3, axis=3)), note


def _caveat(path: Path, source: Source, count: int) -> str:
    """What to say of a file that is not the official one, told by its content; nothing of one that is."""
    problem = problem_with(path, source)
    return f"{count:,} images, not from the official {Path(source.path).name}: {problem}" if problem else ""


def _scope(name: str, count: int) -> str:
    """What to say of a set that has no official file."""
    if name == "places":
        return f"{count:,} images; which ones of Places365 the paper took is not known"
    return "" if count == _TEXTURES else f"{count:,} images, not the {_TEXTURES:,} of the Describable Textures Dataset"


def _read(path: Path, height: int, width: int) -> Unlabelled:
    found = read_unlabelled_folder(path, height, width) if path.is_dir() else Unlabelled(read_unlabelled_arrays(path))
    _require_images(str(path), len(found.images), found.skipped)
    return found


def _require_images(where: str, count: int, skipped: Sequence[tuple[Path, str]]) -> None:
    if count == 0:
        why = f" ({len(skipped)} could not be read, e.g. {skipped[0][1]})" if skipped else ""
        raise ValueError(f"{where} holds no readable image{why}; add some")


def _located(name: str, root: Root) -> Path:
    """The folder or .npz of a set that cannot be downloaded."""
    path = _under_roots([f"ood/{name}", f"ood/{name}.npz"], root)
    if path is None:
        looked = " or ".join(str(folder / "ood" / name) for folder in data_roots(root))
        raise FileNotFoundError(
            f"no images of {name}: put them, as a folder or as {name}.npz, at {looked}, or set "
            f"{ROOT_VARIABLE} to the folder that holds ood"
        )
    return path


def _existing(path: Path) -> Path:
    if path.is_dir() or (path.suffix == ".npz" and path.is_file()):
        return path
    if path.exists():
        raise FileNotFoundError(f"{path} is neither a folder nor a .npz; name one, or one of {', '.join(OOD_SETS)}")
    near = difflib.get_close_matches(str(path), OOD_SETS, n=1)
    raise FileNotFoundError(
        f"there is no set {str(path)!r}{f' (did you mean {near[0]}?)' if near else ''}; name {', '.join(OOD_SETS)}, or "
        "the path of a folder of images or of a .npz"
    )


def _under_roots(paths: list[str], root: Root) -> Path | None:
    places = (folder / path for folder in data_roots(root) for path in paths)
    return next((place for place in places if place.exists()), None)


def _digest(images: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()
