"""The page "How fast is it, and how accurate?" (docs/performance/index.md): headline figures of both studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lresnet.train.results import read_results
from lresnet_paper.pages.benchmarks import read_benchmarks
from lresnet_paper.pages.numerics import read_numerics, worst_case
from lresnet_paper.render import render

__all__ = ["performance_page"]

Record = dict[str, Any]

_GPU = "NVIDIA H200"


def performance_page(results: Path) -> str:
    """Return the page from ``benchmarks.jsonl``, ``numerics.jsonl`` and ``transformer_speed.jsonl`` in ``results``.

    Raises:
        FileNotFoundError: one of the files is missing.
    """
    records = [record for record in read_benchmarks(results) if record["hardware"] == _GPU]
    numerics = read_numerics(results)
    values = {
        "gpu": _GPU,
        "steps": _ratios(records, "resnet", "engine", "lorentz_resnet18/"),
        "transformers": _transformers(results / "transformer_speed.jsonl", "compiled blocks, CUDA graphs"),
        "launched": _transformers(results / "transformer_speed.jsonl", "compiled blocks"),
        "graph_transformers": _ratios(records, "sgformer", "engine"),
        "networks": _ratios(records, "gcn", "1 seed"),
        "worst": worst_case(numerics),
        "numerics_command": numerics[0]["command"],
    }
    return render("performance.md.j2", **values)


def _transformers(path: Path, form: str) -> list[dict[str, Any]]:
    """Return the newest ratios of training steps in bfloat16: ``lorentz_gpt``, then ``lorentz_vit_small``."""
    records = [record for record in read_results(path) if record["hardware"] == _GPU and "bfloat16" in record["cell"]]
    found = []
    for study, name in (("gpt", "`lorentz_gpt`"), ("vit", "`lorentz_vit_small`")):
        own = [record for record in records if record["cell"].startswith(f"{study}/")]
        newest = _ratios(own, "transformers", form)[-1:]
        found += [row | {"cell": name} for row in newest]
    return found


def _ratios(records: Sequence[Record], study: str, form: str, prefix: str = "") -> list[dict[str, Any]]:
    """Return, by cell, the time of the Lorentz residual relative to the Euclidean baseline, and in milliseconds."""
    return [
        {
            "cell": record["cell"].removeprefix(prefix),
            "milliseconds": f"{1e3 * record['value']:.2f}",
            "ratio": f"{1 / record['faster_than']['euclidean']:.2f}",
            "pyg": record["faster_than"].get("PyG's GCN"),
            "command": record["command"],
        }
        for record in records
        if (record.get("study"), record["method"], record["protocol"]) == (study, "lorentz", form)
        and record["cell"].startswith(prefix)
        and "euclidean" in record["faster_than"]
    ]
