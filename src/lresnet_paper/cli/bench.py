"""The verb ``bench``: times of residuals, training steps and epochs, measured with GPU synchronisation."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, arg

from lresnet.cli.app import App

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from lresnet_paper.bench import Measurement

__all__ = ["bench", "print_tables"]

_Json = Annotated[str | None, arg(metavar="FILE|-")]
_Results = Annotated[Path | None, arg(metavar="FOLDER")]

bench = App("Time residuals, networks and epochs, with GPU synchronisation.")


@bench.command
def residual(
    sizes: Annotated[tuple[str, ...], arg(metavar="DIMENSION/POINTS")] = (),
    compiled: Literal["auto", "yes", "no"] = "auto",
    rounds: int = 20,
    device: str = "auto",
    json: _Json = None,
    results: _Results = Path("results"),
    explain: Annotated[bool, FlagCreatePairsOff] = False,
) -> int:
    """Time every residual connection in every form, forward and backward, and a stack of 64.

    The times are compared with x + y, the compiled formulas, the textbook forms and geoopt, and with the measured copy
    rate. On a GPU, 100 additions are also timed without GPU synchronisation.

    Example: lresnet bench residual --sizes 2048/10000 4096/100000

    Args:
        sizes: Dimension and number of points. Default: the paper's two sizes on a GPU, 256/4000 on a CPU.
        compiled: Whether to include torch.compile; auto: on a GPU only.
        rounds: Number of measured rounds; every candidate runs in each round.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the results as a list of objects to a file, or with - print only this list.
        results: Append a line per result to benchmarks.jsonl in this folder. None: do not.
        explain: After the tables, explain why the paper's factor of 2,000 is impossible.
    """
    from lresnet.runs.device import usable_device
    from lresnet_paper.bench import bench_residual
    from lresnet_paper.render import render

    place = usable_device(device)
    _require_writable(json, results)
    measured = bench_residual(sizes, place, rounds=rounds, compiled=compiled)
    options = {"sizes": sizes, "compiled": compiled, "rounds": rounds, "device": device}
    _write(measured, _command(residual, options), place, json, results)
    if explain and json != "-":
        print("\n" + render("paper_runtime.md.j2").rstrip())
    return 0


@bench.command
def resnet(
    model: Literal["lorentz_resnet18", "lorentz_resnet20", "lorentz_resnet32"] = "lorentz_resnet18",
    methods: Annotated[tuple[str, ...], arg(metavar="METHOD")] = (),
    batch: Annotated[tuple[int, ...], arg(metavar="INT")] = (),
    rounds: int = 11,
    device: str = "auto",
    json: _Json = None,
    results: _Results = Path("results"),
) -> int:
    """Time a training step of a ResNet against its Euclidean baseline, and measure the peak memory of both.

    The images are random, 32 x 32. The step is the training engine's own; on a GPU it is compiled and replayed as a
    CUDA graph. The memory of each network is measured in a fresh process.

    Example: lresnet bench resnet --batch 512 128 --methods lorentz tangent

    Args:
        model: The network.
        methods: Residual connections. Default: lorentz. The Euclidean baseline is always included.
        batch: Batch sizes. Default: 512 and 128 on a GPU, 32 on a CPU.
        rounds: Number of measured rounds; every network runs in each round.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the results as a list of objects to a file, or with - print only this list.
        results: Append a line per result to benchmarks.jsonl in this folder. None: do not.
    """
    from lresnet.runs.device import usable_device
    from lresnet_paper.bench import bench_resnet

    place = usable_device(device)
    _require_writable(json, results)
    measured = bench_resnet(model, methods, batch, place, rounds=rounds)
    options = {"model": model, "methods": methods, "batch": batch, "rounds": rounds, "device": device}
    _write(measured, _command(resnet, options), place, json, results)
    return 0


@bench.command
def gcn(
    cells: Annotated[tuple[str, ...], arg(metavar="CELL")] = (),
    methods: Annotated[tuple[str, ...], arg(metavar="METHOD")] = (),
    rounds: int = 15,
    device: str = "auto",
    json: _Json = None,
    results: _Results = Path("results"),
) -> int:
    """Time a training epoch of lorentz_gcn, one seed and ten at once, against its Euclidean baseline and PyG's GCN.

    Example: lresnet bench gcn --cells disease/lp airport/lp

    Args:
        cells: Tasks, e.g. cora/nc. Default: those of disease/lp and airport/lp whose data are available, else
            disease_tree/lp, which is generated.
        methods: Residual connections. Default: lorentz. The Euclidean baseline is always included.
        rounds: Number of measured rounds; every candidate runs in each round.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the results as a list of objects to a file, or with - print only this list.
        results: Append a line per result to benchmarks.jsonl in this folder. None: do not.
    """
    from lresnet.runs.device import usable_device
    from lresnet.runs.names import require_known
    from lresnet_paper.bench import bench_gcn

    if cells:
        from lresnet.data import TASKS

        for cell in cells:
            require_known("cell", cell, TASKS)
    place = usable_device(device)
    _require_writable(json, results)
    measured = bench_gcn(cells, methods, place, rounds=rounds)
    options = {"cells": cells, "methods": methods, "rounds": rounds, "device": device}
    _write(measured, _command(gcn, options), place, json, results)
    return 0


@bench.command
def sgformer(
    cells: Annotated[tuple[str, ...], arg(metavar="GRAPH")] = (),
    methods: Annotated[tuple[str, ...], arg(metavar="METHOD")] = (),
    nodes: Annotated[tuple[int, ...], arg(metavar="INT")] = (),
    rounds: int = 15,
    device: str = "auto",
    json: _Json = None,
    results: _Results = Path("results"),
) -> int:
    """Time a training epoch of lorentz_sgformer against its Euclidean baseline, and measure how time and memory grow.

    Depth and width are those of the released scripts, and three layers of width 64 for WordNet, which they do not
    have. The growing graphs are random, with 8 neighbours per node and 64 features; each size runs in a fresh process.

    Example: lresnet bench sgformer --cells chameleon --nodes 10000 100000

    Args:
        cells: chameleon, squirrel, actor, wordnet, random/10000. Default: those whose data are available.
        methods: Residual connections. Default: lorentz. The Euclidean baseline is always included.
        nodes: Sizes of the growing graph. Default: 10,000, 100,000 and 1,000,000 nodes.
        rounds: Number of measured rounds; every candidate runs in each round.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the results as a list of objects to a file, or with - print only this list.
        results: Append a line per result to benchmarks.jsonl in this folder. None: do not.
    """
    from lresnet.runs.device import usable_device
    from lresnet_paper.bench import bench_sgformer

    place = usable_device(device)
    _require_writable(json, results)
    measured = bench_sgformer(cells, methods, nodes, place, rounds=rounds)
    options = {"cells": cells, "methods": methods, "nodes": nodes, "rounds": rounds, "device": device}
    _write(measured, _command(sgformer, options), place, json, results)
    return 0


@bench.command
def training(
    images: str = "cifar10",
    recipes: Annotated[tuple[str, ...], arg(metavar="fast|paper")] = (),
    methods: Annotated[tuple[str, ...], arg(metavar="METHOD")] = (),
    epochs: int = 200,
    model: Literal["lorentz_resnet18", "lorentz_resnet20", "lorentz_resnet32"] = "lorentz_resnet18",
    device: str = "auto",
    json: _Json = None,
    results: _Results = Path("results"),
) -> int:
    """Measure the wall-clock time of whole trainings, from the command to the test accuracy.

    Each one is `lresnet train --test` on all training images, in a fresh process with empty compiler caches.

    Example: lresnet bench training --recipes fast --epochs 200

    Args:
        images: cifar10, cifar100, or the path of your own images.
        recipes: Settings, fast (batch 512) or paper (batch 128). Default: both.
        methods: Residual connections. Default: lorentz.
        epochs: Epochs of each training.
        model: The network.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the results as a list of objects to a file, or with - print only this list.
        results: Append a line per result to benchmarks.jsonl in this folder. None: do not.
    """
    from lresnet.runs.device import usable_device
    from lresnet_paper.bench import bench_training

    place = usable_device(device)
    _require_writable(json, results)
    measured = bench_training(images, recipes, methods, epochs, model, place)
    options = {"images": images, "recipes": recipes, "methods": methods, "epochs": epochs, "model": model}
    _write(measured, _command(training, options | {"device": device}), place, json, results)
    return 0


@bench.command
def page(out: Path = Path("docs/performance/benchmarks.md"), results: Path = Path("results")) -> int:
    """Write the page of all benchmarks from the newest result of each measurement on each device.

    Example: lresnet bench page --out docs/performance/benchmarks.md

    Args:
        out: The page, in Markdown.
        results: The folder with benchmarks.jsonl and runtime.jsonl.
    """
    from lresnet_paper.pages.benchmarks import benchmark_page, read_benchmarks
    from lresnet_paper.render import write_page

    write_page(out, benchmark_page(read_benchmarks(results)))
    return 0


def print_tables(records: "Sequence[dict[str, Any]]") -> None:
    """Print lines of results as tables."""
    from rich.console import Console

    from lresnet_paper.pages.benchmark_tables import benchmark_tables, terminal_table

    console = Console()
    for table in benchmark_tables(records):
        console.print(terminal_table(table))


def _command(verb: "Callable[..., int]", options: "Mapping[str, Any]") -> str:
    """Return the command line, with the options that differ from their defaults."""
    words = ["lresnet bench", verb.__name__]
    for name, parameter in inspect.signature(verb).parameters.items():
        value = options.get(name, parameter.default)
        if value != parameter.default:
            words += [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
    return " ".join(words)


def _require_writable(json: str | None, results: Path | None) -> None:
    """Fail before the measurement, not after it, if the results cannot be written. Leaves no file or folder behind."""
    files = [Path(json)] if json is not None and json != "-" else []
    for file in [*files, *([results / "benchmarks.jsonl"] if results is not None else [])]:
        made = [folder for folder in file.parents if not folder.exists()]
        new = not file.exists()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a").close()
        if new:
            file.unlink()
        for folder in made:
            folder.rmdir()


def _write(
    measured: "Sequence[Measurement]", command: str, place: "torch.device", json: str | None, results: Path | None
) -> None:
    """Append lines to the results; write or print JSON if requested; print tables unless JSON goes to stdout."""
    from json import dumps

    from lresnet.train.results import append_result
    from lresnet_paper.bench import line
    from lresnet_paper.render import write_page

    records = [line(one, command, place) for one in measured]
    if results is not None:
        for record in records:
            append_result(results / "benchmarks.jsonl", record)
    if json == "-":
        print(dumps(records, indent=2, allow_nan=False))
        return
    if json is not None:
        write_page(Path(json), dumps(records, indent=2, allow_nan=False) + "\n")
    print_tables(records)
    if results is not None:
        print(f"{len(records)} lines appended to {results / 'benchmarks.jsonl'}")
