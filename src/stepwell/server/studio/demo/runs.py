"""Makes the runs of the demo: waiting, completed, failed, cancelled, stalled, asleep, forked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from stepwell.admin.cancellation import cancel
from stepwell.admin.forks import fork
from stepwell.admin.requests import respond
from stepwell.errors import HandlerFailed
from stepwell.server.studio.demo import program
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker.slices import Served

_TICKETS = (
    ("refund-1041", "A-20931", "customer 4711", 129.0, "It arrived damaged.", ["photo.jpg"]),
    ("refund-1042", "A-20940", "customer 1208", 54.9, "The parcel never came.", ["tracking.pdf"]),
    ("refund-1043", "A-20952", "customer 3090", 312.5, "Wrong colour, and the lamp hums.", ["hum.mp3", "photo.jpg"]),
    ("refund-1044", "A-20960", "customer 5526", 18.0, "I changed my mind.", ["receipt.pdf"]),
)


def build_served(storage: BuiltInStorage) -> list[Served]:
    """Return the workflows that the worker of the demo drives."""
    builders = (program.build_refunds, program.build_team, program.build_articles, program.build_reminders)
    return [build(storage) for build in builders]


async def make_runs(storage: BuiltInStorage, path: Path) -> None:
    """Fill the empty store in a SQLite file. Each run gets there as a real one does; nothing is written by hand."""
    refunds, team = program.build_refunds(storage), program.build_team(storage)
    articles, reminders = program.build_articles(storage), program.build_reminders(storage)
    await asyncio.gather(*(refunds.run(program.Ticket(*fields), run_id=id) for id, *fields in _TICKETS))
    await _decide(storage, "refund-1042", {"decision": "approve", "amount": 54.9}, by="support desk")
    await refunds.run(run_id="refund-1042")
    await fork(storage, "refund-1042@5", run_id="refund-1042-rejected", by="accounting")
    await _decide(
        storage, "refund-1042-rejected", {"decision": "reject", "amount": 0, "note": "too late"}, by="accounting"
    )
    await refunds.run(run_id="refund-1042-rejected")
    await cancel(storage, "refund-1044", reason="the customer withdrew", by="support desk")
    failing = program.Ticket("A-20977", "customer 7013", 77.0, "No screws in the box.")  # without evidence
    with suppress(HandlerFailed):  # that is what it is here for
        await refunds.run(failing, run_id="refund-1045")
    await team.run("The lamp flickers. What do we need?", run_id="workshop-7")
    await articles.run("stepwells", run_id="article-12")
    await reminders.run(program.Reminder("R-3310", 240.0), run_id="reminder-3310")
    await asyncio.to_thread(_crash, path)


async def _decide(storage: BuiltInStorage, run_id: str, value: object, *, by: str) -> None:
    (request,) = await storage.pending_requests(run_id=run_id)
    await respond(storage, run_id, request.request_id, value, by=by)


def _crash(path: Path) -> None:
    """Have a process start a run of a workflow that no worker here has, and die in the middle."""
    subprocess.run([sys.executable, "-m", "stepwell.server.studio.demo.crash", str(path)], check=False)
