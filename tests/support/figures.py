"""How much was tried: tests say so here, for whoever wants to show it (`make reliability`)."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

WHERE = "STEPWELL_FIGURES"  # names the file to which figures are added; without it they are not kept


def note(what: str, count: int = 1) -> None:
    """So many more of something were tried."""
    if where := os.environ.get(WHERE):
        with open(where, "a") as file:
            file.write(json.dumps([what, count]) + "\n")


def read(path: Path) -> Counter[str]:
    """What was noted in a file."""
    found: Counter[str] = Counter()
    for line in path.read_text().splitlines() if path.exists() else ():
        what, count = json.loads(line)
        found[what] += count
    return found
