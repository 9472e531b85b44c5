"""Sub-workflows that fail, are stopped and are resumed."""

from __future__ import annotations

import asyncio
from dataclasses import field, make_dataclass
from typing import Any

import pytest

from stepwell import (
    Executor,
    GraphChanged,
    HandlerFailed,
    InMemoryCheckpointStorage,
    InputMismatch,
    RetryPolicy,
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
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import Owner
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore
from tests.engine.subworkflow_samples import Steps, stepping
from tests.support.nesting import IDLE, WAITING, Asker, Book, End, Flag, alone, around, deep, ids


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
    told = await until_it_fails(deep(shaky(Book(), Flag()), 2).run("a", stream=True, nested=True))
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
    stream = workflow.run("a", run_id="r", stream=True, nested=True)

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
    async for event in handle.events(nested=True):
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
    async for event in handle.events(nested=True):
        if event.type == "data":
            await inner.attach(event.run_id or "", checkpoint_storage=storage, drive=True).cancel()
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
    assert await storage.ready_runs() == []
    assert (await deep(inner, 3, storage).run(run_id="r")).wakes_at == asleep.wakes_at
    later(minutes=61)
    assert [due.run_id for due in await storage.ready_runs()] == ["r"]
    assert (await deep(inner, 3, storage).run(run_id="r")).get_outputs() == ["a"]
    assert book.lines == ["first", "tired", "tired", "awake"]
    assert await storage.ready_runs() == []


async def test_a_claim_that_died_with_another_machine_does_not_hold_up_the_inside(storage: Any) -> None:
    """The lease of the run inside may last a little longer than that of the run around it."""
    book, broken = Book(), Flag()
    told = await until_it_fails(around(shaky(book, broken), storage).run("a", run_id="r", stream=True, nested=True))
    gone = Owner("elsewhere", "another machine", 1, "long ago", "its drive")
    await storage._store.acquire(inner_run(told), gone, seconds=3600)
    broken.put_down()
    assert (await around(shaky(book, broken), storage).run(run_id="r")).get_outputs() == ["first a", "last a"]
    assert book.lines == ["first", "shaky", "shaky", "last"]


async def test_outputs_are_neither_lost_nor_repeated_if_it_dies_after_the_inside_is_done(storage: Any) -> None:
    """The run inside has ended; the commit of the superstep around it never came."""
    book = Book()

    class Dying(CrashingStore):
        async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
            if name == "append" and args[0].entry.run_id == "r" and args[0].entry.number == 2:
                raise Crash
            return await call()

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
    handle = inner.attach(inner_run(result), checkpoint_storage=storage, drive=True)
    assert await handle.status() is WAITING
    assert (await handle.result()).get_outputs() == ["saw a"]
    assert len(await handle.checkpoints()) == 2


async def test_a_run_inside_may_be_moved_on_by_its_own_name(storage: Any) -> None:
    """It failed, and was resumed alone; the run around it finds it done."""
    book, broken = Book(), Flag()
    told = await until_it_fails(around(shaky(book, broken), storage).run("a", run_id="r", stream=True, nested=True))
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
    live = [event.path async for event in handle.events(nested=True) if event.type == "output"]
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
