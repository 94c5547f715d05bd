"""Data files: where they are found, downloads, checks, and the list of data sets."""

import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lresnet.data import files
from lresnet.data.files import data_roots, download, fetch, find, list_datasets, problem_with, verify
from lresnet.data.registry import DATASETS
from lresnet.data.source import File
from tests.data import official
from tests.data.official import file_of

CONTENT = b"the official content\n" * 1000


class _Publisher(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        body = {"/right": CONTENT, "/wrong": CONTENT[::-1], "/cut": CONTENT[:20_000]}[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def publisher() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Publisher) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_data_roots_prefer_the_argument_then_the_environment_then_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRESNET_DATA", f"a{os.pathsep}b")
    assert data_roots(["x", Path("y")]) == [Path("x"), Path("y")]
    assert data_roots(f"x{os.pathsep}y") == [Path("x"), Path("y")]
    assert data_roots() == [Path("a"), Path("b")]
    monkeypatch.delenv("LRESNET_DATA")
    (cache,) = data_roots()
    assert cache.name == "lresnet"


def test_a_file_is_found_under_any_root(tmp_path: Path) -> None:
    file = file_of(CONTENT)
    roots = [tmp_path / "a", tmp_path / "b"]
    assert find(file, roots) is None
    target = roots[1] / file.path
    target.parent.mkdir(parents=True)
    target.write_bytes(CONTENT)
    assert find(file, roots) == target


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:-1] + b"x"])
def test_a_file_with_a_wrong_checksum_is_refused(tmp_path: Path, content: bytes) -> None:
    file = file_of(CONTENT)
    path = tmp_path / file.path
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not the official file") as caught:
        find(file, tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_changes_is_checked_again(tmp_path: Path) -> None:
    file, path = file_of(CONTENT), tmp_path / "file"
    path.write_bytes(CONTENT)
    assert problem_with(path, file) is None
    path.write_bytes(CONTENT[::-1])
    assert "sha256" in (problem_with(path, file) or "")


def test_git_blob_id_is_checked_if_no_sha256_is_known(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello\n")
    assert problem_with(path, File("file", None, git_blob="ce013625030ba8dba906f756967f9e9ca394464a")) is None
    assert "git blob" in (problem_with(path, File("file", None, git_blob="0" * 40)) or "")


def test_a_download_is_checked_and_goes_to_the_last_root(tmp_path: Path, publisher: str) -> None:
    file = file_of(CONTENT, url=f"{publisher}/right")
    roots = [tmp_path / "a", tmp_path / "b"]
    assert download(file, roots) == tmp_path / "b" / file.path
    assert find(file, roots) == tmp_path / "b" / file.path
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file.bin"]


@pytest.mark.parametrize(("page", "error"), [("wrong", ValueError), ("cut", FileNotFoundError)])
def test_wrong_download_is_kept_as_part(tmp_path: Path, publisher: str, page: str, error: type[Exception]) -> None:
    file = file_of(CONTENT, url=f"{publisher}/{page}")
    with pytest.raises(error) as caught:
        download(file, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(file.url) in str(caught.value)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file.bin.part"]
    assert find(file, tmp_path) is None
    again = file_of(CONTENT, url=f"{publisher}/right")
    assert download(again, tmp_path).read_bytes() == CONTENT
    assert not (tmp_path / "folder" / "file.bin.part").exists()


@pytest.mark.parametrize(("page", "reason"), [("missing", "HTTP status 404"), (None, "ConnectionError")])
def test_failed_download_is_reported_and_leaves_nothing(
    tmp_path: Path, publisher: str, page: str | None, reason: str
) -> None:
    file = file_of(CONTENT, url=f"{publisher}/{page}" if page else "http://127.0.0.1:9/nobody")
    with pytest.raises(FileNotFoundError, match=reason) as caught:
        download(file, tmp_path / "new")
    for words in (str(tmp_path / "new" / file.path), str(file.url), "LRESNET_DATA"):
        assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_download_is_stopped_at_the_size_of_the_official_file(tmp_path: Path, publisher: str) -> None:
    file = replace(file_of(CONTENT, url=f"{publisher}/right"), size=len(CONTENT) - 1)
    with pytest.raises(ValueError, match=r"it has more than 20,999 bytes; the download was stopped"):
        download(file, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_download_without_a_published_size_has_a_limit(
    tmp_path: Path, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT, usedforsecurity=False).hexdigest()
    file = File("file.bin", f"{publisher}/right", git_blob=blob)
    monkeypatch.setattr("lresnet.data.files.DOWNLOAD_BYTES", 1000)
    with pytest.raises(ValueError, match=r"it has more than 1,000 bytes; the download was stopped"):
        download(file, tmp_path)
    (tmp_path / "file.bin").write_bytes(CONTENT)
    with pytest.raises(ValueError, match=r"it has 21,000 bytes; the limit is 1,000"):
        find(file, tmp_path)
    monkeypatch.undo()
    assert find(file, tmp_path) == tmp_path / "file.bin"


def test_unpublished_file_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="it is not published"):
        download(file_of(CONTENT), tmp_path)


def test_root_that_is_not_writable_is_reported(tmp_path: Path, publisher: str) -> None:
    (tmp_path / "root").write_text("a file, not a folder")
    with pytest.raises(OSError, match="the download cannot be written"):
        download(file_of(CONTENT, url=f"{publisher}/right"), tmp_path / "root")


def test_every_file_has_a_checksum_and_a_path_of_its_own() -> None:
    every_file = [file for source in DATASETS.values() for file in source.files]
    assert len({file.path for file in every_file}) == len(every_file)
    for file in every_file:
        if file.path != "hgcn/disease_nc.feats.npz":  # its sha256 is not known, only its id in git
            assert file.sha256
            assert file.size
        assert file.sha256 or file.git_blob
        assert file.url is None or file.url.startswith("https://") or (file.sha256 and file.size)
    assert all(source.licence and source.citation and source.name == name for name, source in DATASETS.items())
    assert files.ROOT_VARIABLE == "LRESNET_DATA"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    official.write_disease(tmp_path, "disease_lp")
    official.use(monkeypatch, tmp_path, "disease_lp")
    return tmp_path


def test_list_counts_the_files_of_every_data_set(root: Path) -> None:
    rows = {row.name: row for row in list_datasets(root)}
    assert list(rows) == list(DATASETS)
    assert (rows["disease_lp"].present, rows["disease_lp"].files) == (3, 3)
    assert (rows["cora"].present, rows["cora"].files) == (0, 8)
    assert rows["disease_tree"].files == rows["noise_uniform"].files == 0
    assert (rows["places"].present, rows["places"].files) == (0, 1)
    assert "cannot be downloaded" in rows["wordnet"].note


def test_verify_distinguishes_right_wrong_and_missing_files(root: Path) -> None:
    (root / "hgcn" / "disease_lp.edges.csv").write_text("0,1\n")
    (root / "hgcn" / "disease_lp.labels.npy").unlink()
    rows = verify(["disease_lp"], root)
    assert [row.state for row in rows] == ["wrong", "right", "missing"]
    assert [row.where for row in rows] == [root, root, None]
    assert "bytes, not" in rows[0].detail
    assert rows[2].detail.startswith("https://")
    assert len(verify(root=root)) == sum(row.files for row in list_datasets(root))


def test_fetch_keeps_right_files_and_refuses_wrong_ones(root: Path) -> None:
    assert [row.state for row in fetch(["disease_lp"], root)] == ["right"] * 3
    (root / "hgcn" / "disease_lp.edges.csv").write_text("0,1\n")
    with pytest.raises(ValueError, match=r"edges\.csv is not the official file"):
        fetch(["disease_lp"], root)


def test_fetch_downloads_missing_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = root / "hgcn" / "disease_lp.edges.csv"
    content = edges.read_bytes()
    edges.unlink()
    monkeypatch.setattr("lresnet.data.files._stream", lambda url, target, limit: target.write_bytes(content))
    row = fetch(["disease_lp"], root)[0]
    assert (row.state, row.detail, row.where) == ("right", "downloaded", root)
    assert edges.read_bytes() == content


def test_unknown_and_unpublished_data_sets_are_refused(root: Path) -> None:
    for function in (fetch, verify):
        with pytest.raises(ValueError, match="no data set 'mars'"):
            function(["mars"], root)
    with pytest.raises(FileNotFoundError, match="it is not published"):
        fetch(["wordnet"], root)


def test_images_that_the_user_supplies_are_found_but_not_checked(root: Path) -> None:
    assert [row.state for row in verify(["places"], root)] == ["missing"]
    with pytest.raises(FileNotFoundError, match="no images of places: put them"):
        fetch(["places"], root)
    (root / "ood" / "places").mkdir(parents=True)
    for rows in (verify(["places"], root), fetch(["places"], root)):
        assert [(row.path, row.state, row.where) for row in rows] == [("ood/places", "unchecked", root)]
    assert next(row.present for row in list_datasets(root) if row.name == "places") == 1
