"""Code of others may hold up the event loop, above all when it runs for the first time: an agent library that builds
its client, and imports what that needs. What siblings have finished by then is durable meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from stepwell import (
    AgentExecutor,
    Executor,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
)
from stepwell.agents import Answer, Message, ModelReply, ToolCall, Turn

PATIENCE = 5.0  # seconds; the loop stands still meanwhile


@executor(id="begin")
async def begin(words: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(words)


class Sibling(Executor):
    """Finishes when it may: at once, or in the midst of the turn beside it."""

    def __init__(self, may_finish: asyncio.Event) -> None:
        super().__init__("sibling")
        self._may_finish = may_finish

    @handler
    async def finish(self, words: str, ctx: WorkflowContext[None, str]) -> None:
        await self._may_finish.wait()
        await ctx.yield_output("sibling")


class Blocking:
    """Lets its sibling finish before a certain moment, and holds up the loop at that moment until it sees what the
    sibling did in the database."""

    name = "agent"

    def __init__(self, moment: str, database: Path) -> None:
        self._moment, self._database = moment, database
        self.sibling_may_finish = asyncio.Event()
        if moment == "turn":
            self.sibling_may_finish.set()
        self.saw: bool | None = None

    async def take_turn(self, turn: Turn) -> Answer:
        self._hold_up("turn")

        async def model() -> ModelReply:
            self._hold_up("model")
            return ModelReply("hello", calls=(ToolCall("1", "tool", {}),))

        async def tool(arguments: object) -> str:
            self._hold_up("tool")
            return "done"

        await self._before("model")
        reply = await turn.model(model)
        await self._before("tool")
        await turn.tool(reply.calls[0], tool)
        return Answer([Message("assistant", "hello")])

    async def _before(self, moment: str) -> None:
        if moment == self._moment:
            self.sibling_may_finish.set()
            await asyncio.sleep(0)  # it has finished, and its outcome is yet to be handed to the store

    def _hold_up(self, moment: str) -> None:
        if moment == self._moment:
            self.saw = is_remembered(self._database)


def is_remembered(database: Path) -> bool:
    """Whether an outcome is in the superstep log; whoever writes it there may need a while."""
    until = time.monotonic() + PATIENCE
    with closing(sqlite3.connect(database)) as db:
        while not (found := db.execute("SELECT 1 FROM superstep_log WHERE key NOT LIKE '%/%'").fetchall()):
            if time.monotonic() > until:
                break
            time.sleep(0.005)
    return bool(found)


def team(agent: Blocking, database: Path) -> Workflow:
    storage = SQLiteCheckpointStorage(database)
    builder = WorkflowBuilder(start_executor=begin, checkpoint_storage=storage)
    return builder.add_fan_out_edges(begin, [Sibling(agent.sibling_may_finish), AgentExecutor(agent)]).build()


@pytest.mark.parametrize("moment", ["turn", "model", "tool"])
async def test_what_a_sibling_finished_is_durable_while_an_agent_holds_up_the_loop(moment: str, tmp_path: Path) -> None:
    agent = Blocking(moment, tmp_path / "runs.db")
    await team(agent, tmp_path / "runs.db").run("hello")
    assert agent.saw is True
