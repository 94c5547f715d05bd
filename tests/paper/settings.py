"""Names of settings, for the tests of recipes."""

import dataclasses


def settings_of(*owners: type) -> set[str]:
    """The names of all settings of these configuration classes."""
    return {field.name for owner in owners for field in dataclasses.fields(owner)}
