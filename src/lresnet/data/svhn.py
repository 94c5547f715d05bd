"""SVHN's cropped digits from their MATLAB file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_svhn"]


def read_svhn(path: Path) -> NDArray[np.uint8]:
    """The images of ``test_32x32.mat``, uint8 ``[N, 32, 32, 3]``, in the order of the file; labels are not read.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.
    """
    pixels = _array(path, "X")
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise ValueError(f"{path}: X is {pixels.dtype} {list(pixels.shape)}, not uint8 [32, 32, 3, N]; fetch it again")
    return np.ascontiguousarray(pixels.transpose(3, 0, 1, 2))


def _array(path: Path, name: str) -> NDArray[Any]:
    from scipy.io import loadmat

    with path.open("rb") as file:
        try:
            array: NDArray[Any] = loadmat(file, variable_names=[name])[name]
        except KeyError as error:
            raise ValueError(f"{path} has no array {name}; SVHN's test_32x32.mat has it: fetch it again") from error
        except Exception as error:  # the reader raises nearly anything at a damaged file
            raise ValueError(f"{path} cannot be read as a MATLAB file: {error}; fetch it again") from error
    return array
