"""`lresnet bench` and `lresnet reproduce runtime` on tiny sizes."""

import json
import re
from pathlib import Path

import pytest

from lresnet import cli
from lresnet.train.results import read_results
from lresnet_paper.bench.residuals import Size
from lresnet_paper.results import aggregate, read_runs
from tests.coloured import write_coloured


@pytest.fixture(autouse=True)
def tiny_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("lresnet_paper.bench.residuals._CPU_CACHE", 1000)
    monkeypatch.setattr("lresnet_paper.bench.timing._COPY_BYTES", {"cpu": (2**12,)})
    monkeypatch.setattr("lresnet_paper.bench.suite._CPU_STACK", Size(4, 4))


def test_residual_prints_tables_and_appends_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["bench", "residual", "--sizes", "8/16", "--rounds", "2", "--device", "cpu", "--results", str(tmp_path)]
    assert cli.main([*call, "--json", str(tmp_path / "figures.json"), "--explain"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 120  # the explanation; the tables are narrower
    assert "One residual, forward: 16 points of dimension 8, float32" in out
    assert "A stack of 64 residuals" in out
    assert "over 2,000 times faster" in out
    lines = list(read_results(tmp_path / "benchmarks.jsonl"))
    assert lines == json.loads((tmp_path / "figures.json").read_text())
    assert f"{len(lines)} lines appended" in out
    assert {line["command"] for line in lines} == {"lresnet bench residual --sizes 8/16 --rounds 2 --device cpu"}
    assert {line["study"] for line in lines} == {"copy", "residual", "stack"}
    # A missing measurement is a line, too.
    assert all((line["value"] is None) == bool(line["missing"]) for line in lines if line["study"] != "copy")
    assert any(line["missing"] == "geoopt has no such operation" for line in lines)


def test_json_to_stdout_is_the_only_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = ["bench", "residual", "--sizes", "4/4", "--rounds", "2", "--device", "cpu", "--json", "-"]
    assert cli.main([*call, "--results", "None"]) == 0
    figures = json.loads(capsys.readouterr().out)
    needed = {"table", "study", "cell", "method", "protocol", "part", "value", "quartiles", "rounds", "metrics"}
    needed |= {"faster_than", "missing", "config", "command", "versions", "hardware"}
    assert all(figure.keys() == needed for figure in figures)
    assert list(tmp_path.iterdir()) == []


def test_resnet_and_gcn(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lresnet_paper.bench.suite.peaks_in_fresh_processes",
        lambda networks, device: dict.fromkeys(networks, 2**30),
    )
    call = ["--rounds", "2", "--device", "cpu", "--results", str(tmp_path)]
    assert cli.main(["bench", "resnet", "--model", "lorentz_resnet20", "--batch", "2", "3", *call]) == 0
    assert cli.main(["bench", "gcn", "--cells", "disease_tree/lp", *call]) == 0
    out = capsys.readouterr().out
    assert "Training step of lorentz_resnet20, batch size 2" in out
    assert "Training epoch of lorentz_gcn: disease_tree/lp" in out
    assert max(len(line) for line in out.splitlines() if "lines appended" not in line) <= 80
    lines = list(read_results(tmp_path / "benchmarks.jsonl"))
    assert [(line["cell"], line["method"]) for line in lines if line["study"] == "resnet"] == [
        (f"lorentz_resnet20/{batch}", method) for batch in (2, 3) for method in ("lorentz", "euclidean")
    ]
    assert lines[0]["command"] == "lresnet bench resnet --model lorentz_resnet20 --batch 2 3 --rounds 2 --device cpu"

    page = tmp_path / "page.md"
    assert cli.main(["bench", "page", "--results", str(tmp_path), "--out", str(page)]) == 0
    assert "### Training epoch of lorentz_gcn: disease_tree/lp" in page.read_text()


def test_reproduce_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet_paper.bench.suite.parse_size", lambda text: Size(int(text.split("/")[0]), 4))
    call = ["reproduce", "runtime", "--methods", "lorentz", "tangent", "--device", "cpu", "--results", str(tmp_path)]
    assert cli.main(call) == 0
    assert "100 additions: 4 points of dimension 2,048" in capsys.readouterr().out
    lines = list(read_results(tmp_path / "runtime.jsonl"))
    assert {line["table"] for line in lines} == {"runtime"}
    assert {line["method"] for line in lines} == {"lorentz", "tangent"}
    assert {line["cell"] for line in lines} == {"2048/4", "4096/4"}
    assert {result.table for result in aggregate(read_runs(tmp_path))} == {"runtime"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bench", "residual", "--sizes", "2048x10000"], "a size is DIMENSION/POINTS"),
        (["bench", "residual", "--device", "gpu"], "unknown kind of device 'gpu'; use auto, cpu"),
        (["bench", "residual", "--rounds", "1"], "rounds must be at least 2"),
        (["bench", "resnet", "--batch", "0"], "a batch needs at least 2 images, got 0"),
        (["bench", "resnet", "--methods", "lorenz"], "did you mean 'lorentz'"),
        (["bench", "gcn", "--cells", "disease/l"], "did you mean 'disease/lp'"),
        (["bench", "page", "--results", "nowhere"], "no benchmarks in nowhere"),
        (["reproduce", "runtime", "--cell", "2048/1000"], "did you mean '2048/10000'"),
        (["reproduce", "runtime", "--methods", "tangents"], "did you mean 'tangent'"),
    ],
)
def test_user_errors_are_one_line(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(args) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--json", "--results"])
def test_an_output_that_cannot_be_written_is_an_error_before_the_measurement(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for verb in ("residual", "resnet", "gcn", "sgformer"):
        monkeypatch.setattr(f"lresnet_paper.bench.bench_{verb}", lambda *_, **__: pytest.fail("it was measured"))
        assert cli.main(["bench", verb, "--device", "cpu", option, "file/figures"]) == 2
        assert "file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_the_folder_of_the_json_file_is_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a" / "b" / "figures.json"
    call = ["bench", "residual", "--sizes", "4/4", "--rounds", "2", "--device", "cpu", "--results", "None"]
    assert cli.main([*call, "--json", str(file)]) == 0
    assert json.loads(file.read_text())


def test_a_missing_gpu_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(*args: object, **options: object) -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr("torch.empty", empty)
    assert cli.main(["bench", "residual", "--device", "cuda"]) == 2
    assert re.search("device 'cuda' cannot be used here: (Torch not compiled|No CUDA GPUs)", capsys.readouterr().err)


@pytest.mark.slow
def test_training_measures_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = str(write_coloured(tmp_path / "coloured.npz"))
    call = ["bench", "training", "--images", images, "--recipes", "fast", "--epochs", "1", "--device", "cpu"]
    call += ["--model", "lorentz_resnet20", "--results", str(tmp_path)]
    assert cli.main(call) == 0
    (line,) = read_results(tmp_path / "benchmarks.jsonl")
    assert (line["study"], line["protocol"], line["method"]) == ("training", "fast, batch 512", "lorentz")
    assert line["cell"] == f"{images}, 1 epochs"
    assert 0 < line["metrics"]["training_seconds"] < line["value"]
    assert 0 <= line["metrics"]["accuracy"] <= 100
    assert "Whole training of lorentz_resnet20" in capsys.readouterr().out


@pytest.mark.slow
def test_training_reports_the_error_of_a_failed_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["bench", "training", "--images", str(tmp_path / "none.npz"), "--device", "cpu", "--results", str(tmp_path)]
    assert cli.main([*call, "--epochs", "1"]) == 2
    assert "none.npz" in capsys.readouterr().err
    assert cli.main([*call, "--recipes", "slow"]) == 2
    assert "unknown recipe 'slow'" in capsys.readouterr().err
