"""Choose curvature and scale of the transformers: short trainings of lorentz_gpt on the pages of the documentation.

    python benchmarks/transformer_defaults.py --blocks 4 --steps 220       # about 4 minutes on one core
    python benchmarks/transformer_defaults.py --blocks 12 --steps 150      # about 8 minutes on one core

It printed the table of lresnet/models/transformer.py (torch 2.13, seed 0, 550 kB of text): the mean training loss in
nats per byte over the last 40 steps, each of 8 sequences of 96 bytes that no network has seen more than once, and the
root mean square of the coordinates behind every block. One seed and short trainings show which defaults fail, not which
is best.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lresnet.models import create_model
from lresnet.optim import make_adam

WIDTH, HEADS, CONTEXT, BATCH = 96, 4, 96, 8
LAST_STEPS, WARM_UP, LR = 40, 20, 3e-3
VARIANTS: dict[str, dict[str, Any]] = {
    "euclidean": {"residual": "euclidean"},
    "kappa 1/n": {"curvature": -1 / WIDTH},
    "kappa 0.25/n": {"curvature": -0.25 / WIDTH},
    "kappa 0.1/n": {"curvature": -0.1 / WIDTH},
    "kappa 1": {"curvature": -1.0},
    "kappa 1/n, no scale": {"curvature": -1 / WIDTH, "residual_options": {"scale": None}},
}


def train(text: Tensor, blocks: int, steps: int, options: dict[str, Any]) -> tuple[float, list[float]]:
    """Return the mean loss of the last steps, and the size of the coordinates behind every block."""
    torch.manual_seed(0)
    model = create_model("lorentz_gpt", context=CONTEXT, layers=blocks, width=WIDTH, heads=HEADS, **options)
    optimizer, generator = make_adam(model, lr=LR, weight_decay=0.1), torch.Generator().manual_seed(0)
    sizes: list[float] = []
    losses: list[float] = []
    for step in range(steps):
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator).tolist()
        batch = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
        optimizer.scale_lr(min(1.0, (step + 1) / WARM_UP) * (1 - 0.9 * step / steps))
        optimizer.zero_grad()
        loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    for block in model.layers:  # type: ignore[union-attr]
        block.register_forward_hook(lambda _module, _inputs, y: sizes.append(float(y.detach().square().mean().sqrt())))
    model(batch[:, :-1])
    return statistics.fmean(losses[-LAST_STEPS:]), sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=4, help="default: 4")
    parser.add_argument("--steps", type=int, default=220, help="default: 220")
    parser.add_argument("--text", type=Path, default=Path("docs"), help="folder of Markdown files; default: docs")
    parser.add_argument("--variants", default=";".join(VARIANTS), help=f"default: {';'.join(VARIANTS)}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pages = b"\n".join(page.read_bytes() for page in sorted(options.text.rglob("*.md")))
    text = torch.frombuffer(bytearray(pages), dtype=torch.uint8).long()
    for name in options.variants.split(";"):
        loss, sizes = train(text, options.blocks, options.steps, VARIANTS[name])
        print(
            f"{options.blocks} blocks, {name}: {loss:.3f}, sizes {' '.join(f'{size:.1f}' for size in sizes)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
