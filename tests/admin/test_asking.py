"""A handler asks, and continues after the answer: `ctx.ask`."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    InMemoryCheckpointStorage,
    LatestOnly,
    RequestExpired,
    ResponseRejected,
    RunContext,
    RunError,
    StoreUnavailable,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    workflow,
)
from stepwell.admin import examine, fork, respond
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FakeClock
from stepwell.testing.faults.crash import Crash, CrashingStore
from stepwell.testing.faults.wrapped_store import WrappedStore

WAITING, IDLE = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS, WorkflowRunState.IDLE


@dataclass
class Decision:
    granted: bool
    why: str = ""


CALLS: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def count(name: str) -> str:
    CALLS[name] += 1
    return name


class Clerk(Executor):
    """Does a step, asks, and does another step."""

    def __init__(self, id: str = "clerk", **options: Any) -> None:
        super().__init__(id)
        self.options = options

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        CALLS[f"{self.id} called"] += 1
        await ctx.step("before", count, f"{self.id} before")
        decision = await ctx.ask(f"{text}?", Decision, request_id=f"{self.id} {text}", **self.options)
        await ctx.step("after", count, f"{self.id} after")
        await ctx.yield_output(f"{self.id}: {decision.granted} {decision.why}".strip())


class Start(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


def alone(storage: Any, **options: Any) -> Workflow:
    return WorkflowBuilder(name="alone", start_executor=Clerk(**options), checkpoint_storage=storage).build()


def beside(storage: Any, *siblings: Executor) -> Workflow:
    builder = WorkflowBuilder(name="beside", start_executor=Start("start"), checkpoint_storage=storage)
    return builder.add_fan_out_edges("start", [Clerk(), *siblings]).build()


async def listed(storage: Any) -> list[str]:
    return [request.request_id for request in await storage.pending_requests()]


async def errors(storage: Any) -> list[Any]:
    return [found async for found in examine(storage) if getattr(found, "severity", "") == "error"]


async def test_a_handler_continues_after_the_answer(everywhere: Any) -> None:
    storage = everywhere()
    waiting = await alone(storage).run("tea", run_id="r")
    assert waiting.get_final_state() is WAITING
    assert [event.request_id for event in waiting.get_request_info_events()] == ["clerk tea"]
    assert await listed(storage) == ["clerk tea"]
    assert await errors(storage) == []
    again = await alone(storage).run(run_id="r")  # nothing to do: no handler is called
    assert (again.get_final_state(), CALLS["clerk called"]) == (WAITING, 1)
    assert [event.request_id for event in again.get_request_info_events()] == ["clerk tea"]
    await respond(storage, "r", "clerk tea", {"granted": True, "why": "fine"}, by="ann", comment="so be it")
    done = await alone(storage).run(run_id="r")
    assert (done.get_outputs(), done.get_final_state()) == (["clerk: True fine"], IDLE)
    assert CALLS == {"clerk called": 2, "clerk before": 1, "clerk after": 1}
    assert await listed(storage) == []
    assert await storage._store.pending_signals("r") == []
    (answer,) = [e async for e in storage.follow("r") if e.type == "request_answered"]
    assert (answer.request_id, answer.data, answer.by, answer.comment) == (
        "clerk tea",
        Decision(True, "fine"),
        "ann",
        "so be it",
    )
    with pytest.raises(ResponseRejected, match="answered already by 'ann'"):
        await respond(storage, "r", "clerk tea", {"granted": False})
    await storage.close()


async def test_responses_of_the_requested_class_are_accepted_and_others_refused(everywhere: Any) -> None:
    storage = everywhere()
    await alone(storage).run("tea", run_id="r")
    with pytest.raises(ResponseRejected, match="a Start is not Decision"):
        await alone(storage).run(run_id="r", responses={"clerk tea": Start("x")})
    done = await alone(storage).run(run_id="r", responses={"clerk tea": Decision(False)})
    assert done.get_outputs() == ["clerk: False"]
    await storage.close()


async def test_an_answer_of_another_type_frees_the_question(everywhere: Any) -> None:
    storage = everywhere()
    await alone(storage).run("tea", run_id="r")
    await respond(storage, "r", "clerk tea", {"granted": "perhaps"})
    again = await alone(storage).run(run_id="r")
    assert again.get_final_state() is WAITING
    assert any("is not accepted" in str(event.data) for event in again if event.type == "warning")
    (pending,) = await storage.pending_requests()
    assert pending.answered is None
    await respond(storage, "r", "clerk tea", {"granted": True})
    assert (await alone(storage).run(run_id="r")).get_outputs() == ["clerk: True"]
    await storage.close()


@dataclass
class Plan:
    days: int


@workflow(name="judge")
async def judge(text: str, ctx: RunContext) -> str:
    return str((await ctx.ask(f"{text}?", Decision)).granted)


async def test_json_of_another_type_is_refused_when_it_is_sent(everywhere: Any) -> None:
    storage = everywhere()

    @executor(id="planner")
    async def planner(text: str, ctx: WorkflowContext[str, str]) -> None:
        plan = await ctx.ask(f"{text}?", Plan | None)
        await ctx.yield_output(str(plan and plan.days))

    planning = WorkflowBuilder(name="planning", start_executor=planner, checkpoint_storage=storage).build()
    judging = judge.build(checkpoint_storage=storage)
    for number, (asks, wrong, right) in enumerate(
        [
            (alone(storage), {"granted": "perhaps"}, {"granted": False}),
            (judging, {"granted": True, "wy": "a typo"}, {"granted": False}),
            (planning, {"days": "two"}, {"days": 2}),
            (planning, {}, None),
        ]
    ):
        run_id = f"r{number}"
        await asks.run("tea", run_id=run_id)
        (pending,) = await storage.pending_requests(run_id=run_id)
        with pytest.raises(ResponseRejected, match="is not accepted: "):
            await asks.respond(run_id, pending.request_id, wrong)
        assert await storage._store.pending_signals(run_id) == []
        await asks.respond(run_id, pending.request_id, right)
        (output,) = (await asks.run(run_id=run_id)).get_outputs()
        assert output == ("clerk: False", "False", "2", "None")[number]
    await storage.close()


class Worker(Executor):
    """Works until it is released."""

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        CALLS["worker called"] += 1
        while not RELEASED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await ctx.yield_output("worked")


RELEASED: list[bool] = []


async def test_an_answer_that_comes_while_a_sibling_works_is_used_at_once(everywhere: Any) -> None:
    RELEASED.clear()
    storage = everywhere()
    workflow = beside(storage, Worker("worker"))
    handle = workflow.start("tea", run_id="r")
    async with asyncio.timeout(30):
        while not await listed(storage):  # noqa: ASYNC110 - what another task stores sets no event
            await asyncio.sleep(0.01)
        await respond(storage, "r", "clerk tea", {"granted": True})
        while not CALLS["clerk after"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await listed(storage) == []
        RELEASED.append(True)
        result = await handle.result()
    assert sorted(result.get_outputs()) == ["clerk: True", "worked"]
    assert (CALLS["clerk called"], CALLS["worker called"]) == (1, 1)
    assert [commit.kind.value for commit in await workflow._archive_on(storage).commits("r")] == [
        "input",
        "superstep",
        "superstep",
    ]
    await storage.close()


class Sleeper(Executor):
    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        CALLS["sleeper called"] += 1
        await ctx.sleep(3600)
        await ctx.yield_output("slept")


async def test_an_answer_is_used_while_a_sibling_sleeps(everywhere: Any) -> None:
    storage = everywhere()
    with FakeClock() as pass_time:
        workflow = beside(storage, Sleeper("sleeper"))
        assert (await workflow.run("tea", run_id="r")).get_final_state() is WAITING
        assert await listed(storage) == ["clerk tea"]
        await respond(storage, "r", "clerk tea", {"granted": True})
        await workflow.run(run_id="r")
        assert (CALLS["clerk after"], await listed(storage)) == (1, [])
        pass_time(hours=2)
        done = await workflow.run(run_id="r")
        assert sorted(done.get_outputs()) == ["clerk: True", "slept"]
        assert CALLS["clerk after"] == 1
    await storage.close()


async def test_two_handlers_may_ask_in_one_superstep(everywhere: Any) -> None:
    storage = everywhere()
    workflow = beside(storage, Clerk("other"))
    await workflow.run("tea", run_id="r")
    assert sorted(await listed(storage)) == ["clerk tea", "other tea"]
    await respond(storage, "r", "other tea", {"granted": True})
    assert (await workflow.run(run_id="r")).get_final_state() is WAITING
    assert await listed(storage) == ["clerk tea"]
    await respond(storage, "r", "clerk tea", {"granted": False})
    done = await workflow.run(run_id="r")
    assert sorted(done.get_outputs()) == ["clerk: False", "other: True"]
    assert [CALLS[f"{id} {when}"] for id in ("clerk", "other") for when in ("before", "after")] == [1] * 4
    answers = [e.request_id async for e in storage.follow("r") if e.type == "request_answered"]
    assert answers == ["other tea", "clerk tea"]
    await storage.close()


@executor(id="gather")
async def gathering(names: list[str], ctx: WorkflowContext[None, str]) -> None:
    async def one(name: str) -> str:
        await ctx.step(name, count, f"before {name}")
        granted = await ctx.ask(name, bool, request_id=name)
        return f"{await ctx.step(name, count, f'after {name}')} {granted}"

    await ctx.yield_output(" ".join(await asyncio.gather(*map(one, names))))


async def test_branches_of_a_handler_may_ask(everywhere: Any) -> None:
    storage = everywhere()
    workflow = WorkflowBuilder(name="gather", start_executor=gathering, checkpoint_storage=storage).build()
    await workflow.run(["a", "b", "c"], run_id="r")
    assert sorted(await listed(storage)) == ["a", "b", "c"]
    for name in ("b", "c", "a"):
        await respond(storage, "r", name, name != "b")
        result = await workflow.run(run_id="r")
    assert result.get_outputs() == ["after a True after b False after c True"]
    assert set(CALLS.values()) == {1}
    await storage.close()


@executor(id="twice")
async def asking_twice(text: str, ctx: WorkflowContext[None, str]) -> None:
    first = await ctx.ask("first?", str)
    second = await ctx.ask("second?", str)
    await ctx.yield_output(f"{text} {first} {second}")


@pytest.mark.parametrize("kind", ["memory", "none"])
async def test_a_handler_may_ask_one_question_after_the_other(kind: str) -> None:
    storage = InMemoryCheckpointStorage() if kind == "memory" else None
    workflow = WorkflowBuilder(name="twice", start_executor=asking_twice, checkpoint_storage=storage).build()
    result = await workflow.run("tea")
    for answer in ("one", "two"):
        (event,) = result.get_request_info_events()
        result = await workflow.run(responses={event.request_id: answer})
    assert result.get_outputs() == ["tea one two"]


@executor(id="plain")
def plain_function(text: str, ctx: WorkflowContext[None, str]) -> None:
    granted = ctx.ask_sync(f"{text}?", bool)
    ctx.yield_output(f"{text}: {granted}")


async def test_a_plain_function_asks_in_its_thread(everywhere: Any) -> None:
    storage = everywhere()
    workflow = WorkflowBuilder(name="plain", start_executor=plain_function, checkpoint_storage=storage).build()
    (event,) = (await workflow.run("tea", run_id="r")).get_request_info_events()
    assert (event.data, event.response_schema) == ("tea?", {"type": "boolean"})
    assert (await workflow.run(run_id="r", responses={event.request_id: True})).get_outputs() == ["tea: True"]
    await storage.close()


def nested(storage: Any) -> Workflow:
    inner = WorkflowBuilder(name="inner", start_executor=Clerk()).build()
    sub = WorkflowExecutor(inner, "sub", allow_direct_output=True)
    return WorkflowBuilder(name="outer", start_executor=sub, checkpoint_storage=storage).build()


async def test_a_handler_of_a_sub_workflow_asks_through_its_caller(everywhere: Any) -> None:
    storage = everywhere()
    assert (await nested(storage).run("tea", run_id="r")).get_final_state() is WAITING
    assert await listed(storage) == ["clerk tea"]
    await respond(storage, "r", "clerk tea", {"granted": True})
    done = await nested(storage).run(run_id="r")
    assert (done.get_outputs(), done.get_final_state()) == (["clerk: True"], IDLE)
    assert CALLS == {"clerk called": 2, "clerk before": 1, "clerk after": 1}
    await storage.close()


async def test_a_deadline_gives_the_default_or_an_error(everywhere: Any) -> None:
    storage = everywhere()
    hour = timedelta(hours=1)
    with FakeClock() as pass_time:
        late = Decision(False, "too late")
        await alone(storage, deadline=hour, default=late).run("tea", run_id="default")
        await alone(storage, deadline=hour).run("tea", run_id="none")
        pass_time(hours=2)
        done = await alone(storage, deadline=hour, default=late).run(run_id="default")
        assert done.get_outputs() == ["clerk: False too late"]
        with pytest.raises(RequestExpired, match="got no response"):
            await alone(storage, deadline=hour).run(run_id="none")
        assert await listed(storage) == []
    await storage.close()


async def test_a_run_that_waits_in_a_handler_is_cancelled_and_resumed(everywhere: Any) -> None:
    storage = everywhere()
    workflow = alone(storage)
    await workflow.run("tea", run_id="r")
    await workflow.attach("r").cancel()
    assert await listed(storage) == []
    assert (await workflow.run(run_id="r")).get_final_state() is WAITING
    assert await listed(storage) == ["clerk tea"]
    done = await workflow.run(run_id="r", responses={"clerk tea": Decision(True)})
    assert done.get_outputs() == ["clerk: True"]
    await storage.close()


async def test_a_fork_asks_again(everywhere: Any) -> None:
    storage = everywhere()
    workflow = alone(storage)
    await workflow.run("tea", run_id="r")
    await fork(storage, "r", run_id="s")
    assert await listed(storage) == ["clerk tea"]
    await workflow.run(run_id="s")
    assert await listed(storage) == ["clerk tea", "clerk tea"]
    await respond(storage, "s", "clerk tea", {"granted": True})
    assert (await workflow.run(run_id="s")).get_outputs() == ["clerk: True"]
    assert [request.run_id for request in await storage.pending_requests()] == ["r"]
    await storage.close()


async def test_a_failed_superstep_keeps_its_answers(everywhere: Any) -> None:
    storage, broken = everywhere(), [True]

    @executor(id="flaky")
    async def flaky(text: str, ctx: WorkflowContext[None, str]) -> None:
        granted = await ctx.ask(text, bool, request_id="q")
        if broken[0]:
            raise ValueError("broken")
        await ctx.yield_output(f"{granted}")

    workflow = WorkflowBuilder(name="flaky", start_executor=flaky, checkpoint_storage=storage).build()
    await workflow.run("tea", run_id="r")
    await respond(storage, "r", "q", True, by="ann")
    with pytest.raises(RunError):
        await workflow.run(run_id="r")
    assert await listed(storage) == []
    broken[0] = False
    assert (await workflow.run(run_id="r")).get_outputs() == ["True"]
    answers = [(e.request_id, e.by) async for e in storage.follow("r") if e.type == "request_answered"]
    assert answers == [("q", "ann")]
    await storage.close()


WORKFLOWS: dict[str, Any] = {
    "alone": alone,
    "two": lambda storage: beside(storage, Clerk("other")),
    "nested": nested,
    "gather": lambda storage: WorkflowBuilder(
        name="gather", start_executor=gathering, checkpoint_storage=storage
    ).build(),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", WORKFLOWS)
async def test_wherever_it_dies_every_answer_is_used_once(kind: str, after: bool) -> None:
    message: Any = ["a", "b"] if kind == "gather" else "tea"

    async def drive(storage: Any) -> list[str]:
        for _ in range(10):
            result = await WORKFLOWS[kind](storage).run(message, run_id="r")
            if result.get_final_state() is IDLE:
                return sorted(result.get_outputs())
            for pending in [each for each in await storage.pending_requests() if each.answered is None][:1]:
                await respond(storage, "r", pending.request_id, True if kind == "gather" else {"granted": True})
        raise AssertionError("it does not end")

    storage = InMemoryCheckpointStorage()
    counted = storage._store = CrashingStore(storage._store)
    expected = await drive(storage)
    for at in range(1, counted.writes + 1):
        CALLS.clear()
        storage = InMemoryCheckpointStorage()
        sound = storage._store
        storage._store = CrashingStore(sound, at, after=after)
        with pytest.raises(Crash):
            await drive(storage)
        storage._store = sound
        assert await drive(storage) == expected
        assert await listed(storage) == []
        assert await storage._store.pending_signals("r") == []
        answers = [e.request_id async for e in storage.follow("r") if e.type == "request_answered"]
        assert len(answers) == len(set(answers)) == (1 if kind in ("alone", "nested") else 2)


async def test_the_history_says_once_that_a_handler_asks(everywhere: Any) -> None:
    """A run that keeps only its latest checkpoint stores all open questions with each; only one of them is new."""
    storage = everywhere(retention=LatestOnly)
    workflow = beside(storage, Clerk("other"))
    await workflow.run("tea", run_id="r")
    parked = await workflow.run(run_id="r", responses={"clerk tea": Decision(True)})
    assert parked.get_final_state() is WAITING
    newest = (await storage.get_run("r")).number
    told = [e.type for e in await storage.event_history("r") if e.commit == newest]
    assert "request_answered" in told
    assert "request_info" not in told
    await storage.close()


async def test_a_store_that_fails_while_handlers_wait_fails_the_run() -> None:
    class Failing(WrappedStore):
        async def use(self, name: str, call: Any) -> Any:
            if name == "pending_signals":
                raise StoreUnavailable("gone")
            return await call()

    storage = BuiltInStorage(Failing(MemoryStore()))
    with pytest.raises(StoreUnavailable, match="gone"):
        await asyncio.wait_for(alone(storage).run("tea", run_id="r"), 20)


async def test_a_second_answer_is_refused_with_the_name_of_the_first_before_that_is_committed(everywhere: Any) -> None:
    storage, used, go = everywhere(), asyncio.Event(), asyncio.Event()

    @executor(id="slow")
    async def slow(text: str, ctx: WorkflowContext[None, str]) -> None:
        granted = await ctx.ask(text, bool, request_id="q")
        used.set()
        await go.wait()
        await ctx.yield_output(f"{granted}")

    workflow = WorkflowBuilder(name="slow", start_executor=slow, checkpoint_storage=storage).build()
    await workflow.run("tea", run_id="r")
    await workflow.respond("r", "q", True, by="ann")
    handle = workflow.attach("r", drive=True)
    async with asyncio.timeout(20):
        result = asyncio.ensure_future(handle.result())
        await used.wait()
        with pytest.raises(ResponseRejected, match="answered already by 'ann'"):
            await workflow.respond("r", "q", False, by="bo")
        go.set()
        assert (await result).get_outputs() == ["True"]
    await storage.close()
