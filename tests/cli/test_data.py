"""The command line `lresnet data`."""

import hashlib
from pathlib import Path

import pytest

from lresnet import cli
from lresnet.data.registry import DATASETS
from lresnet.data.source import File, GraphSource
from lresnet.data.split_names import SPLITS

CONTENT = b"0 1\n1 2\n"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data set of one published and one unpublished file, and an empty data root."""
    sha = hashlib.sha256(CONTENT).hexdigest()
    url = (tmp_path / "published.csv").as_uri()
    source = GraphSource(
        name="toy",
        summary="a [toy]",
        files=(File("toy/a.csv", url, len(CONTENT), sha), File("toy/b.csv", None, len(CONTENT), sha)),
        licence="CC0",
        citation="nobody",
        note="not published",
    )
    monkeypatch.setitem(DATASETS, "toy", source)
    root = tmp_path / "root"
    (root / "toy").mkdir(parents=True)
    return root


def test_list_shows_every_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "list", "--data-root", "no-such-folder"]) == 0
    out = capsys.readouterr().out
    for name in DATASETS:
        assert f"│ {name} " in out
    assert "generated" in out
    assert "0 of 8" in out


def test_list_shows_every_split_with_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "list", "--data-root", "no-such-folder"]) == 0
    out = capsys.readouterr().out
    for name in SPLITS:
        assert f"│ {name} " in out
    assert "48/32/20" in out


def test_list_counts_the_files_that_are_present(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (toy / "toy" / "a.csv").write_bytes(CONTENT)
    assert cli.main(["data", "list", "--data-root", str(toy)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "│ toy " in line)
    assert "1 of 2" in row
    assert "a [toy]" in row  # brackets are not markup


def test_verify_distinguishes_right_wrong_and_missing_files(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["data", "verify", "toy", "--data-root", str(toy)]
    assert cli.main(call) == 1
    assert capsys.readouterr().out.count("│ missing") == 2
    for name in ("a.csv", "b.csv"):
        (toy / "toy" / name).write_bytes(CONTENT)
    assert cli.main(call) == 0
    assert capsys.readouterr().out.count("│ right") == 2
    (toy / "toy" / "b.csv").write_bytes(CONTENT[::-1])
    assert cli.main(call) == 1
    assert capsys.readouterr().out.count("│ wrong") == 1


def test_verify_of_all_fails_for_wrong_files_only(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "verify", "--data-root", str(toy)]) == 0
    assert "│ missing" in capsys.readouterr().out
    (toy / "toy" / "a.csv").write_bytes(b"0 1")
    assert cli.main(["data", "verify", "--data-root", str(toy)]) == 1


def test_fetch_downloads_missing_files(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lresnet.data.files._stream", lambda url, target, limit: target.write_bytes(CONTENT))
    (toy / "toy" / "b.csv").write_bytes(CONTENT)
    assert cli.main(["data", "fetch", "toy", "--data-root", str(toy)]) == 0
    assert (toy / "toy" / "a.csv").read_bytes() == CONTENT
    assert "downloaded" in "".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["fetch"], "name the data sets to fetch"),
        (["fetch", "tory"], "no data set 'tory'"),
        (["verify", "tory"], "no data set 'tory'"),
        (["fetch", "toy"], "it is not published"),
    ],
)
def test_errors_are_reported_in_one_line(
    args: list[str], words: str, toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (toy / "toy" / "a.csv").write_bytes(CONTENT)
    assert cli.main(["data", *args, "--data-root", str(toy)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_wrong_download_is_refused_and_kept_as_part(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lresnet.data.files._stream", lambda url, target, limit: target.write_bytes(b"torn"))
    assert cli.main(["data", "fetch", "toy", "--data-root", str(toy)]) == 2
    assert "is not the official file" in capsys.readouterr().err
    assert [path.name for path in (toy / "toy").iterdir()] == ["a.csv.part"]
