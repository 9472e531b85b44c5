"""The Chromium of this machine. Playwright's own download is never used."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
PLACES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
FLAGS = [
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# How distributions install the package `chromium`, by the program that does it.
INSTALLERS = {
    "apt-get": (["update", "-qq"], ["install", "-y", "-qq", "chromium"]),
    "dnf": (["install", "-y", "-q", "chromium"],),
    "apk": (["add", "--quiet", "chromium"],),
}


@cache
def find_chromium() -> str:
    """Return the program: `STEPWELL_CHROMIUM`, one that is here, or the distribution's, installed now by root.

    Raises RuntimeError, saying what to install.
    """
    if named := os.environ.get("STEPWELL_CHROMIUM"):
        if shutil.which(named) is None:
            raise RuntimeError(f"STEPWELL_CHROMIUM names {named}, which is not a program; set it to a Chromium")
        return named
    installer = next(filter(shutil.which, INSTALLERS), None)
    found, why = _look(), ""
    if found is None and installer is not None and os.geteuid() == 0:
        for arguments in INSTALLERS[installer]:
            done = subprocess.run([installer, *arguments], capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                why = f" ({installer} failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]})"
                break
        found = _look()
    if found is None:
        command = (
            "your package manager" if installer is None else f"`{' '.join([installer, *INSTALLERS[installer][-1]])}`"
        )
        raise RuntimeError(
            f"there is no Chromium here{why}: install it with {command}, or set STEPWELL_CHROMIUM to one"
        )
    return found


def _look() -> str | None:
    return next(filter(None, map(shutil.which, (*NAMES, *PLACES))), None)
