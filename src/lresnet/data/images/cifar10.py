"""CIFAR-10: photographs of 10 classes, 32 x 32 pixels (Krizhevsky, 2009)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, ImageRecords, ImageSource

if TYPE_CHECKING:
    from lresnet.data.image_data import ImageData

__all__ = ["SOURCE", "read"]

_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# The digests were computed from copies whose six files have the published sha256 values.
_RECORDS = ImageRecords(
    folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test=("test_batch.bin",),
    shape=(3, 32, 32),
    label_bytes=1,
    classes=_CLASSES,
    per_class=(5000, 1000),
    digests=(
        "55a61f79a40ece2ceda9fb5f9f7078f6ea2fc4952489cef56682bcf92cfcc260",
        "325704b01eb92e1e2a6215ae6a916bb7db7de054af0c496be1c7be2e0fcfbf5f",
    ),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)

SOURCE = ImageSource(
    name="cifar10",
    summary="photographs of 10 classes, 32 x 32 pixels: 50,000 training and 10,000 test images",
    files=(
        File(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            size=170052171,
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            records=_RECORDS,
        ),
    ),
    licence="none stated by the publisher, who asks to be cited",
    citation="Krizhevsky: Learning Multiple Layers of Features from Tiny Images, technical report, 2009",
)


def read(files: Files) -> ImageData:
    """Return 50,000 training and 10,000 test images, in the order of the files."""
    from lresnet.data.formats.records import read_image_records

    return read_image_records(SOURCE, files)
