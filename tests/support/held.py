"""Workflows whose every step a test can watch and hold up, for those who hold runs by a handle."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from stepwell import (
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowEvent,
    executor,
    handler,
    response_handler,
)
from stepwell.testing import Crash

PLACES = ("memory", "sqlite", "file", "six methods", "nowhere")


class SixMethods:
    """A storage of a user's own: the six methods and a dict."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self.kept[checkpoint.checkpoint_id] = checkpoint.to_dict()
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        return WorkflowCheckpoint.from_dict(self.kept[checkpoint_id])

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        found = [WorkflowCheckpoint.from_dict(one) for one in self.kept.values()]
        return [one for one in found if one.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        return self.kept.pop(checkpoint_id, None) is not None

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        found = await self.list_checkpoints(workflow_name=workflow_name)
        return found[-1] if found else None

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [one.checkpoint_id for one in await self.list_checkpoints(workflow_name=workflow_name)]


def storage_at(place: str, path: Path) -> Any:
    """A storage; two on the same path of a disk are what two programs have."""
    kinds: dict[str, Any] = {
        "memory": InMemoryCheckpointStorage,
        "sqlite": lambda: SQLiteCheckpointStorage(path / "runs.db"),
        "file": lambda: FileCheckpointStorage(path / "runs"),
        "six methods": SixMethods,
        "nowhere": lambda: None,
    }
    return kinds[place]()


class Gate:
    """Where a handler waits until a test lets it pass."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def passed(self) -> None:
        self.reached.set()
        await self.open.wait()


class Script:
    """What the handlers of a workflow did, and where they are held up or fail."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.keys: list[str] = []
        self.cleaned: list[Any] = []
        self.broken: set[Any] = set()
        self._gates: defaultdict[Any, Gate] = defaultdict(Gate)
        self._held: set[Any] = set()
        self._store: Any = None

    def hold(self, at: Any) -> Gate:
        """From now on whoever comes there waits."""
        self._held.add(at)
        return self._gates[at]

    def let_go(self) -> None:
        """Nobody waits any more."""
        self._held.clear()
        for gate in self._gates.values():
            gate.open.set()

    def forget(self) -> None:
        """Nobody waits any more; those who do are left to themselves."""
        self._held.clear()
        self._gates.clear()

    def dies_with(self, store: Any) -> None:
        """The handlers are those of a program whose store may say that it is dead."""
        self._store = store

    async def act(self, at: Any, ctx: WorkflowContext[Any, Any]) -> None:
        if getattr(self._store, "is_dead", False):
            raise Crash
        self.ran.append(at)
        self.keys.append(ctx.idempotency_key)
        if at in self.broken:
            raise ValueError(f"broken at {at}")
        if at in self._held:
            try:
                await self._gates[at].passed()
            finally:
                self.cleaned.append(at)


def counting(storage: Any, script: Script, last: int = 4, **options: Any) -> Workflow:
    """Each number up to the last is an output, and a superstep of its own."""

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
        await script.act(number, ctx)
        ctx.append_state("log", number)
        await ctx.yield_output(number)
        if number < last:
            await ctx.send_message(number + 1)

    builder = WorkflowBuilder(name="counting", start_executor=count, checkpoint_storage=storage, **options)
    return builder.add_edge(count, count).build()


class Asker(Executor):
    """Asks whether, for each word of a text; says `done` after the answers `yes`, asks again after `no`."""

    def __init__(self, script: Script, **options: Any) -> None:
        super().__init__("asker")
        self.script, self.options = script, options

    def clone(self) -> Asker:
        return Asker(self.script, **self.options)

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[int, str]) -> None:
        await self.script.act(text, ctx)
        for word in text.split():
            await ctx.request_info(word, bool, request_id=word, **self.options)
        if text.startswith("and"):
            await ctx.send_message(len(text))

    @response_handler
    async def answered(self, original_request: str, response: bool, ctx: WorkflowContext[int, str]) -> None:
        await self.script.act(f"{original_request} {response}", ctx)
        if response:
            await ctx.yield_output(f"done {original_request}")
        else:
            await ctx.request_info(f"{original_request}?", bool, request_id=f"{original_request}?")


def asking(storage: Any, script: Script, **options: Any) -> Workflow:
    """A text that begins with `and` also gives somebody else something to do."""
    asker = Asker(script, **options)

    @executor(id="work")
    async def work(number: int, ctx: WorkflowContext[None, str]) -> None:
        await script.act(number, ctx)
        await ctx.yield_output(f"worked {number}")

    return (
        WorkflowBuilder(name="asking", start_executor=asker, checkpoint_storage=storage).add_edge(asker, work).build()
    )


def sleeping(storage: Any, script: Script, duration: timedelta) -> Workflow:
    @executor(id="sleep")
    async def sleep(text: str, ctx: WorkflowContext[None, str]) -> None:
        await script.act("to bed", ctx)
        await ctx.sleep(duration)
        await script.act("up", ctx)
        await ctx.yield_output(text)

    return WorkflowBuilder(name="sleeping", start_executor=sleep, checkpoint_storage=storage).build()


def durable(events: list[WorkflowEvent]) -> list[tuple[Any, ...]]:
    """The durable events, as something that can be compared."""
    own = [event for event in events if event.durable and not event.path]
    return [(event.commit, event.type, event.executor_id, event.data) for event in own]


async def until(fact: Callable[[], bool]) -> None:
    """Wait for something that nobody tells."""
    while not fact():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


@asynccontextmanager
async def in_background(work: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """A task that is ended with the block, if it has not ended by itself."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
