import http.server
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lresnet.data import files
from lresnet.data.files import data_roots, download, find, problem_with
from lresnet.data.registry import DATASETS
from lresnet.data.source import Source
from tests.data.official import source_of

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


def test_the_argument_goes_before_the_environment_and_that_before_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRESNET_DATA", f"a{os.pathsep}b")
    assert data_roots(["x", Path("y")]) == [Path("x"), Path("y")]
    assert data_roots(f"x{os.pathsep}y") == [Path("x"), Path("y")]
    assert data_roots() == [Path("a"), Path("b")]
    monkeypatch.delenv("LRESNET_DATA")
    (cache,) = data_roots()
    assert cache.name == "lresnet"


def test_a_file_is_found_under_any_root(tmp_path: Path) -> None:
    source = source_of(CONTENT)
    roots = [tmp_path / "a", tmp_path / "b"]
    assert find(source, roots) is None
    target = roots[1] / source.path
    target.parent.mkdir(parents=True)
    target.write_bytes(CONTENT)
    assert find(source, roots) == target


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:-1] + b"x"])
def test_a_file_with_a_wrong_checksum_is_refused(tmp_path: Path, content: bytes) -> None:
    source = source_of(CONTENT)
    path = tmp_path / source.path
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not the official file") as caught:
        find(source, tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_changes_is_checked_again(tmp_path: Path) -> None:
    source, path = source_of(CONTENT), tmp_path / "file"
    path.write_bytes(CONTENT)
    assert problem_with(path, source) is None
    path.write_bytes(CONTENT[::-1])
    assert "sha256" in (problem_with(path, source) or "")


def test_a_git_blob_id_serves_where_no_sha256_is_known(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello\n")
    assert problem_with(path, Source("file", None, git_blob="ce013625030ba8dba906f756967f9e9ca394464a")) is None
    assert "git blob" in (problem_with(path, Source("file", None, git_blob="0" * 40)) or "")


def test_a_download_is_checked_and_goes_to_the_last_root(tmp_path: Path, publisher: str) -> None:
    source = source_of(CONTENT, address=f"{publisher}/right")
    roots = [tmp_path / "a", tmp_path / "b"]
    assert download(source, roots) == tmp_path / "b" / source.path
    assert find(source, roots) == tmp_path / "b" / source.path
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file.bin"]


@pytest.mark.parametrize(("page", "error"), [("wrong", ValueError), ("cut", FileNotFoundError)])
def test_a_bad_download_stays_a_part(tmp_path: Path, publisher: str, page: str, error: type[Exception]) -> None:
    source = source_of(CONTENT, address=f"{publisher}/{page}")
    with pytest.raises(error) as caught:
        download(source, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(source.address) in str(caught.value)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file.bin.part"]
    assert find(source, tmp_path) is None
    again = source_of(CONTENT, address=f"{publisher}/right")
    assert download(again, tmp_path).read_bytes() == CONTENT
    assert not (tmp_path / "folder" / "file.bin.part").exists()


@pytest.mark.parametrize(("page", "reason"), [("missing", "HTTP status 404"), (None, "ConnectionError")])
def test_an_address_that_does_not_answer(tmp_path: Path, publisher: str, page: str | None, reason: str) -> None:
    source = source_of(CONTENT, address=f"{publisher}/{page}" if page else "http://127.0.0.1:9/nobody")
    start = time.monotonic()
    with pytest.raises(FileNotFoundError, match=reason) as caught:
        download(source, tmp_path / "new")
    assert time.monotonic() - start < 5
    for words in (str(tmp_path / "new" / source.path), str(source.address), "LRESNET_DATA"):
        assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_publishes_is_only_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nobody publishes it"):
        download(source_of(CONTENT), tmp_path)


def test_a_root_that_cannot_be_written_to(tmp_path: Path, publisher: str) -> None:
    (tmp_path / "root").write_text("a file, not a folder")
    with pytest.raises(OSError, match="cannot take the download"):
        download(source_of(CONTENT, address=f"{publisher}/right"), tmp_path / "root")


def test_every_registered_file_can_be_checked_and_no_two_share_a_place() -> None:
    sources = [source for entry in DATASETS.values() for source in entry.files]
    assert len({source.path for source in sources}) == len(sources)
    for source in sources:
        assert source.sha256 or source.git_blob
        assert source.address is None or source.address.startswith("https://") or source.sha256
    assert all(entry.licence and entry.citation and entry.name == name for name, entry in DATASETS.items())
    assert files.ROOT_VARIABLE == "LRESNET_DATA"
