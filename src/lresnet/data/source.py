"""What is known of a data set: its files, where they are published, and what an archive of images holds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Dataset", "ImageRecords", "Source"]


@dataclass(frozen=True)
class ImageRecords:
    """Labelled images as records of one length: label bytes, the last of which is the class, then the pixels.

    Args:
        folder: where the files lie, in the archive as under a data root.
        train: the files of the training images, each with the same number of records.
        test: those of the test images.
        shape: channels, height and width of an image, as its pixels are ordered.
        label_bytes: bytes before the pixels.
        classes: names, by label.
        per_class: training and test images of each class.
        digests: of the training and of the test records: the sha256 of their sorted sha256, whatever their order.
        mean: of each channel over the training images, with pixels in [0, 1], as published.
        std: likewise.
    """

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    shape: tuple[int, int, int]
    label_bytes: int
    classes: tuple[str, ...]
    per_class: tuple[int, int]
    digests: tuple[str, str]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Source:
    """One file.

    Args:
        path: where it lies under a data root.
        address: where it is published; None when nobody publishes it.
        size: bytes; None when not known.
        sha256: of its content; None when not known, then ``git_blob`` is.
        git_blob: the id git gives its content.
        records: what it holds if it is an archive of images; its extracted folder is as good as the archive itself.
    """

    path: str
    address: str | None
    size: int | None = None
    sha256: str | None = None
    git_blob: str | None = None
    records: ImageRecords | None = None


@dataclass(frozen=True)
class Dataset:
    """One data set: what it is, what it is made of, and whom to credit."""

    name: str
    summary: str
    files: tuple[Source, ...]
    licence: str
    citation: str
    note: str = ""
