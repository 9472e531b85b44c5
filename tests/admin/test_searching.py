"""Runs that hold a text are found, wherever it is, and those that no longer hold it are not."""

from __future__ import annotations

from typing import Any

from stepwell import Executor, Retention, Workflow, WorkflowBuilder, WorkflowContext, executor, handler
from stepwell.admin import search
from tests.support.operating_runs import Order, asking


async def found(storage: Any, text: str, **asked: Any) -> list[tuple[str, str]]:
    return [(one.run.run_id, one.where) async for one in search(storage, text, **asked)]


class Desk(Executor):
    """Notes who came, and forgets it when the next one comes."""

    @handler
    async def note(self, name: str, ctx: WorkflowContext[str, dict[str, str]]) -> None:
        ctx.set_state("guest", {"Name": name, "rooms": [7, 12]})
        if name == "Ada Lovelace":
            await ctx.send_message("Grace Hopper")
        else:
            await ctx.yield_output({"greeting": f"welcome, {name}"})


def noting(storage: Any) -> Workflow:
    desk = Desk("desk")
    return WorkflowBuilder(name="guests", start_executor=desk, checkpoint_storage=storage).add_edge(desk, desk).build()


async def test_a_text_is_found_in_state_questions_and_outputs(everywhere: Any) -> None:
    for retention in (Retention.FullHistory, Retention.LatestOnly):
        async with everywhere(retention=retention) as storage:
            ids = [f"{name}-{retention.name}" for name in ("first", "second", "third")]
            await noting(storage).run("Ada Lovelace", run_id=ids[0], tags={"kept": retention.name})
            await noting(storage).run("Niklaus", run_id=ids[1], tags={"kept": retention.name})
            await asking(storage).run(Order(7, ["samovar"]), run_id=ids[2], tags={"kept": retention.name})
            mine = {"tags": {"kept": retention.name}}
            assert await found(storage, "hopper", **mine) == [(ids[0], "state.guest.Name")]
            assert await found(storage, "WELCOME, g", **mine) == [(ids[0], "outputs[0].greeting")]
            assert await found(storage, "name", **mine) == [(ids[1], "state.guest.Name"), (ids[0], "state.guest.Name")]
            assert await found(storage, "12", **mine, prefix="sec") == [(ids[1], "state.guest.rooms[1]")]
            assert await found(storage, "samovar", **mine) == [(ids[2], "state.order.lines[0]")]
            for text in ("lovelace", "kept", "state", "operating_runs"):  # gone, a tag, our word, the name of a class
                assert await found(storage, text, **mine) == []
            assert await found(storage, "e", **mine, workflow_name="guests", status="FAILED") == []


async def test_a_search_goes_on_after_a_run(everywhere: Any) -> None:
    @executor(id="say")
    async def say(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text)

    async with everywhere() as storage:
        workflow = WorkflowBuilder(name="say", start_executor=say, checkpoint_storage=storage).build()
        for n in range(4):
            await workflow.run("tea" if n % 2 else "coffee", run_id=f"r{n}")
        first = await anext(search(storage, "tea"))
        assert (first.run.run_id, first.where) == ("r3", "outputs[0]")
        assert await found(storage, "tea", after=first.run) == [("r1", "outputs[0]")]
