"""What is in a directory, as far as it can be told from names and from the files that can be read.

For an examination: one file that cannot be read must not hide the others.
"""

from __future__ import annotations

import os
from pathlib import Path

from stepwell.errors import DurabilityError
from stepwell.storage.port import DamagedRun, RunEntry, Survey
from stepwell.stores.files import layout, open_page
from stepwell.stores.files.layout import PLAIN, RECORD_NAME


def survey(folders: list[Path]) -> Survey:
    """The runs in these folders; of those that cannot be listed, why."""
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
    """The numbers of the records of a run, by the names of their files alone."""
    try:
        names = os.listdir(folder)
    except OSError:  # the run is gone, or is a file
        return []
    return sorted({int(match[1]) for match in map(RECORD_NAME.fullmatch, names) if match})


def _run_id(folder: Path) -> str | None:
    """Whose folder it is: its name says so, or else any record that can be read."""
    if PLAIN.fullmatch(folder.name):
        return folder.name
    for path in sorted(folder.glob("*.json"), reverse=True):
        try:
            return layout.read_cover(path).run_id
        except (DurabilityError, OSError):
            continue
    return None
