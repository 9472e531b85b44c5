"""Whatever is wrong with a record, the doctor names it and examines the rest, and ends as it says it ends."""

from __future__ import annotations

import asyncio
import atexit
import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    PostgresCheckpointStorage,
    SQLiteCheckpointStorage,
)
from stepwell.admin import Examined, Finding, examine
from stepwell.cli.app import stepwell
from stepwell.storage.ids import checkpoint_id
from tests.support.operating_runs import Order, asking, counting
from tests.support.postgres_server import ask, dsn, fresh_schema

SOUND = ("count-a", "ask-a", "count-c", "ask-c")
RECORDS = {"count": 4, "ask": 2}  # of a run of that kind
ALL = 3 * sum(RECORDS.values())


async def fill(storage: Any) -> None:
    for n in "abc":
        await counting(storage, name=f"count{n}").run(1, run_id=f"count-{n}", tags={"t": n})
        await asking(storage).run(Order(7, ["tea" * 500]), run_id=f"ask-{n}")
        letter = b'{"kind":"plain","format":1,"request_id":"refund-7","value":true}'
        await storage._store.send(f"ask-{n}", "answer/0/0/2026-01-01T00:00:00+00:00/refund-7", letter)
        await storage._store.write_log(f"ask-{n}", 1, "1.0/step/pay/0", b'{"format":1,"due":"","value":"a receipt"}')
    await storage.close()


