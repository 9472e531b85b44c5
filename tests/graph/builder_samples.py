"""Executors that the tests of the builder share."""

from collections.abc import Sequence
from typing import Any, Never

import pytest

from stepwell import (
    DefinitionError,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
)


class Step(Executor):
    """Adds its id to what it gets, yields it, and sends it on."""

    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{message}{self.id}")
        await ctx.send_message(f"{message}{self.id}")


class Join(Executor):
    @handler
    async def take(self, messages: list[str], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"[{' '.join(messages)}]{self.id}")


class End(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{message}{self.id}")


def is_long(message: str) -> bool:
    return len(message) > 3


def problems_of(builder: WorkflowBuilder) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        builder.build()
    return list(caught.value.problems)


def told(workflow: Workflow) -> Sequence[str]:
    return [edge.describe() for edge in workflow.edges]


def send_to(target: str | None, value: object = ">") -> Executor:
    @executor(id="s", input=Any)
    async def send(message, ctx) -> None:  # type: ignore[no-untyped-def]
        await ctx.send_message(value, target_id=target)

    return send


Unroutable = tuple[WorkflowBuilder, str]


def unroutable(**options: Any) -> dict[str, Unroutable]:
    def start(target: str | None = None, value: object = ">") -> WorkflowBuilder:
        return WorkflowBuilder(start_executor=send_to(target, value), **options)

    return {
        "no edge leaves": (start(), "'s' sent a str, but no edge leaves 's'"),
        "no edge to that target": (
            start("z").add_edge("s", Step("a")).add_edge("a", End("z")),
            "'s' sent a str to 'z', but its edges lead only to 'a'",
        ),
        "no handler": (
            start(value=1.5).add_edge("s", End("z")),
            "'s' sent a float, but no handler accepts it: 'z' accepts str",
        ),
    }
