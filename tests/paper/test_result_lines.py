"""Every line of results is a run of a recipe with exactly these settings, so that its command repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lresnet.cli.app import read_call
from lresnet.cli.train import train
from lresnet.train.results import read_results
from lresnet_paper.cli.bench import bench
from lresnet_paper.cli.reproduce import reproduce
from lresnet_paper.ood import cells_served
from lresnet_paper.plan import cells_of, final_runs, protocols, recipe_cells, search_runs
from lresnet_paper.run import Run

RESULTS = Path(__file__).parents[2] / "results"
TABLES = ("gnn", "commutativity", "graph_transformer", "image_classification", "ood")
Key = tuple[Any, ...]


def recorded(table: str, stage: str) -> set[Key]:
    lines = [line for line in read_results(RESULTS / f"{table}.jsonl") if line["stage"] == stage]
    return {Run(**{name: line[name] for name in Run.__dataclass_fields__}).key() for line in lines}


def planned(table: str, stage: str) -> set[Key]:
    return {run.key() for run in (_searches(table) if stage == "search" else _finals(table))}


def _plans(table: str) -> list[tuple[str, str]]:
    return [(cell, protocol) for cell in recipe_cells(table) for protocol in protocols(table, cell)]


def _searches(table: str) -> Iterator[Run]:
    for cell, protocol in _plans(table):
        yield from search_runs(table, cell, protocol=protocol)


def _finals(table: str) -> Iterator[Run]:
    for cell, protocol in _plans(table):
        for run in final_runs(table, cell, RESULTS / f"{table}.jsonl", protocol=protocol):
            yield from (replace(run, cell=served) for served in cells_served(table, run.cell))


@pytest.mark.parametrize("stage", ["search", "final"])
@pytest.mark.parametrize("table", TABLES)
def test_every_line_is_a_run_of_a_recipe(table: str, stage: str) -> None:
    assert recorded(table, stage) - planned(table, stage) == set()


def test_every_command_of_a_run_still_parses() -> None:
    lines = (line for file in sorted(RESULTS.glob("*.jsonl")) for line in file.read_text().splitlines())
    commands = {part for line in lines for part in json.loads(line)["command"].split("; ")}
    verbs = {"bench": bench, "reproduce": reproduce, "train": train}
    for command in sorted(commands):
        program, verb, *args = shlex.split(command)
        if program == "lresnet":
            call: Any = read_call(verbs[verb], f"lresnet {verb}", args)
            if verb == "reproduce" and (table := call.keywords["table"]) != "runtime":
                cells = cells_of(table, call.keywords["protocol"])
                served = [own for cell in cells for own in cells_served(table, cell)]
                assert call.keywords["cell"] in (None, *cells, *served), command
