"""Runs that other code began: they go on if they can, are migrated where that is declared, and are refused in words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    GraphChanged,
    HandlerFailed,
    LatestOnly,
    Migration,
    MigrationFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    persistent,
    response_handler,
)
from stepwell.admin import check, fork
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore

IDLE = WorkflowRunState.IDLE


@dataclass
class Order:
    item: str
    price: int


class Till(Executor):
    """Asks about what is dear, and counts."""

    seen = persistent(0)

    @handler
    async def check(self, order: Order, ctx: WorkflowContext[Order]) -> None:
        self.seen += 1
        ctx.set_state("cents", order.price * 100)
        await ctx.request_info(order, bool, request_id="sure?")

    @response_handler
    async def decided(self, original_request: Order, response: bool, ctx: WorkflowContext[Order]) -> None:
        self.seen += 1
        await ctx.send_message(original_request)


class Ship(Executor):
    @handler
    async def ship(self, order: Order, ctx: WorkflowContext[None, Any]) -> None:
        await ctx.yield_output((order.item, ctx.get_state("cents"), ctx.get_state("euros")))


class Audit(Executor):
    @handler
    async def look(self, order: Order, ctx: WorkflowContext[Order]) -> None:
        await ctx.send_message(order)


def first(storage: Any) -> Workflow:
    till = Till("till")
    builder = WorkflowBuilder(name="orders", start_executor=till, checkpoint_storage=storage)
    return builder.add_edge(till, Ship("ship")).build()


def later(storage: Any, till: str = "till", **options: Any) -> Workflow:
    """With an auditor between the two, and perhaps another name for the first."""
    asking = Till(till)
    builder = WorkflowBuilder(name="orders", start_executor=asking, checkpoint_storage=storage, **options)
    return builder.add_chain([asking, Audit("audit"), Ship("ship")]).build()


SECOND = Migration(2).rename_executor("till", "cashier")
THIRD = (
    Migration(3)
    .change_state("cents", lambda cents: cents / 100)
    .rename_state("cents", "euros")
    .change_executor_state("cashier", lambda kept: {"seen": kept["seen"] + 10})
)
ALL: Sequence[Migration] = (SECOND, THIRD)

CUP = Order("cup", 3)


async def test_a_new_branch_cannot_matter_and_the_history_says_who_took_over(storage: Any) -> None:
    await first(storage).run(CUP, run_id="r")
    result = await later(storage).run(run_id="r", responses={"sure?": True})
    assert result.get_outputs() == [("cup", 300, None)]
    (told,) = [event for event in result if event.type == "migrated"]
    changes = ["executor 'audit' is new", "edge 'till -> ship' is gone", "edge 'audit -> ship' is new"]
    assert [words for words in changes if words not in told.data] == []
    assert [event.executor_id for event in result if event.type == "executor_invoked"] == ["till", "audit", "ship"]
    head = await storage.get_latest(run_id="r")
    assert head.graph_signature == later(storage).graph_signature
    again = [event for event in await storage.event_history("r") if event.type == "migrated"]
    assert [event.data for event in again] == [told.data]  # once, and durable


async def test_a_run_that_is_done_is_told_again_by_whatever_became_of_its_workflow(storage: Any) -> None:
    await first(storage).run(CUP, run_id="r")
    await first(storage).run(run_id="r", responses={"sure?": True})
    before = await storage.list_checkpoint_ids(run_id="r")
    renamed = later(storage, "cashier")  # the state of the till has nowhere to go
    assert (await renamed.run(run_id="r")).get_outputs() == [("cup", 300, None)]
    assert (await renamed.run(CUP, run_id="r")).get_outputs() == [("cup", 300, None)]
    assert await storage.list_checkpoint_ids(run_id="r") == before
    handle = renamed.attach("r", drive=True)
    await handle.send(CUP)  # then it is to go on
    with pytest.raises(GraphChanged, match="executor 'till' was removed, but this run has state of it: 'seen'"):
        await handle.result()


async def test_another_workflow_is_not_taken_for_the_same_even_if_the_run_is_done(storage: Any) -> None:
    await first(storage).run(CUP, run_id="r")
    await first(storage).run(run_id="r", responses={"sure?": True})
    stranger = WorkflowBuilder(name="strange", start_executor=Audit("alone"), on_unroutable="drop").build()
    with pytest.raises(GraphChanged, match="executor 'till' is gone"):
        await stranger.run(run_id="r", checkpoint_storage=storage)


async def test_a_chain_of_migrations_is_applied_once_and_recorded(storage: Any) -> None:
    await first(storage).run(CUP, run_id="r")
    newest = later(storage, "cashier", migrations=ALL)
    waiting = await newest.run(run_id="r")
    assert [event.source_executor_id for event in waiting.get_request_info_events()] == ["cashier"]
    (pending,) = await storage.pending_requests(run_id="r")
    assert pending.executor_id == "cashier"
    head = await storage.get_latest(run_id="r")
    assert (dict(head.state), dict(head.executor_states)["cashier"]) == ({"euros": 3.0}, {"seen": 11})
    result = await newest.run(run_id="r", responses={"sure?": True})
    assert result.get_outputs() == [("cup", None, 3.0)]
    assert (await storage.get_latest(run_id="r")).executor_states["cashier"] == {"seen": 12}
    told = [event.data for event in await storage.event_history("r") if event.type == "migrated"]
    assert len(told) == 1
    renaming = "executor 'till' renamed to 'cashier'"
    assert told[0][:3] == ["version 1 became version 2", renaming, "version 2 became version 3"]


async def test_a_run_of_the_second_version_needs_only_the_rest_of_the_chain(storage: Any) -> None:
    await later(storage, "cashier", version=2).run(CUP, run_id="r")
    await later(storage, "cashier", migrations=[THIRD]).run(run_id="r")
    assert dict((await storage.get_latest(run_id="r")).state) == {"euros": 3.0}


async def test_versions_that_no_chain_leads_over_are_refused(storage: Any) -> None:
    await first(storage).run(CUP, run_id="r")
    with pytest.raises(GraphChanged, match=r"no migration leads from 1 to 2: the first one leads to version 3"):
        await later(storage, "cashier", migrations=[THIRD]).run(run_id="r")
    with pytest.raises(GraphChanged, match="to 2: there are none"):
        await later(storage, version=2).run(run_id="r")
    await later(storage, "cashier", migrations=ALL).run(run_id="r")
    with pytest.raises(GraphChanged, match="stored by version 3 of the workflow, and this code is version 2"):
        await later(storage, "cashier", migrations=[SECOND]).run(run_id="r")


async def test_a_migration_that_fails_changes_nothing(storage: Any) -> None:
    await first(storage).run(CUP, run_id="r")
    before = await storage.list_checkpoint_ids(run_id="r")
    broken = Migration(2).rename_executor("till", "cashier").change_state("cents", lambda cents: cents["x"])
    with pytest.raises(MigrationFailed, match=r"version 2, state\['cents'\] changed: TypeError"):
        await later(storage, "cashier", migrations=[broken]).run(run_id="r")
    assert await storage.list_checkpoint_ids(run_id="r") == before
    assert (await first(storage).run(run_id="r", responses={"sure?": True})).get_outputs() == [("cup", 300, None)]


async def test_forks_and_runs_that_are_moved_back_are_migrated_from_where_they_begin(storage: Any) -> None:
    await first(storage).run(CUP, run_id="r")
    asked = await storage.get_latest(run_id="r")
    await first(storage).run(run_id="r", responses={"sure?": True})
    newest = later(storage, "cashier", migrations=ALL)
    options = {"checkpoint_id": asked.checkpoint_id, "run_id": "fork", "responses": {"sure?": True}}
    assert (await newest.run(**options)).get_outputs() == [("cup", None, 3.0)]
    await fork(storage, asked.checkpoint_id, run_id="by hand")  # nobody's code was there
    assert (await newest.run(run_id="by hand", responses={"sure?": True})).get_outputs() == [("cup", None, 3.0)]
    handle = newest.attach("r", drive=True)
    (at, *_) = [one for one in await handle.checkpoints() if one.checkpoint_id == asked.checkpoint_id]
    await handle.restore(at)
    moved = await storage.get_latest(run_id="r")
    assert dict(moved.state) == {"euros": 3.0}
    for run_id, kinds in {"fork": 1, "by hand": 1, "r": 1}.items():
        told = [event for event in await storage.event_history(run_id) if event.type == "migrated"]
        assert len(told) == kinds
    assert (await newest.run(run_id="r", responses={"sure?": True})).get_outputs() == [("cup", None, 3.0)]


async def test_a_run_that_keeps_only_its_latest_is_migrated(storage: Any) -> None:
    storage.retention = LatestOnly
    await first(storage).run(CUP, run_id="r")
    newest = later(storage, "cashier", migrations=ALL)
    assert (await newest.run(run_id="r", responses={"sure?": True})).get_outputs() == [("cup", None, 3.0)]


# --- the superstep that is under way ----------------------------------------------------------------------------------


class Texts(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[Any]) -> None: ...


class Hand(Executor):
    @handler
    async def take(self, number: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(number)


class Sum(Executor):
    @handler
    async def take(self, numbers: list[int], ctx: WorkflowContext[None, int]) -> None:
        await ctx.yield_output(sum(numbers))


class Pair:
    """Two side by side, the second of which fails as long as it is broken, and one that gathers what they send."""

    def __init__(self, storage: Any) -> None:
        self.storage, self.broken, self.calls = storage, True, list[str]()

    def build(self, left: str = "left", **options: Any) -> Workflow:
        @executor(id="start")
        async def start(number: int, ctx: WorkflowContext[int]) -> None:
            await ctx.send_message(number)

        @executor(id=left)
        async def fine(number: int, ctx: WorkflowContext[int]) -> None:
            self.calls.append(left)
            ctx.set_state("cents", 100)
            await ctx.send_message(number)

        @executor(id="right")
        async def shaky(number: int, ctx: WorkflowContext[int]) -> None:
            self.calls.append("right")
            if self.broken:
                raise ValueError("not yet")
            await ctx.send_message(number)

        @executor(id="join")
        async def join(numbers: list[int], ctx: WorkflowContext[None, Any]) -> None:
            await ctx.yield_output((numbers, ctx.get_state("cents")))

        builder = WorkflowBuilder(name="pair", start_executor=start, checkpoint_storage=self.storage, **options)
        builder.add_fan_out_edges(start, [fine, shaky])
        return builder.add_fan_in_edges([fine, shaky], join).build()

    async def begun(self) -> None:
        with pytest.raises(HandlerFailed):
            await self.build().run(1, run_id="r")
        self.broken = False
        self.calls.clear()


async def test_what_had_finished_is_not_done_again_by_the_next_version(storage: Any) -> None:
    pair = Pair(storage)
    await pair.begun()
    step = Migration(2).rename_executor("left", "first").change_state("cents", lambda cents: cents / 100)
    newest = pair.build("first", migrations=[step])
    assert (await newest.run(run_id="r")).get_outputs() == [([1, 1], 1.0)]
    assert pair.calls == ["right"]


async def test_nobody_changes_places_in_a_superstep_that_is_under_way(storage: Any) -> None:
    pair = Pair(storage)
    await pair.begun()
    step = Migration(2).redirect_messages("left", "right")
    with pytest.raises(
        GraphChanged, match="in the middle of a superstep, and the migration changes who receives its messages"
    ):
        await pair.build(migrations=[step]).run(run_id="r")
    afresh = pair.build(migrations=[Migration(2).drop_messages("left")])
    head = await storage.get_latest(run_id="r")
    forked = await afresh.run(checkpoint_id=head.checkpoint_id, run_id="fork")
    assert (forked.get_outputs(), pair.calls) == ([], ["right"])  # half of what the fan-in waits for was dropped


async def test_what_two_versions_finished_in_one_superstep_is_not_done_again_by_the_second(storage: Any) -> None:
    calls, broken = list[str](), {"b", "c"}

    def three(first: str, **options: Any) -> Workflow:
        def one(id: str) -> Executor:
            @executor(id=id)
            async def work(number: int, ctx: WorkflowContext[int]) -> None:
                calls.append(id)
                if id in broken:
                    raise ValueError("not yet")
                await ctx.send_message(number)

            return work

        start, last = one("start"), Sum("sum")
        side_by_side = [one(first), one("b"), one("c")]
        builder = WorkflowBuilder(name="three", start_executor=start, checkpoint_storage=storage, **options)
        return builder.add_fan_out_edges(start, side_by_side).add_fan_in_edges(side_by_side, last).build()

    with pytest.raises(HandlerFailed):
        await three("a").run(1, run_id="r")
    newest = {"migrations": [Migration(2).rename_executor("a", "z")]}
    broken.remove("b")
    with pytest.raises(HandlerFailed):
        await three("z", **newest).run(run_id="r")
    broken.clear()
    assert (await three("z", **newest).run(run_id="r")).get_outputs() == [3]
    assert [calls.count(id) for id in ("a", "z", "b")] == [1, 0, 2]


async def test_what_may_have_been_tried_keeps_its_keys_or_is_refused(storage: Any) -> None:
    keys: dict[str, set[str]] = {"left": set(), "right": set()}
    broken = True

    def two(*steps: Migration) -> Workflow:
        def one(id: str) -> Executor:
            @executor(id=id)
            async def pay(number: int, ctx: WorkflowContext[int]) -> None:
                keys[id].add(ctx.idempotency_key)
                await asyncio.sleep(0)
                if broken:
                    raise ValueError("not yet")

            return pay

        start, both = Hand("start"), [one("left"), one("right")]
        builder = WorkflowBuilder(name="two", start_executor=start, checkpoint_storage=storage, migrations=steps)
        return builder.add_fan_out_edges(start, both).build()

    with pytest.raises(HandlerFailed):
        await two().run(1, run_id="r")
    broken = False
    with pytest.raises(
        GraphChanged, match="may already have started, and would run again under other idempotency keys"
    ):
        await two(Migration(2).drop_messages("left")).run(run_id="r")
    await two(Migration(2).drop_messages("right")).run(run_id="r")  # nobody comes after it
    assert len(keys["left"]) == 1


async def test_a_handler_that_takes_something_else_now_is_refused_before_it_is_called(storage: Any) -> None:
    pair = Pair(storage)
    await pair.begun()

    other = WorkflowBuilder(name="pair", start_executor="start", checkpoint_storage=storage, on_unroutable="drop")
    other.add_fan_out_edges(Texts("start"), [Texts("left"), Texts("right")])
    with pytest.raises(GraphChanged, match="in flight to 'right' is of type int, but 'right' accepts str"):
        await other.build().run(run_id="r")


async def test_a_run_that_sleeps_sleeps_on_after_it_was_taken_over(storage: Any) -> None:
    def sleeping(*more: Executor) -> Workflow:
        @executor(id="sleeper")
        async def sleeper(text: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.sleep(timedelta(days=1))
            await ctx.yield_output(text)

        builder = WorkflowBuilder(name="sleeping", start_executor=sleeper, checkpoint_storage=storage)
        for one in more:
            builder.add_edge(sleeper, one)
        return builder.build()

    asleep = await sleeping().run("awake", run_id="r")
    again = await sleeping(Texts("texts")).run(run_id="r")
    assert again.wakes_at == asleep.wakes_at
    (due,) = await storage.ready_runs(by=again.wakes_at)
    assert due.run_id == "r"
    assert [event.type for event in await storage.event_history("r") if event.type in ("migrated", "sleeping")] == [
        "sleeping",
        "migrated",
    ]


# --- what lies there, and what is kept --------------------------------------------------------------------------------


class Forgetful(Till):
    """Keeps what it kept by another name."""

    seen = 0
    count = persistent(0)


class Wordy(Till):
    @response_handler
    async def decided(self, original_request: Order, response: str, ctx: WorkflowContext[Order]) -> None:  # type: ignore[override]
        await ctx.send_message(original_request)


def with_till(cls: type[Till], storage: Any, *steps: Migration) -> Workflow:
    till = cls("till")
    builder = WorkflowBuilder(name="orders", start_executor=till, checkpoint_storage=storage, migrations=steps)
    return builder.add_edge(till, Ship("ship")).build()


async def test_what_an_executor_keeps_by_a_name_that_is_gone_is_not_forgotten_silently(storage: Any) -> None:
    await first(storage).run(CUP, run_id="r")
    with pytest.raises(GraphChanged, match="no longer declares state that this run has of it: 'seen'"):
        await with_till(Forgetful, storage).run(run_id="r", responses={"sure?": True})
    step = Migration(2).change_executor_state("till", lambda kept: {"count": kept["seen"]})
    await with_till(Forgetful, storage, step).run(run_id="r", responses={"sure?": True})
    head = await storage.get_latest(run_id="r")
    assert head.executor_states["till"] == {"count": 1}


async def test_an_answer_that_lies_there_and_would_not_be_taken_strands_nobody() -> None:
    """The process that answered died before the answer was taken in; the next version asks for another type."""
    store = MemoryStore()
    storage = BuiltInStorage(store)
    await first(storage).run(CUP, run_id="r")
    with pytest.raises(Crash):
        await first(BuiltInStorage(CrashingStore(store, 1, after=True))).run(run_id="r", responses={"sure?": True})
    newest = with_till(Wordy, storage, Migration(2).change_requests("till", response_type=str))
    (checked,) = (await check(storage, newest)).runs
    assert (checked.verdict, "a response of type bool to 'sure?' is pending" in checked.why[0]) == (
        "incompatible",
        True,
    )
    with pytest.raises(GraphChanged, match="a response of type bool to 'sure\\?' is pending"):
        await newest.run(run_id="r")
    assert (await first(storage).run(run_id="r")).get_outputs() == [("cup", 300, None)]


# --- runs inside ------------------------------------------------------------------------------------------------------


def around(inner: Workflow, storage: Any, name: str = "inside", **options: Any) -> Workflow:
    nested = WorkflowExecutor(inner, name, allow_direct_output=True)
    return WorkflowBuilder(name="around", start_executor=nested, checkpoint_storage=storage, **options).build()


async def test_a_run_inside_is_migrated_by_its_own_workflow_and_the_one_around_by_its_own(storage: Any) -> None:
    await around(first(None), storage).run(CUP, run_id="r")
    outer = Migration(2).rename_executor("inside", "within")
    newest = around(later(None, "cashier", migrations=ALL), storage, "within", migrations=[outer])
    result = await newest.run(run_id="r", responses={"sure?": True})
    assert result.get_outputs() == [("cup", None, 3.0)]


async def test_a_run_inside_whose_workflow_cannot_go_on_says_so(storage: Any) -> None:
    await around(first(None), storage).run(CUP, run_id="r")
    with pytest.raises(GraphChanged, match="executor 'till' was removed, but this run has state of it: 'seen'"):
        await around(later(None, "cashier"), storage).run(run_id="r", responses={"sure?": True})
    result = await around(first(None), storage).run(run_id="r")  # the answer was taken in out here
    assert result.get_outputs() == [("cup", 300, None)]


# --- dying ------------------------------------------------------------------------------------------------------------


async def test_a_migration_that_dies_before_or_after_any_write_comes_to_the_same() -> None:
    """The first version asks; the newest takes over, dies at each write in turn, and goes on."""
    for write in range(1, 30):
        for after in (False, True):
            store = MemoryStore()
            await first(BuiltInStorage(store)).run(CUP, run_id="r")
            faulty = BuiltInStorage(CrashingStore(store, write, after=after))
            died = False
            try:
                await later(faulty, "cashier", migrations=ALL).run(run_id="r", responses={"sure?": True})
            except Crash:
                died = True
            sound = BuiltInStorage(store)
            newest = later(sound, "cashier", migrations=ALL)
            result = await newest.run(run_id="r")
            if result.get_final_state() is not IDLE:
                result = await newest.run(run_id="r", responses={"sure?": True})
            assert result.get_outputs() == [("cup", None, 3.0)], (write, after)
            head = await sound.get_latest(run_id="r")
            assert head is not None
            assert (dict(head.state), dict(head.executor_states)["cashier"]) == ({"euros": 3.0}, {"seen": 12})
            told = [event for event in await sound.event_history("r") if event.type == "migrated"]
            assert len(told) == 1, (write, after)
        if not died:
            return
    pytest.fail("it never came to its end")
