"""A set of images by its name or path."""

from __future__ import annotations

from pathlib import Path

from lresnet.data.cifar import read_cifar
from lresnet.data.files import Root
from lresnet.data.image_arrays import read_image_arrays
from lresnet.data.image_folder import read_image_folder
from lresnet.data.images import ImageData
from lresnet.data.registry import dataset

__all__ = ["IMAGE_SETS", "load_images"]

IMAGE_SETS = ("cifar10", "cifar100")


def load_images(name: str | Path, root: Root = None, size: int | None = None) -> ImageData:
    """Training and test images, in memory.

    Args:
        name: ``"cifar10"``, ``"cifar100"``, or else a path: a folder with ``train/CLASS/`` and ``test/CLASS/`` (see
            :func:`~lresnet.data.image_folder.read_image_folder`), or a ``.npz`` of arrays (see
            :func:`~lresnet.data.image_arrays.read_image_arrays`).
        root: where CIFAR lies or is downloaded to, see :func:`lresnet.data.files.data_roots`.
        size: for a folder whose images differ in size: make all squares of this side.

    Raises:
        FileNotFoundError: there is nothing of that name, and CIFAR's address did not answer.
        ValueError: what is there is not as it should be.

    Example:
        >>> data = load_images("cifar10")                                 # doctest: +SKIP
        >>> data.train.images.shape, data.classes[:3]                     # doctest: +SKIP
        (torch.Size([50000, 32, 32, 3]), ('airplane', 'automobile', 'bird'))
    """
    path = Path(name)
    if size is not None and (name in IMAGE_SETS or path.is_file()):
        raise ValueError(f"size={size} is for folders of image files; {name} has a size of its own")
    if name in IMAGE_SETS:
        return read_cifar(dataset(str(name)), root)
    if path.is_dir():
        return read_image_folder(path, size)
    if path.is_file() and ".npz" in (path.suffix, path.resolve().suffix):  # a link may have any name
        return read_image_arrays(path)
    kind = "is neither a folder nor a .npz" if path.exists() else "does not exist"
    raise FileNotFoundError(f"{name} {kind}; name {' or '.join(IMAGE_SETS)}, a folder with train/ and test/, or a .npz")
