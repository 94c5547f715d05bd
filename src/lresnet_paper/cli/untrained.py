"""The verb ``untrained``: link prediction by scores that learn nothing."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

__all__ = ["untrained"]


def untrained(
    cells: Annotated[tuple[str, ...], arg(metavar="CELL")] = (), out: Path = Path("results/untrained.jsonl")
) -> int:
    """Rank the test pairs of link prediction by scores that are not trained: features, neighbours, paths, degrees.

    Each score is one line of the file. Validation pairs choose the feature column, and the test pairs are read once
    per score. Lines that are already in the file are not measured again.

    Example: python -m lresnet_paper untrained --cells disease/lp airport/lp

    Args:
        cells: Link prediction tasks. Default: all of them; those whose data are missing are skipped with a warning.
        out: The file of JSON lines.
    """
    from rich.console import Console

    from lresnet.metrics import UNTRAINED_SCORES
    from lresnet.runs.names import require_known
    from lresnet.train.results import append_result, read_results
    from lresnet_paper.pages.text_tables import result_table
    from lresnet_paper.results import aggregate, is_run
    from lresnet_paper.untrained import link_cells, protocols_of, seeds_of, untrained_runs

    for cell in cells:
        require_known("link prediction task", cell, link_cells())
    recorded = filter(is_run, read_results(out))
    known = {(line["cell"], line["protocol"], line["seed"], line["method"]) for line in recorded}
    for cell in cells or link_cells():
        command = f"python -m lresnet_paper untrained --cells {cell}"
        try:
            splits = [(protocol, seed) for protocol in protocols_of(cell) for seed in seeds_of(cell, protocol)]
            for protocol, seed in splits:
                if all((cell, protocol, seed, name) in known for name in UNTRAINED_SCORES):
                    continue
                for line in untrained_runs(cell, seed, command=command, protocol=protocol):
                    if (cell, protocol, seed, line["method"]) not in known:
                        append_result(out, line)
        except FileNotFoundError as error:
            if cells:
                raise
            print(f"warning: skipped {cell}: {error}", file=sys.stderr)
    lines = [line for line in read_results(out) if is_run(line) and line["cell"] in (cells or link_cells())]
    Console().print(
        result_table(aggregate(lines), "untrained scores: ROC AUC in percent, mean ± deviation over splits")
    )
    return 0
