"""MNIST: handwritten digits, 28 x 28 pixels (LeCun et al., 1998)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, OodSource

if TYPE_CHECKING:
    from lresnet.data.formats.unlabelled_images import UnlabelledImages

__all__ = ["SOURCE", "read"]

SOURCE = OodSource(
    name="mnist",
    summary="handwritten digits, 28 x 28 pixels: 10,000 test images",
    files=(
        File(
            "mnist/t10k-images-idx3-ubyte.gz",
            "https://storage.googleapis.com/cvdf-datasets/mnist/t10k-images-idx3-ubyte.gz",
            size=1648877,
            sha256="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            unpacked=File(
                "mnist/t10k-images-idx3-ubyte",
                None,
                size=7840016,
                sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
        ),
    ),
    licence="CC BY-SA 3.0",
    citation=(
        "LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition, IEEE 86(11), 1998"
    ),
    note="from the mirror of the Common Visual Data Foundation",
)


def read(files: Files, size: tuple[int, int], seed: int) -> UnlabelledImages:
    """Return the test images in three equal channels; 28 x 28 pixels get a black margin of 2 if ``size`` is larger."""
    from lresnet.data.formats.idx import read_idx_images
    from lresnet.data.formats.unlabelled_images import UnlabelledImages

    (path,) = files.values()
    return UnlabelledImages(read_idx_images(path, size))
