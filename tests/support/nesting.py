"""What the tests of sub-workflows share: small workflows to put into each other, and every way to keep them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from stepwell import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    handler,
    response_handler,
)

WAITING = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
IDLE = WorkflowRunState.IDLE


class SixMethods:
    """A storage of a user's own: the six methods, and JSON text in a list."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self.kept[checkpoint.checkpoint_id] = json.dumps(checkpoint.to_dict())
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        return WorkflowCheckpoint.from_dict(json.loads(self.kept[checkpoint_id]))

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        found = [WorkflowCheckpoint.from_dict(json.loads(text)) for text in self.kept.values()]
        return [one for one in found if one.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        return self.kept.pop(checkpoint_id, None) is not None

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        return next(reversed(await self.list_checkpoints(workflow_name=workflow_name)), None)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [one.checkpoint_id for one in await self.list_checkpoints(workflow_name=workflow_name)]


class Book:
    """Where handlers write down what they do. No plain data: all clones of an executor share one."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)

    def times(self) -> dict[str, int]:
        return dict(Counter(self.lines))


class Flag:
    """True until it is put down; shared like a book."""

    def __init__(self) -> None:
        self._up = True

    def __bool__(self) -> bool:
        return self._up

    def put_down(self) -> None:
        self._up = False


@dataclass
class Ask:
    text: str


@dataclass
class Ok:
    yes: bool
    by: str = ""


class Asker(Executor):
    """Yields what it saw, and asks about it; a no leads to another question."""

    def __init__(self, book: Book | None = None, id: str = "asker", **options: Any) -> None:
        super().__init__(id)
        self.book, self.options = book or Book(), options

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.book.note(f"ask {text}")
        await ctx.yield_output(f"saw {text}")
        await ctx.request_info(Ask(text), Ok, **self.options)

    @response_handler
    async def said(self, question: Ask, answer: Ok, ctx: WorkflowContext[str, str]) -> None:
        self.book.note(f"said {question.text} {answer.yes}")
        await ctx.yield_output(f"{question.text}: {answer.yes}")
        if not answer.yes:
            await ctx.request_info(Ask(f"{question.text} again"), Ok)


class Start(Executor):
    """Sends each word of a text on its own."""

    @handler
    async def words(self, text: str, ctx: WorkflowContext[str]) -> None:
        for word in text.split():
            await ctx.send_message(word)


class End(Executor):
    """Yields what it gets, whatever it is."""

    @handler
    async def end(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text)


def alone(executor: Executor, name: str = "inner", **options: Any) -> Workflow:
    return WorkflowBuilder(name=name, start_executor=executor, **options).build()


def around(inner: Workflow, storage: Any = None, name: str = "outer", **options: Any) -> Workflow:
    """start → sub → end."""
    sub = WorkflowExecutor(inner, "sub", **options)
    return (
        WorkflowBuilder(name=name, start_executor=Start("start"), checkpoint_storage=storage)
        .add_edge("start", sub)
        .add_edge(sub, End("end"))
        .build()
    )


def deep(inner: Workflow, floors: int, storage: Any = None) -> Workflow:
    """The workflow so many floors down, each floor sending on what the one below yields."""
    for floor in range(floors - 1):
        inner = around(inner, name=f"floor-{floor}")
    return around(inner, storage)


def asks(result: Any) -> list[Any]:
    """The new questions of a result."""
    return [event for event in result.get_request_info_events() if not event.replayed]


def ids(result: Any) -> list[str]:
    return [event.request_id for event in result.get_request_info_events()]
