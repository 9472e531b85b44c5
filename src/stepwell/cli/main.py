"""Where the script `stepwell` begins. Loads nothing that might not be installed before it has said so."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

MISSING = "stepwell: the command line needs click and rich\nhint: pip install 'stepwell[cli]'"
INTERRUPTED = 130  # as in `failures`, which cannot be loaded yet


def main() -> NoReturn:
    """Do what the arguments of the process say, and end it."""
    try:
        _main()
    except KeyboardInterrupt:  # while the program is still being loaded, or once more while it says that it ends
        os._exit(INTERRUPTED)


def _main() -> NoReturn:
    try:
        from stepwell.cli.app import stepwell  # lazy: click may not be installed
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        print(MISSING, file=sys.stderr)
        sys.exit(2)
    try:
        sys.exit(stepwell.main())
    except SystemExit as ending:
        if ending.code == INTERRUPTED:
            _end_at_the_next_interrupt()
        raise


def _end_at_the_next_interrupt() -> None:
    """Python waits for handlers in threads before it ends: whoever interrupts that, too, wants no traceback of it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
