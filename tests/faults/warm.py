"""Imported once by the server from which processes are forked: everything is loaded, and has run once."""

import tempfile
from pathlib import Path

from tests.faults.scenarios import SCENARIOS

with tempfile.TemporaryDirectory() as place:
    for _number, _one in enumerate(SCENARIOS.values()):
        _one.start(Path(place) / str(_number))
