"""Entry point of the script `stepwell`.

Imports nothing that may be missing before it can report that.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from stepwell.error_ids import ErrorId

MISSING = (
    f"stepwell: the command line needs click, jsonschema-rs and rich [{ErrorId.NOT_INSTALLED}]\n"
    "hint: pip install 'stepwell[cli]'"
)
INTERRUPTED = 130  # a copy of the one in `failures`, which imports click


def main() -> NoReturn:
    """Run the command line with the arguments of the process, and exit."""
    try:
        _main()
    # Ctrl-C during the imports, or a second one while the first is being handled.
    # `os._exit`: the normal exit could be interrupted once more, with a traceback.
    except KeyboardInterrupt:
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
            # A second Ctrl-C kills the process at once, without a traceback: at exit Python waits for
            # threads, and a handler that runs in one cannot be stopped.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise
