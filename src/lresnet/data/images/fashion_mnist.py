"""Fashion-MNIST: clothes, 28 x 28 pixels (Xiao et al., 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, OodSource

if TYPE_CHECKING:
    from lresnet.data.formats.unlabelled_images import UnlabelledImages

__all__ = ["SOURCE", "read"]

SOURCE = OodSource(
    name="fashion_mnist",
    summary="clothes, 28 x 28 pixels: 10,000 test images",
    files=(
        File(
            "fashion_mnist/t10k-images-idx3-ubyte.gz",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
            "t10k-images-idx3-ubyte.gz",
            size=4422102,
            sha256="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            unpacked=File(
                "fashion_mnist/t10k-images-idx3-ubyte",
                None,
                size=7840016,
                git_blob="37bac79bc6f002d965f363e0b20514904504a4d9",
            ),
        ),
    ),
    licence="MIT",
    citation="Xiao, Rasul, Vollgraf: Fashion-MNIST: a Novel Image Dataset for Benchmarking, arXiv:1708.07747, 2017",
)


def read(files: Files, size: tuple[int, int], seed: int) -> UnlabelledImages:
    """Return the test images in three equal channels; 28 x 28 pixels get a black margin of 2 if ``size`` is larger."""
    from lresnet.data.formats.idx import read_idx_images
    from lresnet.data.formats.unlabelled_images import UnlabelledImages

    (path,) = files.values()
    return UnlabelledImages(read_idx_images(path, size))
