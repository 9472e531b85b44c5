"""A survey of a damaged store, from the names of files and from those files that can be read.

It is for `doctor`: one unreadable file must not hide the others.
"""

from __future__ import annotations

import os
from pathlib import Path

from stepwell.errors import DurabilityError
from stepwell.storage.port import DamagedRun, RunEntry, Survey
from stepwell.stores.files import layout, open_page
from stepwell.stores.files.layout import PLAIN, RECORD_NAME


def survey(folders: list[Path]) -> Survey:
    """Return the runs in these folders, and for those that cannot be listed the reason."""
    runs: list[RunEntry] = []
    damaged: list[DamagedRun] = []
    for folder in folders:
        try:
            entry = open_page.run_in(folder)
        except (DurabilityError, OSError) as error:
            damaged.append(DamagedRun(_run_id(folder), str(error)))
        else:
            runs += [] if entry is None else [entry]
    return Survey(runs, damaged)


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the records of a run, by the names of their files alone."""
    try:
        names = os.listdir(folder)
    except OSError:  # the run is gone, or its folder is a file
        return []
    return sorted({int(match[1]) for match in map(RECORD_NAME.fullmatch, names) if match})


def _run_id(folder: Path) -> str | None:
    """Return the run of a folder: by its name or, if that is hashed, by any readable record."""
    if PLAIN.fullmatch(folder.name):
        return folder.name
    for path in sorted(folder.glob("*.json"), reverse=True):
        try:
            return layout.read_cover(path).run_id
        except (DurabilityError, OSError):
            continue
    return None
