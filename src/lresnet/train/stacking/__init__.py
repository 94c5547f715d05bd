"""Training of many models of one architecture as one computation: same numbers, one pass over the GPU.

A small graph network leaves a GPU mostly idle: a step is a few hundred tiny kernels. A *stack* of S models runs S seeds
or splits in the time of little more than one. Member s ends with the parameters, best epoch and score that
:func:`~lresnet.train.train_model` would give it alone, up to rounding.

==============  =================================================================================================
Points          ``[N, S, n]``: node, member, coordinate. ``S = 1`` where all members share the same points.
Parameters      ``[S, ...]``: the member's axis first. A learned curvature is ``[S, 1]``, so that it broadcasts.
Matrices        ``lresnet.geometry.stack.times_rows`` multiplies ``[S, m, n]`` with ``[N, S, n]``.
Graphs          One adjacency matrix for all members, or a ``BlockDiagonal`` of one for each.
Random numbers  Each member draws from its own generator, in the order in which it would draw alone.
==============  =================================================================================================

Layers of ``lresnet.nn`` that work row by row need no change; ``model.py`` replaces their parameters by stacked views
with ``torch.func.functional_call``.

* ``model.py``: :class:`ModelStack`, the stacked parameters, and :class:`StackError`.
* ``objectives.py``: losses and validation scores ``[S]`` of stacked link prediction and node classification.
* ``engine.py``: :func:`train_many`, the training loop with one early stopping and one non-finite check per member.

``docs/performance/stacking.md`` explains what a layer or an objective must do to be stacked, and how to test it.
"""

from typing import TYPE_CHECKING

from lresnet._lazy import lazy_names

if TYPE_CHECKING:
    from lresnet.train.stacking.engine import StackedTrainingState, fork_generator, train_many
    from lresnet.train.stacking.model import ModelStack, StackError

__all__ = ["ModelStack", "StackError", "StackedTrainingState", "fork_generator", "train_many"]

if not TYPE_CHECKING:  # a type checker reads the imports above, so it still reports a misspelt name
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "ModelStack": "model",
            "StackError": "model",
            "StackedTrainingState": "engine",
            "fork_generator": "engine",
            "train_many": "engine",
        },
    )
