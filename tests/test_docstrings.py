"""The examples in docstrings print the output that they show."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import lresnet

MODULES = sorted(found.name for found in pkgutil.walk_packages(lresnet.__path__, "lresnet."))
OWN = [name for name in MODULES if not name.endswith("__main__")]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's own, compiling
@pytest.mark.parametrize("name", OWN)
def test_examples(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0
