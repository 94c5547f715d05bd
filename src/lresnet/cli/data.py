"""The verb ``data``."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from lresnet.cli.app import App

__all__ = ["data"]

_Root = Annotated[Path | None, arg(metavar="FOLDER")]
_Names = Annotated[Positional[tuple[str, ...]], arg(metavar="NAME")]

data = App("List, fetch and verify data sets.")


def list_(data_root: _Root = None) -> int:
    """List the data sets: what they are, whether their files are here, and whose they are.

    Example: lresnet data list

    Args:
        data_root: The folder to look in. None: LRESNET_DATA, and without it the user's cache folder.
    """
    from rich.console import Console

    from lresnet.cli.data_table import dataset_table
    from lresnet.data.files import list_datasets

    Console().print(dataset_table(list_datasets(data_root)))
    return 0


data.command(list_)


@data.command
def fetch(names: _Names, data_root: _Root = None) -> int:
    """Download data sets from their official addresses; a file is kept only if its checksum is right.

    Example: lresnet data fetch airport cora

    Args:
        names: The data sets.
        data_root: The folder to write to. None: the last of LRESNET_DATA, and without it the user's cache folder.
    """
    from rich.console import Console

    from lresnet.cli.data_table import file_table
    from lresnet.data.files import fetch as fetch_files

    if not names:
        raise ValueError("name the data sets to fetch; `lresnet data list` shows them")
    Console().print(file_table(fetch_files(names, data_root)))
    return 0


@data.command
def verify(names: _Names = (), data_root: _Root = None) -> int:
    """Check the files that are here against the official checksums.

    Ends with code 1 if a file is wrong, or if one of the named data sets is not complete.

    Example: lresnet data verify airport cora

    Args:
        names: The data sets; all, if none is named.
        data_root: The folder to look in. None: LRESNET_DATA, and without it the user's cache folder.
    """
    from rich.console import Console

    from lresnet.cli.data_table import file_table
    from lresnet.data.files import verify as verify_files

    rows = verify_files(names, data_root)
    Console().print(file_table(rows))
    return int(any(row.state == "wrong" or (names and row.state == "missing") for row in rows))
