"""Out-of-distribution detection by the network of a run's folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lresnet.data.ood_sets import OOD_SETS, OodSet, load_ood_set
from lresnet.studies.detection import Scores, available_scores, require_scores, score_sets
from lresnet.studies.prediction import load_network
from lresnet.studies.run_folder import finished_run, usable_device
from lresnet.studies.run_images import images_of_run

__all__ = ["score_folder"]


def score_folder(
    folder: Path, names: Sequence[str], *, scores: Sequence[str] = ("energy",), device: str = "cpu"
) -> tuple[Scores, list[OodSet]]:
    """:func:`~lresnet.studies.detection.score_sets` by the network that ``lresnet train`` left in ``folder``.

    Args:
        folder: of a finished run on images.
        names: what :func:`lresnet.data.load_ood_set` takes; one named twice counts once.
        scores: of :func:`~lresnet.studies.detection.available_scores`; ``"all"`` among them is all.
        device: see :func:`lresnet.studies.run_folder.usable_device`.

    Returns:
        The scores, and the sets.

    Raises:
        FileNotFoundError: there is no run in the folder, or images are missing.
        ValueError: the folder holds no finished run of images, its images have changed, or no set is named.
    """
    if not names:
        raise ValueError("name a set at least, e.g. svhn,places,textures")
    place = usable_device(device)
    network, record = load_network(folder, place), finished_run(folder)
    known = available_scores(network.model)
    chosen = list(dict.fromkeys(name for score in scores for name in (known if score == "all" else (score,))))
    require_scores(network.model, chosen)  # before images are read, which may take minutes
    data = images_of_run(record, folder)
    sets = _load_sets(_each_once(names), (network.height, network.width))
    return score_sets(network.model, data, sets, scores=chosen), sets


def _each_once(names: Iterable[str]) -> list[str]:
    """``names`` without those that name the same place as one before."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name if name in OOD_SETS else str(Path(name).resolve()), name)
    return list(found.values())


def _load_sets(names: Iterable[str], size: tuple[int, int]) -> list[OodSet]:
    """The sets; of those that have the same name, each goes by what it was called here."""
    sets = {name: load_ood_set(name, size=size) for name in names}
    counts = Counter(one.name for one in sets.values())
    return [replace(one, name=name) if counts[one.name] > 1 else one for name, one in sets.items()]
