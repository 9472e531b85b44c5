"""No stored byte says in which module a class of the library lives, so modules may be moved."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell import FileCheckpointStorage, SQLiteCheckpointStorage, Workflow
from stepwell.admin.transfer.exporter import export_to
from stepwell.engine import failures as failing
from stepwell.storage import integrity
from tests.golden import make, make_agents, make_by_name
from tests.orchestrations.test_group_chat_led import OVER, led, to
from tests.orchestrations.test_led_teams_die import answer, handing_over, managed, nested
from tests.orchestrations.test_teams import BUILDERS

MODULE = re.compile(rb"stepwell\.[a-z_]+[.:]?[\w.:]*")
SOURCE = Path(stepwell.__file__).parent
AGENTS = Path(__file__).parent / "agents" / "v1.db"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every text that is stored, also what a later commit takes away again; tracebacks apart."""
    texts: list[bytes] = []
    protect = integrity.add_checksum

    def noting(text: bytes, place: bytes) -> bytes:
        texts.append(text)
        return protect(text, place)

    monkeypatch.setattr(integrity, "add_checksum", noting)
    monkeypatch.setattr(failing, "_trace", lambda error: "left out")
    return texts


async def settle(workflow: Workflow, name: str, storage: Any) -> None:
    """Run to the end, with every request approved."""
    result = await workflow.run("a poem", run_id=name, checkpoint_storage=storage)
    while asked := result.get_request_info_events():
        responses = {event.request_id: answer(event) for event in asked}
        result = await workflow.run(run_id=name, responses=responses, checkpoint_storage=storage)


async def fill_teams(storage: Any) -> None:
    teams: dict[str, Callable[[], Workflow]] = {
        "managed": managed,
        "handing over": handing_over,
        "led": lambda: led([to("b"), to("a"), OVER]),
        "nested managed": lambda: nested(managed()),
        **{name: BUILDERS[name]().build for name in BUILDERS},
    }
    for name, build in teams.items():
        await settle(build(), name, storage)


FILLERS: tuple[Callable[[Any], Awaitable[None]], ...] = (make.fill, make_agents.fill, make_by_name.fill, fill_teams)
"""Runs of every kind: with requests, sub-workflows and failures, with agents, with named agents, and teams."""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_no_module_of_ours_is_named(kind: str, tmp_path: Path, written: list[bytes]) -> None:
    make_storage: Any = SQLiteCheckpointStorage if kind == "sqlite" else FileCheckpointStorage
    exported = 0
    for number, fill in enumerate(FILLERS):
        path = tmp_path / f"store-{number}"
        async with make_storage(path) as storage:
            await fill(storage)
        async with make_storage(path) as storage:
            for run in await storage.list_runs():
                await export_to(tmp_path / "run.stepwell", storage, run.run_id)
                written.append(gzip.decompress((tmp_path / "run.stepwell").read_bytes()))
                exported += 1
        if kind == "sqlite":
            with closing(sqlite3.connect(path)) as db:
                written += [line.encode() for line in db.iterdump()]
        else:
            written += [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    assert exported > 15
    assert b"stepwell:Message" in b"".join(written)
    assert {name for text in written for name in MODULE.findall(text)} == set()


READ = """
import asyncio, sys
import stepwell, stepwell.agents.vocabulary
from stepwell import Message, SQLiteCheckpointStorage
from tests.golden.make_agents import settle
from tests.support.golden_agents import Clerk, build_booking

async def main():
    async with SQLiteCheckpointStorage(sys.argv[1]) as storage:
        head = await storage.get_latest(run_id="waiting")
        found = {type(one).__module__ for key, said in head.state.items() if isinstance(said, list) for one in said}
        assert "stepwell.agents.vocabulary" in found, found
        workflow = build_booking(storage, Clerk())
        result = await settle(workflow, await workflow.run(run_id="waiting"))
        print(len(result.get_outputs()), "outputs")

asyncio.run(main())
"""


@pytest.mark.process
def test_a_store_is_read_by_a_release_whose_modules_have_other_names(tmp_path: Path) -> None:
    """`agents/messages.py` becomes `agents/vocabulary.py`, as in any tidying; only the table of names knows of it."""
    copied = tmp_path / "stepwell"
    shutil.copytree(SOURCE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "agents" / "messages.py").rename(copied / "agents" / "vocabulary.py")
    for file in (*copied.rglob("*.py"), *copied.rglob("*.pyi")):
        file.write_text(re.sub(r"\bagents\.messages\b", "agents.vocabulary", file.read_text()))
    shutil.copy(AGENTS, tmp_path / "runs.db")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])}
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "runs.db")], env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "6 outputs\n"), done.stderr
