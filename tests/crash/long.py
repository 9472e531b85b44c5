"""The long form: many kills on each kind of store, and the figures, for whoever wants to show them.

    python -m tests.crash.long --kills 1000 --json figures.json

| argument | meaning |
|---|---|
| `--kills` | so many on each store; for each ten of them a process is also paused for longer than its lease |
| `--restarts` | so many of the PostgreSQL server, in turn a crash and a proper one, under load |
| `--stores` | which: `file`, `sqlite`, `postgres` |
| `--workers` | real workers drive the runs, which are submitted, and the server is away for 40 s once more; \
with each dispatcher: `procrastinate` is one more store |
| `--seed` | of all that is left to chance |
| `--json` | where the figures go |

The file holds `date`, `seed`, `python`, `stores` (a list, one object for each storm: kills, kills_in_a_drive, pauses,
restarts, runs, commits, executions, cut_off, late, refused, lost, repeated, twice, wrong, seconds, recovery_median,
recovery_max) and `all` (sums; of the recoveries, the median of all and the longest, in seconds). Exit code 1 if
anything was lost, repeated, committed twice or wrong: what it was stands on the screen, and the ledgers stay.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.crash.nursery import Nursery
from tests.crash.places import HINTED, KINDS, WORKER_KINDS, Place
from tests.crash.storm import CREW, WORKERS, Storm, rage, storm
from tests.crash.verdict import Verdict, judged, recovery
from tests.support.postgres_server import ask, dsn, fresh_schema, own_server

AWAY = 40.0  # seconds without the server
SUMMED = (
    *("kills", "kills_in_a_drive", "pauses", "restarts", "runs", "commits", "executions", "cut_off", "late"),
    *("refused", "lost", "repeated", "twice", "wrong"),
)


def main(given: Sequence[str] | None = None) -> int:
    wanted = _arguments(given)
    print(f"seed {wanted.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="stepwell-storms-"))
    nursery = Nursery(folder)
    try:
        verdicts = [_killed(kind, wanted, folder / kind, nursery) for kind in wanted.stores]
        if wanted.restarts:
            kinds = [kind for kind in ("postgres", HINTED) if kind in wanted.stores] or ["postgres"]
            verdicts += [_restarted(kind, wanted, folder / f"{kind}-restarts", nursery) for kind in kinds]
    finally:
        nursery.close()
    if wanted.json is not None:
        Path(wanted.json).write_text(json.dumps(_figures(verdicts, wanted.seed), indent=2) + "\n")
    complaints = [f"{verdict.store}: {one}" for verdict in verdicts for one in verdict.complaints()]
    if complaints:
        print("\n".join(complaints), f"the ledgers are in {folder}", sep="\n")
        return 1
    shutil.rmtree(folder)
    return 0


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--stores", nargs="+", choices=WORKER_KINDS)
    parser.add_argument("--workers", action="store_true")
    parser.add_argument("--seed", default=str(time.time_ns()))
    parser.add_argument("--json")
    wanted = parser.parse_args(given)
    wanted.stores = wanted.stores or list(WORKER_KINDS if wanted.workers else KINDS)
    return wanted


def _killed(kind: str, wanted: argparse.Namespace, folder: Path, nursery: Nursery) -> Verdict:
    with _place(kind, folder) as place, storm(place, wanted.seed, nursery, crew=_crew(wanted)) as raging:
        rage(raging, wanted.kills, pauses=wanted.kills // 10)
        return _judged(raging)


def _crew(wanted: argparse.Namespace) -> tuple[str, ...]:
    return WORKERS if wanted.workers else CREW


def _restarted(kind: str, wanted: argparse.Namespace, folder: Path, nursery: Nursery) -> Verdict:
    folder.mkdir()
    chance = random.Random(wanted.seed)
    with own_server() as server:
        place = Place(kind, str(folder), server.dsn, "storm")
        place.prepare()
        with storm(place, wanted.seed, nursery, crew=_crew(wanted)) as raging:
            for number in range(wanted.restarts):
                raging.work(chance.randint(20, 60))
                raging.restart(server, ("immediate", "fast")[number % 2])
            if wanted.workers:
                raging.work(60)
                raging.restart(server, "immediate", away=AWAY)
            raging.end()
            return _judged(raging)


@contextlib.contextmanager
def _place(kind: str, folder: Path) -> Iterator[Place]:
    folder.mkdir()
    if kind not in ("postgres", HINTED):
        yield Place(kind, str(folder))
        return
    with fresh_schema() as schema:
        place = Place(kind, str(folder), dsn(), schema)
        place.prepare()
        yield place
        ask(f"DROP SCHEMA IF EXISTS {schema}_procrastinate CASCADE")


def _judged(raging: Storm) -> Verdict:
    verdict = judged(raging)
    print(verdict, flush=True)
    return verdict


def _figures(verdicts: Sequence[Verdict], seed: str) -> dict[str, Any]:
    recoveries = [seconds for verdict in verdicts for seconds in verdict.recoveries]
    each = [verdict.figures() for verdict in verdicts]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
        "python": platform.python_version(),
        "stores": each,
        "all": {
            **{name: sum(one[name] for one in each) for name in SUMMED},
            **recovery(recoveries),
        },
    }


if __name__ == "__main__":
    sys.exit(main())
