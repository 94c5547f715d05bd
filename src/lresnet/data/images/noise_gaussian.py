"""Gaussian noise: images whose values are normal with mean 127.5 and standard deviation 64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import Files, OodSource

if TYPE_CHECKING:
    from lresnet.data.formats.unlabelled_images import UnlabelledImages

__all__ = ["SOURCE", "read"]

_COUNT = 10_000

SOURCE = OodSource(
    name="noise_gaussian",
    summary="10,000 generated images; each value is normal (mean 127.5, std 64), rounded and clipped to 0 to 255",
    licence="MIT, part of this library",
    citation="lresnet.data.load_ood_set",
)


def read(files: Files, size: tuple[int, int], seed: int) -> UnlabelledImages:
    """Return 10,000 images of ``size``; the generator is NumPy's legacy one, whose streams never change."""
    import numpy as np

    from lresnet.data.formats.unlabelled_images import UnlabelledImages

    random = np.random.RandomState(seed)
    images = np.empty((_COUNT, *size, 3), dtype=np.uint8)
    for image in images:  # one at a time: all of them in float64 would need eight times the memory
        image[:] = random.normal(127.5, 64, (*size, 3)).round().clip(0, 255)
    return UnlabelledImages(images)
