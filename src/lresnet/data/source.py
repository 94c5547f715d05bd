"""Facts about a data set: its files, their official addresses and checksums, its tasks, licence and citation.

Each module of :mod:`lresnet.data.graphs`, :mod:`lresnet.data.images` and :mod:`lresnet.data.texts` describes one data
set with these classes. Nothing here imports torch or NumPy, so that the names of all data sets are known in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = [
    "FEATURE_SOURCES",
    "HIERARCHY_SPLITS",
    "DataKind",
    "DataSource",
    "FeatureSource",
    "File",
    "Files",
    "GraphSource",
    "HierarchySplit",
    "ImageRecords",
    "ImageSource",
    "NodeMetric",
    "OodSource",
    "TaskSource",
    "TextSource",
]

DataKind = Literal["graphs", "images", "texts"]
"""The kinds of data that a task may have; a taxonomy is a graph."""

NodeMetric = Literal["f1_binary", "accuracy"]

FeatureSource = Literal["own", "learned", "structural"]
FEATURE_SOURCES: tuple[FeatureSource, ...] = ("own", "learned", "structural")
"""Where node features come from: the graph itself, one learned point per node, or the structure around a node."""

HierarchySplit = Literal["closure", "leaves"]
HIERARCHY_SPLITS: tuple[HierarchySplit, ...] = ("closure", "leaves")
"""What is held out of a taxonomy: pairs of its transitive closure, or leaves with all their pairs."""

Files = Mapping[str, Path]
"""The files of a data set: the last part of :attr:`File.path`, e.g. ``"airport.p"``, to where the file was found."""


@dataclass(frozen=True)
class ImageRecords:
    """The layout of an archive of labelled images in records of equal length.

    A record holds the label bytes, the last of which is the class, and then the pixels.

    Args:
        folder: Folder of the files, both in the archive and under a data root.
        train: Files with the training images; all hold the same number of records.
        test: Files with the test images.
        shape: Channels, height and width of an image, in the order of its pixels.
        label_bytes: Number of bytes before the pixels.
        classes: Class names, by label.
        per_class: Number of training images and of test images in each class.
        digests: One digest of the training records and one of the test records: the sha256 of their sorted sha256
            digests. It does not depend on the order of the images.
        mean: Published mean of each channel over the training images, for pixels in [0, 1].
        std: Published standard deviation of each channel.
        superclasses: Superclasses with the names of their classes; empty if there are none.
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
    superclasses: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def superclass_of(self) -> tuple[str, ...]:
        """Name of the superclass of each class, by label; empty if there are none."""
        found = {name: superclass for superclass, names in self.superclasses for name in names}
        return tuple(found[name] for name in self.classes) if found else ()


@dataclass(frozen=True)
class File:
    """One file of a data set.

    Args:
        path: Path relative to a data root.
        url: Official address; None if the file is not published.
        size: Number of bytes; None if unknown, then the file may have :data:`lresnet._limits.DOWNLOAD_BYTES` at most.
        sha256: Checksum; None if unknown, then ``git_blob`` must be given, except for an ``unpacked`` file.
        git_blob: The id that git gives the content.
        records: Layout of an archive of images. The extracted folder is accepted in place of the archive.
        unpacked: A file that is accepted in place of this one: the same images uncompressed or as an array. One without
            a checksum is the user's own, in a form that is safe to read.
    """

    path: str
    url: str | None
    size: int | None = None
    sha256: str | None = None
    git_blob: str | None = None
    records: ImageRecords | None = None
    unpacked: File | None = None

    @property
    def is_verified(self) -> bool:
        """Whether the content has a checksum."""
        return self.sha256 is not None or self.git_blob is not None

    @property
    def name(self) -> str:
        """Last part of the path: the key of the file in :data:`Files`."""
        return Path(self.path).name


@dataclass(frozen=True)
class TaskSource:
    """A task that :func:`lresnet.data.load_task` builds from a graph.

    Args:
        name: Name of the task, e.g. ``"airport/nc"``; it ends in ``/lp`` (link prediction) or ``/nc`` (node
            classification).
        dataset: Name of the graph.
        splits: Names of :data:`lresnet.data.split_names.SPLITS`; the first one is the default of
            :func:`lresnet.data.load_task`. ``lresnet train`` takes the first split of the task's preset instead, which
            may differ: for airport/lp it is ``"hgcn"``.
        metric: Metric of node classification.
        columns: Number of raw feature columns that the model may see; None means all.
        balanced: Validation and test shares of the balanced rule of HGCN, for graphs whose nodes the literature splits
            by it (see :func:`lresnet.data.splits.balanced_nodes`).
        nodes: Number of nodes, where a split leaves some of them out (class-random).
    """

    name: str
    dataset: str
    splits: tuple[str, ...]
    metric: NodeMetric = "accuracy"
    columns: int | None = None
    balanced: tuple[float, float] | None = None
    nodes: int | None = None


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """Facts that every data set has.

    Args:
        name: Name of the data set. Its module has the same name.
        summary: Description in one line.
        files: Files of the data set; empty if the data set is generated or supplied by the user.
        licence: Licence of the data, as its publisher states it.
        citation: Publication to cite.
        note: Further information, e.g. that a file cannot be downloaded.
    """

    name: str
    summary: str
    files: tuple[File, ...] = ()
    licence: str
    citation: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class GraphSource(DataSource):
    """A graph. Its module has a function ``read(files) -> Graph``.

    Args:
        tasks: Tasks on this graph.
        row_normalised: Whether the published features divide each row by its sum.
        degree_columns: Whether the published features also have one-hot degrees and a constant column.
    """

    tasks: tuple[TaskSource, ...] = ()
    row_normalised: bool = True
    degree_columns: bool = False


@dataclass(frozen=True, kw_only=True)
class ImageSource(DataSource):
    """Labelled training and test images. Their module has a function ``read(files) -> ImageData``."""


@dataclass(frozen=True, kw_only=True)
class TextSource(DataSource):
    """A text. Its module has a function ``read(files) -> list[bytes]``, which returns its documents."""


@dataclass(frozen=True, kw_only=True)
class OodSource(DataSource):
    """Unlabelled images for out-of-distribution (OOD) detection.

    Their module has a function ``read(files, height, width, seed) -> UnlabelledImages``.

    Args:
        folder: Where the user puts the images of a set that cannot be downloaded: a folder relative to a data root, or
            a ``.npz`` file of that name. None if the set has files or is generated.
        substitutes: Known image sets that are used in place of the official one: the sha256 of their pixels
            ``[N, H, W, 3]`` to a description. The files around the pixels (dates, compression) may differ.
    """

    folder: str | None = None
    substitutes: Mapping[str, str] = field(default_factory=dict)
