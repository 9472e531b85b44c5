"""How a run stands: every command has the same words, on every kind of store."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from datetime import datetime
from typing import Any

from stepwell.admin import report_run
from stepwell.model.status_words import STANDINGS
from stepwell.storage.lease import this_process
from tests.support.command_line import Place, Say
from tests.support.operating_runs import Order, asking, counting

DEAD = replace(this_process("drive"), started="never")


async def fill(storage: Any) -> None:
    """A run of each kind that is not over: one was left, one's process died, one is driven, two wait."""
    for run_id in ("left", "died", "driven"):
        async with counting(storage).run(1, run_id=run_id, stream=True) as stream:
            async for event in stream:
                if event.type == "superstep_completed":
                    break
    await counting(storage).run(1, run_id="sent")
    await counting(storage).attach("sent").send(1)
    await storage._store.acquire("died", DEAD, seconds=600)
    await storage._store.acquire("driven", this_process("drive"), seconds=600)
    for run_id in ("asks", "answered"):
        await asking(storage).run(Order(7, ["tea"]), run_id=run_id)
    await storage._store.send("answered", "input/0/x", b'{"format":1,"kind":"input","value":1}')
    await storage.close()


def listed(say: Say, place: Place, *arguments: str) -> dict[str, Any]:
    told = say("--store", place.address, "list", "--json", *arguments)
    assert told.exit_code == 0, told.stderr
    return {run["run_id"]: run for run in json.loads(told.stdout)["runs"]}


def test_list_show_doctor_and_reports_say_how_a_run_stands(place: Place, say: Say) -> None:
    asyncio.run(fill(place.storage))
    runs = listed(say, place)
    standings = {run_id: run["status"] for run_id, run in runs.items()}
    assert standings == {
        "left": "stalled",
        "sent": "queued",
        "died": "stalled",
        "driven": "running",
        "asks": "waiting",
        "answered": "queued",
    }
    for word in STANDINGS:
        expected = {run_id for run_id, standing in standings.items() if standing == word}
        assert set(listed(say, place, "--status", word.upper())) == expected
        assert len(listed(say, place, "--status", word, "--limit", "1")) == min(len(expected), 1)
    assert {run_id for run_id, run in runs.items() if run["owner"]} == {"left", "died", "driven"}
    assert runs["died"]["owner"] == str(DEAD)
    assert datetime.fromisoformat(runs["died"]["since"]) <= datetime.fromisoformat(runs["driven"]["until"])
    for run_id, standing in standings.items():
        shown = json.loads(say("--store", place.address, "show", run_id, "--json").stdout)
        assert (shown["status"], shown["owner"], shown["since"]) == (
            standing,
            runs[run_id]["owner"],
            runs[run_id]["since"],
        )
        assert f"status        {standing}" in say("--store", place.address, "show", run_id).stdout
    assert f"left by       {DEAD}" in say("--store", place.address, "show", "died").stdout
    assert f"left by       process {os.getpid()} on " in say("--store", place.address, "show", "left").stdout
    assert "driven by     process" in say("--store", place.address, "show", "driven").stdout
    # An older checkpoint shows how the run was then.
    assert json.loads(say("--store", place.address, "show", "died@0", "--json").stdout)["status"] == "running"
    doctor = say("--store", place.address, "doctor", "--json")
    counts = json.loads(doctor.stdout)["looked_at"]["statuses"]
    assert counts == {"queued": 2, "stalled": 2, "running": 1, "waiting": 1}

    async def page() -> str:
        async with place.storage as storage:
            return await report_run(storage, "died")

    assert "Stalled since" in asyncio.run(page())


def test_prune_knows_the_same_words(place: Place, say: Say) -> None:
    asyncio.run(fill(place.storage))
    prune = ["--store", place.address, "prune", "--keep-last", "0", "--yes", "--json"]
    kept = {word: json.loads(say(*prune, "--dry-run", "--status", word).stdout)["checkpoints"] for word in STANDINGS}
    assert {word: sorted(runs) for word, runs in kept.items() if runs} == {
        "running": ["driven"],
        "queued": ["sent"],
        "stalled": ["died", "left"],
    }
    assert json.loads(say(*prune, "--dry-run", "--status", "Stalled", "sent").stdout)["checkpoints"] == {}
    pruned = json.loads(say(*prune, "--status", "stalled", "--status", "queued", "left").stdout)
    assert sorted(pruned["checkpoints"]) == ["left"]
