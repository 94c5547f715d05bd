"""The verb ``generate``: continue a text with the model of a run."""

import sys
import unicodedata
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from lresnet._files import require_run_folder
from lresnet.cli.options import require_seeds
from lresnet.runs.defaults import GENERATED_TOKENS, TEMPERATURE, TOP_K

__all__ = ["generate"]


def generate(
    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")],
    prompt: Annotated[str, arg(metavar="TEXT")] = "",
    tokens: int = GENERATED_TOKENS,
    temperature: float = TEMPERATURE,
    top_k: int = TOP_K,
    top_p: float = 1.0,
    seed: int = 0,
    device: str = "auto",
) -> int:
    """Continue a text with the model that `lresnet train TEXT_FILE --task text` left in a folder.

    The prompt is printed, followed by its continuation. Bytes that are not UTF-8 and control characters are printed as
    the replacement character, U+FFFD; what the terminal cannot show is printed as a question mark.

    Example: lresnet generate runs/book --prompt "It was a dark" --tokens 500

    Args:
        run: Folder of the run.
        prompt: Beginning of the text. Default: the model begins a text.
        tokens: Number of tokens to draw. A token is a byte; in a run with --tokens bpe it is one or more bytes.
        temperature: The logits are divided by it: below 1 likely tokens are drawn more often; 0 always takes the most
            likely token.
        top_k: Draw from this many most likely tokens only; 0 draws from all.
        top_p: Draw from the most likely tokens whose probabilities add up to this number only; 1 draws from all.
        seed: Seed of the random draws. The same run, prompt, options and seed give the same text.
        device: auto (a GPU if there is one), cpu, cuda, cuda:1, ...
    """
    require_run_folder(run)
    require_seeds("--seed", seed)
    if tokens < 1:
        raise ValueError(f"--tokens must be at least 1, got {tokens}")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"--temperature must be at least 0 and finite, got {temperature:g}")
    if top_k < 0:
        raise ValueError(f"--top-k must be at least 1, or 0 to draw from all tokens, got {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"--top-p must be above 0 and at most 1, got {top_p:g}")
    from lresnet.runs.run import Run

    opened = Run.open(run, device=device)
    text = opened.generate(
        prompt,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k or None,
        top_p=None if top_p == 1 else top_p,
        seed=seed,
    )
    print(_printable(text, sys.stdout.encoding or "utf-8"))
    return 0


def _printable(text: str, encoding: str) -> str:
    r"""Return ``text`` with control characters, and those that ``encoding`` lacks, replaced.

    A control character could move the cursor of a terminal or change its colours.

    Example:
        >>> _printable("a\tb\x1b[31m\u4f60", "ascii")
        'a\tb?[31m?'
    """
    kept = "".join("\ufffd" if unicodedata.category(one) == "Cc" and one not in "\n\t\r" else one for one in text)
    return kept.encode(encoding, errors="replace").decode(encoding)
