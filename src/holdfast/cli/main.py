"""Where the script `holdfast` begins. Loads nothing that might not be installed before it has said so."""

from __future__ import annotations

import sys
from typing import NoReturn

MISSING = "holdfast: the command line needs click and rich\nhint: pip install 'holdfast[cli]'"


def main() -> NoReturn:
    """Do what the arguments of the process say, and end it."""
    try:
        import click  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        print(MISSING, file=sys.stderr)
        sys.exit(2)
    from .app import holdfast

    sys.exit(holdfast.main())
