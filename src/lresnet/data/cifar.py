"""CIFAR-10 and CIFAR-100 in the author's binary form."""

from __future__ import annotations

import torch

from lresnet.data.files import Root, download, find
from lresnet.data.images import ImageData, ImageSet
from lresnet.data.records import Part, complete_folder, read_records
from lresnet.data.source import Dataset

__all__ = ["read_cifar"]


def read_cifar(entry: Dataset, root: Root = None) -> ImageData:
    """The images of ``entry``, from its extracted folder if a data root has all of it, else from the archive.

    An archive that is under no root is downloaded into the last one. It is read as it is: nothing is extracted.

    Args:
        entry: ``dataset("cifar10")`` or ``dataset("cifar100")``.
        root: the data roots, see :func:`lresnet.data.files.data_roots`.

    Returns:
        50,000 training and 10,000 test images ``[32, 32, 3]`` in the order of the files, with the published mean and
        std; for CIFAR-100 the 100 classes, not the 20 groups.

    Raises:
        FileNotFoundError: neither form is under a root, and the address did not answer.
        ValueError: a file is not what it should be; the message says in what.
        OSError: a file cannot be read, or the last root cannot be written to.
    """
    (source,) = entry.files
    if source.records is None:
        raise ValueError(f"{entry.name} is no set of image records; read_cifar takes cifar10 and cifar100")
    path = complete_folder(source.records, root) or find(source, root) or download(source, root)
    try:
        train, test = read_records(path, source.records)
    except ValueError as error:
        raise ValueError(f"{path} is not the official {entry.name}: {error}; remove it, and it is fetched") from error
    records = source.records
    return ImageData(entry.name, _image_set(train), _image_set(test), records.classes, records.mean, records.std)


def _image_set(part: Part) -> ImageSet:
    return ImageSet(torch.from_numpy(part.images), torch.from_numpy(part.labels))
