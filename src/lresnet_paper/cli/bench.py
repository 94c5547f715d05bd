"""The verb ``bench``: what residuals, networks and epochs cost, by a clock that waits."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, arg

from lresnet.cli.app import App

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from lresnet_paper.bench import Measurement

__all__ = ["bench", "show_sheets"]

_Json = Annotated[str | None, arg(metavar="FILE|-")]
_Results = Annotated[Path | None, arg(metavar="FOLDER")]

bench = App()


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

    Against x + y, the compiled formulas, the textbook's forms and geoopt's, and as a share of the measured copy rate.
    On a GPU also what the loop seems to take where nobody waits for it.

    Example: lresnet bench residual --sizes 2048/10000 4096/100000

    Args:
        sizes: Dimension and number of points. None named: the paper's two sizes on a GPU, 256/4000 on a CPU.
        compiled: Whether torch.compile takes part; auto: on a GPU.
        rounds: Rounds that count; all contenders take turns in each.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the figures as a list of objects to a file, or print nothing else with -.
        results: Add a line for each figure to benchmarks.jsonl in this folder. None: do not.
        explain: Say below the tables why the paper's 2,000 times cannot be.
    """
    from lresnet.runs.folder import usable_device
    from lresnet_paper.bench import bench_residual
    from lresnet_paper.pages.benchmarks import PAPER_CLOCK

    place = usable_device(device)
    _require_places(json, results)
    measured = bench_residual(sizes, place, rounds=rounds, compiled=compiled)
    options = {"sizes": sizes, "compiled": compiled, "rounds": rounds, "device": device}
    _hand_out(measured, _command(residual, options), place, json, results)
    if explain and json != "-":
        print(f"\n{PAPER_CLOCK}")
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
    """Time a training step of a ResNet beside its Euclidean twin's, and measure the memory of both.

    Random images of 32 x 32; the engine's own step, compiled and replayed on a GPU. Memory is measured in a fresh
    process for each network.

    Example: lresnet bench resnet --batch 512 128 --methods lorentz tangent

    Args:
        model: The network.
        methods: Residual connections. None named: lorentz. The Euclidean twin always takes part.
        batch: Images of a step. None named: 512 and 128 on a GPU, 32 on a CPU.
        rounds: Rounds that count; all networks take turns in each.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the figures as a list of objects to a file, or print nothing else with -.
        results: Add a line for each figure to benchmarks.jsonl in this folder. None: do not.
    """
    from lresnet.runs.folder import usable_device
    from lresnet_paper.bench import bench_resnet

    place = usable_device(device)
    _require_places(json, results)
    measured = bench_resnet(model, methods, batch, place, rounds=rounds)
    options = {"model": model, "methods": methods, "batch": batch, "rounds": rounds, "device": device}
    _hand_out(measured, _command(resnet, options), place, json, results)
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
    """Time a training epoch of lorentz_gcn, of one seed and of ten at once, beside its twin's and a GCN of PyG.

    Example: lresnet bench gcn --cells disease/lp airport/lp

    Args:
        cells: Tasks, e.g. cora/nc. None named: disease/lp and airport/lp where their data are found, else
            disease_tree/lp, which is made on the spot.
        methods: Residual connections. None named: lorentz. The Euclidean twin always takes part.
        rounds: Rounds that count; all contenders take turns in each.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the figures as a list of objects to a file, or print nothing else with -.
        results: Add a line for each figure to benchmarks.jsonl in this folder. None: do not.
    """
    from lresnet.runs.folder import usable_device
    from lresnet.runs.single import require_known
    from lresnet_paper.bench import bench_gcn

    if cells:
        from lresnet.data import TASKS

        for cell in cells:
            require_known("cell", cell, TASKS)
    place = usable_device(device)
    _require_places(json, results)
    measured = bench_gcn(cells, methods, place, rounds=rounds)
    options = {"cells": cells, "methods": methods, "rounds": rounds, "device": device}
    _hand_out(measured, _command(gcn, options), place, json, results)
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
    """Time a training epoch of lorentz_sgformer beside its twin's, and see how time and memory grow with the graph.

    Depth and width are those of the released scripts; of WordNet, which they have not, three layers of 64. Growing
    graphs are random ones with 8 neighbours a node and 64 features, each in a fresh process.

    Example: lresnet bench sgformer --cells chameleon --nodes 10000 100000

    Args:
        cells: chameleon, squirrel, actor, wordnet, random/10000. None named: those whose data are found.
        methods: Residual connections. None named: lorentz. The Euclidean twin always takes part.
        nodes: Sizes of the growing graph. None named: ten thousand, a hundred thousand and a million.
        rounds: Rounds that count; all contenders take turns in each.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the figures as a list of objects to a file, or print nothing else with -.
        results: Add a line for each figure to benchmarks.jsonl in this folder. None: do not.
    """
    from lresnet.runs.folder import usable_device
    from lresnet_paper.bench import bench_sgformer

    place = usable_device(device)
    _require_places(json, results)
    measured = bench_sgformer(cells, methods, nodes, place, rounds=rounds)
    options = {"cells": cells, "methods": methods, "nodes": nodes, "rounds": rounds, "device": device}
    _hand_out(measured, _command(sgformer, options), place, json, results)
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
    """Time whole trainings by the clock on the wall, from the command to the test figure.

    Each is `lresnet train --test` on all training images, in a fresh process that finds nothing compiled.

    Example: lresnet bench training --recipes fast --epochs 200

    Args:
        images: cifar10, cifar100, or the path of your own.
        recipes: Settings, fast (batch 512) or paper (batch 128). None named: both.
        methods: Residual connections. None named: lorentz.
        epochs: Of each training.
        model: The network.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        json: Write the figures as a list of objects to a file, or print nothing else with -.
        results: Add a line for each figure to benchmarks.jsonl in this folder. None: do not.
    """
    from lresnet.runs.folder import usable_device
    from lresnet_paper.bench import bench_training

    place = usable_device(device)
    _require_places(json, results)
    measured = bench_training(images, recipes, methods, epochs, model, place)
    options = {"images": images, "recipes": recipes, "methods": methods, "epochs": epochs, "model": model}
    _hand_out(measured, _command(training, options | {"device": device}), place, json, results)
    return 0


