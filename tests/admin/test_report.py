"""What a report says first, and what it says of times, messages, agents and people."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RetryPolicy,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from stepwell.admin import cancel, report_run, respond
from stepwell.admin.overview.timeline import lay_out_time
from stepwell.agents.scripted import Calls, ScriptedAgent
from stepwell.model.commit import Commit, CommitKind, Done, Stamp
from stepwell.model.event import WorkflowErrorDetails, WorkflowRunState
from stepwell.model.timing import CallTime, StepRecord
from tests.admin.test_pages import page

BEGUN = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)


class Clerk(Executor):
    @handler
    async def order(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("order", text)
        await ctx.request_info(f"Ship {text}?", bool, request_id="ship")

    @response_handler
    async def decided(self, question: str, yes: bool, ctx: WorkflowContext[str, str]) -> None:
        if not yes:
            raise ValueError("nobody wants it")
        await ctx.yield_output("shipped")


def clerks(storage: Any) -> Workflow[Any]:
    return WorkflowBuilder(name="orders", start_executor=Clerk("clerk"), checkpoint_storage=storage).build()


def lead(html: str) -> str:
    found = re.search(r'<span class="pill (\w+)">(\w+)</span></header><p class="lead">(.*?)</p>', html)
    assert found is not None
    assert found[1] == found[2]
    return f"{found[2]}: {found[3]}"


async def test_the_status_and_one_sentence_come_first() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = clerks(storage)
    await workflow.run("a cup", run_id="r")
    assert lead(await report_run(storage, "r")) == (
        "waiting: Run r of orders is waiting for a response. clerk asks: Ship a cup?"
    )
    await workflow.run(run_id="r", responses={"ship": True})
    assert re.fullmatch(
        r"completed: Run r of orders is completed; it took \d+ m?s\.", lead(await report_run(storage, "r"))
    )
    await workflow.run("a cup", run_id="s")
    with pytest.raises(HandlerFailed):
        await workflow.run(run_id="s", responses={"ship": False})
    html = await report_run(storage, "s")
    assert lead(html) == "failed: Run s of orders failed in clerk: ValueError: nobody wants it; a resume calls clerk."
    traceback = re.search(r"<details open><summary>Traceback(.*?)</summary><pre>(.*?)</pre>", html, re.DOTALL)
    assert traceback is not None
    assert re.search(r"without \d+ lines of frames that are not yours", traceback[1])
    assert "nobody wants it" in traceback[2]
    assert "superstep.py" not in traceback[2]
    await workflow.run("a cup", run_id="t")
    await cancel(storage, "t", by="ada", reason="too late")
    assert lead(await report_run(storage, "t")) == (
        "cancelled: Run t of orders was cancelled by ada (too late); nothing was in progress."
    )


async def test_a_sleeping_and_a_stopped_run_say_what_is_next() -> None:
    storage = InMemoryCheckpointStorage()

    @executor(id="nap")
    async def nap(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(days=2))

    workflow = WorkflowBuilder(name="naps", start_executor=nap, checkpoint_storage=storage).build()
    await workflow.run("x", run_id="r")
    assert re.match(
        r"sleeping: Run r of naps is sleeping until [\d-]+ [\d:]+ UTC", lead(await report_run(storage, "r"))
    )
    stream = clerks(storage).run_streaming("a cup", run_id="s")
    async for event in stream:
        if event.type == "superstep_started":
            break
    await stream.aclose()
    assert re.fullmatch(
        r"stalled: Run s of orders is stalled: process \d+ on \S+ stopped driving it, and its last commit was .* ago; "
        r"a resume calls clerk. No live worker drives runs of orders.",
        lead(await report_run(storage, "s")),
    )


async def test_input_output_and_answers_are_shown_with_who_gave_them() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = clerks(storage)
    await workflow.run("a cup", run_id="r", tags={"shop": "north"})
    await respond(storage, "r", "ship", True, by="ada", comment="it is paid")
    await workflow.run(run_id="r")
    html = await report_run(storage, "r")
    assert re.search(r'<h2>Input</h2><div class="card"><span class="text">a cup</span></div>', html)
    assert re.search(r'<h2>Output</h2><div class="card"><span class="text">shipped</span></div>', html)
    words = (await page(storage, "r")).words
    assert re.search(r"ada answered clerk, [\d-]+ [\d:]+ UTC true“it is paid”", words)
    assert "Tag shop" in words
    assert re.search(r"Started [\d-]+ [\d:]+ UTC · worked [\d.]+ \w+ of [\d.]+ \w+", words)


async def test_nothing_that_is_empty_is_on_the_page() -> None:
    storage = InMemoryCheckpointStorage()
    await clerks(storage).run("a cup", run_id="r")
    html = await report_run(storage, "r")
    headings = re.findall(r"<h2>(.*?)</h2>", html)
    assert headings == ["Input", "Open requests", "Graph", "Timeline", "What happened", "State", "About the run"]
    for nothing in ("Output", "State of executors", "Messages in flight", "Held by", "nothing</p>", "<ul></ul>"):
        assert nothing not in html
    assert not re.search(r"<(div|section|p|dl|dd|ul|b)[^>]*></\1>", html)


async def test_messages_are_cards_with_their_receivers() -> None:
    storage = InMemoryCheckpointStorage()

    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[dict[str, Any]]) -> None:
        ctx.set_state("seen", 1)
        await ctx.send_message({"text": text, "price": 12})

    @executor(id="left")
    async def left(message: dict[str, Any], ctx: WorkflowContext[str]) -> None:
        await ctx.send_message("from left")

    @executor(id="right")
    async def right(message: dict[str, Any], ctx: WorkflowContext[str]) -> None:
        await ctx.send_message("from right")

    @executor(id="last")
    async def last(texts: list[str], ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(" and ".join(texts))

    builder = WorkflowBuilder(name="cards", start_executor=first, checkpoint_storage=storage)
    await (
        builder.add_fan_out_edges(first, [left, right])
        .add_fan_in_edges([left, right], last)
        .build()
        .run("a cup", run_id="r")
    )
    html = (await report_run(storage, "r")).replace("&quot;", '"')
    assert '→ left, right</span> <code>{"text":"a cup","price":12}</code></div>' in html
    assert '→ last (fan-in)</span> <span class="text">from left</span></div>' in html
    assert 'output</span> <span class="text">from left and from right</span></div>' in html
    assert "+ state.seen: 1" in html
    assert "messages[" not in html


@executor(id="fails")
async def fails(text: str, ctx: WorkflowContext[None, str]) -> None:
    raise ValueError("no stamps")


def look_up(order: int) -> str:
    return f"order {order} is <paid>"


async def test_a_turn_of_an_agent_is_a_conversation_with_its_calls() -> None:
    storage = InMemoryCheckpointStorage()
    calls = Calls(("look_up", {"order": 7}), text="let me see")
    agent = AgentExecutor(ScriptedAgent("clerk", [calls, "It is <b>paid</b>."], tools={"look_up": look_up}))
    await (
        WorkflowBuilder(name="talk", start_executor=agent, checkpoint_storage=storage)
        .build()
        .run("Is order 7 paid?", run_id="r")
    )
    html = await report_run(storage, "r")
    talk = html[html.index("What happened") :]
    heard = talk.index('<div class="says user"><b>user</b><span class="text">Is order 7 paid?')
    model = talk.index('<div class="says">model 1')
    tool = talk.index('<div class="says">tool look_up {&quot;order&quot;: 7} → order 7 is &lt;paid&gt;')
    answered = talk.index('<div class="says assistant"><b>clerk</b><span class="text">It is &lt;b&gt;paid&lt;/b&gt;.')
    assert heard < model < tool < answered
    assert "1 change of the state" in talk  # what was spent
    # What its executor keeps of the turn is those calls again, and what it spent is a sentence.
    state = talk[talk.index("<h2>State</h2>") :]
    assert "<dt>agents/clerk/usage</dt><dd>2 model calls, 1 tool call, " in state
    assert "agents/clerk/stand" not in state
    assert "AgentProgress" not in state


async def test_the_steps_of_a_handler_that_is_no_agent_are_not_a_conversation() -> None:
    @executor(id="look")
    async def look(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(await ctx.step("shout", str.upper, text))

    storage = InMemoryCheckpointStorage()
    await WorkflowBuilder(name="looks", start_executor=look, checkpoint_storage=storage).build().run("x", run_id="r")
    html = await report_run(storage, "r")
    assert '<div class="steps"><div class="says">step shout' in html
    assert 'class="talk"' not in html


async def test_a_failed_run_shows_its_error_once_on_top_and_its_message_in_flight() -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(HandlerFailed):
        await WorkflowBuilder(name="f", start_executor=fails, checkpoint_storage=storage).build().run("x", run_id="r")
    html = await report_run(storage, "r")
    assert "<h2>In progress</h2>" not in html
    flying = html[html.index("<h2>Messages in flight</h2>") :]
    assert '<span class="soft small">→ fails</span> <span class="text">x</span>' in flying


async def test_a_report_says_when_it_was_written_and_how_long_the_run_took() -> None:
    storage = InMemoryCheckpointStorage()
    await clerks(storage).run("x", run_id="r")
    html = await report_run(storage, "r")
    assert re.search(r" · written 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC</p>", html)
    assert re.search(r'<div class="axis"><span>20[^<]* UTC</span><span>\+\d+[^<]*s</span></div>', html)


async def test_the_page_fits_a_narrow_screen() -> None:
    storage = InMemoryCheckpointStorage()
    await clerks(storage).run("a" * 400, run_id="r" * 200)
    html = await report_run(storage, "r" * 200)
    assert '<meta name="viewport" content="width=device-width">' in html
    assert "@media (max-width:640px)" in html
    assert "overflow-wrap:anywhere" in html
    # Only the drawing has a width in pixels, and it shrinks.
    body = re.sub(r"<svg.*?</svg>|<style>.*?</style>", "", html, flags=re.DOTALL)
    assert not re.search(r'width[:=]"?\d+(\.\d+)?(px|rem)?[";]', body)
    assert re.search(r'<div class="graph" style="--wide:\d+px"><svg', html)


async def test_retries_are_drawn_in_the_timeline_of_a_real_run() -> None:
    storage, tries = InMemoryCheckpointStorage(), []

    class Flaky(Executor):
        @handler
        async def go(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            tries.append(text)
            await asyncio.sleep(0.01)
            if len(tries) < 3:
                raise ConnectionError("no")
            await ctx.yield_output(text)

    flaky = Flaky("flaky", retry=RetryPolicy(max_attempts=3, initial_interval=0.01))
    await WorkflowBuilder(name="flaky", start_executor=flaky, checkpoint_storage=storage).build().run("x", run_id="r")
    html = await report_run(storage, "r")
    track = html[html.index("Timeline") : html.index("What happened")]
    assert re.search(r'<i class="retried" style="left:[\d.]+%;width:[\d.]+%" title="flaky: 2 earlier attempts', track)
    assert re.search(r'<i class="ran" style="left:[\d.]+%;width:[\d.]+%" title="flaky: \d+ ms, attempt 3"></i>', track)
    assert "attempt 3" in html[html.index("What happened") :]


def commit(number: int, seconds: float, status: WorkflowRunState, **facts: Any) -> Commit:
    at = (BEGUN + timedelta(seconds=seconds)).isoformat()
    kind = facts.pop("kind", CommitKind.SUPERSTEP)
    return Commit(number, kind, Stamp(str(number), at), status, iteration=number, since_input=0, place=number, **facts)


def done(executor_id: str, began: float, seconds: float, **facts: Any) -> Done:
    time = CallTime((BEGUN + timedelta(seconds=began)).isoformat(), round(seconds * 1_000_000))
    return Done(f"{executor_id}.0", executor_id, (), (), time=time, **facts)


RUNNING, WAITING = WorkflowRunState.IN_PROGRESS, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


def test_there_is_a_bar_for_each_call_to_scale() -> None:
    steps = (StepRecord("pay"),)
    timeline = lay_out_time(
        [
            commit(0, 0, RUNNING, kind=CommitKind.INPUT),
            commit(1, 2, RUNNING, done=(done("a", 0, 1), done("b", 0, 2))),
            commit(2, 4, WorkflowRunState.IDLE, done=(done("c", 2, 2, steps=steps),)),
        ]
    )
    assert timeline is not None
    assert [(bar.executor, bar.kind, round(bar.left, 2), round(bar.width, 2)) for bar in timeline.bars] == [
        ("a", "ran", 0, 0.25),
        ("b", "ran", 0, 0.5),
        ("c", "ran", 0.5, 0.5),
    ]
    assert timeline.bars[2].words == "c: 2.0 s, 1 step"
    assert timeline.waits == ()
    assert timeline.working == 4


def test_long_waits_are_drawn_short_and_say_why_and_how_long() -> None:
    failure = WorkflowErrorDetails("ValueError", "no", executor_id="b")
    day = 86_400.0
    timeline = lay_out_time(
        [
            commit(0, 0, RUNNING, kind=CommitKind.INPUT),
            commit(1, 2, WAITING, done=(done("a", 0, 2),)),
            commit(2, day, RUNNING, kind=CommitKind.INTAKE),
            commit(3, day + 4, WorkflowRunState.FAILED, kind=CommitKind.FAILED, failures=(failure,)),
            commit(4, 3 * day, RUNNING, by="ada", done=(done("b", 3 * day - 1, 1, attempts=2),)),
            commit(5, 3 * day + 2, WorkflowRunState.IDLE, done=(done("c", 3 * day, 2),)),
        ]
    )
    assert timeline is not None
    assert [wait.words for wait in timeline.waits] == [
        "waited for an answer: 23 h 59 min",
        "failed, until it was resumed by ada: 1 d 23 h",
    ]
    assert [(bar.executor, bar.kind) for bar in timeline.bars] == [
        *(("a", "ran"), ("b", "failed"), ("b", "retried"), ("b", "ran"), ("c", "ran"))
    ]
    assert all(0 <= bar.left <= bar.left + bar.width <= 1.000001 for bar in timeline.bars)
    assert all(wait.width < 0.13 for wait in timeline.waits)
    assert sum(bar.width for bar in timeline.bars) > 0.7


def test_a_failed_call_is_drawn_where_it_was_with_the_attempts_before_it() -> None:
    time = CallTime((BEGUN + timedelta(seconds=3)).isoformat(), 1_000_000)
    failure = WorkflowErrorDetails("ValueError", "no", executor_id="b", attempts=3, time=time)
    timeline = lay_out_time([commit(0, 0, RUNNING), commit(1, 4, WorkflowRunState.FAILED, failures=(failure,))])
    assert timeline is not None
    assert [(bar.kind, bar.left, bar.width, bar.words) for bar in timeline.bars] == [
        ("retried", 0, 0.75, "b: 2 earlier attempts failed"),
        ("failed", 0.75, 0.25, "b failed: ValueError"),
    ]


def test_a_call_that_was_cut_off_is_drawn_with_the_time_until_it_was_taken_over() -> None:
    paid = CallTime((BEGUN + timedelta(seconds=1)).isoformat(), 1_000_000)
    recalled = (StepRecord("pay", paid, recalled=True), StepRecord("ship"))
    timeline = lay_out_time(
        [
            commit(0, 0, RUNNING, kind=CommitKind.INPUT),
            commit(1, 60, RUNNING, done=(done("a", 0, 2), done("b", 58, 2, steps=recalled))),
            commit(2, 80, WorkflowRunState.IDLE, done=(done("c", 78, 2),)),
        ]
    )
    assert timeline is not None
    assert [(bar.executor, bar.kind) for bar in timeline.bars] == [
        *(("a", "ran"), ("b", "lost"), ("b", "ran"), ("c", "ran"))
    ]
    assert timeline.bars[1].words == "b: cut off; 1 step recalled"
    assert [wait.words for wait in timeline.waits] == [
        "cut off, and taken over after: 56.0 s",
        "no process drove it: 18.0 s",
    ]


def test_a_commit_that_took_its_time_is_no_sign_of_a_crash() -> None:
    timeline = lay_out_time(
        [
            commit(0, 0, RUNNING, kind=CommitKind.INPUT),
            commit(1, 2, RUNNING, done=(done("a", 0, 2),)),
            commit(2, 5.5, WAITING, done=(done("b", 4, 1),)),  # half a second after the call
            commit(3, 60, RUNNING, kind=CommitKind.INTAKE),
            commit(4, 62, WorkflowRunState.IDLE, done=(done("b", 60, 2),)),
        ]
    )
    assert timeline is not None
    assert [wait.words for wait in timeline.waits][-1] == "waited for an answer: 55.0 s"


def test_a_step_from_before_a_wait_is_no_sign_of_a_crash() -> None:
    asked = CallTime((BEGUN + timedelta(seconds=1)).isoformat(), 1_000_000)
    timeline = lay_out_time(
        [
            commit(0, 0, RUNNING, kind=CommitKind.INPUT),
            commit(1, 3, WAITING, done=()),
            commit(2, 60, RUNNING, kind=CommitKind.INTAKE),
            commit(
                3, 62, WorkflowRunState.IDLE, done=(done("b", 60, 2, steps=(StepRecord("x", asked, recalled=True),)),)
            ),
        ]
    )
    assert timeline is not None
    assert [bar.kind for bar in timeline.bars] == ["ran"]


def test_a_run_that_has_done_nothing_has_no_timeline() -> None:
    assert lay_out_time([commit(0, 0, RUNNING, kind=CommitKind.INPUT)]) is None


def test_clocks_that_differ_do_not_break_the_line() -> None:
    timeline = lay_out_time([commit(0, 0, RUNNING), commit(1, 1, WorkflowRunState.IDLE, done=(done("a", -3, 9),))])
    assert timeline is not None
    (bar,) = timeline.bars
    assert (bar.left, bar.width) == (0, 1)
