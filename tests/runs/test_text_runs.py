"""Runs on texts: folder, evaluation, continuation, card, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import lresnet
from lresnet.data import text_task
from lresnet.plots.curves import draw_curves, read_curve
from lresnet.runs import TextTaskConfig
from lresnet.runs.config import RunConfig, configure
from lresnet.runs.model_config import GPTConfig
from lresnet.runs.record import digests, write_record
from lresnet.runs.report import read_report, report_json
from lresnet.train import Augment

TEXT = b"".join(b"%d green bottles hanging on the wall\n" % i for i in range(60))
SMALL = GPTConfig("lorentz_gpt", num_layers=1, width=16, heads=2)
TRAIN = lresnet.TrainConfig(epochs=2, lr=0.01, batch_size=32, eval_every=1)
SETTINGS = {"context": 8, "num_layers": 1, "width": 16, "heads": 2, "epochs": 1, "batch_size": 32}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "bottles.txt"
    file.write_bytes(TEXT)
    return file


@pytest.fixture(scope="module")
def folder(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of two methods, evaluated."""
    root = tmp_path_factory.mktemp("runs")
    for method in ("lorentz", "euclidean"):
        for seed in (0, 1):
            config = lresnet.runs.run_config(str(text), method, seed=seed, kind="texts", settings=SETTINGS)
            lresnet.fit(config.task, config.model, config.train, out=root / f"{method}-{seed}").evaluate()
    return root


def test_a_run_is_finished_evaluated_and_opened_again(folder: Path) -> None:
    run = lresnet.Run.open(folder / "lorentz-0")
    record = json.loads((folder / "lorentz-0" / "run.json").read_text())
    assert record["text"]["bytes"] == len(TEXT)
    assert record["files"].keys() >= {"model/tokenizer.json", "model/model.safetensors"}
    metrics = run.evaluate()
    assert list(metrics) == ["bits_per_byte", "loss"]
    assert metrics["bits_per_byte"] < 8
    curve = (folder / "lorentz-0" / "curve.jsonl").read_text().splitlines()
    assert run.record.validation == min(json.loads(line)["validation"] for line in curve)


def test_the_command_of_a_run_gives_the_same_configuration(folder: Path) -> None:
    config = lresnet.Run.open(folder / "lorentz-0").record.config
    words = config.command().split()
    assert words[words.index("--task") + 1] == "text"
    given = {"--context": "8", "--layers": "1", "--width": "16", "--tokens": "bytes"}
    assert all(words[words.index(name) + 1] == value for name, value in given.items())
    assert RunConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config


def test_the_same_run_is_not_trained_again_and_another_text_is_refused(text: Path, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(TEXT)
    config = lresnet.runs.run_config(str(file), kind="texts", settings=SETTINGS)
    first = lresnet.fit(config.task, config.model, config.train, out=tmp_path / "run")
    again = lresnet.fit(config.task, config.model, config.train, out=tmp_path / "run")
    assert again.record.seconds == first.record.seconds
    lresnet.runs.tasks._text.cache_clear()
    file.write_bytes(TEXT.replace(b"green", b"brown"))
    with pytest.raises(ValueError, match="has other bytes"):
        lresnet.fit(config.task, config.model, config.train, out=tmp_path / "run")
    with pytest.raises(ValueError, match="has other bytes"):
        lresnet.Run.open(tmp_path / "run").evaluate()


def test_a_text_is_continued_as_the_seed_says(folder: Path) -> None:
    run = lresnet.Run.open(folder / "lorentz-0")
    one = run.generate("1 green", tokens=20, seed=3)
    assert one.startswith("1 green")
    assert one == run.generate("1 green", tokens=20, seed=3)
    assert one != run.generate("1 green", tokens=20, seed=4)
    assert run.generate("", tokens=5) != ""
    greedy = run.generate("9", tokens=5, temperature=0)
    ids = list(b"9")
    for _ in range(5):
        ids.append(int(run.model(torch.tensor([ids])).argmax(-1)[0, -1]))
    assert greedy == bytes(ids).decode(errors="replace")


def test_bytes_that_are_no_characters_are_replaced(folder: Path) -> None:
    run = lresnet.Run.open(folder / "lorentz-0")
    assert run.generate(b"\xff", tokens=1).startswith("\ufffd")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 0}, "tokens must"),
        ({"temperature": -1.0}, "temperature must"),
        ({"top_k": 0}, "top_k must"),
        ({"top_p": 0.0}, "top_p must"),
    ],
)
def test_wrong_options_of_a_continuation_are_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lresnet.Run.open(folder / "lorentz-0").generate("a", **options)


