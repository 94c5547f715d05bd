"""The registry of data sets: discovery, names, and that it loads without torch."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import lresnet.data
from lresnet.data import DATASETS, GRAPHS, IMAGE_SETS, OOD_SETS, TASKS, TEXTS, graphs, images, registry, texts
from lresnet.data.registry import find_source, reader


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_every_module_of_the_packages_is_a_data_set() -> None:
    names = [
        file.stem for package in (graphs, images, texts) for file in sorted(Path(package.__path__[0]).glob("[!_]*.py"))
    ]
    assert sorted(DATASETS) == sorted(names)
    assert list(GRAPHS) + list(IMAGE_SETS) + list(OOD_SETS) + list(TEXTS) != []
    assert sorted([*GRAPHS, *IMAGE_SETS, *OOD_SETS, *TEXTS]) == sorted(names)


def test_every_data_set_has_a_reader_a_licence_and_a_citation() -> None:
    for name, source in DATASETS.items():
        assert callable(reader(source))
        assert find_source(name) is source
        assert source.summary
        assert source.licence
        assert source.citation


def test_tasks_belong_to_the_graph_that_lists_them() -> None:
    for source in GRAPHS.values():
        for task in source.tasks:
            assert TASKS[task.name] is task
            assert task.dataset == source.name
            assert task.name.endswith(("/lp", "/nc"))
            assert task.splits
    assert {"airport/lp", "airport/nc", "cora/nc", "disease/lp", "wordnet/lp"} <= TASKS.keys()


@pytest.mark.parametrize(
    "code", ["import lresnet.data.registry", "from lresnet.data import TASKS, GRAPHS", "import lresnet.data.files"]
)
def test_names_load_without_torch_and_numpy(code: str) -> None:
    assert _python(f"{code}; import sys; print(*({{'torch', 'numpy', 'scipy', 'pooch'}} & sys.modules.keys()))") == ""


def test_a_module_whose_name_differs_from_its_data_set_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_sets").mkdir()
    (tmp_path / "toy_sets" / "__init__.py").touch()
    (tmp_path / "toy_sets" / "one.py").write_text(
        "from lresnet.data.source import GraphSource\n"
        "SOURCE = GraphSource(name='two', summary='a toy', licence='CC0', citation='nobody')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    package = ModuleType("toy_sets")
    package.__path__ = [str(tmp_path / "toy_sets")]
    with pytest.raises(ImportError, match=r"toy_sets\.one describes the data set 'two'; give both the same name"):
        registry._discover(package)


@pytest.mark.parametrize("name", lresnet.data.__all__)
def test_every_public_name_loads_and_is_listed(name: str) -> None:
    assert getattr(lresnet.data, name) is not None
    assert name in dir(lresnet.data)
