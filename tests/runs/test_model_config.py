"""Settings of networks: the words and numbers that they accept, and the arguments that follow."""

import pytest

from lresnet.models import create_model
from lresnet.runs.model_config import GCNConfig, SAGEConfig, SGFormerConfig

CONFIGS = {"lorentz_gcn": GCNConfig, "lorentz_sage": SAGEConfig, "lorentz_sgformer": SGFormerConfig}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("scale", "expected"), [("1+w", "scale=1+w"), ("1 + w", "scale=1+w"), ("none", "scale=None")])
def test_every_graph_network_takes_a_scale_by_name(name: str, scale: str, expected: str) -> None:
    config = CONFIGS[name](name, scale=scale, hidden=4)  # type: ignore[arg-type]
    model = create_model(name, in_features=3, num_classes=2, **config.arguments())
    assert expected in repr(model)


def test_a_method_without_a_scale_leaves_it_out() -> None:
    one, other = (GCNConfig("lorentz_gcn", "tangent", scale=scale) for scale in ("1+w", None))
    assert one.arguments() == other.arguments()


def test_another_word_for_the_scale_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scale must be learned, 1\+w, none or a number, got 'sum'"):
        GCNConfig("lorentz_gcn", scale="sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="weight must be learned or a number, got 'fixed'"):
        GCNConfig("lorentz_gcn", weight="fixed")  # type: ignore[arg-type]