def test_any_temperature_gives_a_text(folder: Path) -> None:
    """A very small or very large temperature is 0 or infinite in float32; its limit is drawn."""
    run = lresnet.Run.open(folder / "lorentz-0")
    greedy = run.generate("9", tokens=5, temperature=0)
    for temperature in (1e-30, 1e-40, 1e-45, 1e-300):
        assert run.generate("9", tokens=5, temperature=temperature) == greedy
    assert run.generate("9", tokens=5, temperature=1e300, top_k=3).startswith("9")
    assert run.generate("9", tokens=5, top_p=1e-9) == greedy


def test_a_network_that_is_not_finite_continues_no_text(folder: Path) -> None:
    run = lresnet.Run.open(folder / "lorentz-0", device="cpu")
    with torch.no_grad():
        run.model.embedding.weight[3, 0] = float("nan")
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"lorentz-0 cannot continue the text: the logits .* are not finite"):
            run.generate("1 green", tokens=2, temperature=temperature)


def test_a_tokeniser_of_another_size_is_refused(folder: Path, tmp_path: Path) -> None:
    """Also where the checksums of the run have been changed with it."""
    copy = tmp_path / "run"
    shutil.copytree(folder / "lorentz-0", copy)
    file = copy / "model" / "tokenizer.json"
    for merges in ([], [[104, 105]]):
        file.write_text(json.dumps({"tokens": "bpe", "end": not merges, "merges": merges}))
        record = lresnet.Run.open(copy).record
        write_record(copy, dataclasses.replace(record, files=digests(copy)))
        with pytest.raises(ValueError, match=r"has 256 tokens, but its model/tokenizer\.json has 257"):
            lresnet.Run.open(copy).generate("1")


def test_byte_pairs_are_stored_with_the_run(tmp_path: Path) -> None:
    task = text_task(TEXT, tokens="bpe", vocab_size=270, context=8)
    run = lresnet.fit(task, SMALL, TRAIN, out=tmp_path / "run")
    opened = lresnet.Run.open(tmp_path / "run")
    assert opened.generate("1 green", tokens=5) == run.generate("1 green", tokens=5)
    assert opened.model.config["vocab_size"] == 270
    card = run.model_card()
    assert "Tokenizer.read" in card
    exec_card(card, tmp_path)
    (tmp_path / "run" / "model" / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="does not match its checksum"):
        lresnet.Run.open(tmp_path / "run").generate("1")


def exec_card(card: str, folder: Path) -> None:
    """Run the code of a card that loads the model."""
    code = card.split("```python\n", 1)[1].split("```", 1)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(code, {})


def test_a_report_prefers_fewer_bits(folder: Path) -> None:
    report = read_report(folder)
    groups = {group.method: group for group in report.groups}
    difference = groups["lorentz"].difference
    assert difference is not None
    means = {name: group.test.mean for name, group in groups.items()}
    assert difference.estimate.mean == pytest.approx(means["lorentz"] - means["euclidean"], abs=1e-9)
    assert groups["lorentz"].spec == ".4f"
    assert json.loads(report_json(report))[0]["metric"] == "bits_per_byte"


def test_fewer_bits_are_better() -> None:
    from lresnet.runs.report import group_runs
    from tests.runs.run_records import run_record

    runs = []
    for seed in range(5):
        for method, value in (("euclidean", 2.0), ("lorentz", 1.5)):
            metrics = {"bits_per_byte": value + 0.01 * seed, "loss": 1.0}
            record = dataclasses.replace(run_record(method, seed), metrics=metrics)
            runs.append((Path(f"{method}-{seed}"), record))
    lorentz = next(group for group in group_runs(runs) if group.method == "lorentz")
    assert lorentz.difference is not None
    assert lorentz.difference.estimate.mean == pytest.approx(-0.5)
    assert lorentz.difference.verdict == "better"


