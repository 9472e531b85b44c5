"""Who takes a message was decided when it was sent: whoever resumes does not ask again."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import HandlerFailed, WorkflowBuilder, WorkflowContext, executor


async def test_a_condition_that_would_say_something_else_by_now_is_not_asked_again(storage: Any) -> None:
    mood, asked, broken = ["left"], list[str](), [True]

    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    def end(name: str) -> Any:
        @executor(id=name)
        async def take(text: str, ctx: WorkflowContext[None, str]) -> None:
            if broken:
                raise ValueError(broken.pop())
            await ctx.yield_output(f"{name} took {text}")

        return take

    def is_for(name: str) -> Any:
        def condition(text: str) -> bool:
            asked.append(name)
            return mood[0] == name

        return condition

    builder = WorkflowBuilder(name="moody", start_executor=start, checkpoint_storage=storage)
    for name in ("left", "right"):
        builder = builder.add_edge(start, end(name), condition=is_for(name))
    workflow = builder.build()
    with pytest.raises(HandlerFailed):
        await workflow.run("it", run_id="r")
    mood[0] = "right"
    assert (await workflow.run(run_id="r")).get_outputs() == ["left took it"]
    assert asked == ["left", "right"]
