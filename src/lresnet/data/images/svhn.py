"""SVHN: house numbers cropped from photographs, 32 x 32 pixels (Netzer et al., 2011)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet._files import open_file
from lresnet.data.source import File, Files, OodSource

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from lresnet.data.formats.unlabelled_images import UnlabelledImages

__all__ = ["SOURCE", "read"]

SOURCE = OodSource(
    name="svhn",
    summary="house numbers from photographs, cropped to 32 x 32 pixels: 26,032 test images",
    files=(
        File(
            "svhn/test_32x32.mat",
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",  # there is no https; the checksum protects
            size=64275384,
            sha256="cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            unpacked=File("svhn/test_32x32.npz", None),  # an array of the user
        ),
    ),
    licence="non-commercial use only",
    citation=(
        "Netzer et al.: Reading Digits in Natural Images with Unsupervised Feature Learning, NIPS workshop, 2011"
    ),
    substitutes={
        "58962deeb036da4aef48d486fca5b4e6073f4b0c0b99b9a50e4782204a27dfbf": (
            "the 26,032 test digits cropped anew from the photographs, not the pixels of the official test_32x32.mat"
        ),
    },
)


def read(files: Files, size: tuple[int, int], seed: int) -> UnlabelledImages:
    """Return the test images ``[N, 32, 32, 3]`` in the order of the file. Labels are not read.

    SciPy's reader of MATLAB files trusts the sizes in the file, so it must get the official file only. An array
    ``images`` in ``test_32x32.npz`` is read in its place.
    """
    import numpy as np

    from lresnet.data.formats.unlabelled_images import UnlabelledImages, read_unlabelled

    path = files["test_32x32.mat"]
    if path.suffix == ".npz":
        return read_unlabelled(path, size)
    pixels = _array(path, "X")
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise ValueError(
            f"{path}: X is {pixels.dtype} {list(pixels.shape)}, not uint8 [32, 32, 3, N]; download it again"
        )
    return UnlabelledImages(np.ascontiguousarray(pixels.transpose(3, 0, 1, 2)))


def _array(path: Path, name: str) -> NDArray[Any]:
    from scipy.io import loadmat

    with open_file(path) as file:
        try:
            array: NDArray[Any] = loadmat(file, variable_names=[name])[name]
        except KeyError as error:
            raise ValueError(
                f"{path} has no array {name}, which the test_32x32.mat of SVHN has; download it"
            ) from error
        except Exception as error:  # the reader raises many kinds of errors on a damaged file
            raise ValueError(f"{path} cannot be read as a MATLAB file: {error}; download it again") from error
    return array
