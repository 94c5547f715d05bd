"""The shallow embedding: a table of points, a linear map of features, and its folder."""

from pathlib import Path

import pytest
import torch

from lresnet import create_model, from_pretrained
from lresnet.data.node_features import _identity


def test_learned_features_read_one_point_per_node() -> None:
    model = create_model("lorentz_embedding", in_features=5, hidden=3)
    assert model(_identity(5), torch.empty(2, 0, dtype=torch.int64)).equal(model.weight)
    assert model.weight.std() < 0.1


def test_features_are_mapped_linearly_and_edges_are_ignored() -> None:
    model = create_model("lorentz_embedding", residual="euclidean", in_features=4, hidden=3)
    x = torch.randn(6, 4)
    found = model(x, torch.tensor([[0, 1], [1, 2]]))
    assert model.euclidean
    torch.testing.assert_close(found, x @ model.weight)


def test_a_folder_gives_the_same_points(tmp_path: Path) -> None:
    model = create_model("lorentz_embedding", in_features=4, hidden=2, curvature=-0.5)
    model.save_pretrained(tmp_path)
    again = from_pretrained(tmp_path)
    assert again.weight.equal(model.weight)
    assert float(again.manifold.K) == -0.5


def test_classes_and_a_wrong_deviation_are_refused() -> None:
    with pytest.raises(ValueError, match="no classifier"):
        create_model("lorentz_embedding", in_features=4, num_classes=2)
    with pytest.raises(ValueError, match="initial_std"):
        create_model("lorentz_embedding", in_features=4, initial_std=0.0)
