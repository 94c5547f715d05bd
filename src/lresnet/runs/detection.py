"""Out-of-distribution detection: how well a trained network tells its own test images from those of other sets."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lresnet.data import ImageData
from lresnet.data.ood_sets import OodSet, load_ood_set
from lresnet.data.registry import OOD_SETS
from lresnet.geometry.checks import full_precision
from lresnet.metrics import ood_metrics, ood_metrics_by_draws, ood_scores
from lresnet.metrics.ood import draw_size
from lresnet.models import LorentzResNet
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.prototypes import Prototypes
from lresnet.runs.folder import finished_run, usable_device
from lresnet.runs.images import images_of_run
from lresnet.runs.prediction import load_network
from lresnet.train.image_classification import class_scores

__all__ = [
    "ScoredSet",
    "Scores",
    "available_scores",
    "detect",
    "embed_and_score",
    "judge",
    "norm_confidence",
    "require_scores",
    "score_folder",
    "score_sets",
]


_TOGETHER = 2**20  # pixels that go through the network at once: about a thousand images of CIFAR
_OF_LOGITS: dict[str, Callable[[Tensor], Tensor]] = {
    "energy": ood_scores.energy_score,
    "softmax": ood_scores.softmax_score,
    "logit": ood_scores.logit_score,
}
_LUMA = (19595, 38470, 7471)  # of red, green and blue, in 65536ths: ITU-R 601, as Pillow has it

Device = torch.device | str | None


class ScoredSet(NamedTuple):
    """The scores of one OOD set, ``[N]`` each, by the name of the score."""

    name: str
    note: str
    scores: dict[str, Tensor]


class Scores(NamedTuple):
    """The scores of the test images, ``[N]`` each, and those of the OOD sets."""

    inside: dict[str, Tensor]
    outside: list[ScoredSet]


def available_scores(model: LorentzResNet) -> tuple[str, ...]:
    """The five scores that ``model`` has: three of the logits, then two of its geometry.

    They are functions of :mod:`lresnet.metrics.ood_scores`. The fourth is ``origin_distance``, or ``euclidean_norm``
    where the points are vectors (``model.euclidean``). The fifth follows the head: ``boundary_distance``,
    ``prototype_distance``, or for a linear one ``euclidean_boundary_distance``.

    Example:
        >>> available_scores(LorentzResNet(20))
        ('energy', 'softmax', 'logit', 'origin_distance', 'boundary_distance')
    """
    linear = not isinstance(model.head, LorentzMLR | Prototypes)
    of_class = "prototype_distance" if isinstance(model.head, Prototypes) else "boundary_distance"
    return (
        *_OF_LOGITS,
        "euclidean_norm" if model.euclidean else "origin_distance",
        f"euclidean_{of_class}" if linear else of_class,
    )


def require_scores(model: LorentzResNet, scores: Sequence[str]) -> None:
    """Refuse what ``model`` has no score of.

    Raises:
        ValueError: there is no such score, or none is named.
    """
    known = available_scores(model)
    if not scores:
        raise ValueError(f"name a score at least; this model has {', '.join(known)}")
    if unknown := [name for name in scores if name not in known]:
        raise ValueError(f"this model has no score {unknown[0]!r}; it has {', '.join(known)}")


@torch.no_grad()
def embed_and_score(
    model: LorentzResNet,
    images: Tensor,
    mean: Sequence[float] | Tensor,
    std: Sequence[float] | Tensor,
    scores: Sequence[str] = ("energy",),
) -> dict[str, Tensor]:
    """Scores of images, higher for those that look like the training's.

    The network runs in eval mode, on CUDA in bfloat16 as in training, else in float32; the pooled points, the head and
    the scores are float32 or wider everywhere. Images are taken as they are, not mirrored.

    Args:
        model: on the device to compute on; it is left in the mode it was in.
        images: uint8 ``[N, H, W, C]``, on any device; of colour images a grey network sees the luma.
        mean, std: of each channel of the training images.
        scores: of :func:`available_scores`.

    Returns:
        Each score by its name, ``[N]``, on the model's device.

    Raises:
        ValueError: the model has no such score, or there are no images.
    """
    require_scores(model, scores)
    if len(images) == 0:
        raise ValueError("there are no images to score")
    place = next(model.parameters()).device
    mean, std = (torch.as_tensor(values, device=place) for values in (mean, std))
    batches = []
    with _evaluating(model):
        for part in images.split(max(1, _TOGETHER // images[0, ..., 0].numel())):
            pixels = _as_channels(part.to(place), model.in_channels)
            # What it calls here is the network up to its head: one pass gives the points, and the points the logits.
            points = class_scores(model.embed, pixels, mean, std)
            with full_precision(points):
                logits = model.head(points)
                batches.append({name: _score(name, model, points, logits) for name in scores})
    return {name: torch.cat([batch[name] for batch in batches]) for name in scores}


def score_sets(
    model: LorentzResNet,
    data: ImageData,
    sets: Sequence[OodSet],
    *,
    scores: Sequence[str] = ("energy",),
    device: Device = None,
) -> Scores:
    """Scores of all test images of ``data`` and of all images of ``sets``; arguments as in :func:`detect`."""
    _require_own_kind(model, data)
    for ood in sets:
        _require_size(ood, data)
    if device is not None:
        model.to(device)

    def scored(images: Tensor) -> dict[str, Tensor]:
        return embed_and_score(model, images, data.mean, data.std, scores)

    return Scores(scored(data.test.images), [ScoredSet(ood.name, ood.note, scored(ood.images)) for ood in sets])


def judge(found: Scores, *, draws: int = 10, seed: int = 0) -> list[dict[str, Any]]:
    """The figures of ``found``, as :func:`detect` gives them. Every set and score has the same stream of draws."""
    rows: list[dict[str, Any]] = []
    for name, note, outside in found.outside:
        for score, inside in found.inside.items():
            n_id, n_ood = len(inside), len(outside[score])
            generator = torch.Generator().manual_seed(seed)
            protocols = {
                "draws": (
                    ood_metrics_by_draws(inside, outside[score], draws, generator=generator),
                    draw_size(n_id, n_ood),
                ),
                "full": (ood_metrics(inside, outside[score]), n_ood),
            }
            for protocol, (figures, count) in protocols.items():
                about = {"ood": name, "score": score, "protocol": protocol}
                rows.append({**about, **figures, "n_id": n_id, "n_ood": count, "note": note})
    return rows


def detect(
    model: LorentzResNet,
    data: ImageData,
    sets: Sequence[OodSet],
    *,
    scores: Sequence[str] = ("energy",),
    draws: int = 10,
    seed: int = 0,
    device: Device = None,
) -> list[dict[str, Any]]:
    """How well ``model`` tells the test images of ``data``, all of them, from each of ``sets``.

    Args:
        model: trained on ``data``.
        data: the in-distribution images.
        sets: of the size of ``data``, see :func:`lresnet.data.load_ood_set`.
        scores: of :func:`available_scores`.
        draws: of the protocol ``"draws"``.
        seed: of its draws, which are the same for every score and on every device.
        device: to compute on; the model is moved there. None: where the model is.

    Returns:
        For each set and score two rows: with ``protocol`` ``"draws"`` the means of
        :func:`~lresnet.metrics.ood_metrics_by_draws` and their deviations (``auroc_std``, ...; one draw has none),
        with ``"full"`` the :func:`~lresnet.metrics.ood_metrics` of the whole set. Beside them ``ood``, ``score``,
        ``n_id``, ``n_ood`` (of one draw) and the set's ``note``.

    Raises:
        ValueError: the model is not of these classes or channels, a set has another size than ``data``, the model has
            no such score, or its scores are not finite.
    """
    return judge(score_sets(model, data, sets, scores=scores, device=device), draws=draws, seed=seed)


def norm_confidence(model: LorentzResNet, data: ImageData) -> dict[str, float]:
    """Does the distance to the origin go with confidence? Correlations over the test images.

    Of the embedding's distance to the origin (geodesic; Euclidean for the twin) with the largest probability.

    Returns:
        ``spearman`` and ``pearson``, -1 to 1; 0 if one of the two is the same for all images.
    """
    distance = available_scores(model)[3]
    found = embed_and_score(model, data.test.images, data.mean, data.std, (distance, "softmax"))
    x, y = found[distance].double(), found["softmax"]
    return {"spearman": _correlation(_ranks(x), _ranks(y)), "pearson": _correlation(x, y)}


def _require_own_kind(model: LorentzResNet, data: ImageData) -> None:
    own = "in-distribution are the images of its own training"
    classes, shape = model.config["num_classes"], list(data.test.images.shape[1:])
    if classes != len(data.classes):
        raise ValueError(f"the model tells {classes} classes apart, but {data.name} has {len(data.classes)}; {own}")
    if model.in_channels != shape[-1]:
        raise ValueError(f"the model takes images [H, W, {model.in_channels}], but {data.name} has {shape}; {own}")


def _require_size(ood: OodSet, data: ImageData) -> None:
    """Of images of two sizes, the size would be what tells them apart."""
    (height, width), found = data.test.images.shape[1:3], ood.images.shape[1:3]
    if (height, width) != found:
        size = str(height) if height == width else f"({height}, {width})"
        raise ValueError(
            f"{ood.name} is {found[1]} x {found[0]}, but {data.name} is {width} x {height}, and its size would give it "
            f"away; load_ood_set(..., size={size}) makes them alike"
        )


def _score(name: str, model: LorentzResNet, points: Tensor, logits: Tensor) -> Tensor:
    if name in _OF_LOGITS:
        return _OF_LOGITS[name](logits)
    if name == "origin_distance":
        return ood_scores.origin_distance_score(points, model.manifold.curvature)
    if name == "euclidean_norm":
        return ood_scores.euclidean_norm(points)
    return _class_distance(model.head, points)


def _class_distance(head: torch.nn.Module, points: Tensor) -> Tensor:
    if isinstance(head, LorentzMLR):
        return ood_scores.boundary_distance(points, head.weight, head.bias, K=head.manifold.curvature)
    if isinstance(head, Prototypes):
        return ood_scores.prototype_distance(points, head.points, K=head.manifold.curvature)
    assert isinstance(head, torch.nn.Linear)
    return ood_scores.euclidean_boundary_distance(points, head.weight, head.bias)


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _as_channels(images: Tensor, channels: int) -> Tensor:
    """uint8 ``[N, H, W, 3]`` as a network of 1 or 3 channels takes them; others as they are."""
    if channels != 1 or images.shape[-1] != 3:
        return images
    luma = (images.int() * torch.tensor(_LUMA, dtype=torch.int32, device=images.device)).sum(-1, keepdim=True)
    return ((luma + 2**15) >> 16).to(torch.uint8)


def _ranks(x: Tensor) -> Tensor:
    """Twice the mean rank of each value; equal values share theirs."""
    ordered = x.sort().values
    return (torch.searchsorted(ordered, x) + torch.searchsorted(ordered, x, right=True)).double()


def _correlation(x: Tensor, y: Tensor) -> float:
    x, y = x - x.mean(), y - y.mean()
    spread = x.norm() * y.norm()
    return float((x @ y / spread).clamp(-1, 1)) if spread > 0 else 0.0


def score_folder(
    folder: Path, names: Sequence[str], *, scores: Sequence[str] = ("energy",), device: str = "cpu"
) -> tuple[Scores, list[OodSet]]:
    """:func:`~lresnet.runs.detection.score_sets` by the network that ``lresnet train`` left in ``folder``.

    Args:
        folder: of a finished run on images.
        names: what :func:`lresnet.data.load_ood_set` takes; one named twice counts once.
        scores: of :func:`~lresnet.runs.detection.available_scores`; ``"all"`` among them is all.
        device: see :func:`lresnet.runs.folder.usable_device`.

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
