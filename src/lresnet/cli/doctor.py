"""The verb ``doctor``: versions, devices, folders and numerics of this machine."""

from typing import Annotated

from tyro.conf import FlagCreatePairsOff

__all__ = ["doctor"]


def doctor(json: Annotated[bool, FlagCreatePairsOff] = False) -> int:
    """Report versions, devices and folders, and check the numerics on this machine.

    Ends with code 1 if a check fails.

    Example: lresnet doctor --json > doctor.json

    Args:
        json: Print one JSON object instead of tables.
    """
    from lresnet.doctor import examine, print_json, print_tables

    findings = examine()
    (print_json if json else print_tables)(findings)
    return 0 if findings.ok else 1
