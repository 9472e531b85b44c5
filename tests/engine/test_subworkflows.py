"""A workflow as an executor of another: what comes out of it, what is seen of it, and how it goes on after a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    DefinitionError,
    Executor,
    GraphChanged,
    HandlerFailed,
    InMemoryCheckpointStorage,
    InputMismatch,
    PrivateMissing,
    RetryPolicy,
    RoutingFailed,
    RunError,
    SuperstepLimit,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    persistent,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import Owner
from stepwell.stores.memory.store import MemoryStore
from tests.support.crashing import Crash, CrashingStore
from tests.support.nesting import IDLE, WAITING, Asker, Book, End, Flag, SixMethods, Start, alone, around, deep, ids


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


def inner_run(events: Any) -> str:
    """The id of the one run inside that is told of."""
    (found,) = {event.run_id for event in events if len(event.path) == 1}
    return str(found)


async def until_it_fails(stream: Any) -> list[Any]:
    """What is told of a run that fails."""
    told = []
    try:
        async for event in stream:
            told.append(event)
    except HandlerFailed:
        return told
    raise AssertionError("it did not fail")


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
    assert [event.path for event in result if event.type == "request_info"] == [("sub",), ()]
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

    stream = deep(alone(Slow("slow")), 3, InMemoryCheckpointStorage()).run("a", stream=True)
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
    words = r"no executor takes the outputs of the sub-workflow 'sub' \(str\): .* allow_direct_output=True"
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


# ------------------------------------------------------------------------------------------------ failure


class Shaky(Executor):
    """The second of three steps; fails as long as it is told to."""

    def __init__(self, book: Book, broken: Flag) -> None:
        super().__init__("shaky")
        self.book, self.broken = book, broken

    @handler
    async def work(self, text: str, ctx: WorkflowContext[str]) -> None:
        self.book.note("shaky")
        if self.broken:
            raise ValueError(f"not {text}")
        await ctx.send_message(text)


def shaky(book: Book, broken: Flag) -> Workflow:
    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[str, str]) -> None:
        book.note("first")
        await ctx.yield_output(f"first {text}")
        await ctx.send_message(text)

    @executor(id="last")
    async def last(text: str, ctx: WorkflowContext[None, str]) -> None:
        book.note("last")
        await ctx.yield_output(f"last {text}")

    return WorkflowBuilder(name="shaky", start_executor=first).add_chain([first, Shaky(book, broken), last]).build()


async def test_a_failure_inside_comes_out_as_it_was_and_says_which_run_to_resume(storage: Any) -> None:
    book, broken = Book(), Flag()
    with pytest.raises(
        HandlerFailed, match=r"executor 'sub' failed in run 'r': ValueError: not a\..*run_id='r'"
    ) as got:
        await deep(shaky(book, broken), 3, storage).run("a", run_id="r")
    assert (got.value.run_id, got.value.executor_id) == ("r", "sub")
    cause = got.value.__cause__
    assert isinstance(cause, ValueError)
    assert cause.__cause__ is None
    assert [note.startswith("in executor") for note in cause.__notes__] == [True] * 3
    assert "in executor 'shaky', in run" in cause.__notes__[0]
    broken.put_down()
    done = await deep(shaky(book, broken), 3, storage).run(run_id=got.value.run_id)
    assert done.get_outputs() == ["first a", "last a"]
    assert book.lines == ["first", "shaky", "shaky", "last"]


async def test_the_events_of_a_failure_inside_name_where_it_was() -> None:
    told = await until_it_fails(deep(shaky(Book(), Flag()), 2).run("a", stream=True))
    failed = [event for event in told if event.type == "executor_failed"]
    assert [(event.path, event.executor_id, event.details.error_type) for event in failed] == [
        (("sub", "sub"), "shaky", "ValueError"),
        (("sub",), "sub", "ValueError"),
        ((), "sub", "ValueError"),
    ]


async def test_another_attempt_goes_on_inside_where_the_last_one_failed(storage: Any) -> None:
    book, broken = Book(), Flag()
    policy = RetryPolicy(max_attempts=2, initial_interval=0, retry_on=ValueError)

    class Mending(Shaky):
        @handler
        async def work(self, text: str, ctx: WorkflowContext[str]) -> None:
            try:
                await super().work(text, ctx)
            finally:
                self.broken.put_down()

    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[str, str]) -> None:
        book.note("first")
        await ctx.yield_output(f"first {text}")
        await ctx.send_message(text)

    builder = WorkflowBuilder(name="inner", start_executor=first)
    inner = builder.add_chain([first, Mending(book, broken), End("last")]).build()
    result = await around(inner, storage, retry=policy).run("a")
    assert result.get_outputs() == ["first a", "a"]
    assert book.lines == ["first", "shaky", "shaky"]
    assert [event.attempt for event in result if event.type == "executor_retrying" and not event.path] == [1]


async def test_a_call_that_fails_leaves_the_others_alone(storage: Any) -> None:
    book = Book()

    class Picky(Executor):
        @handler
        async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            book.note(text)
            if text == "b" and book.lines.count("b") == 1:
                raise ValueError("not b")
            await ctx.yield_output(text)

    with pytest.raises(HandlerFailed, match="not b"):
        await around(alone(Picky("picky")), storage).run("a b c", run_id="r")
    assert (await around(alone(Picky("picky")), storage).run(run_id="r")).get_outputs() == ["a", "b", "c"]
    assert book.times() == {"a": 1, "b": 2, "c": 1}


async def test_the_limit_of_supersteps_holds_inside(storage: Any) -> None:
    book = Book()
    steps = Steps(book, count=5)
    tight = WorkflowBuilder(name="steps", start_executor=steps, max_iterations=3).add_edge(steps, steps).build()
    with pytest.raises(SuperstepLimit, match="took 3 supersteps") as got:
        await around(tight, storage).run("a", run_id="r")
    assert got.value.run_id == "r"
    assert any("inside 'sub'" in note for note in got.value.__notes__)
    done = await around(stepping(book, count=5), storage).run(run_id="r")
    assert done.get_outputs() == ["a after 5"]
    assert book.lines == [f"steps {n}" for n in range(6)]


async def test_a_changed_graph_inside_is_named_and_the_old_one_still_goes_on(storage: Any) -> None:
    book, broken = Book(), Flag()
    with pytest.raises(HandlerFailed):
        await around(shaky(book, broken), storage).run("a", run_id="r")
    broken.put_down()
    with pytest.raises(
        GraphChanged, match="executor 'shaky' was removed, but a message from 'first' is in flight to it"
    ):
        await around(stepping(book), storage).run(run_id="r")
    assert (await around(shaky(book, broken), storage).run(run_id="r")).get_outputs() == ["first a", "last a"]
    assert book.lines == ["first", "shaky", "shaky", "last"]


async def test_a_workflow_that_was_renamed_meanwhile_is_found_again(storage: Any) -> None:
    book = Book()

    def build(name: str, broken: bool) -> Workflow:
        @executor(id="first")
        async def first(text: str, ctx: WorkflowContext[str]) -> None:
            book.note("first")
            await ctx.send_message(text)

        @executor(id="last")
        async def last(text: str, ctx: WorkflowContext[None, str]) -> None:
            if broken:
                raise ValueError("not yet")
            await ctx.yield_output(text)

        return around(WorkflowBuilder(name=name, start_executor=first).add_edge(first, last).build(), storage)

    with pytest.raises(HandlerFailed):
        await build("old", broken=True).run("a", run_id="r")
    assert (await build("new", broken=False).run(run_id="r")).get_outputs() == ["a"]
    assert book.lines == ["first"]


async def test_a_class_that_got_a_new_field_meanwhile_is_no_other_message(storage: Any) -> None:
    def build(known: Any, broken: bool) -> Workflow:
        @executor(id="work", input=known, workflow_output=str)
        async def work(order: Any, ctx: WorkflowContext[None, str]) -> None:
            if broken:
                raise ValueError("not yet")
            await ctx.yield_output(f"{order.item} {order.count}")

        @executor(id="order", input=str, output=known)
        async def order(text: Any, ctx: WorkflowContext[Any]) -> None:
            await ctx.send_message(known(text))

        builder = WorkflowBuilder(name="outer", start_executor=order, checkpoint_storage=storage)
        return builder.add_chain([order, WorkflowExecutor(alone(work), "sub"), End("end")]).build()

    def order_class(*more: Any) -> Any:
        made = make_dataclass("Order", [("item", str), *more])
        made.__module__, made.__qualname__ = __name__, "Order"
        return made

    with pytest.raises(HandlerFailed):
        await build(order_class(), broken=True).run("a", run_id="r")
    changed = build(order_class(("count", int, field(default=1))), broken=False)
    assert (await changed.run(run_id="r")).get_outputs() == ["a 1"]


async def test_what_a_deleted_run_left_inside_is_not_taken_for_the_inside_of_another(storage: Any) -> None:
    await around(stepping(Book()), storage).run("a", run_id="r")
    for id in reversed(await storage.list_checkpoint_ids(run_id="r")):
        await storage.delete(id)
    with pytest.raises(InputMismatch, match="by an earlier run 'r' that was deleted without it") as got:
        await around(stepping(Book()), storage).run("b", run_id="r")
    assert got.value.run_id == "r"


# --------------------------------------------------------------------------------------- stopped and resumed


class Gate(Executor):
    """Says that somebody is there, and lets nobody through as long as it is closed."""

    def __init__(self, book: Book, closed: Flag) -> None:
        super().__init__("gate")
        self.book, self.closed = book, closed

    @handler
    async def work(self, text: str, ctx: WorkflowContext[str]) -> None:
        self.book.note("gate")
        await ctx.add_event(WorkflowEvent("data", "at the gate"))
        if self.closed:
            await asyncio.Event().wait()
        await ctx.send_message(text)


def gated(book: Book, closed: Flag) -> Workflow:
    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[str, str]) -> None:
        book.note("first")
        await ctx.yield_output(f"first {text}")
        await ctx.send_message(text)

    return (
        WorkflowBuilder(name="gated", start_executor=first).add_chain([first, Gate(book, closed), End("last")]).build()
    )


@pytest.mark.parametrize("how", ["cancel", "leave", "task"])
async def test_stopped_while_the_inside_works_it_goes_on_there(how: str, storage: Any) -> None:
    book, closed = Book(), Flag()
    workflow = deep(gated(book, closed), 3, storage)
    stream = workflow.run("a", run_id="r", stream=True)

    async def read() -> None:
        async for event in stream:
            if event.type == "data":
                if how == "cancel":
                    await stream.cancel()
                elif how == "leave":
                    break
                else:
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()

    reading = asyncio.create_task(read())
    await asyncio.wait([reading])
    await stream.aclose()
    expected = WorkflowRunState.CANCELLED if how == "cancel" else WorkflowRunState.IN_PROGRESS
    assert (await storage.get_latest(run_id="r")).status is expected
    closed.put_down()
    done = await deep(gated(book, closed), 3, storage).run(run_id="r")
    assert done.get_outputs() == ["first a", "a"]
    assert book.lines == ["first", "gate", "gate"]


async def test_cancelled_through_a_handle_while_the_inside_works_it_goes_on_there(storage: Any) -> None:
    book, closed = Book(), Flag()
    handle = deep(gated(book, closed), 2, storage).start("a", run_id="r")
    async for event in handle.events():
        if event.type == "data":
            assert await handle.cancel() is WorkflowRunState.CANCELLED
    assert await handle.status() is WorkflowRunState.CANCELLED
    closed.put_down()
    assert (await deep(gated(book, closed), 2, storage).run(run_id="r")).get_outputs() == ["first a", "a"]
    assert book.lines == ["first", "gate", "gate"]


async def test_a_run_inside_that_was_cancelled_by_its_own_name_stops_the_one_around_it(storage: Any) -> None:
    book, closed = Book(), Flag()
    inner = gated(book, closed)
    handle = around(inner, storage).start("a", run_id="r")
    async for event in handle.events():
        if event.type == "data":
            await inner.attach(event.run_id or "", checkpoint_storage=storage).cancel()
    with pytest.raises(RunError, match="inside 'sub' was cancelled; resuming run 'r' resumes it too"):
        await handle.result()
    closed.put_down()
    assert (await around(inner, storage).run(run_id="r")).get_outputs() == ["first a", "a"]
    assert book.lines == ["first", "gate", "gate"]


async def test_a_sleep_inside_puts_the_run_around_it_aside(storage: Any, later: Any) -> None:
    book = Book()

    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[str]) -> None:
        book.note("first")
        await ctx.send_message(text)

    @executor(id="tired")
    async def tired(text: str, ctx: WorkflowContext[None, str]) -> None:
        book.note("tired")
        await ctx.sleep(3600)
        book.note("awake")
        await ctx.yield_output(text)

    inner = WorkflowBuilder(name="inner", start_executor=first).add_edge(first, tired).build()
    asleep = await deep(inner, 3, storage).run("a", run_id="r")
    assert asleep.wakes_at is not None
    assert asleep.get_outputs() == []
    assert await storage.due_runs() == []
    assert (await deep(inner, 3, storage).run(run_id="r")).wakes_at == asleep.wakes_at
    later(minutes=61)
    assert [due.run_id for due in await storage.due_runs()] == ["r"]
    assert (await deep(inner, 3, storage).run(run_id="r")).get_outputs() == ["a"]
    assert book.lines == ["first", "tired", "tired", "awake"]
    assert await storage.due_runs() == []


async def test_a_claim_that_died_with_another_machine_does_not_hold_up_the_inside(storage: Any) -> None:
    """The lease of the run inside may last a little longer than that of the run around it."""
    book, broken = Book(), Flag()
    told = await until_it_fails(around(shaky(book, broken), storage).run("a", run_id="r", stream=True))
    gone = Owner("elsewhere", "another machine", 1, "long ago", "its drive")
    await storage._store.acquire(inner_run(told), gone, seconds=3600)
    broken.put_down()
    assert (await around(shaky(book, broken), storage).run(run_id="r")).get_outputs() == ["first a", "last a"]
    assert book.lines == ["first", "shaky", "shaky", "last"]


async def test_outputs_are_neither_lost_nor_repeated_if_it_dies_after_the_inside_is_done(storage: Any) -> None:
    """The run inside has ended; the commit of the superstep around it never came."""
    book = Book()

    class Dying(CrashingStore):
        def __getattr__(self, name: str) -> Any:
            if name != "append":
                return getattr(self._inner, name)

            async def append(record: Any, effects: Any) -> None:
                if record.entry.run_id == "r" and record.entry.number == 2:
                    raise Crash
                await self._inner.append(record, effects)

            return append

    with pytest.raises(Crash):
        await around(stepping(book), BuiltInStorage(Dying(storage._store.inner))).run("a b", run_id="r")
    assert (await around(stepping(book), storage).run(run_id="r")).get_outputs() == ["a after 3", "b after 3"]
    assert book.times() == {f"steps {n}": 2 for n in range(4)}


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_nothing_inside_is_stored_before_what_called_it(durability: Any, after: bool) -> None:
    """What was lost in a crash is done again, perhaps with another result: the inside must not know the old one."""

    def build(storage: Any, said: str) -> Workflow:
        @executor(id="dice")
        async def dice(text: str, ctx: WorkflowContext[str]) -> None:
            for number in range(3):
                await ctx.send_message(f"{text} {said} {number}")

        builder = WorkflowBuilder(name="outer", start_executor=dice, checkpoint_storage=storage)
        return builder.add_chain([dice, WorkflowExecutor(stepping(Book(), count=1), "sub"), End("end")]).build()

    whole = CrashingStore(MemoryStore())
    await build(BuiltInStorage(whole), "once").run("a", durability=durability)
    for at in range(1, whole.writes + 1):
        inner = MemoryStore()
        dying = build(BuiltInStorage(CrashingStore(inner, at, after=after)), "first")
        with pytest.raises(Crash):
            await dying.run("a", run_id="r", durability=durability)
        done = await build(BuiltInStorage(inner), "second").run("a", run_id="r", durability=durability)
        told = [output.split()[1] for output in done.get_outputs()]
        assert told in (["first"] * 3, ["second"] * 3), f"died {'after' if after else 'before'} write {at}"
        assert done.get_final_state() is IDLE


async def test_the_storage_lists_the_run_around_it_only() -> None:
    storage = InMemoryCheckpointStorage()
    result = await deep(alone(Asker()), 3, storage).run("a b", run_id="r")
    pending = await storage.pending_requests()
    assert [(one.run_id, one.workflow_name, one.executor_id) for one in pending] == [("r", "outer", "sub")] * 2
    assert [one.request_id for one in pending] == ids(result)


async def test_a_run_inside_can_be_looked_at_by_its_own_name(storage: Any) -> None:
    inner = alone(Asker())
    result = await around(inner, storage).run("a", run_id="r")
    handle = inner.attach(inner_run(result), checkpoint_storage=storage)
    assert await handle.status() is WAITING
    assert (await handle.result()).get_outputs() == ["saw a"]
    assert len(await handle.checkpoints()) == 2


async def test_a_run_inside_may_be_moved_on_by_its_own_name(storage: Any) -> None:
    """It failed, and was resumed alone; the run around it finds it done."""
    book, broken = Book(), Flag()
    told = await until_it_fails(around(shaky(book, broken), storage).run("a", run_id="r", stream=True))
    broken.put_down()
    alone_again = await shaky(book, broken).run(run_id=inner_run(told), checkpoint_storage=storage)
    assert alone_again.get_outputs() == ["first a", "last a"]
    assert (await around(shaky(book, broken), storage).run(run_id="r")).get_outputs() == ["first a", "last a"]
    assert book.lines == ["first", "shaky", "shaky", "last"]


async def test_its_supersteps_are_commits_of_its_own(storage: Any) -> None:
    result = await around(stepping(Book()), storage).run("a", run_id="r")
    inside = await storage.list_checkpoints(run_id=inner_run(result))
    assert [one.iteration_count for one in inside] == [0, 1, 2, 3, 4]
    assert {one.workflow_name for one in inside} == {"steps"}
    assert [one.iteration_count for one in await storage.list_checkpoints(run_id="r")] == [0, 1, 2, 3]


async def test_a_handle_tells_the_inside_live() -> None:
    handle = deep(stepping(Book()), 2, InMemoryCheckpointStorage()).start("a", run_id="r")
    live = [event.path async for event in handle.events() if event.type == "output"]
    assert (await handle.result()).get_outputs() == ["a after 3"]
    assert live[-1] == ()
    assert live.count(()) == 1


async def test_a_run_in_progress_says_so_while_the_inside_works(storage: Any) -> None:
    """Also if the process is gone: the superstep that made the call is not over."""
    book, broken = Book(), Flag()
    dying = BuiltInStorage(CrashingStore(storage._store.inner, at=4))
    with pytest.raises(Crash):
        await around(shaky(book, broken), dying).run("a", run_id="r")
    assert (await storage.get_latest(run_id="r")).status is WorkflowRunState.IN_PROGRESS
