"""`import lresnet` is light, and its names appear on first use."""

import subprocess
import sys

import pytest

import lresnet
from lresnet._lazy import Deprecated, lazy_names


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_importing_lresnet_or_its_command_line_imports_nothing_heavy() -> None:
    code = "import sys, lresnet, lresnet.cli; print(*(m for m in sys.modules if '.' not in m))"
    heavy = {"torch", "geoopt", "numpy", "scipy", "matplotlib"}
    assert heavy.isdisjoint(_python(code).split())


def test_the_table_of_methods_imports_nothing_heavy() -> None:
    code = "import sys, lresnet.residual.registry as r; print(len(r.METHODS), 'torch' in sys.modules, *sys.modules)"
    count, torch, *modules = _python(code).split()
    assert int(count) >= 9
    assert torch == "False"
    assert {"numpy", "geoopt", "lresnet.geometry"}.isdisjoint(modules)


@pytest.mark.parametrize("name", lresnet.__all__)
def test_every_public_name_loads_and_is_listed(name: str) -> None:
    assert getattr(lresnet, name) is not None
    assert name in dir(lresnet)


def test_a_name_is_the_object_of_its_package() -> None:
    from lresnet.geometry import Lorentz
    from lresnet.residual import LorentzResidual, make_residual

    assert lresnet.Lorentz is Lorentz
    assert lresnet.LorentzResidual is LorentzResidual
    assert lresnet.make_residual is make_residual
    assert lresnet.residual.make_residual is make_residual


def test_attribute_access_imports_the_package() -> None:
    assert _python("import lresnet; print(lresnet.nn.__name__, lresnet.Lorentz.__name__)") == "lresnet.nn Lorentz"


def test_star_import_gives_the_public_names() -> None:
    assert _python("from lresnet import *; print(Lorentz.__name__, callable(make_residual))") == "Lorentz True"


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'lresnet' has no attribute 'Lorenz'"):
        lresnet.Lorenz  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Lorenz'"):
        exec("from lresnet import Lorenz")
    assert not hasattr(lresnet, "residuals")


def test_the_version_is_the_installed_one() -> None:
    from importlib.metadata import version

    assert lresnet.__version__ == version("lresnet")


def test_a_deprecated_name_loads_warns_and_is_not_listed() -> None:
    former = {"OldLinear": Deprecated("lresnet.nn.LorentzLinear", "0.9.0")}
    load, names = lazy_names("lresnet", {"functional": "functional"}, former)
    assert "OldLinear" not in names()
    with pytest.warns(DeprecationWarning, match=r"lresnet\.OldLinear .* removed in lresnet 0\.9\.0; use lresnet\.nn"):
        assert load("OldLinear") is lresnet.nn.LorentzLinear
    assert (
        vars(lresnet).pop("OldLinear") is lresnet.nn.LorentzLinear
    )  # the second use finds it there, without a warning
