"""Networks that a user built: their runs are written, read, evaluated, and predict on tensors and files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

import lresnet
from lresnet import cli
from lresnet.data import dataset_task
from lresnet.runs.own_network import describe_network, head_input, network_weights
from tests.coloured import coloured_set, coloured_task

CONFIG = lresnet.TrainConfig(2, lr=0.02, eval_every=1, batch_size=15)


def network(head: torch.nn.Module | None = None) -> torch.nn.Sequential:
    torch.manual_seed(0)
    parts = [torch.nn.Conv2d(3, 6, 3), torch.nn.BatchNorm2d(6), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return torch.nn.Sequential(*parts, head or torch.nn.Linear(6, 3))


def tensors(count: int = 60, seed: int = 0) -> TensorDataset:
    data = coloured_set(count, seed)
    return TensorDataset(data.images.permute(0, 3, 1, 2), data.labels)


class Photos(Dataset[Any]):
    """Images of PIL with a transform of their own, as torchvision's data sets."""

    classes = ["red", "green", "blue"]  # noqa: RUF012

    def __init__(self, transform: Any = None) -> None:
        self.data, self.transform = coloured_set(60, 0), transform
        self.targets = self.data.labels.tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Any:
        image = Image.fromarray(self.data.images[index].numpy())
        return (image if self.transform is None else self.transform(image)), self.targets[index]


def halved(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image.resize((4, 4)))).permute(2, 0, 1).float() / 255 - 0.5


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    folder = tmp_path_factory.mktemp("runs") / "own"
    task = dataset_task(tensors(), test=tensors(30, 1), classes=["red", "green", "blue"], name="colours")
    return folder, task, lresnet.fit(task, network(), CONFIG, out=folder, device="cpu")


def test_a_run_is_read_into_the_network_that_the_caller_builds(finished: Any) -> None:
    folder, task, run = finished
    assert sorted(path.name for path in (folder / "model").iterdir()) == ["model.safetensors"]
    net = network()
    opened = lresnet.Run.open(folder, model=net, task=task, device="cpu")
    assert opened.model is net
    assert not net.training
    for name, value in run.model.state_dict().items():
        assert torch.equal(net.state_dict()[name], value), name
    assert opened.evaluate() == run.evaluate()
    record = json.loads((folder / "run.json").read_text())
    assert record["task"] | {"kind": "python", "name": "colours", "train_items": 54, "test_items": 30} == record["task"]
    assert record["model"]["trained_parameters"] == sum(p.numel() for p in net.parameters())


def test_a_finished_run_is_returned_with_its_weights(finished: Any) -> None:
    folder, task, run = finished
    again = lresnet.fit(task, network(), CONFIG, out=folder, device="cpu")
    assert again.record == lresnet.Run.open(folder, model=network(), device="cpu").record
    assert torch.equal(again.model[0].weight, run.model[0].weight)


def test_a_run_says_what_it_needs(finished: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder, task, _ = finished
    with pytest.raises(ValueError, match=r"holds the weights of Sequential, .*Run.open\(folder, model=net\)"):
        lresnet.Run.open(folder, device="cpu")
    assert cli.main(["plot", "embedding", str(folder)]) == 2
    assert "a network built in Python; build it and pass it" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"model.safetensors does not fit the given Linear: .*[Mm]issing key"):
        lresnet.Run.open(folder, model=torch.nn.Linear(6, 3), device="cpu")
    opened = lresnet.Run.open(folder, model=network(), device="cpu")
    with pytest.raises(ValueError, match=r"pass it: Run.open\(folder, task=task\)"):
        opened.embed()
    for call in (opened.model_card, lambda: opened.push_to_hub("me/net")):
        with pytest.raises(ValueError, match="holds Sequential"):
            call()
    frozen = network()
    frozen[:4].requires_grad_(False)
    with pytest.raises(ValueError, match="holds another run: trained_parameters is 201 there, not 21"):
        lresnet.fit(task, frozen, CONFIG, out=folder, device="cpu")


def test_predictions_for_tensors_and_files(finished: Any, tmp_path: Path) -> None:
    folder, _, run = finished
    opened = lresnet.Run.open(folder, model=network(), device="cpu")
    images, _ = tensors(30, 1).tensors
    found = opened.predict(images, top=2)
    with torch.no_grad():
        expected = run.model(images.float() / 255).softmax(-1)
    assert [one.classes[0] for one in found] == expected.argmax(-1).tolist()
    assert found[0].probabilities[0] == pytest.approx(float(expected[0].max()), rel=1e-6)
    assert found[0].class_names[0] in ("red", "green", "blue")
    assert opened.predict(images.numpy())[3].item == 3
    Image.fromarray(images[0].permute(1, 2, 0).numpy()).resize((16, 16), 0).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no image")
    files = opened.predict([tmp_path / "a.png", tmp_path / "b.png"])
    assert files.images[0].probabilities[0] == pytest.approx(found[0].probabilities[0], abs=1e-3)
    assert len(files.skipped) == 1
    with pytest.raises(ValueError, match="top must be at least 1"):
        opened.predict(images, top=0)


def test_files_are_made_into_inputs_by_the_transform_of_the_data(tmp_path: Path) -> None:
    coloured = coloured_set(3, 5).images
    Image.fromarray(coloured[0].numpy()).save(tmp_path / "a.png")
    expected = halved(Image.fromarray(coloured[0].numpy())).unsqueeze(0)
    own = dataset_task(Photos(halved), validation=Photos(halved))
    given = dataset_task(Photos(), transform=halved, eval_transform=halved)
    for task in (own, given):
        run = lresnet.fit(task, network(), CONFIG, device="cpu")
        found = run.predict([tmp_path / "a.png"])
        with torch.no_grad():
            probabilities = run.model(expected).softmax(-1)
        assert found.images[0].probabilities[0] == pytest.approx(float(probabilities.max()), rel=1e-6)
    floats = TensorDataset(torch.rand(20, 3, 8, 8), torch.arange(20) % 3)
    run = lresnet.fit(floats, network(), CONFIG, device="cpu")
    with pytest.raises(ValueError, match="does not know how to make them from files; give eval_transform"):
        run.predict([tmp_path / "a.png"])


