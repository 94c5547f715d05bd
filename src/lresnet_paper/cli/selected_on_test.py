"""The verb ``selected_on_test``: what choosing the epoch on the test set adds to a test score."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

__all__ = ["selected_on_test"]


def selected_on_test(
    cells: Annotated[tuple[str, ...], arg(metavar="CELL")] = ("chameleon",),
    methods: Annotated[tuple[str, ...], arg(metavar="METHOD")] = ("euclidean",),
    epochs: Annotated[int | None, arg(metavar="INT")] = None,
    device: str = "auto",
    out: Path = Path("results/selected_on_test.jsonl"),
) -> int:
    """Train SGFormer's published settings on the ten official splits and read the test set at every epoch.

    Prints two test scores: at the epoch with the best validation score, and the highest of all epochs. The second one
    is not a result, because the test set chose it. Split i has seed i. Each run is one line of the file; lines that are
    already in the file are not measured again.

    Example: python -m lresnet_paper selected_on_test --cells chameleon --epochs 500

    Args:
        cells: Cells of the table graph_transformer: actor, chameleon, squirrel.
        methods: Methods of the recipe: euclidean (SGFormer itself), lorentz, lorentz_limit.
        epochs: Largest number of epochs. Default: that of the published command.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        out: The file of JSON lines.
    """
    from rich.console import Console

    from lresnet.runs.device import usable_device
    from lresnet.runs.names import require_known
    from lresnet.train.results import append_result, read_results
    from lresnet_paper.pages.text_tables import selection_table
    from lresnet_paper.plan import OFFICIAL_SPLITS, methods_of, recipe, recipe_cells
    from lresnet_paper.selected_on_test import PROTOCOL, published_config, run_selected_on_test, selections

    place = str(usable_device(device))
    for cell in cells:
        require_known("cell", cell, recipe_cells("graph_transformer"))
        for method in methods:
            require_known("method", method, methods_of(recipe("graph_transformer", cell, PROTOCOL)))
    known = {(line["cell"], line["method"], line["split"], line["config"]["epochs"]) for line in read_results(out)}
    for cell in cells:
        command = f"python -m lresnet_paper selected_on_test --cells {cell} --methods {' '.join(methods)}"
        command += "" if epochs is None else f" --epochs {epochs}"
        for split in range(OFFICIAL_SPLITS):
            for method in methods:
                config = published_config(cell, method, epochs)
                if (cell, method, split, config["epochs"]) not in known:
                    append_result(out, run_selected_on_test(cell, config, method, split, command=command, device=place))
    own = [line for line in read_results(out) if line["cell"] in cells and line["method"] in methods]
    Console().print(selection_table(selections(own)))
    return 0
