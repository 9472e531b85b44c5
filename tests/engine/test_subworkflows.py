"""A workflow as an executor of another: what comes out of it, what is seen of it, and how it goes on after a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    DefinitionError,
    Executor,
    InMemoryCheckpointStorage,
    PrivateMissing,
    RoutingFailed,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    executor,
    handler,
    persistent,
)
from tests.engine.subworkflow_samples import Steps, stepping
from tests.support.nesting import IDLE, WAITING, Asker, Book, End, SixMethods, Start, alone, around, deep


@pytest.fixture(params=["memory", "sqlite", "file", "six methods", "nowhere"])
def kept(request: pytest.FixtureRequest) -> Any:
    """Every way to keep a run."""
    if request.param == "nowhere":
        return None
    return SixMethods() if request.param == "six methods" else _built_in(request)


def _built_in(request: pytest.FixtureRequest) -> Any:
    from stepwell import FileCheckpointStorage, SQLiteCheckpointStorage

    path = request.getfixturevalue("tmp_path")
    made: dict[str, Callable[[], Any]] = {
        "memory": InMemoryCheckpointStorage,
        "sqlite": lambda: SQLiteCheckpointStorage(path / "runs.db"),
        "file": lambda: FileCheckpointStorage(path),
    }
    return made[request.param]()


# ---------------------------------------------------------------------------------------- what comes out


async def test_what_it_yields_is_sent_on(kept: Any) -> None:
    result = await around(stepping(Book()), kept).run("a b", run_id="r")
    assert result.get_outputs() == ["a after 3", "b after 3"]
    assert result.get_final_state() is IDLE
    assert result.run_id == "r"


async def test_with_direct_output_what_it_yields_is_an_output(kept: Any) -> None:
    sub = WorkflowExecutor(stepping(Book()), "sub", allow_direct_output=True)
    result = await alone(sub, "outer", checkpoint_storage=kept).run("a")
    assert result.get_outputs() == ["a after 3"]
    assert [event.executor_id for event in result if event.type == "output" and not event.path] == ["sub"]


@pytest.mark.parametrize("floors", [1, 3, 6])
async def test_it_goes_to_any_depth(floors: int, kept: Any) -> None:
    result = await deep(stepping(Book()), floors, kept).run("a")
    assert result.get_outputs() == ["a after 3"]
    paths = [event.path for event in result if event.type == "executor_completed" and event.executor_id == "steps"]
    assert paths == [("sub",) * floors] * 4


async def test_only_what_is_told_out_here_counts_as_told_by_the_run(kept: Any) -> None:
    result = await around(alone(Asker()), kept).run("a")
    assert result.get_outputs() == ["saw a"]
    assert [event.path for event in result if event.type == "output"] == [("sub",), ()]
    assert [event.executor_id for event in result.get_request_info_events()] == ["sub"]
    assert [event.path for event in result if event.type == "request_info"] == [()]
    assert result.get_final_state() is WAITING


async def test_what_is_intermediate_inside_is_seen_with_its_path_and_not_sent_on() -> None:
    @executor(id="think")
    async def think(text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"thinking about {text}")
        await ctx.send_message(text)

    builder = WorkflowBuilder(start_executor=think, output_from=["end"], intermediate_output_from=[think])
    result = await around(builder.add_edge(think, End("end")).build()).run("a")
    assert result.get_outputs() == ["a"]
    assert result.get_intermediate_outputs() == []
    (event,) = [event for event in result if event.type == "intermediate"]
    assert (event.data, event.path) == ("thinking about a", ("sub",))


async def test_events_of_the_inside_are_told_while_it_works() -> None:
    heard = asyncio.Event()

    class Slow(Executor):
        @handler
        async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.add_event(WorkflowEvent("data", "half"))
            await heard.wait()  # nobody gets further unless this was heard outside
            await ctx.yield_output(text)

    stream = deep(alone(Slow("slow")), 3, InMemoryCheckpointStorage()).run("a", stream=True, nested=True)
    async for event in stream:
        if event.type == "data":
            assert (event.data, event.path, event.executor_id) == ("half", ("sub", "sub", "sub"), "slow")
            heard.set()
    assert (await stream).get_outputs() == ["a"]


# --------------------------------------------------------------------------------- each call for itself


async def test_fifty_calls_run_side_by_side_and_share_no_state(kept: Any) -> None:
    together = asyncio.Barrier(50)

    class Counting(Executor):
        met = persistent(0)

        @handler
        async def count(self, text: str, ctx: WorkflowContext[str]) -> None:
            self.met += 1
            ctx.append_state("seen", text)
            await together.wait()  # nobody gets further before all are here
            await ctx.send_message(text)

    class Telling(Executor):
        @handler
        async def tell(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.yield_output(f"{text} {ctx.get_state('seen')}")

    counting = Counting("counting")
    inner = WorkflowBuilder(name="inner", start_executor=counting).add_edge(counting, Telling("telling")).build()
    words = [f"w{n}" for n in range(50)]
    result = await around(inner, kept).run(" ".join(words))
    assert result.get_outputs() == [f"{word} ['{word}']" for word in words]
    assert len({event.run_id for event in result if event.path}) == 50


async def test_one_workflow_serves_two_executors_and_runs_alone(kept: Any) -> None:
    inner = stepping(Book())
    one, two = WorkflowExecutor(inner, "one"), WorkflowExecutor(inner, "two")
    builder = WorkflowBuilder(name="outer", start_executor=Start("start"), checkpoint_storage=kept)
    builder.add_fan_out_edges("start", [one, two]).add_edge(one, End("first")).add_edge(two, End("second"))
    outer = builder.build()
    results = await asyncio.gather(outer.run("a"), outer.run("b"), inner.run("c", checkpoint_storage=kept))
    assert [result.get_outputs() for result in results] == [["a after 3"] * 2, ["b after 3"] * 2, ["c after 3"]]


async def test_it_may_stand_before_and_behind_a_fan_in(kept: Any) -> None:
    @executor(id="join")
    async def join(parts: list[str], ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(" and ".join(parts))

    one, two = WorkflowExecutor(stepping(Book()), "one"), WorkflowExecutor(stepping(Book(), count=1), "two")
    builder = WorkflowBuilder(start_executor=Start("start"), checkpoint_storage=kept)
    builder.add_fan_out_edges("start", [one, two]).add_fan_in_edges([one, two], WorkflowExecutor(alone(join), "both"))
    assert (await builder.add_edge("both", End("end")).build().run("a")).get_outputs() == ["a after 3 and a after 1"]


async def test_state_inside_and_outside_are_not_the_same(kept: Any) -> None:
    @executor(id="inside")
    async def inside(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"inside {ctx.get_state('who')}")
        ctx.set_state("who", "inside")

    @executor(id="before")
    async def before(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("who", "outside")
        await ctx.send_message(text)

    @executor(id="after")
    async def after(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{text}, outside {ctx.get_state('who')}")

    sub = WorkflowExecutor(alone(inside), "sub")
    builder = WorkflowBuilder(start_executor=before, checkpoint_storage=kept).add_chain([before, sub, after])
    assert (await builder.build().run("x")).get_outputs() == ["inside None, outside outside"]


async def test_private_values_reach_the_inside_and_are_asked_for_again_at_a_resume(storage: Any) -> None:
    @executor(id="secret")
    async def secret(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{text} {ctx.private['key']}")

    with pytest.raises(PrivateMissing, match="'key'"):
        await deep(alone(secret), 2, storage).run("a", run_id="r")
    result = await deep(alone(secret), 2, storage).run(run_id="r", private={"key": "k"})
    assert result.get_outputs() == ["a k"]


class Mood(Enum):
    GOOD = "good"


class Form(BaseModel):
    name: str


@dataclass
class Basket:
    mood: Mood
    form: Form
    parts: dict[str, list[int]] = field(default_factory=dict)


async def test_types_of_the_inside_travel_in_and_out(kept: Any) -> None:
    @executor(id="fill")
    async def fill(form: Form, ctx: WorkflowContext[Basket, Basket]) -> None:
        await ctx.yield_output(Basket(Mood.GOOD, form, {"a": [1]}))

    @executor(id="name")
    async def name(text: str, ctx: WorkflowContext[Form]) -> None:
        await ctx.send_message(Form(name=text))

    @executor(id="look")
    async def look(basket: Basket, ctx: WorkflowContext[None, Basket]) -> None:
        await ctx.yield_output(basket)

    builder = WorkflowBuilder(start_executor=name, checkpoint_storage=kept)
    builder.add_chain([name, WorkflowExecutor(alone(fill), "sub"), look])
    assert (await builder.build().run("x")).get_outputs() == [Basket(Mood.GOOD, Form(name="x"), {"a": [1]})]


async def test_it_takes_what_its_start_takes() -> None:
    outer = alone(WorkflowExecutor(stepping(Book()), "sub", allow_direct_output=True), "outer")
    with pytest.raises(RoutingFailed, match=r"'sub' accepts str \| int"):
        await outer.run(1.5)
    assert str in outer.input_types


def test_it_wants_a_workflow_and_is_called_after_it() -> None:
    with pytest.raises(TypeError, match=r"not a WorkflowBuilder: call build\(\) first"):
        WorkflowExecutor(WorkflowBuilder(start_executor=End("end")))  # type: ignore[arg-type]
    assert WorkflowExecutor(stepping(Book())).id == "steps"


async def test_a_storage_of_the_inside_is_not_used_and_the_one_around_it_is() -> None:
    unused, used = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    steps = Steps(Book())
    inner = WorkflowBuilder(name="steps", start_executor=steps, checkpoint_storage=unused).add_edge(steps, steps)
    assert (await around(inner.build(), used).run("a")).get_outputs() == ["a after 3"]
    assert await unused.list_checkpoint_ids() == []
    assert len(await used.list_checkpoint_ids(workflow_name="steps")) == 5


# ------------------------------------------------------------------------------------- nobody to take it


def test_outputs_that_nobody_beside_it_could_take_are_refused_at_build() -> None:
    words = r"no executor accepts the outputs of the sub-workflow 'sub' \(str\): .* allow_direct_output=True"
    with pytest.raises(DefinitionError, match=words):
        alone(WorkflowExecutor(stepping(Book()), "sub"))

    @executor(id="other")
    async def other(number: float) -> None: ...

    sub = WorkflowExecutor(stepping(Book()), "sub")
    with pytest.raises(DefinitionError, match=words):
        WorkflowBuilder(start_executor=sub).add_edge(sub, other).build()
    WorkflowBuilder(start_executor=sub, on_unroutable="drop").build()


async def test_outputs_that_were_not_declared_are_refused_when_they_come(storage: Any) -> None:
    @executor(id="silent")
    async def silent(text: str, ctx: WorkflowContext) -> None:
        await ctx.yield_output(text)  # type: ignore[arg-type]

    with pytest.raises(
        RoutingFailed, match="it has no outgoing edge: add one, or build it with allow_direct_output=True"
    ):
        await alone(WorkflowExecutor(alone(silent), "sub"), "outer", checkpoint_storage=storage).run("a", run_id="r")
    fixed = WorkflowExecutor(alone(silent), "sub", allow_direct_output=True)
    assert (await alone(fixed, "outer", checkpoint_storage=storage).run(run_id="r")).get_outputs() == ["a"]


async def test_a_workflow_that_does_not_say_what_it_yields_may_be_followed_by_anybody() -> None:
    @executor(id="silent")
    async def silent(text: str, ctx: WorkflowContext) -> None:
        await ctx.yield_output(text)  # type: ignore[arg-type]

    assert (await around(alone(silent)).run("a")).get_outputs() == ["a"]
