"""Uniform noise: images whose values are uniform on 0 to 255."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import Files, OodSource

if TYPE_CHECKING:
    from lresnet.data.formats.unlabelled_images import UnlabelledImages

__all__ = ["SOURCE", "read"]

_COUNT = 10_000

SOURCE = OodSource(
    name="noise_uniform",
    summary="10,000 generated images; each value is uniform on 0 to 255",
    licence="MIT, part of this library",
    citation="lresnet.data.load_ood_set",
)


def read(files: Files, size: tuple[int, int], seed: int) -> UnlabelledImages:
    """Return 10,000 images of ``size``; the generator is NumPy's legacy one, whose streams never change."""
    import numpy as np

    from lresnet.data.formats.unlabelled_images import UnlabelledImages

    random = np.random.RandomState(seed)
    return UnlabelledImages(random.randint(256, size=(_COUNT, *size, 3), dtype=np.uint8))
