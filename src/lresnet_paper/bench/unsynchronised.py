"""The same loop by two clocks: one that waits for the GPU and one that does not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lresnet_paper.bench.clock import TwoClocks, two_clocks
from lresnet_paper.bench.contenders import Contender, Function
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.residuals import PASSES
from lresnet_paper.bench.rounds import spread
from lresnet_paper.bench.sizes import Size, point_sets

__all__ = ["ADDITIONS", "measure_clocks"]

ADDITIONS = 100  # the paper: "average runtime to perform 100 additions"

_FORMS = ("x + y", "kernels", "textbook")


def measure_clocks(
    size: Size, field: Sequence[Contender], device: torch.device, *, rounds: int, additions: int = ADDITIONS
) -> list[Measurement]:
    """Seconds for 100 additions, until the loop has returned and until they are done.

    On a CPU a loop returns when its work is done, and both clocks say the same: there it is not measured.
    """
    if device.type != "cuda":
        return []
    one = point_sets(size, device)[0]
    measured = []
    for contender in field:
        if contender.function is None or contender.form not in _FORMS:
            continue
        both = [_loop(contender.function, one.x.detach(), one.y.detach(), additions) for _ in range(rounds + 1)][1:]
        moved = additions * PASSES["forward"] * size.bytes
        seems, true = spread([clocks.seems for clocks in both]), spread([clocks.true for clocks in both])
        figures = {
            "true_seconds": true.median,
            "gigabytes": moved / 1e9,
            "implied_gigabytes_per_second": moved / seems.median / 1e9,
            "true_gigabytes_per_second": moved / true.median / 1e9,
        }
        facts = {"additions": additions, "clock": "wall clock, not synchronised", "dtype": "float32"}
        case = "clock", str(size), contender.method, contender.form, "forward"
        measured.append(Measurement(*case, seems, figures, facts=facts))
    return measured


@torch.no_grad()
def _loop(function: Function, x: torch.Tensor, y: torch.Tensor, additions: int) -> TwoClocks:
    def task() -> None:
        for _ in range(additions):
            function(x, y)

    return two_clocks(task, torch.cuda.synchronize)
