from pathlib import Path

import pytest

from lresnet.data.registry import DATASETS
from lresnet.data.verify import fetch, list_datasets, verify
from tests.data import official


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    official.write_disease(tmp_path, "disease_lp")
    official.use(monkeypatch, tmp_path, "disease_lp")
    return tmp_path


def test_the_list_names_every_data_set_and_what_is_there(root: Path) -> None:
    rows = {row.name: row for row in list_datasets(root)}
    assert list(rows) == list(DATASETS)
    assert (rows["disease_lp"].present, rows["disease_lp"].files) == (3, 3)
    assert (rows["cora"].present, rows["cora"].files) == (0, 8)
    assert rows["disease_tree"].files == 0
    assert "cannot be downloaded" in rows["wordnet"].note


def test_verify_tells_right_from_wrong_from_missing(root: Path) -> None:
    (root / "hgcn" / "disease_lp.edges.csv").write_text("0,1\n")
    (root / "hgcn" / "disease_lp.labels.npy").unlink()
    rows = verify(["disease_lp"], root)
    assert [row.state for row in rows] == ["wrong", "right", "missing"]
    assert [row.where for row in rows] == [root, root, None]
    assert "bytes, not" in rows[0].detail
    assert rows[2].detail.startswith("https://")
    assert len(verify(root=root)) == sum(len(entry.files) for entry in DATASETS.values())


def test_fetch_leaves_what_is_right_and_refuses_what_is_wrong(root: Path) -> None:
    assert [row.state for row in fetch(["disease_lp"], root)] == ["right"] * 3
    (root / "hgcn" / "disease_lp.edges.csv").write_text("0,1\n")
    with pytest.raises(ValueError, match=r"edges\.csv is not the official file"):
        fetch(["disease_lp"], root)


def test_fetch_downloads_what_is_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = root / "hgcn" / "disease_lp.edges.csv"
    content = edges.read_bytes()
    edges.unlink()
    monkeypatch.setattr("lresnet.data.files._stream", lambda address, target: target.write_bytes(content))
    row = fetch(["disease_lp"], root)[0]
    assert (row.state, row.detail, row.where) == ("right", "downloaded", root)
    assert edges.read_bytes() == content


def test_unknown_names(root: Path) -> None:
    for function in (fetch, verify):
        with pytest.raises(ValueError, match="no data set 'mars'"):
            function(["mars"], root)
    with pytest.raises(FileNotFoundError, match="nobody publishes it"):
        fetch(["wordnet"], root)
