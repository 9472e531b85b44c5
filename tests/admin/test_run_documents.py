"""A run as data: everything that a page shows of it, without the command line and without its classes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    admin,
    executor,
    handler,
    response_handler,
)
from stepwell.agents import ScriptedAgent
from stepwell.agents.scripted import Calls
from stepwell.declarative import AgentWorkflow, AgentWorkflowInstance, Approval, Retries
from tests.support.agent_runs import clerking


@pytest.fixture
async def storage(tmp_path: Path) -> Any:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    yield storage
    await storage.close()


def texts_in(data: Any) -> Iterator[str]:
    """All keys and strings of JSON data."""
    if isinstance(data, dict):
        yield from data
        for value in data.values():
            yield from texts_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from texts_in(value)
    elif isinstance(data, str):
        yield data


def reviewing(storage: Any, critic: Any = None, *, retry: Retries | None = None) -> AgentWorkflowInstance:
    """Drafts, and reviews with a tool; a person approves the review."""
    critic = critic or ScriptedAgent(
        "critic", [Calls(("look_up", {"title": "kelp"})), "good"], tools={"look_up": lambda title: f"about {title}"}
    )
    return (
        AgentWorkflow.create()
        .with_name("Review")
        .with_checkpointing()
        .with_workflow_store(storage)
        .add_agent("draft", ScriptedAgent("writer", ["All about kelp."]))
        .add_agent("review", critic, approval=Approval(message="May it be used?"), retry=retry)
        .add_agent("publish", ScriptedAgent("publisher", ["published"]))
        .from_("draft")
        .to("review")
        .from_("review")
        .to("publish")
        .build()
    )


async def test_the_turn_of_an_agent_is_a_conversation_with_calls_and_approvals(storage: Any) -> None:
    workflow = clerking(storage)
    await workflow.run("order 7 is broken", run_id="clerk-1")
    (request,) = await admin.open_requests(storage, "clerk-1")
    run = await admin.describe_run(storage, "clerk-1")
    assert run["status"] == "waiting"
    (asked,) = run["turns"][0]["asked"]
    assert (asked["question"], asked["answer"]) == ("May clerk call refund(order=7, amount=900)?", None)
    await admin.respond(storage, "clerk-1", request.request_id, {"decision": "approve"}, by="ada", comment="fine")
    await workflow.run(run_id="clerk-1")
    run = await admin.describe_run(storage, "clerk-1")
    first, second = run["turns"]
    assert [message["text"] for message in first["heard"]] == ["order 7 is broken"]
    assert [(call["kind"], call["name"]) for call in first["calls"]] == [
        ("model", "1"),
        ("tool", "look_up"),
        ("model", "2"),
    ]
    assert (first["asked"][0]["answer"]["by"], first["asked"][0]["answer"]["comment"]) == ("ada", "fine")
    assert [message["text"] for message in second["said"]] == ["it is refunded"]
    assert second["calls"][0]["result"] == "refunded 900"
    assert json.loads(json.dumps(run)) == run
    assert not {"$", "v"} & {*texts_in({key: run[key] for key in ("input", "outputs", "turns", "answers", "state")})}


async def test_the_graph_has_positions_and_the_state_of_each_executor(storage: Any) -> None:
    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    @executor(id="last")
    async def last(text: str, ctx: WorkflowContext[None, str]) -> None:
        raise ValueError("no stamps")

    builder = WorkflowBuilder(name="letters", start_executor=first, checkpoint_storage=storage)
    with pytest.raises(HandlerFailed):
        await builder.add_edge(first, last).build().run("x", run_id="letter-1")
    run = await admin.describe_run(storage, "letter-1")
    assert {node["id"]: (node["state"], node["count"]) for node in run["graph"]["nodes"]} == {
        "first": ("ran", 1),
        "last": ("failed", 0),
    }
    (arrow,) = run["graph"]["edges"]
    assert (arrow["source"], arrow["target"]) == ("first", "last")
    assert arrow["state"] == "taken"  # nothing is on its way any more
    assert [(bar["executor"], bar["kind"], bar["commit"]) for bar in run["timeline"]["bars"]] == [
        ("first", "ran", 1),
        ("last", "failed", 2),
    ]
    assert [(commit["kind"], commit["status"], commit["executors"]) for commit in run["commits"]] == [
        ("input", "running", []),
        ("superstep", "running", ["first"]),
        ("failed", "failed", ["last"]),
    ]
    assert run["commits"][1]["seconds"] > 0
    assert run["newest"] == run["commits"][-1]["number"] == 2
    assert [node["lines"] for node in run["graph"]["nodes"]] == [["first"], ["last"]]
    (branch,) = run["branches"]
    assert (branch["executor"], branch["state"], branch["attempts"]) == ("last", "failed", 1)
    earlier = await admin.describe_run(storage, "letter-1@0")
    assert {node["id"]: node["state"] for node in earlier["graph"]["nodes"]} == {"first": "next", "last": "idle"}
    assert (earlier["number"], earlier["newest"]) == (0, 2)
    assert earlier["timeline"] is None


async def test_the_graph_of_a_fork_shows_what_ran_before_it_was_forked(storage: Any) -> None:
    @executor(id="write")
    async def write(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    class Stamp(Executor):
        @handler
        async def stamp(self, text: str, ctx: WorkflowContext[str]) -> None:
            if len(text) < 3:
                await ctx.send_message(text + "!", target_id="write")
            else:
                await ctx.request_info("Send it?", str)

        @response_handler
        async def finish(self, original_request: str, response: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message(response, target_id="send")

    @executor(id="send")
    async def send(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text)

    stamp = Stamp("stamp")
    builder = WorkflowBuilder(name="letters", start_executor=write, checkpoint_storage=storage)
    letters = builder.add_edge(write, stamp).add_edge(stamp, write).add_edge(stamp, send).build()
    await letters.run("x", run_id="letter")
    (request,) = await admin.open_requests(storage, "letter")
    await admin.fork(storage, "letter", run_id="copy")
    await admin.fork(storage, "copy", run_id="copy-of-copy", responses={request.request_id: "yes"})

    async def states(name: str) -> dict[str, tuple[str, int]]:
        nodes = (await admin.describe_run(storage, name))["graph"]["nodes"]
        return {node["id"]: (node["state"], node["count"]) for node in nodes}

    before = await states("letter")
    assert before == {"write": ("ran", 3), "stamp": ("waiting", 3), "send": ("idle", 0)}
    assert await states("copy") == before
    await letters.run(run_id="copy-of-copy")
    assert await states("copy-of-copy@0") == before
    # What ran in both counts as often as it ran here.
    after = {"write": ("ran", 3), "stamp": ("ran", 1), "send": ("ran", 1)}
    assert await states("copy-of-copy") == after
    run = await admin.describe_run(storage, "copy-of-copy")
    assert (run["input"], run["input_run"]) == ("x", "letter")
    nodes = run["graph"]["nodes"]
    assert {node["id"]: node.get("ran_in") for node in nodes} == {"write": "letter", "stamp": None, "send": None}
    # What the parent does later is not part of its forks.
    await admin.respond(storage, "letter", request.request_id, "no")
    await letters.run(run_id="letter")
    assert await states("copy") == before
    await storage._store.drop("copy")
    since = {"write": ("idle", 0), "stamp": ("ran", 1), "send": ("ran", 1)}
    assert await states("copy-of-copy") == since
    # Another run has the id now, and it led nowhere.
    await letters.run("xyz", run_id="copy")
    assert await states("copy-of-copy") == since


async def edges_of(storage: Any, name: str) -> dict[tuple[str, str], str | None]:
    edges = (await admin.describe_run(storage, name))["graph"]["edges"]
    return {(edge["source"].strip("\0"), edge["target"].strip("\0")): edge.get("state") for edge in edges}


async def test_an_arrow_is_taken_only_if_a_message_went_along_it(storage: Any) -> None:
    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    @executor(id="left")
    async def left(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    @executor(id="right")
    async def right(text: str, ctx: WorkflowContext[str]) -> None:
        if text != "late":
            await ctx.send_message(text)

    class Desk(Executor):
        @handler
        async def ask(self, texts: list[str], ctx: WorkflowContext[str]) -> None:
            await ctx.request_info("Which one?", str)

        @response_handler
        async def go(self, original_request: str, response: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message("late", target_id=response)

    @executor(id="end")
    async def end(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text)

    desk = Desk("desk")
    builder = WorkflowBuilder(name="arrows", start_executor=start, checkpoint_storage=storage)
    builder = builder.add_fan_out_edges(start, [left, right]).add_fan_in_edges([left, right], desk)
    workflow = builder.add_edge(desk, right).add_edge(desk, end).add_edge(right, end, condition=bool).build()
    await workflow.run("x", run_id="arrows-1")
    (request,) = await admin.open_requests(storage, "arrows-1")
    taken = {("start", "left"), ("start", "right"), ("left", "fan-in 0"), ("right", "fan-in 0"), ("fan-in 0", "desk")}
    untaken = {("desk", "right"), ("desk", "end")}

    async def states(name: str) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        edges = await edges_of(storage, name)
        return {ends for ends in edges if edges[ends] == "taken"}, {ends for ends in edges if edges[ends] == "current"}

    assert await states("arrows-1@0") == (set(), set())
    assert await states("arrows-1@1") == (set(), {("start", "left"), ("start", "right")})
    along = {("left", "fan-in 0"), ("right", "fan-in 0"), ("fan-in 0", "desk"), ("right", "end")}
    assert (await states("arrows-1@2"))[1] == along
    taken |= {("right", "end")}
    assert await states("arrows-1") == (taken, set())  # nothing has left the desk
    await admin.fork(storage, "arrows-1", run_id="arrows-2", responses={request.request_id: "right"})
    await admin.respond(storage, "arrows-1", request.request_id, "end")
    await workflow.run(run_id="arrows-1")
    assert (await states("arrows-1"))[0] & untaken == {("desk", "end")}
    await workflow.run(run_id="arrows-2")
    assert (await states("arrows-2"))[0] == taken | {("desk", "right")}


async def test_the_arrows_of_named_agents_are_those_that_their_nodes_took(storage: Any) -> None:
    workflow = reviewing(storage)
    await workflow.run("kelp", run_id="review-1")
    assert await edges_of(storage, "review-1") == {
        ("start", "draft"): "taken",
        ("draft", "review"): "taken",
        ("review", "publish"): None,
        ("publish", "end"): None,
    }
    (request,) = await admin.open_requests(storage, "review-1")
    await admin.respond(storage, "review-1", request.request_id, {"decision": "approve"})
    await workflow.run("kelp", run_id="review-1")
    assert set((await edges_of(storage, "review-1")).values()) == {"taken"}


async def test_who_asks_for_a_run_that_moves_follows_its_newest_commit(storage: Any) -> None:
    class Counter(Executor):
        @handler
        async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
            await asyncio.sleep(0.005)  # it is read in between
            await (ctx.send_message(number - 1) if number else ctx.yield_output(number))

    first, second = Counter("first"), Counter("second")
    builder = WorkflowBuilder(name="counting", start_executor=first, checkpoint_storage=storage)
    workflow = builder.add_edge(first, second).add_edge(second, first).build()
    running = asyncio.create_task(workflow.run(60, run_id="count-1"))
    numbers = set[int]()
    while not running.done():
        if await storage._store.run("count-1") is not None:
            run = await admin.describe_run(storage, "count-1")
            numbers.add(run["number"])
            assert run["number"] == run["newest"], run["sentence"]
        await asyncio.sleep(0)
    await running
    assert len(numbers) > 2, "it was not read while it moved"


async def test_a_graph_that_nobody_could_read_is_not_laid_out(storage: Any) -> None:
    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(text)

    def end(number: int) -> Any:
        @executor(id=f"end {number}")
        async def end(text: str, ctx: WorkflowContext[None, str]) -> None: ...

        return end

    builder = WorkflowBuilder(name="wide", start_executor=start, checkpoint_storage=storage)
    await builder.add_fan_out_edges(start, [end(n) for n in range(300)]).build().run("x", run_id="wide-1")
    assert (await admin.describe_run(storage, "wide-1"))["graph"] is None


async def test_a_run_of_named_agents_shows_its_nodes_and_no_conductor(storage: Any) -> None:
    await reviewing(storage).run("kelp", run_id="review-1")
    run = await admin.describe_run(storage, "review-1")
    assert run["input"] == "kelp"
    assert run["values"] == {"input": "kelp", "draft": "All about kelp."}
    assert run["sentence"].endswith("review asks: May it be used? good")
    assert run["progress"]["called"] == {"draft": 1, "review": 1}
    assert run["progress"]["not_called"] == ["publish"]
    assert {node["id"]: node.get("state") for node in run["graph"]["nodes"] if "\0" not in node["id"]} == {
        "draft": "ran",
        "review": "waiting",
        "publish": "idle",
    }
    assert {bar["executor"] for bar in run["timeline"]["bars"]} == {"draft", "review"}
    seen = {key: run[key] for key in ("sentence", "progress", "branches", "turns", "calls", "timeline", "graph")}
    assert not [text for text in texts_in(seen) if "conductor" in text]


@pytest.mark.parametrize(("number", "following"), [(0, "the definition decides"), (2, "what draft did decides")])
async def test_between_nodes_the_sentence_says_what_decides(storage: Any, number: int, following: str) -> None:
    await reviewing(storage).run("kelp", run_id="review-1")
    run = await admin.describe_run(storage, f"review-1@{number}")
    assert run["sentence"].endswith(f"; {following} what comes next.")
    assert run["progress"]["next"] == []


async def test_a_node_that_failed_is_resumed_with_its_definition_and_its_agents(storage: Any) -> None:
    async def broken(messages: Any) -> str:
        raise ConnectionError("the archive is down")

    with pytest.raises(HandlerFailed):
        await reviewing(storage, broken, retry=Retries(2, initial_delay=0)).run("kelp", run_id="review-1")
    run = await admin.describe_run(storage, "review-1")
    assert run["sentence"] == (
        "Run review-1 of Review failed in review: ConnectionError: the archive is down; a resume calls review."
    )
    assert run["command"] == ["stepwell", "resume", "--", "review-1", "MODULE:WORKFLOW"]
    (branch,) = run["branches"]
    assert (branch["executor"], branch["state"], branch["attempts"]) == ("review", "failed", 2)
    assert [call["name"] for call in branch["calls"]] == []  # a record of a failure is not a call


async def test_the_output_of_named_agents_is_that_of_the_last_node(storage: Any) -> None:
    workflow = reviewing(storage)
    await workflow.run("kelp", run_id="review-1")
    (request,) = await admin.open_requests(storage, "review-1")
    await admin.respond(storage, "review-1", request.request_id, {"decision": "approve"})
    await workflow.resume("review-1")
    run = await admin.describe_run(storage, "review-1")
    assert (run["status"], run["outputs"]) == ("completed", ["published"])
    report = await admin.report_run(storage, "review-1")
    assert '<span class="soft small">output</span> <span class="text">published</span>' in report
    assert "conductor" not in report


async def test_an_executor_of_that_name_in_a_graph_is_not_hidden(storage: Any) -> None:
    @executor(id="conductor")
    async def conductor(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text)

    await WorkflowBuilder(name="own", start_executor=conductor, checkpoint_storage=storage).build().run("x", run_id="o")
    run = await admin.describe_run(storage, "o@0")
    assert run["progress"]["next"] == ["conductor"]
    run = await admin.describe_run(storage, "o")
    assert run["progress"]["called"] == {"conductor": 1}
    assert [bar["executor"] for bar in run["timeline"]["bars"]] == ["conductor"]
    assert [node["id"] for node in run["graph"]["nodes"]] == ["conductor"]
    assert '<div class="call"><b>conductor</b>' in await admin.report_run(storage, "o")


async def test_the_history_of_a_run_is_read_as_events(storage: Any) -> None:
    await clerking(storage).run("order 7 is broken", run_id="clerk-1")
    events = [timed.to_dict() async for timed in admin.read_history(storage, "clerk-1")]
    assert [event["type"] for event in events if event.get("executor") == "clerk"] == [
        "request_info",
        "executor_completed",
    ]
    (run,) = await storage.list_runs()
    assert run.to_dict()["status"] == "waiting"
    assert json.loads(json.dumps([run.to_dict(), *events])) == [run.to_dict(), *events]


async def test_a_question_that_reads_as_a_sentence_is_not_repeated_as_fields(storage: Any) -> None:
    await reviewing(storage).run("kelp", run_id="review-1")
    html = await admin.report_run(storage, "review-1")
    assert "<h3>May it be used? good</h3>" in html
    assert "NodeApprovalRequest" not in html


async def test_the_graph_of_a_sub_workflow_is_part_of_its_callers_graph_once_it_is_opened(storage: Any) -> None:
    @executor(id="inspect")
    async def inspect(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(await ctx.ask(f"Is {text} good?", str))

    @executor(id="send")
    async def send(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text)

    check = WorkflowBuilder(name="check", start_executor=inspect).build()
    inner = WorkflowExecutor(check, "check", allow_direct_output=True)
    outer = WorkflowExecutor(WorkflowBuilder(name="shelf", start_executor=inner).build(), "shelf")
    workflow = (
        WorkflowBuilder(name="shop", start_executor=outer, checkpoint_storage=storage).add_edge(outer, send).build()
    )
    await workflow.run("it", run_id="r")
    closed = {node["id"]: node for node in (await admin.describe_run(storage, "r"))["graph"]["nodes"]}
    assert "run" not in closed["send"]
    assert "inner" not in closed["shelf"]
    shelf_run = closed["shelf"]["run"]
    (shelf, _) = (await admin.describe_run(storage, "r", opened=[shelf_run]))["graph"]["nodes"]
    (check_node,) = shelf["inner"]["nodes"]
    assert (check_node["id"], check_node["state"]) == ("check", "waiting")
    graph = (await admin.describe_run(storage, "r", opened=[shelf_run, check_node["run"]]))["graph"]
    (inspect_node,) = graph["nodes"][0]["inner"]["nodes"][0]["inner"]["nodes"]
    assert (inspect_node["id"], inspect_node["state"]) == ("inspect", "waiting")
    assert graph["nodes"][0]["height"] > shelf["height"] > closed["shelf"]["height"]
    (request,) = await admin.open_requests(storage, "r")
    await admin.respond(storage, "r", request.request_id, "yes", by="ada")
    await workflow.run(run_id="r")
    ended = await admin.describe_run(storage, "r", opened=[shelf_run])
    assert ended["graph"]["nodes"][0]["run"] == shelf_run
    assert ended["graph"]["nodes"][0]["inner"]["nodes"][0]["state"] == "ran"
    assert [(answer["by"], answer["commit"]) for answer in ended["answers"]] == [("ada", 2)]
