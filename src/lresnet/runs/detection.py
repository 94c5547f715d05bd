"""Out-of-distribution (OOD) detection: how well a network separates its own test images from images of other sets."""

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
from lresnet.models.image_model import ImageModel
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.prototypes import Prototypes
from lresnet.runs.defaults import OOD_DRAWS
from lresnet.runs.prediction import image_network
from lresnet.runs.run import Run
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
    "score_run",
    "score_sets",
]


_PIXELS_AT_ONCE = 2**20  # pixels per batch: about a thousand images of CIFAR
_OF_LOGITS: dict[str, Callable[[Tensor], Tensor]] = {
    "energy": ood_scores.energy_score,
    "softmax": ood_scores.softmax_score,
    "logit": ood_scores.logit_score,
}
_LUMA = (19595, 38470, 7471)  # weights of red, green and blue in 65536ths (ITU-R 601, as in Pillow)

Device = torch.device | str | None


class ScoredSet(NamedTuple):
    """Scores of one OOD set, ``[N]`` each, by the name of the score."""

    name: str
    note: str
    scores: dict[str, Tensor]


class Scores(NamedTuple):
    """Scores of the test images, ``[N]`` each, and of the OOD sets."""

    inside: dict[str, Tensor]
    outside: list[ScoredSet]


