"""What was published after the paper stands beside our best."""

from lresnet_paper.pages.later_work import later_work
from lresnet_paper.results import Figure


def figure(cell: str, method: str, mean: float, protocol: str = "legacy", table: str = "gnn", n: int = 10) -> Figure:
    return Figure(table, cell, method, protocol, mean, 0.1, n, 0, None, None, None)


def test_the_best_of_all_protocols_and_the_lorentz_residual_s_own() -> None:
    figures = [
        figure("cora/nc", "lorentz", 79.0),
        figure("cora/nc", "lorentz", 82.6, "legacy-plain"),
        figure("cora/nc", "none", 82.9, "legacy-plain"),
        figure("airport/nc", "lorentz", 94.1),
        figure("airport/nc", "none", 99.0, n=0),  # diverged
        figure("disease/lp", "lorentz", 98.0),
    ]
    assert later_work(figures) == (
        "Later work (ILNN, ICLR 2026, by another's digest of it) claims airport/nc 96.0 (ours: 94.1, lorentz); "
        "cora/nc 85.7 (ours: 82.9, none; 82.6, lorentz)."
    )


def test_only_of_tables_with_the_same_task() -> None:
    assert later_work([figure("cora/nc", "lorentz", 79.0, table="commutativity")]) == ""
    assert "cifar10 95.5" in later_work([figure("cifar10", "lorentz", 95.0, table="image_classification")])
