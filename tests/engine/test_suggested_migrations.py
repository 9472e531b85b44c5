"""What is missing may have another name now: the error says which, with a migration that works when it is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import (
    Executor,
    GraphChanged,
    InMemoryCheckpointStorage,
    Migration,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    persistent,
    response_handler,
)
from stepwell.admin import check
from stepwell.agents import ScriptedAgent
from stepwell.declarative import AgentWorkflow


class Till(Executor):
    seen = persistent(0)

    @handler
    async def take(self, order: str, ctx: WorkflowContext[str]) -> None:
        self.seen += 1
        await ctx.request_info(order, bool, request_id="ok")

    @response_handler
    async def decide(self, order: str, yes: bool, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(f"{order} {self.seen}")


class Counting(Executor):
    """A till that counts under another name."""

    total = persistent(0)

    @handler
    async def take(self, order: str, ctx: WorkflowContext[str]) -> None: ...

    @response_handler
    async def decide(self, order: str, yes: bool, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(f"{order} {self.total}")


class Plain(Executor):
    """Asks nobody, so it cannot take an answer."""

    @handler
    async def take(self, text: str, ctx: WorkflowContext[str]) -> None: ...


class Ship(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"shipped {text}")


def shop(*, till: Executor, ship: Executor, beside: Executor | None = None, **options: Any) -> Workflow[Any]:
    builder = WorkflowBuilder(name="shop", start_executor=till, **options).add_edge(till, ship)
    return (builder.add_edge(till, beside, lambda text: False) if beside is not None else builder).build()


async def waiting(storage: Any) -> None:
    await shop(till=Till("till"), ship=Ship("ship")).run("cup", run_id="r", checkpoint_storage=storage)


def migration(suggestion: str) -> Migration:
    """Copy the line from a suggestion, as a person would."""
    line = suggestion.partition(": ")[2]
    copied: Migration = eval(line, {"Migration": Migration})
    return copied


RENAMED: list[tuple[Callable[..., Workflow[Any]], str]] = [
    (
        lambda **options: shop(till=Till("cashier"), ship=Ship("ship"), **options),
        "executor 'till' may have become 'cashier': Migration(2).rename_executor('till', 'cashier')",
    ),
    (  # the new executor beside it takes no answers
        lambda **options: shop(till=Till("tills"), ship=Ship("ship"), beside=Plain("tilt"), **options),
        "executor 'till' may have become 'tills': Migration(2).rename_executor('till', 'tills')",
    ),
    (
        lambda **options: shop(till=Counting("till"), ship=Ship("ship"), **options),
        "'seen' of executor 'till' may have become 'total': Migration(2).change_executor_state('till', "
        "lambda state: {'total' if name == 'seen' else name: value for name, value in state.items()})",
    ),
]


@pytest.mark.parametrize(("build", "suggestion"), RENAMED)
async def test_a_rename_is_suggested_and_the_line_works(build: Callable[..., Workflow[Any]], suggestion: str) -> None:
    storage = InMemoryCheckpointStorage()
    await waiting(storage)
    with pytest.raises(GraphChanged) as caught:
        await build().run(run_id="r", responses={"ok": True}, checkpoint_storage=storage)
    assert caught.value.suggestions == (suggestion,)
    assert suggestion[1:] in str(caught.value)
    (run,) = (await check(storage, build())).runs
    assert (run.verdict, run.suggestions) == ("incompatible", (suggestion,))
    result = await build(migrations=[migration(suggestion)]).run(
        run_id="r", responses={"ok": True}, checkpoint_storage=storage
    )
    assert result.get_outputs() == ["shipped cup 1"]


async def test_a_newer_version_is_suggested_the_next_one() -> None:
    storage = InMemoryCheckpointStorage()
    await shop(till=Till("till"), ship=Ship("ship"), version=4).run("cup", run_id="r", checkpoint_storage=storage)
    with pytest.raises(GraphChanged, match=r"Migration\(5\)\.rename_executor\('till', 'cashier'\)"):
        await shop(till=Till("cashier"), ship=Ship("ship"), version=4).run(
            run_id="r", responses={"ok": True}, checkpoint_storage=storage
        )


async def test_nothing_is_suggested_that_could_not_do_the_work() -> None:
    storage = InMemoryCheckpointStorage()
    await waiting(storage)
    with pytest.raises(GraphChanged) as caught:  # neither takes the answer to the request
        await shop(till=Plain("tilla"), ship=Ship("ship"), beside=Plain("till2")).run(
            run_id="r", responses={"ok": True}, checkpoint_storage=storage
        )
    assert caught.value.suggestions == ()
    assert caught.value.differences


class Join(Executor):
    @handler
    async def take(self, texts: list[str], ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(" ".join(texts))


class Ask(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.request_info(text, bool, request_id=self.id)

    @response_handler
    async def go(self, text: str, yes: bool, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(self.id)


def joining(*sources: str, **options: Any) -> Workflow[Any]:
    ships, first = [Ask(source) for source in sources], Forward("first")
    builder = WorkflowBuilder(name="joining", start_executor=first, **options).add_fan_out_edges(first, ships)
    return builder.add_fan_in_edges(ships, Join("join")).build()


class Forward(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


async def test_a_fan_in_with_other_sources_is_suggested() -> None:
    storage = InMemoryCheckpointStorage()
    await joining("a", "b").run("x", run_id="r", checkpoint_storage=storage)
    await joining("a", "b").run(run_id="r", responses={"a": True}, checkpoint_storage=storage)
    later = joining("a", "b", "c")
    (run,) = (await check(storage, later)).runs
    assert run.suggestions == (
        "the fan-in 'all of a, b -> join' may have become 'all of a, b, c -> join': "
        "Migration(2).change_fan_in(['a', 'b'], 'join', to_sources=['a', 'b', 'c'])",
    )
    line = run.suggestions[0].rpartition(": ")[2]
    copied: Migration = eval(line, {"Migration": Migration})
    (run,) = (await check(storage, joining("a", "b", "c", migrations=[copied]))).runs
    assert run.verdict == "migrates"


async def test_nothing_is_suggested_where_a_migration_would_not_do() -> None:
    """Named agents have no migrations: their runs are resumed with the definition that they started with."""

    def team(checker: str) -> Workflow[Any]:
        builder = AgentWorkflow.create().with_name("team").add_agent("write", ScriptedAgent("write", ["a text"]))
        builder.add_agent(checker, ScriptedAgent(checker, ["fine"]), approval=True).from_("write").to(checker)
        built = builder.build()
        starts.append(built.make_start_message("go", "s"))
        return built.workflow

    storage, starts = InMemoryCheckpointStorage(), list[Any]()
    workflow = team("check")
    await workflow.run(starts[0], run_id="r", checkpoint_storage=storage)
    (run,) = (await check(storage, team("checker"))).runs
    assert (run.verdict, run.suggestions) == ("incompatible", ())
    assert "edge '0:write>check' is gone" in run.why
    assert "edge '0:write>checker' is new" in run.why
