"""Programs started with something set up first, in a process of its own that then becomes the program.

A function run between fork and exec would run in a copy of this process whose other threads are gone, with their locks
held for ever; what hangs there hangs whoever waits for the start.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def heeding_interrupts(command: Sequence[str]) -> list[str]:
    """It ends by SIGINT, although whoever runs the tests may not."""
    return _after("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)", command)


def confined(command: Sequence[str], *, megabytes: int, seconds: int) -> list[str]:
    """It may use no more memory and no more of a processor."""
    room = megabytes * 2**20
    return _after(
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({room}, {room}))\n"
        f"resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))",
        command,
    )


def dying_with_us(command: Sequence[str], *, user: int | None = None, group: int | None = None) -> list[str]:
    """It ends by SIGQUIT with the thread that starts it, where the system does that; as another account if need be."""
    account = "" if user is None else f"os.setgroups([]); os.setgid({group}); os.setuid({user})\n"
    return _after(
        f"import ctypes, signal\n{account}if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, signal.SIGQUIT)",
        command,
    )


def _after(first: str, command: Sequence[str]) -> list[str]:
    return [
        sys.executable,
        "-S",
        "-E",
        "-c",
        f"import os, sys\n{first}\nos.execv(sys.argv[1], sys.argv[1:])",
        *map(str, command),
    ]
