"""Workflows that the tests of sub-workflows share."""

from __future__ import annotations

from typing import Any

from stepwell import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)
from tests.support.nesting import Book


class Steps(Executor):
    """Takes so many supersteps, then yields; writes down each one it begins."""

    def __init__(self, book: Book, id: str = "steps", count: int = 3) -> None:
        super().__init__(id)
        self.book, self.count = book, count

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[int, str]) -> None:
        await self.step(0, ctx)
        ctx.set_state("text", text)

    @handler
    async def step(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        self.book.note(f"{self.id} {number}")
        if number < self.count:
            await ctx.send_message(number + 1)
        else:
            await ctx.yield_output(f"{ctx.get_state('text')} after {number}")


def stepping(book: Book, **options: Any) -> Workflow:
    steps = Steps(book, **options)
    return WorkflowBuilder(name="steps", start_executor=steps).add_edge(steps, steps).build()