def test_a_card_states_bits_per_byte(folder: Path, text: Path) -> None:
    card = lresnet.Run.open(folder / "lorentz-0").model_card()
    for words in ("pipeline_tag: text-generation", "language modelling", "| model | bits per byte | nats per token |"):
        assert words in card
    assert "percent" not in card
    assert "Euclidean baseline |" in card
    assert str(text.parent) not in card
    exec_card(card, folder)


def test_a_curve_has_its_unit(folder: Path, tmp_path: Path) -> None:
    curve = read_curve(folder / "lorentz-0")
    assert curve.unit == "bits per byte"
    assert draw_curves(tmp_path / "curve.svg", [curve]).is_file()
    with pytest.raises(ValueError, match="no common axis"):
        draw_curves(tmp_path / "both.svg", [curve, curve._replace(unit="percent")])


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.predict(["a"]),
        lambda run: run.embed(),
        lambda run: run.links(),
        lambda run: run.neighbours(1),
        lambda run: run.images,
    ],
)
def test_what_a_text_does_not_have_is_refused(folder: Path, call: Any) -> None:
    with pytest.raises(ValueError, match="lresnet generate"):
        call(lresnet.Run.open(folder / "lorentz-0"))


def test_a_run_on_another_task_continues_no_text(tmp_path: Path) -> None:
    run = lresnet.fit("disease_tree/lp", "lorentz_gcn", lresnet.TrainConfig(epochs=1), out=tmp_path)
    with pytest.raises(ValueError, match="is no text"):
        run.generate("a")


class Bigram(torch.nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table(tokens)  # type: ignore[no-any-return]


def test_a_network_of_the_user_models_a_text(tmp_path: Path) -> None:
    task = text_task(TEXT, context=8)
    torch.manual_seed(0)
    run = lresnet.fit(task, Bigram(256), dataclasses.replace(TRAIN, lr=0.1), out=tmp_path)
    assert run.evaluate()["bits_per_byte"] < 6
    with pytest.raises(ValueError, match="no method generate"):
        run.generate("a")
    with pytest.raises(ValueError, match="one for each of its 256 tokens"):
        lresnet.fit(task, Bigram(300), TRAIN)


def test_networks_of_other_tasks_are_refused() -> None:
    task = text_task(TEXT, context=8)
    with pytest.raises(ValueError, match="not a network for texts"):
        lresnet.fit(task, "lorentz_gcn", TRAIN)
    with pytest.raises(ValueError, match="not a network for graphs"):
        lresnet.fit("disease_tree/lp", "lorentz_gpt", TRAIN)
    with pytest.raises(ValueError, match="context=4"):
        lresnet.fit(task, lresnet.create_model("lorentz_gpt", context=4, layers=1, width=16, heads=2), TRAIN)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": "raw"}, "--features is for graphs"),
        ({"holdout": 0.1}, "--holdout is for images"),
        ({"cutout": 4}, "--cutout is for images"),
        ({"margin": 1.0}, "--margin is for graphs"),
        ({"vocab_size": 300}, "--tokens bpe"),
        ({"vocab_size": 10, "tokens": "bpe"}, "257 to 65,536"),
        ({"patch": 4}, "--patch is for images"),
    ],
)
def test_settings_that_a_text_does_not_have_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure(TextTaskConfig("gcide"), settings=settings)


def test_settings_of_texts_are_refused_elsewhere() -> None:
    with pytest.raises(ValueError, match="--context is for texts"):
        lresnet.runs.run_config("cifar10", settings={"context": 8})
    with pytest.raises(ValueError, match="--width is for"):
        lresnet.runs.run_config("disease/lp", settings={"width": 8})


def test_recipes_of_texts(text: Path) -> None:
    small, base = (lresnet.runs.run_config("gcide", recipe=name) for name in (None, "base"))
    assert isinstance(small.task, TextTaskConfig)
    assert (small.task.context, base.task.context) == (128, 1024)  # type: ignore[union-attr]
    assert lresnet.runs.run_config("gcide", settings={"epochs": 4}).train.warmup == 2 * small.train.warmup
    assert small.train.augment == Augment()
    with pytest.raises(ValueError, match="choose one of small, base"):
        lresnet.runs.run_config("gcide", recipe="fast")
    with pytest.raises(ValueError, match="--split is for graphs"):
        lresnet.runs.run_config("gcide", split="random")
    with pytest.raises(ValueError, match="does not exist"):
        lresnet.runs.run_config("nowhere.txt", kind="texts")
