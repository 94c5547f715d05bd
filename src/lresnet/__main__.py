"""``python -m lresnet`` is the same program as ``lresnet``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
