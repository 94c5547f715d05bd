"""The verb ``generate``: a text that the model of a run continues."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.options import require_seeds

__all__ = ["generate"]


def generate(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    prompt: Annotated[str, arg(metavar="TEXT")] = "",
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int = 40,
    seed: int = 0,
    device: str = "auto",
) -> int:
    """Continue a text with the model that `lresnet train TEXT --task text` left in a folder.

    The prompt and the continuation are printed. Bytes that are no UTF-8 are replaced.

    Example: lresnet generate runs/book --prompt "It was a dark" --tokens 500

    Args:
        run: Folder of the run.
        prompt: Beginning of the text. Without it the model begins a new one.
        tokens: Number of tokens to draw; a token is a byte, unless the run has --tokens bpe.
        temperature: Divides the logits: less than 1 prefers likely tokens, 0 takes the most likely one always.
        top_k: Draw from this many most likely tokens only; 0: from all.
        seed: Seed of the draws.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    require_run_folder(run)
    require_seeds("--seed", seed)
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    print(opened.generate(prompt, tokens=tokens, temperature=temperature, top_k=top_k or None, seed=seed))
    return 0
