"""Gromov's delta for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from lresnet.geometry.delta import Delta

__all__ = ["delta_table"]


def delta_table(delta: Delta, title: str) -> Table:
    """What is known of the delta-hyperbolicity of a space, and what that rests on."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    nodes = f"{delta.nodes:,}"
    if delta.dropped_nodes:
        nodes += f" in the largest component ({delta.dropped_nodes:,} outside it)"
    table.add_row("points", nodes)
    table.add_row("diameter", f"{'' if delta.diameter_is_exact else 'at most '}{delta.diameter:g}")
    if delta.exact:
        table.add_row("delta", f"{delta.lower_bound:g}, exact")
        table.add_row("relative, 2 delta / diameter", f"{delta.relative:.4g}")
    else:
        table.add_row("delta", f"between {delta.lower_bound:g} (seen) and {delta.upper_bound:g} (half the diameter)")
        table.add_row("relative, 2 delta / diameter", f"at least {delta.relative:.4g}")
    mean = f"{delta.mean:.4g}"
    if delta.mean_interval is not None:
        mean += f" (95 % interval {delta.mean_interval[0]:.4g} to {delta.mean_interval[1]:.4g})"
    table.add_row("mean over quadruples", mean)
    looked_at = "every one" if delta.mean_interval is None else f"{delta.quadruples:,} drawn at random"
    if delta.pool_nodes < delta.nodes:
        looked_at += f" among {delta.pool_nodes:,} of the points"
    table.add_row("quadruples", looked_at)
    return table
