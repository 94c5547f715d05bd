"""The verb ``completion``: parents and ancestors of WordNet's nouns, found by ranking all candidates."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

__all__ = ["completion"]


def completion(
    subtree: Annotated[str | None, arg(metavar="SYNSET")] = None,
    untrained: bool = False,
    out: Path = Path("results/completion.jsonl"),
    plan: Annotated[Path | None, arg(metavar="FILE")] = None,
    device: str = "auto",
    workers: Annotated[int, arg(metavar="N")] = 1,
    minutes: Annotated[float | None, arg(metavar="M")] = None,
) -> int:
    """Complete the noun hierarchy of WordNet by ranking: held-out leaves, and the transitive closure.

    The plan is src/lresnet_paper/completion/completion.toml. Each run is one line of the file, written as soon as it is
    known. Run the same command again to execute the missing runs.

    Example: python -m lresnet_paper completion --subtree mammal --minutes 20

    Args:
        subtree: A synset whose descendants are the hierarchy; the plan has one form for it. Default: all nouns.
        untrained: Measure the scores that are not trained, instead of training.
        out: The file of JSON lines.
        plan: Another plan of the same form. Default: the plan of the study.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
        workers: Processes that share the device. They train different arms, tasks and dimensions.
        minutes: Start no training after this many minutes.
    """
    import torch

    from lresnet.runs.names import require_known
    from lresnet.runs.workers import require_workers
    from lresnet_paper.completion.study import read_plan, run_study, run_untrained

    require_workers(workers)
    own = read_plan(plan)
    forms = {settings.get("subtree"): name for name, settings in own["forms"].items()}
    if subtree is not None:
        require_known("subtree", subtree, [name for name in forms if name])
    if untrained:
        run_untrained(own, forms[subtree], out)
    else:
        chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        if not run_study(own, forms[subtree], out, device=chosen, workers=workers, minutes=minutes):
            print("runs are still missing; run the same command again to resume")
    print(f"The results: {out}")
    return 0