@bench.command
def page(out: Path = Path("docs/benchmarks.md"), results: Path = Path("results")) -> int:
    """Write the page of all benchmarks from the results: the newest line of each measurement on each device.

    Args:
        out: The page, Markdown.
        results: The folder with benchmarks.jsonl and runtime.jsonl.
    """
    from lresnet._files import write_atomically
    from lresnet_paper.pages.benchmarks import benchmark_page, read_benchmarks

    write_atomically(out, benchmark_page(read_benchmarks(results)).encode())
    return 0


def show_sheets(records: "Sequence[dict[str, Any]]") -> None:
    """Print the tables that lines of results fill."""
    from rich.console import Console

    from lresnet_paper.pages.benchmark_tables import sheets, terminal_sheet

    console = Console()
    for sheet in sheets(records):
        console.print(terminal_sheet(sheet))


def _command(verb: "Callable[..., int]", options: "Mapping[str, Any]") -> str:
    """What was typed: the options that are not as they are where nothing is said."""
    words = ["lresnet bench", verb.__name__]
    for name, parameter in inspect.signature(verb).parameters.items():
        value = options.get(name, parameter.default)
        if value != parameter.default:
            words += [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
    return " ".join(words)


def _require_places(json: str | None, results: Path | None) -> None:
    """Fail before the measuring, and not after it, where figures cannot be written; leave nothing behind."""
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


def _hand_out(
    measured: "Sequence[Measurement]", command: str, place: "torch.device", json: str | None, results: Path | None
) -> None:
    """Lines to the results, JSON where it is wanted, tables otherwise."""
    from json import dumps

    from lresnet._files import write_atomically
    from lresnet.train.results import append_result
    from lresnet_paper.bench import line

    records = [line(one, command, place) for one in measured]
    if results is not None:
        for record in records:
            append_result(results / "benchmarks.jsonl", record)
    if json == "-":
        print(dumps(records, indent=2, allow_nan=False))
        return
    if json is not None:
        write_atomically(Path(json), (dumps(records, indent=2, allow_nan=False) + "\n").encode())
    show_sheets(records)
    if results is not None:
        print(f"{len(records)} lines added to {results / 'benchmarks.jsonl'}")
