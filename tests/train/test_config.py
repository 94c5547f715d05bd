"""TrainConfig and Augment: defaults, ranges, learning-rate schedule, and an import without torch."""

from __future__ import annotations

import dataclasses
import math
import pickle
import subprocess
import sys

import pytest

from lresnet._options import Range
from lresnet.train import (
    Augment,
    ImageClassification,
    LinkPrediction,
    NodeClassification,
    SampledLinkPrediction,
    SampledNodeClassification,
    TrainConfig,
    make_objective,
)
from lresnet.train.distributed import Processes
from tests.coloured import coloured_task
from tests.train import tree

NAN = float("nan")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("epochs", 0, "at least 1, got 0"),
        ("epochs", None, "at least 1, got None"),
        ("eval_every", 0, "at least 1"),
        ("patience", 0, "at least 1"),
        ("batch_size", 0, "at least 1"),
        ("lr", -1, "positive and finite, got -1"),
        ("lr", NAN, "positive and finite, got nan"),
        ("lr", "0.1", "positive and finite, got '0.1'"),
        ("clip", math.inf, "positive and finite"),
        ("margin", 0.0, "positive and finite"),
        ("weight_decay", -0.1, "not negative, and finite"),
        ("warmup", -1, "not negative, and finite"),
        ("average", 1.0, "above 0 and below 1"),
        ("average", 0, "above 0 and below 1"),
        ("seed", -1, "a whole number from 0 to 2^32 - 1, got -1"),
        ("seed", 2**32, "a whole number from 0 to 2^32 - 1"),
        ("seed", 0.5, "a whole number from 0 to 2^32 - 1"),
        ("optimizer", "rmsprop", "adam, adam_l2 or sgd, got 'rmsprop'"),
        ("loss", "hinge", "margin, cross_entropy, ranking or cones, got 'hinge'"),
        ("keep", None, "best or last, got None"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name_and_range(field, value, words):
    with pytest.raises(ValueError) as caught:
        TrainConfig(**{field: value})
    assert str(caught.value).startswith(f"{field} must be {words}")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("cutmix", 1.5, "0 to 1, got 1.5"),
        ("cutmix", -0.1, "0 to 1, got -0.1"),
        ("cutmix", NAN, "0 to 1, got nan"),
        ("label_smoothing", 1.0, "at least 0 and below 1"),
        ("pad", -1, "a whole number of pixels, 0 or more and below 2^20, got -1"),
        ("pad", 4.0, "a whole number of pixels"),
        ("cutout", True, "a whole number of pixels"),
        ("flip", 1, "True or False, got 1"),
        ("flip_test", "yes", "True or False, got 'yes'"),
    ],
)
def test_an_augmentation_out_of_range_is_refused(field, value, words):
    with pytest.raises(ValueError) as caught:
        Augment(**{field: value})
    assert str(caught.value).startswith(f"{field} must be {words}")


def test_fields_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="patience=5 stops by the best validation pass, but keep='last' ignores it"):
        TrainConfig(patience=5, keep="last")
    with pytest.raises(ValueError, match="warmup must be shorter than the 10 epochs, got 10"):
        TrainConfig(epochs=10, warmup=10)


def test_the_limits_of_every_range_are_allowed():
    TrainConfig(epochs=1, eval_every=1, patience=1, batch_size=1, weight_decay=0, warmup=0, seed=2**32 - 1)
    Augment(pad=0, cutout=2**20 - 1, cutmix=1, label_smoothing=0)


@pytest.mark.parametrize("config", [TrainConfig, Augment])
def test_every_field_has_a_help_sentence_and_every_number_a_range(config):
    for field in dataclasses.fields(config):
        assert field.metadata["help"].endswith("."), field.name
        if "int" in field.type or "float" in field.type:
            assert isinstance(field.metadata["range"], Range), field.name
            assert field.metadata["metavar"], field.name


def test_a_checkpoint_records_the_twelve_fields_it_always_did():
    assert TrainConfig(seed=3, loss="margin").schedule() == {
        "epochs": 1000,
        "lr": 0.01,
        "weight_decay": 0.0,
        "lr_schedule": "constant",
        "clip": None,
        "patience": None,
        "eval_every": 5,
        "optimizer": "adam",
        "decay": "matrices",
        "warmup": 0.0,
        "keep": "best",
        "average": None,
    }


