"""What the rest of the library reads: for now, graphs and distances from a user's file."""

from lresnet.data.space_file import read_space

__all__ = ["read_space"]