@cache
def stores() -> Path:
    """A folder with a database and a directory of the same runs. It is copied, never used."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    asyncio.run(fill(SQLiteCheckpointStorage(folder / "runs.db")))
    asyncio.run(fill(FileCheckpointStorage(folder / "runs")))
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    shutil.copytree(stores(), tmp_path / "here")
    return tmp_path / "here"


def looked(storage: Any) -> tuple[list[Finding], Examined]:
    async def look() -> list[Any]:
        async with storage:
            return [one async for one in examine(storage)]

    *findings, seen = asyncio.run(look())
    return findings, seen


def named(findings: list[Finding], word: str) -> list[Finding]:
    return [one for one in findings if word in f"{one.run_id} {one.what}"]


def check(findings: list[Finding], seen: Examined, run: str, least: int) -> None:
    """The damage is named, it is the only one, and everything else was looked at."""
    said = [one.what for one in findings]
    assert named(findings, run), said
    assert not [one for one in findings if one.run_id in SOUND], said
    assert not [words for words in said if "cannot be read any further" in words or "cannot be reached" in words]
    assert seen.runs >= 5
    assert seen.records >= least, (seen.records, said)


# ------------------------------------------------------------------------------------------------------- files


def file_of(folder: Path, run: str) -> Path:
    (found,) = folder.glob(f"runs/runs/*/{run}~*.jsonl")
    return found


def lines_of(content: bytes, start: bytes) -> tuple[int, int, int]:
    """Where a line begins that starts so, and where its body begins and ends."""
    at = content.index(start)
    body = content.index(b"\n", at) + 1
    return at, body, content.index(b"\n", body)


def commit(number: int) -> bytes:
    """How the line of a commit starts in these files, up to its number."""
    return b'"number":%d,' % number


def replaced(content: bytes, start: int, new: bytes) -> bytes:
    return content[:start] + new + content[start + len(new) :]


Harm = Callable[[bytes, int, int, int], bytes]
HARM: dict[str, Harm] = {
    "a byte of the line": lambda content, at, body, end: replaced(content, at + 3, b"X"),
    "zeros in the line": lambda content, at, body, end: replaced(content, at, bytes(body - at - 1)),
    "no text in the line": lambda content, at, body, end: replaced(content, at, b"\xff" * (body - at - 1)),
    "another line": lambda content, at, body, end: replaced(content, at, b"{}" + b" " * (body - at - 3)),
    "another sum": lambda content, at, body, end: replaced(content, body - 11, b"00000000"),
    "no line": lambda content, at, body, end: content[:at] + content[body:],
    "a byte of the body": lambda content, at, body, end: replaced(content, body + 12, b"\xff"),
    "zeros in the body": lambda content, at, body, end: replaced(content, body, bytes(end - body)),
    "no body": lambda content, at, body, end: replaced(content, body, b" " * (end - body)),
    "another body": lambda content, at, body, end: replaced(content, body, b"{}".ljust(end - body)),
    "half a body": lambda content, at, body, end: content[: (body + end) // 2] + content[end:],
    "lines that end at once": lambda content, at, body, end: replaced(content, at, b"\n" * (end - at)),
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize(("run", "number"), [("count-b", 0), ("count-b", 2), ("ask-b", 1)])
def test_a_record_in_a_file_that_is_damaged_is_named(harm: str, run: str, number: int, here: Path) -> None:
    path = file_of(here, run)
    content = path.read_bytes()
    path.write_bytes(HARM[harm](content, *lines_of(content, commit(number))))
    findings, seen = looked(FileCheckpointStorage(here / "runs"))
    check(findings, seen, run, ALL - RECORDS[run[:-2]])
    assert named(findings, path.name), [one.what for one in findings]


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("start", [b'{"line":"signal"', b'{"line":"log"'])
def test_a_signal_or_a_log_entry_that_is_damaged_is_named(harm: str, start: bytes, here: Path) -> None:
    asyncio.run(send_more(here))
    path = file_of(here, "ask-b")
    content = path.read_bytes()
    path.write_bytes(HARM[harm](content, *lines_of(content, start)))
    findings, seen = looked(FileCheckpointStorage(here / "runs"))
    check(findings, seen, "ask-b", ALL - RECORDS["ask"])


async def send_more(here: Path) -> None:
    """So that what was written before cannot be taken for the remains of a crash."""
    async with FileCheckpointStorage(here / "runs") as storage:
        letter = b'{"kind":"plain","format":1,"request_id":"refund-7","value":true}'
        await storage._store.send("ask-b", "answer/0/0/2026-01-01T00:00:00+00:00/refund-8", letter)


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def made_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(b"\xff\xfe\n" * 100),
        lambda path: path.write_bytes(b"[" * 100_000 + b"\n"),
        lambda path: path.write_bytes(b"x" + path.read_bytes()),
        made_a_folder,
        made_a_link,
    ],
    ids=["no text", "deep", "moved by a byte", "a folder", "a link to nothing"],
)
def test_a_file_of_which_nothing_can_be_read_is_named(harm: Callable[[Path], object], here: Path) -> None:
    asyncio.run(counting(FileCheckpointStorage(here / "runs")).run(1, run_id="Not/Plain"))
    path = file_of(here, "Not_Plain")
    harm(path)
    findings, seen = looked(FileCheckpointStorage(here / "runs"))
    assert [one.run_id for one in findings] == [None] * len(findings)
    assert named(findings, path.name)
    assert seen.records == ALL


def test_a_file_that_lost_its_end_is_a_run_that_is_not_so_far(here: Path) -> None:
    """A log cannot know that more was in it. Nothing of it is wrong."""
    path = file_of(here, "count-b")
    content = path.read_bytes()
    for number in range(1, 4):
        path.write_bytes(content[: lines_of(content, commit(number))[0]])
        findings, seen = looked(FileCheckpointStorage(here / "runs"))
        assert (findings, seen.records) == ([], ALL - 4 + number)


# ------------------------------------------------------------------------------------------------------ SQLite

ODD: list[Any] = ["x", -1, 2**63 - 1, -(2**63), b"\xff", '{"format":99}', "[" * 3000]
COLUMNS = {
    "commits": ["number", "checkpoint_id", "status", "iteration", "at", "snapshot", "outputs", "body"],
    "runs": ["workflow", "status", "began", "caller", "tags"],
    "requests": ["request_id", "executor", "at", "schema"],
    "signals": ["key", "body"],
    "superstep_log": ["body"],
}
HARMLESS = {  # what is read, and may be so
    ("commits", "outputs"),  # to say that there are outputs is no lie that could hurt
    ("runs", "caller"),
    ("runs", "tags"),
}


def key_of(run: str) -> str:
    return f"SELECT run FROM runs WHERE run_id = '{run}'"


@pytest.mark.parametrize(("table", "column"), [(table, column) for table in COLUMNS for column in COLUMNS[table]])
def test_a_column_with_something_odd_in_it_is_named(table: str, column: str, tmp_path: Path) -> None:
    run = "count-b" if table == "commits" else "ask-b"
    where = f"run_id = '{run}'" if table in ("runs", "requests") else f"run = ({key_of(run)})"
    where += " AND number = 2" if table == "commits" else ""
    tried = 0
    for n, value in enumerate(ODD):
        path = tmp_path / f"{n}.db"
        shutil.copy(stores() / "runs.db", path)
        db = sqlite3.connect(path)
        cast = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
        try:
            changes = db.execute(f"UPDATE {table} SET {column} = {cast} WHERE {where}", (value,)).rowcount
            db.commit()
        except sqlite3.Error:  # it is not a value for that column
            continue
        finally:
            db.close()
        assert changes == 1
        findings, seen = looked(SQLiteCheckpointStorage(path))
        tried += 1
        if (table, column) in HARMLESS and not findings:
            continue
        check(findings, seen, run, ALL - RECORDS[run[:-2]])
    assert tried >= 2


@pytest.mark.parametrize("run", ["count-b", "ask-b"])
def test_a_run_that_is_missing_from_the_list_is_named(run: str, here: Path) -> None:
    db = sqlite3.connect(here / "runs.db")
    db.execute("DELETE FROM runs WHERE run_id = ?", (run,))
    db.commit()
    db.close()
    findings, seen = looked(SQLiteCheckpointStorage(here / "runs.db"))
    # Its id is lost: it was in that row alone.
    check(findings, seen, f"the first is checkpoint {checkpoint_id(run, 0, 0)}", ALL - RECORDS[run[:-2]])


# ----------------------------------------------------------------------------------- other stores, and by chance


@pytest.mark.process
def test_records_in_memory_and_in_postgresql_are_named() -> None:
    bodies = ["", "x", "[]", '{"format":99}', "[" * 3000, '{"sum":"00"}']

    async def look() -> None:
        with fresh_schema() as schema:
            memory, postgres = InMemoryCheckpointStorage(), PostgresCheckpointStorage(dsn(), schema=schema)
            for storage in (memory, postgres):
                for run in "abcdefg":
                    await counting(storage).run(1, run_id=run)
            store = memory._store.inner  # type: ignore[attr-defined]
            for run, body in zip("bcdefg", bodies, strict=True):
                (record,) = await store.history(run, after=1, upto=2)
                await store.rewrite(run, replace=[type(record)(record.entry, body.encode())])
                where = f"number = 2 AND run = (SELECT key FROM \"{schema}\".runs WHERE run_id = '{run}')"
                ask(f"UPDATE \"{schema}\".commits SET body = '{body}' WHERE {where} RETURNING 1")
            for storage in (memory, postgres):
                *findings, seen = [one async for one in examine(storage)]
                assert {one.run_id for one in findings if isinstance(one, Finding) and one.number == 2} == set("bcdefg")
                assert isinstance(seen, Examined)
                assert (seen.runs, seen.records >= 7 * 3) == (7, True)
            await postgres.close()

    asyncio.run(look())


def spoilt(chance: random.Random, path: Path) -> None:
    """The file is cut, or some of its bytes are others."""
    content = bytearray(path.read_bytes())
    if chance.random() < 0.3:
        path.write_bytes(content[: chance.randrange(len(content))])
        return
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(content))
        content[at : at + chance.randrange(1, 5)] = chance.randbytes(chance.randrange(0, 5))
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(24))
def test_any_bytes_anywhere_end_the_command_as_documented(seed: int, here: Path) -> None:
    chance = random.Random(seed)
    files = sorted(path for path in here.glob("runs/runs/*/*-b~*") if path.is_file())
    spoilt(chance, chance.choice(files))
    if seed % 2:
        spoilt(chance, here / "runs.db")  # any page of it
    for store in (str(here / "runs"), f"sqlite:///{here / 'runs.db'}"):
        done = CliRunner().invoke(stepwell, ["doctor", "--json", "--store", store], env={"STEPWELL_HOME": None})
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        assert done.exit_code in (0, 1, 2, 3, 5), done.output
        assert "not foreseen" not in done.stderr
        if store == str(here / "runs"):
            found = json.loads(done.stdout)
            assert found["looked_at"]["runs"] >= 5, done.stdout
            assert not [one for one in found["findings"] if one["run_id"] in SOUND]
