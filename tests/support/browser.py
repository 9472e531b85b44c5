"""The Chromium of this machine. Playwright's own download is never used."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@cache
def find_chromium() -> str:
    """Return the program: `STEPWELL_CHROMIUM`, one on the PATH, or the distribution's package, installed now."""
    named = os.environ.get("STEPWELL_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"]):
            subprocess.run(command, check=True, capture_output=True, timeout=600)
        found = shutil.which("chromium")
    if found is None:
        raise RuntimeError("no Chromium was found: install the package `chromium`, or set STEPWELL_CHROMIUM to one")
    return found