def available_scores(model: ImageModel) -> tuple[str, ...]:
    """Return the names of the five scores of ``model``: three computed from logits, then two from its geometry.

    They are functions of :mod:`lresnet.metrics.ood_scores`. The fourth is ``origin_distance``, or ``euclidean_norm``
    if the points are vectors (``model.euclidean``). The fifth depends on the head: ``boundary_distance``,
    ``prototype_distance``, or ``euclidean_boundary_distance`` for a linear head.

    Example:
        >>> from lresnet.models import LorentzResNet
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


def require_scores(model: ImageModel, scores: Sequence[str]) -> None:
    """Raise an error for a score that ``model`` does not have.

    Raises:
        ValueError: a score is unknown, or none is given.
    """
    known = available_scores(model)
    if not scores:
        raise ValueError(f"no score given; this model has {', '.join(known)}")
    if unknown := [name for name in scores if name not in known]:
        raise ValueError(f"this model has no score {unknown[0]!r}; it has {', '.join(known)}")


@torch.no_grad()
def embed_and_score(
    model: ImageModel,
    images: Tensor,
    mean: Sequence[float] | Tensor,
    std: Sequence[float] | Tensor,
    scores: Sequence[str] = ("energy",),
) -> dict[str, Tensor]:
    """Return scores of images; a higher score means more like the training images.

    The network runs in eval mode, in bfloat16 on CUDA as in training and in float32 elsewhere; pooled points, head and
    scores are float32 or wider everywhere. Images are not mirrored.

    Args:
        model: the network, on the device to compute on; its train or eval mode is restored.
        images: uint8 ``[N, H, W, C]``, on any device; a grey network takes the luma of colour images.
        mean, std: statistics of each channel of the training images.
        scores: names of :func:`available_scores`.

    Returns:
        Each score by its name, ``[N]``, on the model's device.

    Raises:
        ValueError: the model does not have a score, or there are no images.
    """
    require_scores(model, scores)
    if len(images) == 0:
        raise ValueError("there are no images to score")
    place = next(model.parameters()).device
    mean, std = (torch.as_tensor(values, device=place) for values in (mean, std))
    batches = []
    with _evaluating(model):
        for part in images.split(max(1, _PIXELS_AT_ONCE // images[0, ..., 0].numel())):
            pixels = _as_channels(part.to(place), model.in_channels)
            # model.embed is the network up to its head: one pass gives the points, and the points give the logits.
            points = class_scores(model.embed, pixels, mean, std)
            with full_precision(points):
                logits = model.head(points)
                batches.append({name: _score(name, model, points, logits) for name in scores})
    return {name: torch.cat([batch[name] for batch in batches]) for name in scores}


def score_sets(
    model: ImageModel,
    data: ImageData,
    sets: Sequence[OodSet],
    *,
    scores: Sequence[str] = ("energy",),
    device: Device = None,
) -> Scores:
    """Return the scores of all test images of ``data`` and of all images of ``sets``; see :func:`detect`."""
    _require_own_kind(model, data)
    for ood in sets:
        _require_size(ood, data)
    if device is not None:
        model.to(device)

    def scored(images: Tensor) -> dict[str, Tensor]:
        return embed_and_score(model, images, data.mean, data.std, scores)

    return Scores(scored(data.test.images), [ScoredSet(ood.name, ood.note, scored(ood.images)) for ood in sets])


def judge(found: Scores, *, draws: int = OOD_DRAWS, seed: int = 0) -> list[dict[str, Any]]:
    """Return the metrics of ``found`` as :func:`detect` does. Every set and score uses the same stream of draws."""
    rows: list[dict[str, Any]] = []
    for name, note, outside in found.outside:
        for score, inside in found.inside.items():
            n_id, n_ood = len(inside), len(outside[score])
            generator = torch.Generator().manual_seed(seed)
            samplings = {
                "draws": (
                    ood_metrics_by_draws(inside, outside[score], draws, generator=generator),
                    draw_size(n_id, n_ood),
                ),
                "full": (ood_metrics(inside, outside[score]), n_ood),
            }
            for sampling, (metrics, count) in samplings.items():
                about = {"ood": name, "score": score, "sampling": sampling}
                rows.append({**about, **metrics, "n_id": n_id, "n_ood": count, "note": note})
    return rows


def detect(
    model: ImageModel,
    data: ImageData,
    sets: Sequence[OodSet],
    *,
    scores: Sequence[str] = ("energy",),
    draws: int = OOD_DRAWS,
    seed: int = 0,
    device: Device = None,
) -> list[dict[str, Any]]:
    """Measure how well ``model`` separates all test images of ``data`` from each of ``sets``.

    Args:
        model: a network trained on ``data``.
        data: the in-distribution images.
        sets: OOD images of the size of ``data``, see :func:`lresnet.data.load_ood_set`.
        scores: names of :func:`available_scores`.
        draws: number of random draws of the OOD set for the rows with ``sampling`` ``"draws"``.
        seed: seed of the draws, which are the same for every score and on every device.
        device: device to compute on, to which the model is moved; None: where the model is.

    Returns:
        Two rows per set and score: with ``sampling`` ``"draws"`` the means of
        :func:`~lresnet.metrics.ood_metrics_by_draws` and their deviations (``auroc_std``, ...; one draw has none),
        with ``"full"`` the :func:`~lresnet.metrics.ood_metrics` of the whole set. Each row also has ``ood``,
        ``score``, ``n_id``, ``n_ood`` (of one draw) and the set's ``note``.

    Raises:
        ValueError: the model has other classes or channels than ``data``, a set has another size than ``data``, the
            model does not have a score, or its scores are not finite.
    """
    return judge(score_sets(model, data, sets, scores=scores, device=device), draws=draws, seed=seed)


def norm_confidence(model: ImageModel, data: ImageData) -> dict[str, float]:
    """Correlate the distance to the origin with the confidence, over the test images.

    The distance is that of the embedding (geodesic; Euclidean for the Euclidean baseline); the confidence is the
    largest class probability.

    Returns:
        ``spearman`` and ``pearson``, -1 to 1; 0 if one of the two quantities is the same for all images.
    """
    distance = available_scores(model)[3]
    found = embed_and_score(model, data.test.images, data.mean, data.std, (distance, "softmax"))
    x, y = found[distance].double(), found["softmax"]
    return {"spearman": _correlation(_ranks(x), _ranks(y)), "pearson": _correlation(x, y)}


def _require_own_kind(model: ImageModel, data: ImageData) -> None:
    own = "the in-distribution images must be those that it was trained on"
    classes, shape = model.config["num_classes"], list(data.test.shape)
    if classes != len(data.classes):
        raise ValueError(f"the model has {classes} classes, but {data.name} has {len(data.classes)}; {own}")
    if model.in_channels != shape[-1]:
        raise ValueError(f"the model takes images [H, W, {model.in_channels}], but {data.name} has {shape}; {own}")


def _require_size(ood: OodSet, data: ImageData) -> None:
    """Raise an error for images of another size: a network could separate them by their size alone."""
    (height, width), found = data.test.shape[:2], ood.images.shape[1:3]
    if (height, width) != found:
        size = str(height) if height == width else f"({height}, {width})"
        raise ValueError(
            f"{ood.name} is {found[1]} x {found[0]}, but {data.name} is {width} x {height}, and the network could "
            f"separate them by their size; use load_ood_set(..., size={size})"
        )


def _score(name: str, model: ImageModel, points: Tensor, logits: Tensor) -> Tensor:
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
    """Convert uint8 ``[N, H, W, 3]`` to the channels of the network: its luma for a grey one."""
    if channels != 1 or images.shape[-1] != 3:
        return images
    luma = (images.int() * torch.tensor(_LUMA, dtype=torch.int32, device=images.device)).sum(-1, keepdim=True)
    return ((luma + 2**15) >> 16).to(torch.uint8)


def _ranks(x: Tensor) -> Tensor:
    """Return twice the mean rank of each value; equal values share a rank."""
    ordered = x.sort().values
    return (torch.searchsorted(ordered, x) + torch.searchsorted(ordered, x, right=True)).double()


def _correlation(x: Tensor, y: Tensor) -> float:
    x, y = x - x.mean(), y - y.mean()
    spread = x.norm() * y.norm()
    return float((x @ y / spread).clamp(-1, 1)) if spread > 0 else 0.0


def score_run(run: Run, names: Sequence[str], *, scores: Sequence[str] = ("energy",)) -> tuple[Scores, list[OodSet]]:
    """Score the test images and the given OOD sets with the network of a run, see :func:`score_sets`.

    Args:
        run: a finished run on images.
        names: sets that :func:`lresnet.data.load_ood_set` takes; a set that is named twice counts once.
        scores: names of :func:`available_scores`; ``"all"`` selects all of them.

    Returns:
        The scores, and the sets.

    Raises:
        FileNotFoundError: images are missing.
        ValueError: the run is not on images, its images have changed, or no set is given.
    """
    if not names:
        raise ValueError("no OOD set given; name at least one, e.g. svhn,places,textures")
    network = image_network(run)
    if not isinstance(network.model, ImageModel):
        name = type(network.model).__name__
        raise ValueError(f"detection needs a network of lresnet.create_model, but {run.place} holds {name}")
    known = available_scores(network.model)
    chosen = list(dict.fromkeys(name for score in scores for name in (known if score == "all" else (score,))))
    require_scores(network.model, chosen)  # before images are read, which may take minutes
    data = run.images
    sets = _load_sets(_each_once(names), (network.height, network.width))
    return score_sets(network.model, data, sets, scores=chosen), sets


def _each_once(names: Iterable[str]) -> list[str]:
    """Return ``names`` without those that name the same place as an earlier one."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name if name in OOD_SETS else str(Path(name).resolve()), name)
    return list(found.values())


def _load_sets(names: Iterable[str], size: tuple[int, int]) -> list[OodSet]:
    """Load the sets; sets that share a name are called by what the caller named them."""
    sets = {name: load_ood_set(name, size=size) for name in names}
    counts = Counter(one.name for one in sets.values())
    return [replace(one, name=name) if counts[one.name] > 1 else one for name, one in sets.items()]
