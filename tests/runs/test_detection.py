"""Detection: which scores a model has, that they are those of its own logits, draws and correlations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import pearsonr, spearmanr
from torch import Tensor

from lresnet.data import ImageData, ImageSet, OodSet
from lresnet.metrics import OOD_METRICS, energy_score, ood_metrics
from lresnet.models import LorentzResNet
from lresnet.runs import detection
from lresnet.runs.detection import available_scores, detect, embed_and_score, norm_confidence
from lresnet.train.image_classification import class_scores
from tests.coloured import coloured_data

DATA = coloured_data()
LOGITS = ("energy", "softmax", "logit")
KINDS: dict[str, dict[str, Any]] = {
    "mlr": {},
    "prototypes": {"head": "prototypes"},
    "linear": {"head": "linear"},
    "twin": {"residual": "euclidean"},
}


def noise(count: int = 40, name: str = "noise", note: str = "") -> OodSet:
    pixels = np.random.default_rng(5).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return OodSet(name, torch.from_numpy(pixels), note=note)


def grey_data() -> ImageData:
    train, test = (ImageSet(part.images[..., :1].contiguous(), part.labels) for part in (DATA.train, DATA.test))
    return ImageData("grey", train, test, DATA.classes, DATA.mean[:1], DATA.std[:1])


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> LorentzResNet:
    torch.manual_seed(0)
    return LorentzResNet(8, num_classes=3, **KINDS[request.param])


def of(**options: Any) -> LorentzResNet:
    torch.manual_seed(0)
    return LorentzResNet(8, num_classes=3, **options)


def test_the_geometry_of_a_model_names_its_scores() -> None:
    named = {kind: available_scores(of(**options)) for kind, options in KINDS.items()}
    assert all(names[:3] == LOGITS for names in named.values())
    assert {kind: names[3:] for kind, names in named.items()} == {
        "mlr": ("origin_distance", "boundary_distance"),
        "prototypes": ("origin_distance", "prototype_distance"),
        "linear": ("origin_distance", "euclidean_boundary_distance"),
        "twin": ("euclidean_norm", "euclidean_boundary_distance"),
    }
    assert available_scores(of(residual="euclidean", head="mlr"))[3:] == ("origin_distance", "boundary_distance")


def test_scores_are_those_of_the_model_s_own_logits_and_points(model: LorentzResNet) -> None:
    found = embed_and_score(model, DATA.test.images, DATA.mean, DATA.std, available_scores(model))
    with torch.no_grad():
        logits = class_scores(model.eval(), DATA.test.images, DATA.mean, DATA.std)
        points = class_scores(model.embed, DATA.test.images, DATA.mean, DATA.std)  # type: ignore[arg-type]
    assert tuple(found) == available_scores(model)
    assert all(score.shape == (30,) for score in found.values())
    assert torch.allclose(found["energy"], energy_score(logits), rtol=1e-5)
    assert torch.allclose(found["softmax"].float(), logits.softmax(-1).amax(-1), rtol=1e-5)
    assert torch.allclose(found["logit"], logits.amax(-1), rtol=1e-5)
    flat = "euclidean_norm" in found
    distance = points.norm(dim=-1) if flat else model.manifold.dist0(points)
    assert torch.allclose(found[available_scores(model)[3]], distance, rtol=1e-5)
    assert found[available_scores(model)[4]].isfinite().all()


def test_batches_do_not_show_and_the_mode_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = of().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    whole = embed_and_score(model, DATA.test.images, DATA.mean, DATA.std)["energy"]
    monkeypatch.setattr(detection, "_PIXELS_AT_ONCE", 7 * 64)
    parts = embed_and_score(model, DATA.test.images, DATA.mean, DATA.std)["energy"]
    assert torch.allclose(whole, parts, rtol=1e-5)  # in training mode each batch would be normalised by itself
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not whole.requires_grad


def test_a_grey_network_sees_the_luma() -> None:
    torch.manual_seed(0)
    model = LorentzResNet(8, num_classes=3, in_channels=1)
    colours = noise(6).images
    luma = np.stack([np.asarray(Image.fromarray(image.numpy()).convert("L")) for image in colours])
    from_colours, from_luma = (
        embed_and_score(model, images, (0.5,), (0.2,))["energy"]
        for images in (colours, torch.from_numpy(luma).unsqueeze(-1))
    )
    assert torch.equal(from_colours, from_luma)


def test_draws_and_the_whole_set_for_every_set_and_score(model: LorentzResNet) -> None:
    sets = [noise(note="made up"), noise(4, "few")]
    names = available_scores(model)
    rows = detect(model, DATA, sets, scores=names, draws=3, seed=1)
    assert [(row["ood"], row["score"], row["sampling"]) for row in rows] == [
        (name, score, sampling) for name in ("noise", "few") for score in names for sampling in ("draws", "full")
    ]
    first, second = rows[:2]
    assert (first["n_id"], first["n_ood"], second["n_ood"], first["note"]) == (30, 6, 40, "made up")
    assert all(0 <= row[metric] <= 100 for row in rows for metric in OOD_METRICS)
    assert "auroc_std" in first
    assert "auroc_std" not in second
    inside, outside = (
        embed_and_score(model, images, DATA.mean, DATA.std)["energy"] for images in (DATA.test.images, sets[0].images)
    )
    assert {name: second[name] for name in OOD_METRICS} == ood_metrics(inside, outside)
    whole, all_of_few = rows[-1], rows[-2]  # a set smaller than a draw
    assert all_of_few["n_ood"] == whole["n_ood"] == 4
    assert all_of_few["auroc"] == pytest.approx(whole["auroc"])


def test_draws_follow_the_seed_and_are_the_same_beside_other_sets() -> None:
    model = of()
    alone = detect(model, DATA, [noise()], seed=1)
    beside = detect(model, DATA, [noise(9, "first"), noise()], scores=("logit", "energy"), seed=1)
    assert [row for row in beside if (row["ood"], row["score"]) == ("noise", "energy")] == alone
    assert detect(model, DATA, [noise()], seed=2)[0]["auroc"] != alone[0]["auroc"]


def test_wrong_calls_are_refused() -> None:
    twin = of(residual="euclidean")
    with pytest.raises(
        ValueError, match="this model has no score 'origin_distance'; it has energy, softmax, logit, eucl"
    ):
        detect(twin, DATA, [noise()], scores=("origin_distance",))
    with pytest.raises(ValueError, match="no score given"):
        detect(twin, DATA, [noise()], scores=())
    with pytest.raises(ValueError, match="there are no images to score"):
        embed_and_score(twin, DATA.test.images[:0], DATA.mean, DATA.std)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="the model has 5 classes, but coloured has 3"):
        detect(LorentzResNet(8, num_classes=5), DATA, [noise()])
    for channels, data in ((1, DATA), (3, grey_data())):
        words = rf"takes images \[H, W, {channels}\], but .* has \[8, 8, {4 - channels}\]; the in-distribution images"
        with pytest.raises(ValueError, match=words):
            detect(of(in_channels=channels), data, [noise()])
    with torch.no_grad():
        twin.head.bias.fill_(torch.inf)
    with pytest.raises(ValueError, match="in-distribution score 0 is inf; scores must be finite"):
        detect(twin, DATA, [noise()])


@pytest.mark.parametrize(
    ("height", "width", "words"),
    [
        (8, 12, r"noise is 8 x 8, but coloured is 12 x 8, .*; use load_ood_set\(..., size=\(8, 12\)\)"),
        (16, 16, r"noise is 8 x 8, but coloured is 16 x 16, .*; use load_ood_set\(..., size=16\)"),
    ],
)
def test_sets_of_another_size_are_refused(height: int, width: int, words: str) -> None:
    data = coloured_data(height=height, width=width)
    fitting = OodSet("fitting", data.test.images)
    assert len(detect(of(), data, [fitting])) == 2
    with pytest.raises(ValueError, match=words):
        detect(of(), data, [fitting, noise()])


def test_correlation_of_distance_and_confidence(model: LorentzResNet) -> None:
    found = norm_confidence(model, DATA)
    names = (available_scores(model)[3], "softmax")
    x, y = embed_and_score(model, DATA.test.images, DATA.mean, DATA.std, names).values()
    assert found["pearson"] == pytest.approx(pearsonr(x.double(), y).statistic, abs=1e-9)
    assert found["spearman"] == pytest.approx(spearmanr(x, y).statistic, abs=1e-9)


def test_ties_share_their_rank_and_what_does_not_vary_correlates_with_nothing() -> None:
    x, y = torch.tensor([1.0, 2.0, 2.0, 3.0, 3.0]), torch.tensor([2.0, 1.0, 5.0, 5.0, 5.0])
    found = detection._correlation(detection._ranks(x), detection._ranks(y))
    assert found == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    images: Tensor = torch.zeros(5, 8, 8, 3, dtype=torch.uint8)
    same = ImageSet(images, torch.tensor([0, 1, 2, 0, 1]))
    constant = ImageData("same", same, same, DATA.classes, DATA.mean, DATA.std)
    assert norm_confidence(of(), constant) == {"spearman": 0.0, "pearson": 0.0}
