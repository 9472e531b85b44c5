"""Marks that handlers leave in everything a run stores, and a search for them in all that a back end keeps."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell import Executor, LatestOnly, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.postgres.tables import TABLES
from stepwell.stores.sqlite.store import SQLiteStore
from tests.support.postgres_server import ask, dsn, fresh_schema

BACK_ENDS = ("memory", "sqlite", "file", "postgres")
LAST = 61
MARK = re.compile(rb"mark-[a-z]+-\d+")


def marks_in(data: bytes) -> set[str]:
    return {found.decode() for found in MARK.findall(data)}


@dataclass
class BackEnd:
    """A back end, and everything that can be read in it."""

    store: Any
    dump: Callable[[], bytes]

    def open(self, **options: Any) -> BuiltInStorage:
        return BuiltInStorage(self.store, **{"retention": LatestOnly, **options})

    def marks(self) -> set[str]:
        return marks_in(self.dump())


@contextmanager
def back_end(kind: str, path: Path) -> Iterator[BackEnd]:
    if kind == "memory":
        store = MemoryStore()
        yield BackEnd(store, lambda: _said(store).encode())
    elif kind == "sqlite":
        yield BackEnd(SQLiteStore(path / "runs.db"), lambda: _rows(path / "runs.db"))
    elif kind == "file":
        yield BackEnd(FileStore(path / "runs"), lambda: _files(path / "runs"))
    else:
        with fresh_schema() as schema:
            yield BackEnd(PostgresStore(dsn(), schema=schema), lambda: _tables(schema))


def _said(store: MemoryStore) -> str:
    return repr([(run.state, run.records) for run in store._runs.values()])


def _rows(path: Path) -> bytes:
    db = sqlite3.connect(path)
    try:
        return "\n".join(db.iterdump()).encode()
    finally:
        db.close()


def _files(folder: Path) -> bytes:
    return b"\n".join(path.name.encode() + b": " + path.read_bytes() for path in folder.rglob("*") if path.is_file())


def _tables(schema: str) -> bytes:
    rows = [row for table in TABLES for row in ask(f'SELECT t::text FROM "{schema}".{table} AS t')]
    return "\n".join(str(row[0]) for row in rows).encode()


@dataclass
class Question:
    text: str


class Walk(Executor):
    """Goes 61 steps, and leaves the mark of each in a message, in the state, in its own state and in a step.

    Every 20th step yields an output. What it does at the last one is a private value, `then`.
    """

    kept = ""

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"kept": self.kept}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.kept = state["kept"]

    @handler
    async def step(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        number = int(text.rpartition("-")[2])
        await ctx.step("look", lambda: f"mark-step-{number}")
        ctx.set_state("now", f"mark-state-{number}")
        self.kept = f"mark-own-{number}"
        if number % 20 == 0:
            await ctx.yield_output(f"mark-output-{number}")
        if number < LAST:
            await ctx.send_message(f"mark-message-{number + 1}")
        else:
            await self.end(ctx)

    async def end(self, ctx: WorkflowContext[str, str]) -> None:
        match ctx.private["then"]:
            case "ask":
                await ctx.request_info(Question(f"mark-question-{LAST}"), str)
            case "fail":
                raise ValueError("on purpose")
            case "park":
                await ctx.sleep(7200)

    @response_handler
    async def answered(self, question: Question, answer: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("now", "mark-state-99")
        self.kept = "mark-own-99"


def walking(**options: Any) -> Workflow:
    given: dict[str, Any] = {"name": "walking", "max_iterations": 1000, **options}
    walk = Walk("walk")
    return WorkflowBuilder(start_executor=walk, **given).add_edge(walk, walk).build()


class Interview(Executor):
    """Asks three questions, one after the other; each answer yields an output and changes the state."""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await self.ask(1, ctx)

    @response_handler
    async def answered(self, question: Question, answer: str, ctx: WorkflowContext[str, str]) -> None:
        number = int(question.text.rpartition("-")[2])
        await ctx.step("look", lambda: f"mark-step-{number}")
        await ctx.yield_output(f"mark-output-{number}")
        if number < 3:
            await self.ask(number + 1, ctx)
        else:
            ctx.set_state("now", "mark-state-4")

    async def ask(self, number: int, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("now", f"mark-state-{number}")
        await ctx.request_info(Question(f"mark-question-{number}"), str)


def interview() -> Workflow:
    return WorkflowBuilder(name="interview", start_executor=Interview("interview")).build()


def interviewed(answers: int) -> set[str]:
    """The marks of an interview after so many answers."""
    outputs = {f"mark-output-{number}" for number in range(1, answers + 1)}
    asked = {f"mark-question-{answers + 1}"} if answers < 3 else set[str]()
    return {*outputs, *asked, f"mark-state-{answers + 1}"}


OUTPUTS = {f"mark-output-{number}" for number in (20, 40, 60)}


def latest(number: int) -> set[str]:
    """The marks in the newest checkpoint once that step is committed."""
    return {f"mark-state-{number}", f"mark-own-{number}"}
