"""Named pipes, sockets, devices and folders in the place of files: one line that names them, and nobody waits."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import lresnet
from lresnet._files import digest, has_file, require_run_folder
from lresnet._json import read_json, read_toml
from lresnet.cli import main
from lresnet.data import load_images, read_graph
from lresnet.data.formats.arrays import read_all_arrays, read_array
from lresnet.data.formats.image_file import open_image
from lresnet.data.formats.text_files import read_documents
from lresnet.data.formats.text_rows import Table
from lresnet.data.formats.unpickle import read_pickle
from lresnet.data.tokenizer import Tokenizer
from lresnet.runs.graph_search import read_trials
from lresnet.runs.record import read_evaluation, read_record
from lresnet.train.checkpoint import load_checkpoint
from lresnet.train.results import ResultsFile, read_results

pytestmark = pytest.mark.skipif(os.name != "posix", reason="special files are those of POSIX")

KINDS = {"pipe": "a named pipe", "socket": "a socket", "device": "a device", "folder": "a folder"}


@contextmanager
def special(path: Path, kind: str) -> Iterator[None]:
    """Put a special file at ``path``. A named pipe has a writer that writes nothing, so that no reader waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/null")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one, pytest.MonkeyPatch.context() as patch:
            patch.chdir(path.parent)  # the name of a socket must be short
            one.bind(path.name)
    else:
        os.mkfifo(path)
        ended = threading.Event()

        def write_nothing() -> None:
            while not ended.is_set():
                os.close(os.open(path, os.O_WRONLY))  # waits for a reader

        writer = threading.Thread(target=write_nothing)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            writer.join()
            os.close(reader)
        return
    yield


READERS: dict[str, Callable[[Path], Any]] = {
    "run.json": lambda path: read_record(path.parent),
    "evaluation.json": lambda path: read_evaluation(path.parent),
    "checkpoint.pt": load_checkpoint,
    "results.jsonl": lambda path: list(read_results(path)),
    "keys.jsonl": lambda path: ResultsFile(path, key=lambda line: line["seed"]).keys(),
    "search.jsonl": lambda path: read_trials(path.parent),
    "tokenizer.json": Tokenizer.read,
    "config.json": lambda path: lresnet.from_pretrained(path.parent),
    "own.json": read_json,
    "settings.toml": read_toml,
    "a.npy": read_array,
    "a.npz": read_all_arrays,
    "image.png": open_image,
    "text.txt": read_documents,
    "table.csv": lambda path: list(Table(path)),
    "edges.csv": read_graph,
    "graph.gml": read_graph,
    "graph.graphml": read_graph,
    "data.p": read_pickle,
    "model.safetensors": digest,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_a_special_file_is_refused_by_name(name: str, kind: str, tmp_path: Path) -> None:
    if kind == "folder" and name in ("text.txt", "edges.csv", "graph.gml", "graph.graphml"):
        pytest.skip("a folder is read there")
    path = tmp_path / "run" / name
    with special(path, kind), pytest.raises(OSError) as caught:
        READERS[name](path)
    assert str(caught.value) == f"{path} is {KINDS[kind]}, and a file is needed here"


def test_links_to_files_are_read_and_missing_files_are_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{}")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "broken").symlink_to("nothing")
    assert read_json(tmp_path / "link") == {}
    assert [has_file(tmp_path / name) for name in ("file", "link", "broken", "missing", "file/below")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    with pytest.raises(FileNotFoundError, match=r"run\.json is missing"):
        require_run_folder(tmp_path)


@pytest.mark.parametrize("name", ["run.json", "evaluation.json", "checkpoint.pt", "model/config.json"])
def test_a_named_pipe_in_a_run_folder_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["train", "disease_tree/lp", "--epochs", "1", "--out", str(folder)]) == 0
    if name == "checkpoint.pt":  # read by a run that has not finished
        (folder / "run.json").unlink()
    (folder / name).unlink(missing_ok=True)
    capsys.readouterr()
    verb = ["train", "disease_tree/lp", "--epochs", "1", "--out"] if name == "checkpoint.pt" else ["evaluate"]
    with special(folder / name, "pipe"):
        assert main([*verb, str(folder)]) == 2
    assert capsys.readouterr().err == f"lresnet: error: {folder / name} is a named pipe, and a file is needed here\n"


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_special_file_as_results_or_data_is_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")
    for name, call in {
        "demo.jsonl": ["reproduce", "demo", "--results", str(tmp_path)],
        "labels.csv": ["train", str(tmp_path / "edges.csv"), "--labels", str(tmp_path / "labels.csv")],
        "space.npy": ["delta", str(tmp_path / "space.npy")],
        "text": ["train", str(tmp_path / "text"), "--task", "text"],
    }.items():
        with special(tmp_path / name, kind):
            assert main(call) == 2
        error = capsys.readouterr().err
        assert error == f"lresnet: error: {tmp_path / name} is {KINDS[kind]}, and a file is needed here\n"


def test_a_named_pipe_among_images_is_no_image(tmp_path: Path) -> None:
    with special(tmp_path / "images.npz", "pipe"), pytest.raises(OSError, match=r"images\.npz is neither"):
        load_images(str(tmp_path / "images.npz"))


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_special_file_among_images_is_reported(kind: str, tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / part / name / f"{number}.png")
    path = tmp_path / "train" / "cat" / "9.png"
    with special(path, kind):
        data = load_images(str(tmp_path), size=8, workers=0)
    assert len(data.train) == 6
    assert data.skipped == ((path, f"{path} is {KINDS[kind]}, and a file is needed here"),)
