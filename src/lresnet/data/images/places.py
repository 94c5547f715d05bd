"""Places: photographs of scenes, supplied by the user (Zhou et al., 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import Files, OodSource

if TYPE_CHECKING:
    from lresnet.data.formats.unlabelled_images import UnlabelledImages

__all__ = ["SOURCE", "read"]

SOURCE = OodSource(
    name="places",
    summary="photographs of scenes; put them into ood/places/ (images at any depth) or ood/places.npz",
    folder="ood/places",
    licence="as stated by the publisher (places2.csail.mit.edu)",
    citation="Zhou et al.: Places: A 10 Million Image Database for Scene Recognition, IEEE TPAMI 40(6), 2018",
    note="supplied by the user: the images are not downloaded",
    substitutes={
        "d38db0c9120702f6410c0d3f462b55d011a54c8760b9c3b187bc15647d274269": (
            "the 10,000 validation images of MiniPlaces (100 scenes), in place of Places365"
        ),
    },
)


def read(files: Files, size: tuple[int, int], seed: int) -> UnlabelledImages:
    """Return the images of the user's folder or array."""
    from lresnet.data.formats.unlabelled_images import read_unlabelled

    (path,) = files.values()
    found = read_unlabelled(path, size)
    return found._replace(note=f"{len(found.images):,} images; which images of Places365 the paper used is not known")
