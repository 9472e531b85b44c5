"""A checkpoint as users see it: immutable, plain as a dict, the same after any way there and back."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest

from stepwell import (
    CheckpointCorrupt,
    CheckpointMissing,
    CodecError,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowRunState,
    executor,
)
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.storage.checkpoint import WorkflowMessage


@dataclass
class Order:
    lines: list[str]


def shop(storage: Any) -> Workflow:
    @executor(id="a")
    async def a(order: Order, ctx: WorkflowContext[Order, str]) -> None:
        ctx.set_state("order", order)
        ctx.append_state("log", "a")
        await ctx.yield_output("from a")
        await ctx.send_message(order)

    @executor(id="b")
    async def b(order: Order, ctx: WorkflowContext[Order]) -> None:
        await ctx.send_message(order)

    @executor(id="c")
    async def c(order: Order, ctx: WorkflowContext[Order]) -> None:
        await ctx.send_message(order)
        await ctx.send_message(Order(["more"]))

    @executor(id="join")
    async def join(orders: list[Order], ctx: WorkflowContext[None, int]) -> None:
        await ctx.yield_output(sum(len(order.lines) for order in orders))

    return (
        WorkflowBuilder(start_executor=a, name="shop", checkpoint_storage=storage)
        .add_fan_out_edges(a, [b, c])
        .add_fan_in_edges([b, c], join)
        .build()
    )


async def test_it_holds_what_the_run_was_at_that_commit(storage: Any) -> None:
    await shop(storage).run(Order(["x"]), run_id="r")
    first, second, third, last = await storage.list_checkpoints(run_id="r")
    assert (first.iteration_count, last.iteration_count) == (0, 3)
    assert first.messages["input"][0].data == Order(["x"])
    assert [m.data for m in third.messages["c"]] == [Order(["x"]), Order(["more"])]
    assert second.state["order"] == Order(["x"])
    assert second.state["log"] == ["a"]
    assert set(second.executor_states) == {"a", "b", "c", "join"}
    assert [one.previous_checkpoint_id for one in (first, second)] == [None, first.checkpoint_id]
    assert last.status is WorkflowRunState.IDLE
    assert (last.workflow_name, last.run_id) == ("shop", "r")
    assert last.graph_signature["start"] == "a"


async def test_it_cannot_be_changed(storage: Any) -> None:
    await shop(storage).run(Order(["x"]))
    checkpoint = (await storage.list_checkpoints())[1]
    with pytest.raises(FrozenInstanceError):
        checkpoint.run_id = "other"
    for part in (checkpoint.state, checkpoint.messages, checkpoint.executor_states, checkpoint.metadata):
        with pytest.raises(TypeError):
            part["order"] = None
    checkpoint.state["order"].lines.append("y")
    assert checkpoint.state["order"] == Order(["x"])


WAYS = {
    "to_dict": lambda c: WorkflowCheckpoint.from_dict(c.to_dict()),
    "json": lambda c: WorkflowCheckpoint.from_dict(json.loads(json.dumps(c.to_dict()))),
    "pickle": lambda c: pickle.loads(pickle.dumps(c)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_run_goes_on_from_a_checkpoint_that_went_there_and_back(storage: Any, way: Any) -> None:
    await shop(storage).run(Order(["x", "y"]), run_id="r")
    elsewhere = InMemoryCheckpointStorage()
    for checkpoint in (await storage.list_checkpoints(run_id="r"))[:3]:
        returned = way(checkpoint)
        assert returned.to_dict() == checkpoint.to_dict()
        await elsewhere.save(returned)
    result = await shop(elsewhere).run(run_id="r")
    assert result.get_outputs() == ["from a", 5]


async def test_saving_keeps_everything_also_what_was_added_by_hand(storage: Any) -> None:
    made = WorkflowCheckpoint(
        workflow_name="by hand",
        state={"n": (1, 2)},
        executor_states={"e": {"k": {3}}},
        metadata={"who": "me", "n": [1]},
    )
    assert await storage.save(made) == made.checkpoint_id
    back = await storage.load(made.checkpoint_id)
    assert (back.state["n"], back.executor_states["e"], dict(back.metadata)) == (
        (1, 2),
        {"k": {3}},
        {"who": "me", "n": [1]},
    )
    assert (back.workflow_name, back.run_id, back.timestamp) == (made.workflow_name, made.run_id, made.timestamp)
    assert await storage.list_checkpoint_ids(workflow_name="by hand") == [made.checkpoint_id]
    assert (await storage.get_latest(workflow_name="by hand")).checkpoint_id == made.checkpoint_id
    assert await storage.delete(made.checkpoint_id)
    assert not await storage.delete(made.checkpoint_id)
    with pytest.raises(CheckpointMissing, match=made.checkpoint_id):
        await storage.load(made.checkpoint_id)


async def test_deleting_one_leaves_those_around_it_readable(storage: Any) -> None:
    await shop(storage).run(Order(["x"]), run_id="r")
    before = await storage.list_checkpoints(run_id="r")
    assert await storage.delete(before[1].checkpoint_id)
    after = await storage.list_checkpoints(run_id="r")
    assert [one.to_dict()["state"] for one in after] == [one.to_dict()["state"] for one in (before[0], *before[2:])]


def test_what_cannot_be_stored_is_refused_with_its_path() -> None:
    with pytest.raises(CodecError, match=r"\$\.state\.lock"):
        WorkflowCheckpoint(workflow_name="w", state={"lock": object()}).to_dict()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"unheard_of": 1}, "no field 'unheard_of'"),
        ({"version": "99"}, "version '99'"),
        ({"status": "DANCING"}, "DANCING"),
        ({"messages": {"a": [{"id": "1"}]}}, "source_id"),
        ({"state": 5}, "does not come from to_dict"),
    ],
)
def test_what_is_not_a_checkpoint_is_refused_in_words(damage: dict[str, Any], words: str) -> None:
    good = WorkflowCheckpoint(workflow_name="w").to_dict()
    with pytest.raises(CheckpointCorrupt, match=words):
        WorkflowCheckpoint.from_dict({**good, **damage})


def by_hand(**parts: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(**{"workflow_name": "w", **parts})


def message(**parts: Any) -> WorkflowMessage:
    return WorkflowMessage(**{"id": "m", "source_id": None, "payload": DEFAULT_CODEC.pack(1, "$"), **parts})


WRONG_PARTS: list[tuple[str, dict[str, Any]]] = [
    ("$.workflow_name", {"workflow_name": None}),
    ("$.workflow_name", {"workflow_name": ""}),
    ("$.checkpoint_id", {"checkpoint_id": "x" * 10_001}),
    ("$.checkpoint_id", {"checkpoint_id": 7}),
    ("$.run_id", {"run_id": "half \ud800"}),
    ("$.previous_checkpoint_id", {"previous_checkpoint_id": b"x"}),
    ("$.number", {"number": "1"}),
    ("$.number", {"number": True}),
    ("$.number", {"number": 2**63}),
    ("$.iteration_count", {"iteration_count": -1}),
    ("$.timestamp", {"timestamp": "yesterday"}),
    ("$.timestamp", {"timestamp": "2026-01-01T00:00:00"}),
    ("$.timestamp", {"timestamp": None}),
    ("$.status", {"status": "IDLE"}),
    ("$.version", {"version": 1}),
    ("$.graph_signature_hash", {"graph_signature_hash": None}),
    ("$.messages", {"messages": [1]}),
    ("$.messages", {"messages": {1: []}}),
    ("$.messages.a", {"messages": {"a": "text"}}),
    ("$.messages.a[0]", {"messages": {"a": [{"id": "1"}]}}),
    ("$.messages['a b'][1].id", {"messages": {"a b": [message(), message(id=3)]}}),
    ("$.messages.a[0].payload", {"messages": {"a": [message(payload="plain")]}}),
    ("$.messages.a[0].source_id", {"messages": {"a": [message(source_id=1)]}}),
    ("$.messages.a[0].target_id", {"messages": {"a": [message(target_id=1)]}}),
    ("$.messages.a[0].takers", {"messages": {"a": [message(takers="b")]}}),
    ("$.messages.a[0].joins[1]", {"messages": {"a": [message(joins=("b", 1))]}}),
    ("$.messages.a[0].reply", {"messages": {"a": [message(reply="yes")]}}),
    ("$.state", {"state": None}),
    ("$.state", {"state": {1: "x"}}),
    ("$.state.lock", {"state": {"lock": object()}}),
    ("$.state.a.b[0]", {"state": {"a": {"b": [object()]}}}),
    ("$.executor_states", {"executor_states": 5}),
    ("$.executor_states.e.k", {"executor_states": {"e": {"k": object()}}}),
    ("$.pending_request_info_events", {"pending_request_info_events": []}),
    ("$.pending_request_info_events.q", {"pending_request_info_events": {"q": "what?"}}),
    ("$.metadata", {"metadata": "me"}),
    ("$.metadata.who", {"metadata": {"who": object()}}),
    ("$.metadata.who", {"metadata": {"who": "\ud800"}}),
    ("$.graph_signature", {"graph_signature": {"executors": 5}}),
    ("$.graph_signature.start", {"graph_signature": {"start": object()}}),
    ("$.position", {"position": {"format": 1}}),
    ("$.position.x", {"position": {"x": object()}}),
]


@pytest.mark.parametrize(("path", "parts"), WRONG_PARTS, ids=[f"{n} {path}" for n, (path, _) in enumerate(WRONG_PARTS)])
async def test_a_wrong_part_of_a_checkpoint_made_by_hand_is_named_by_its_path(path: str, parts: dict[str, Any]) -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(CodecError) as refused:
        await storage.save(by_hand(**parts))
    assert refused.value.path == path
    assert await storage.list_checkpoint_ids() == []


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("$.position.place", lambda p: p.update(place="x")),
        ("$.position.asked[0].id", lambda p: p.update(asked=[{"id": 1}])),
        ("$.position.run", lambda p: p.pop("run")),
        ("$.position.run.run_id", lambda p: p["run"].update(run_id="other")),
        ("$.position.run.workflow", lambda p: p["run"].update(workflow="other")),
        ("$.position.status", lambda p: p.update(status="FAILED")),
        ("$.position.iteration", lambda p: p.update(iteration=77)),
        ("$.position.place", lambda p: p.update(place=-1)),
        ("$.position", lambda p: p.update(wake="soon")),
    ],
)
async def test_a_wrong_part_of_a_position_is_named_by_its_path(storage: Any, path: str, change: Any) -> None:
    await shop(storage).run(Order(["x"]), run_id="r")
    checkpoint = (await storage.list_checkpoints(run_id="r"))[1]
    position = json.loads(json.dumps(dict(checkpoint.position)))
    change(position)
    with pytest.raises(CodecError) as refused:
        await InMemoryCheckpointStorage().save(replace(checkpoint, position=position))
    assert refused.value.path == path


async def test_messages_made_by_hand_may_have_any_id() -> None:
    storage = InMemoryCheckpointStorage()
    ids = ["1.a", "\u00b2", "9" * 5000, "1.", "10.1", "9.1"]
    made = by_hand(messages={"a": [message(id=id) for id in ids]})
    await storage.save(made)
    assert {m.id for m in (await storage.load(made.checkpoint_id)).messages["input"]} == set(ids)
