"""Textures: the Describable Textures Dataset, supplied by the user (Cimpoi et al., CVPR 2014)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import Files, OodSource

if TYPE_CHECKING:
    from lresnet.data.formats.unlabelled_images import UnlabelledImages

__all__ = ["SOURCE", "read"]

_OFFICIAL_COUNT = 5640

SOURCE = OodSource(
    name="textures",
    summary="textures (DTD); put them into ood/textures/ (images at any depth) or ood/textures.npz",
    folder="ood/textures",
    licence="as stated by the publisher (www.robots.ox.ac.uk/~vgg/data/dtd)",
    citation="Cimpoi, Maji, Kokkinos, Mohamed, Vedaldi: Describing Textures in the Wild, CVPR 2014",
    note="supplied by the user: the images are not downloaded",
    substitutes={
        "13c6296e3309533350b31ea2b016f2d7df6cace7250aca79efc75097ffdf16c3": (
            "1,200 images of 10 of the 47 classes of the Describable Textures Dataset"
        ),
    },
)


def read(files: Files, size: tuple[int, int], seed: int) -> UnlabelledImages:
    """Return the images of the user's folder or array."""
    from lresnet.data.formats.unlabelled_images import read_unlabelled

    (path,) = files.values()
    found = read_unlabelled(path, size)
    count = len(found.images)
    note = "" if count == _OFFICIAL_COUNT else f"{count:,} images, not the 5,640 of the Describable Textures Dataset"
    return found._replace(note=note)
