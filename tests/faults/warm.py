"""Imported once by the server from which processes are forked: everything is loaded, and has run once."""

import tempfile
from pathlib import Path

from tests.faults.commands import VERBS, Runs, run_command, written
from tests.faults.scenarios import SCENARIOS

with tempfile.TemporaryDirectory() as place:
    for _number, _one in enumerate(SCENARIOS.values()):
        _one.start(Path(place) / str(_number))

with tempfile.TemporaryDirectory() as place:
    _runs = Runs.prepare(Path(place))
    _runs.copy("finished")
    for _verb in VERBS:
        run_command(_runs.command(_verb), lambda verb=_verb: written(_runs, verb))