def test_a_model_by_name_takes_its_sizes_from_the_data_set(tmp_path: Path) -> None:
    run = lresnet.fit(Photos(), "lorentz_resnet20", CONFIG, out=tmp_path / "r", device="cpu")
    assert (run.model.config["num_classes"], run.model.config["in_channels"]) == (3, 3)
    opened = lresnet.Run.open(tmp_path / "r", device="cpu")
    assert len(opened.predict(tensors(6).tensors[0])) == 6
    with pytest.raises(ValueError, match="holds a run on a data set of your own"):
        _ = opened.images


def test_own_networks_train_on_images_that_lresnet_reads(tmp_path: Path) -> None:
    task = coloured_task(0.2)
    run = lresnet.fit(task, network(), CONFIG, out=tmp_path / "r", device="cpu")
    opened = lresnet.Run.open(tmp_path / "r", model=network(), task=task, device="cpu")
    assert opened.evaluate() == run.evaluate()
    assert opened.embed().points.shape == (30, 6)
    assert opened.embed().manifold is None
    image = task.data.test.images[0]
    Image.fromarray(image.numpy()).save(tmp_path / "a.png")
    by_file = opened.predict([tmp_path / "a.png"]).images[0]
    by_tensor = opened.predict(image.permute(2, 0, 1).unsqueeze(0))[0]
    assert by_file.probabilities == pytest.approx(by_tensor.probabilities, rel=1e-5)
    assert by_file.classes == by_tensor.class_names


def test_points_before_a_hyperbolic_head_are_points_of_its_manifold() -> None:
    head = lresnet.nn.ClassifierHead(6, 3)
    task = dataset_task(tensors(), test=tensors(30, 1))
    run = lresnet.fit(task, network(head), CONFIG, device="cpu")
    found = run.embed()
    assert found.curvature == pytest.approx(-1 / 6)
    assert found.points.shape == (30, 6)
    assert found.labels is not None
    assert found.labels.tolist() == [i % 3 for i in range(30)]
    images = tensors(30, 1).tensors[0].float() / 255
    with torch.no_grad():
        torch.testing.assert_close(found.points, head.points(run.model[:4](images)))


def test_a_network_without_a_known_head_has_no_points() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 8), torch.nn.Flatten())
    with pytest.raises(ValueError, match="has no head that is a linear layer, LorentzMLR or Prototypes"):
        head_input(net, torch.rand(2, 3, 8, 8))


def test_graphs_take_models_of_the_library_only() -> None:
    with pytest.raises(TypeError, match=r"fit takes a model of lresnet\.create_model for a graph, got Linear"):
        lresnet.fit("disease_tree/nc", torch.nn.Linear(3, 2), device="cpu")


def test_a_converted_network_is_called_by_its_residual() -> None:
    block = torch.nn.Sequential(lresnet.LorentzResidual(lresnet.Lorentz(-1.0)))
    assert describe_network(block)["residual"] == "lorentz"
    assert describe_network(torch.nn.Linear(2, 2))["residual"] == "own"


class Extra(torch.nn.Linear):
    def get_extra_state(self) -> Any:
        return {"step": 3}

    def set_extra_state(self, state: Any) -> None:
        pass


def test_weights_that_cannot_be_written_are_refused_before_the_training(tmp_path: Path) -> None:
    def never(epoch: int, best: float | None) -> None:
        raise AssertionError("trained")

    net = network(Extra(6, 3))
    with pytest.raises(ValueError, match=r"4\._extra_state in the state of Sequential is dict, and a run folder holds"):
        lresnet.fit(tensors(), net, CONFIG, out=tmp_path / "r", device="cpu", on_epoch=never)
    assert not (tmp_path / "r").exists()


def test_tied_weights_are_written_and_read(tmp_path: Path) -> None:
    def tied() -> torch.nn.Sequential:
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 192), torch.nn.Linear(192, 192))
        net[2].weight = net[1].weight
        return net.append(torch.nn.Linear(192, 3))

    run = lresnet.fit(tensors(), tied(), CONFIG, out=tmp_path / "r", device="cpu")
    opened = lresnet.Run.open(tmp_path / "r", model=tied(), device="cpu")
    assert torch.equal(opened.model[2].weight, run.model[2].weight)
    assert len(network_weights(tied())) == 6


def test_a_folder_of_a_run_on_other_data_is_refused(tmp_path):
    inputs, labels = torch.randn(24, 6), torch.arange(24) % 2
    config = lresnet.TrainConfig(epochs=1)
    net = torch.nn.Linear(6, 2)
    lresnet.fit(torch.utils.data.TensorDataset(inputs, labels), net, config, out=tmp_path / "run", device="cpu")
    for other in ((inputs + 1, labels), (inputs, 1 - labels)):
        with pytest.raises(ValueError, match="sha256"):
            lresnet.fit(torch.utils.data.TensorDataset(*other), net, config, out=tmp_path / "run", device="cpu")


def test_a_negative_label_is_refused():
    data = torch.utils.data.TensorDataset(torch.randn(4, 6), torch.tensor([0, 1, -1, 1]))
    with pytest.raises(ValueError, match="labels must be whole numbers from 0, got -1"):
        lresnet.fit(data, torch.nn.Linear(6, 2), lresnet.TrainConfig(epochs=1), device="cpu")