def test_it_loads_without_torch():
    code = "import sys, lresnet.train; lresnet.train.TrainConfig(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_objective_follows_the_type_of_the_task():
    config = TrainConfig(loss="cross_entropy", margin=3.0)
    link, node = make_objective(tree.link_task(), config), make_objective(tree.node_task(), config)
    assert isinstance(link, LinkPrediction)
    assert isinstance(node, NodeClassification)
    assert (link.kind, link.margin, node.kind, node.margin) == ("cross_entropy", 3.0, "cross_entropy", 3.0)
    link, node = make_objective(tree.link_task(), TrainConfig()), make_objective(tree.node_task(), TrainConfig())
    assert (link.kind, link.margin, node.kind, node.margin) == ("margin", 2.0, "cross_entropy", 1.0)
    augment = Augment(cutout=2)
    images = make_objective(coloured_task(0.1), TrainConfig(batch_size=20, augment=augment))
    assert isinstance(images, ImageClassification)
    assert (images.batch_size, images.augment, len(images.held_out)) == (20, augment, 6)
    assert make_objective(coloured_task(train=200), TrainConfig()).batch_size == 128
    sampled = TrainConfig(batch_size=20, neighbours="5", loss="margin", margin=3.0, seed=2)
    for task, kind in ((tree.link_task(), SampledLinkPrediction), (tree.node_task(), SampledNodeClassification)):
        objective = make_objective(task, sampled, processes=Processes(1, 2))
        assert isinstance(objective, kind)
        assert (objective.batch_size, objective.neighbours, objective.seed) == (20, (5,), 2)
        assert (objective.kind, objective.margin, objective.processes.rank) == ("margin", 3.0, 1)


@pytest.mark.parametrize(
    ("given", "kept", "numbers"),
    [
        (None, None, (10,)),
        ("10,10", "10,10", (10, 10)),
        ("all", "all", (-1,)),
        ("5, -1", "5,all", (5, -1)),
        (7, "7", (7,)),
        ((3, -1), "3,all", (3, -1)),
    ],
)
def test_neighbours_are_kept_as_the_command_line_writes_them(given, kept, numbers):
    config = TrainConfig(neighbours=given)
    assert (config.neighbours, config.fanouts) == (kept, numbers)


@pytest.mark.parametrize("given", ["0", "", "10,", "ten", "1.5", (), (0,), -2, "10,-3"])
def test_neighbours_that_are_no_numbers_are_refused(given):
    with pytest.raises(ValueError, match="neighbours must be whole numbers of at least 1, or all, such as 10,10, got"):
        TrainConfig(neighbours=given)


def test_options_of_another_kind_of_task_are_refused():
    with pytest.raises(ValueError, match="neighbours='10,10' needs batch_size; without it the graph is one batch"):
        make_objective(tree.link_task(), TrainConfig(neighbours="10,10"))
    with pytest.raises(ValueError, match="neighbours='10' is for graphs, but coloured are images"):
        make_objective(coloured_task(), TrainConfig(neighbours="10"))
    with pytest.raises(ValueError, match="cannot be shared among 2 processes as one batch; give a batch_size"):
        make_objective(tree.link_task(), TrainConfig(), processes=Processes(0, 2))
    with pytest.raises(ValueError, match=r"is for images, but .* is a graph"):
        make_objective(tree.node_task(), TrainConfig(augment=Augment(cutout=8)))
    with pytest.raises(ValueError, match=r"margin=1\.0 is for graphs, but images are trained on cross entropy"):
        make_objective(coloured_task(), TrainConfig(margin=1.0))


def test_an_error_about_a_setting_reaches_the_parent_of_a_worker_process() -> None:
    with pytest.raises(ValueError, match="lr must be positive and finite, got -1") as raised:
        TrainConfig(lr=-1)
    sent = pickle.loads(pickle.dumps(raised.value))
    assert str(sent) == str(raised.value)
    assert (sent.setting, sent.problem) == ("lr", "must be positive and finite, got -1")
