"""What a superstep means: who gets what when, side by side, and what is left of it when something goes wrong."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from stepwell import (
    Case,
    Default,
    Executor,
    InMemoryCheckpointStorage,
    RoutingFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
    handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore
from tests.engine.superstep_samples import Ctx, ender, passer, sender

# --- delivery -----------------------------------------------------------------------------------------------------


async def test_messages_sent_in_one_superstep_are_delivered_in_the_next() -> None:
    a, b, c = passer("a"), passer("b"), ender("c")
    workflow = WorkflowBuilder(start_executor=a).add_chain([a, b, c]).build()
    told = [(e.type, e.executor_id, e.iteration) async for e in workflow.run(1, stream=True)]
    where, found = None, []
    for type, id, iteration in told:
        where = iteration if type == "superstep_started" else where
        if type == "executor_invoked":
            found.append((where, id))
    assert found == [(1, "a"), (2, "b"), (3, "c")]


async def test_a_write_of_a_sibling_is_seen_one_superstep_later() -> None:
    a, seen = passer("a"), []

    @executor(id="writer")
    async def writer(message: Any, ctx: Ctx) -> None:
        ctx.set_state("k", "written")
        await ctx.send_message(message, "reader")

    @executor(id="reader")
    async def reader(message: Any, ctx: Ctx) -> None:
        await asyncio.sleep(0.01)  # the writer has long written
        seen.append(ctx.get_state("k"))

    builder = WorkflowBuilder(start_executor=a).add_fan_out_edges(a, [writer, reader]).add_edge(writer, reader)
    await builder.build().run(1)
    assert seen == [None, "written"]


async def test_a_fan_in_delivers_everything_in_source_order_across_supersteps() -> None:
    """`slow` sends one superstep later than `fast`; what `fast` sent twice is there twice, and first."""
    start, slow, detour = passer("start"), passer("slow"), passer("detour")
    fast, end = sender("fast", "f1", "f2"), ender()
    workflow = (
        WorkflowBuilder(start_executor=start)
        .add_fan_out_edges(start, [detour, fast])
        .add_edge(detour, slow)
        .add_fan_in_edges([slow, fast], end)
        .build()
    )
    assert (await workflow.run("s")).get_outputs() == [["s", "f1", "f2"]]


async def test_a_fan_in_survives_a_resume_between_its_sources() -> None:
    storage = InMemoryCheckpointStorage()

    def build() -> Workflow:
        start, slow, detour = passer("start"), passer("slow"), passer("detour")
        fast, end = sender("fast", "f1", "f2"), ender()
        return (
            WorkflowBuilder(start_executor=start, checkpoint_storage=storage)
            .add_fan_out_edges(start, [detour, fast])
            .add_edge(detour, slow)
            .add_fan_in_edges([slow, fast], end)
            .build()
        )

    async for event in build().run("s", stream=True, run_id="r"):
        if event.type == "superstep_completed" and event.iteration == 2:
            break
    assert (await build().run(run_id="r")).get_outputs() == [["s", "f1", "f2"]]


async def test_a_fan_in_that_never_completes_is_warned_of() -> None:
    start, silent, loud, end = passer("start"), sender("silent"), passer("loud"), ender()
    workflow = (
        WorkflowBuilder(start_executor=start)
        .add_fan_out_edges(start, [silent, loud])
        .add_fan_in_edges([silent, loud], end)
        .build()
    )
    result = await workflow.run(1)
    (warning,) = [e for e in result if e.type == "warning"]
    assert warning.data == "the fan-in into 'end' still holds 1 message(s): no message from 'silent'"


async def test_a_switch_takes_the_first_case_that_holds_else_the_default() -> None:
    start, small, even, other = passer("start"), ender("small"), ender("even"), ender("other")

    async def is_even(value: int) -> bool:
        await asyncio.sleep(0)
        return value % 2 == 0

    workflow = (
        WorkflowBuilder(start_executor=start)
        .add_switch_case_edge_group(start, [Case(lambda v: v < 10, small), Case(is_even, even), Default(other)])
        .build()
    )
    for value, taker in ((2, "small"), (12, "even"), (13, "other")):
        (output,) = [e for e in await workflow.run(value) if e.type == "output"]
        assert output.executor_id == taker


async def test_a_multi_selection_goes_to_those_that_were_chosen_once_each() -> None:
    start, one, two, three = passer("start"), ender("one"), ender("two"), ender("three")

    async def choose(value: list[str], ids: list[str]) -> list[str]:
        assert ids == ["one", "two", "three"]
        return value

    workflow = (
        WorkflowBuilder(start_executor=start).add_multi_selection_edge_group(start, [one, two, three], choose).build()
    )
    result = await workflow.run(["three", "one", "three"])
    assert [e.executor_id for e in result if e.type == "output"] == ["three", "one"]


@pytest.mark.parametrize("returned", [["nobody"], "one"])
async def test_a_selection_that_names_what_is_not_there_fails_the_run_in_words(returned: Any) -> None:
    start, one, two = passer("start"), ender("one"), ender("two")

    def choose(value: Any, ids: list[str]) -> Any:
        return returned

    workflow = WorkflowBuilder(start_executor=start).add_multi_selection_edge_group(start, [one, two], choose).build()
    with pytest.raises(
        RoutingFailed, match=r"'choose' must return a list of some of one, two; it returned .*(nobody|one)"
    ):
        await workflow.run(1)


async def test_a_condition_that_raises_fails_the_run_and_names_the_edge_and_a_resume_asks_again() -> None:
    calls: Counter[str] = Counter()
    broken = True

    @executor(id="start")
    async def start(message: int, ctx: Ctx) -> None:
        calls["start"] += 1
        await ctx.send_message(message)

    def fits(value: int) -> bool:
        if broken:
            raise ValueError("not today")
        return True

    workflow = (
        WorkflowBuilder(start_executor=start, checkpoint_storage=InMemoryCheckpointStorage())
        .add_edge(start, ender(), condition=fits)
        .build()
    )
    with pytest.raises(RoutingFailed, match="'start -> end if fits': ValueError: not today"):
        await workflow.run(1, run_id="r")
    broken = False
    assert (await workflow.run(run_id="r")).get_outputs() == [1]
    assert calls["start"] == 1


async def test_target_id_goes_along_one_existing_edge_only() -> None:
    start, one, two = sender("start", "x", to="two"), ender("one"), ender("two")
    workflow = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [one, two]).build()
    assert [e.executor_id for e in await workflow.run(1) if e.type == "output"] == ["two"]


async def test_target_id_without_an_edge_fails_the_run_although_the_executor_exists() -> None:
    start, one, two = sender("start", "x", to="two"), passer("one"), ender("two")
    workflow = WorkflowBuilder(start_executor=start).add_chain([start, one, two]).build()
    with pytest.raises(RoutingFailed, match="'start' sent a str to 'two', but its edges lead only to 'one'"):
        await workflow.run(1)


async def test_a_targeted_message_asks_only_the_edge_it_goes_along() -> None:
    start, one, two = sender("start", "x", to="two"), ender("one"), ender("two")

    def not_for_me(value: Any) -> bool:
        raise AssertionError("asked for a message to somebody else")

    builder = WorkflowBuilder(start_executor=start).add_edge(start, one, condition=not_for_me).add_edge(start, two)
    assert (await builder.build().run(1)).get_outputs() == ["x"]


# --- what nobody takes --------------------------------------------------------------------------------------------


def untaken(**options: Any) -> Workflow:
    @executor(id="start")
    async def start(message: int, ctx: Ctx) -> None:
        await ctx.send_message("text")

    @executor(id="number")
    async def number(message: int, ctx: Ctx) -> None: ...

    return WorkflowBuilder(start_executor=start, **options).add_edge(start, number).build()


async def test_a_message_no_handler_takes_fails_the_run_and_names_what_is_missing() -> None:
    with pytest.raises(RoutingFailed, match="'start' sent a str, but no handler accepts it: 'number' accepts int"):
        await untaken().run(1)


async def test_a_message_no_edge_takes_fails_the_run_and_names_what_is_missing() -> None:
    alone = passer("alone")
    with pytest.raises(RoutingFailed, match="'alone' sent a int, but no edge leaves 'alone'"):
        await WorkflowBuilder(start_executor=alone).build().run(1)


async def test_on_unroutable_drop_makes_it_a_warning_event() -> None:
    result = await untaken(on_unroutable="drop").run(1)
    (warning,) = [e for e in result if e.type == "warning"]
    assert warning.data == "dropped: 'start' sent a str, but no handler accepts it: 'number' accepts int"
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_a_run_that_failed_for_want_of_a_taker_goes_on_once_it_may_drop() -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(RoutingFailed):
        await untaken(checkpoint_storage=storage).run(1, run_id="r")
    result = await untaken(checkpoint_storage=storage, on_unroutable="drop").run(run_id="r")
    assert [e.type for e in result if e.type in ("executor_invoked", "executor_bypassed")] == ["executor_bypassed"]


async def test_a_message_every_condition_declines_is_a_warning_and_no_failure() -> None:
    start = passer("start")

    def never(value: Any) -> bool:
        return False

    result = await WorkflowBuilder(start_executor=start).add_edge(start, ender(), condition=never).build().run(1)
    (warning,) = [e for e in result if e.type == "warning"]
    assert warning.data == "'start' sent a int, and every condition declined it: start -> end if never"


# --- conditions and crashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["condition", "switch", "selection"])
async def test_a_condition_is_asked_once_for_each_message(kind: str) -> None:
    asked: list[Any] = []

    def yes(value: int, ids: list[str] | None = None) -> Any:
        asked.append(value)
        return True if ids is None else ids

    start, end, other = sender("start", 1, 2), ender("end"), ender("other")
    builder = WorkflowBuilder(start_executor=start, checkpoint_storage=InMemoryCheckpointStorage())
    match kind:
        case "condition":
            builder.add_edge(start, end, condition=lambda value: yes(value))
        case "switch":
            builder.add_switch_case_edge_group(start, [Case(lambda value: yes(value), end), Default(other)])
        case _:
            builder.add_multi_selection_edge_group(start, [end, other], yes)
    await builder.build().run(0)
    assert asked == [1, 2]


@pytest.mark.parametrize("dies_at", range(1, 9))
@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_cannot_re_route_what_is_committed(dies_at: int, after: bool) -> None:
    """The condition changes its mind at every call; each committed message was asked for once and goes that way."""
    inner, asked, taken = MemoryStore(), Counter[int](), []

    def left(value: int) -> bool:
        asked[value] += 1
        return sum(asked.values()) % 2 == 1

    def build(store: Any) -> Workflow:
        @executor(id="start")
        async def start(message: int, ctx: Ctx) -> None:
            if message < 3:
                await ctx.send_message(message + 1)

        @executor(id="a")
        async def a(message: int, ctx: Ctx) -> None:
            await ctx.yield_output(("a", message))
            await ctx.send_message(message)

        @executor(id="b")
        async def b(message: int, ctx: Ctx) -> None:
            await ctx.yield_output(("b", message))
            await ctx.send_message(message)

        return (
            WorkflowBuilder(start_executor=start, checkpoint_storage=BuiltInStorage(store))
            .add_switch_case_edge_group(start, [Case(left, a), Default(b)])
            .add_edge(a, start)
            .add_edge(b, start)
            .build()
        )

    died = False
    try:
        async for event in build(CrashingStore(inner, dies_at, after=after)).run(0, stream=True, run_id="r"):
            taken += [event.data] if event.type == "output" else []
    except Crash:
        died = True
    committed = (
        []
        if await inner.run("r") is None
        else await BuiltInStorage(inner).message_history(
            (await BuiltInStorage(inner).list_checkpoint_ids(run_id="r"))[-1]
        )
    )
    decided = {m.data: m.takers for m in committed if m.source_id == "start"}
    asked_before = Counter(asked)
    if "r" in inner._runs:
        inner._runs["r"].state.owner = None  # the process that died held the run
    result = await build(inner).run(0, run_id="r")
    outputs = result.get_outputs()
    assert outputs[: len(taken)] == taken
    assert [value for _, value in outputs] == [1, 2, 3]
    for value, takers in decided.items():
        assert {v: k for k, v in outputs}[value] == takers[0]
        assert asked[value] == asked_before[value] == 1
    if not died:
        assert asked == {1: 1, 2: 1, 3: 1}


# --- side by side -------------------------------------------------------------------------------------------------


async def test_a_plain_function_runs_in_a_thread_and_what_it_returns_is_sent_on() -> None:
    loop_thread, threads = threading.get_ident(), []

    @executor(id="plain")
    def plain(message: int, ctx: WorkflowContext[int, str]) -> int:
        threads.append(threading.get_ident())
        ctx.set_state("k", message)
        ctx.yield_output("from a thread")
        return message + 1

    @executor(id="quiet")
    def quiet(message: int) -> None:
        threads.append(threading.get_ident())

    workflow = WorkflowBuilder(start_executor=plain).add_edge(plain, quiet).build()
    result = await workflow.run(1)
    assert loop_thread not in threads
    assert len(threads) == 2
    assert result.get_outputs() == ["from a thread"]
    assert [e.data for e in result if e.type == "executor_invoked"] == [1, 2]


async def test_what_an_async_handler_returns_is_sent_on_too() -> None:
    class Doubler(Executor):
        @handler
        async def double(self, message: int, ctx: WorkflowContext[int]) -> int:
            return message * 2

    start = Doubler("double")
    assert (await WorkflowBuilder(start_executor=start).add_edge(start, ender()).build().run(2)).get_outputs() == [4]


async def test_blocking_and_computing_plain_handlers_do_not_stall_the_others() -> None:
    start, ticks, done = passer("start"), [], threading.Event()
    waited: list[bool] = []

    @executor(id="blocking")
    def blocking(message: int) -> None:
        waited.append(done.wait(30))

    @executor(id="computing")
    def computing(message: int) -> None:
        while not done.is_set():
            sum(range(1000))

    @executor(id="ticking")
    async def ticking(message: int, ctx: Ctx) -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)
            ticks.append(1)
        done.set()

    workflow = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [blocking, computing, ticking]).build()
    await workflow.run(1)
    assert len(ticks) == 20
    assert waited == [True]  # it was let go by its sibling, not by the end of its patience


async def test_executors_run_side_by_side_and_one_executor_takes_one_message_at_a_time() -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def watched(id: str) -> Any:
        @executor(id=id)
        async def go(message: int, ctx: Ctx) -> None:
            running[id] += 1
            running["all"] += 1
            most[id], most["all"] = max(most[id], running[id]), max(most["all"], running["all"])
            await asyncio.sleep(0.002)
            running[id] -= 1
            running["all"] -= 1

        return go

    start, a, b = sender("start", 1, 2, 3), watched("a"), watched("b")
    await WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [a, b]).build().run(0)
    assert most == {"a": 1, "b": 1, "all": 2}
