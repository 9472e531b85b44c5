"""The superstep as decisions: tables of before → after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import RoutingFailed, StateConflict, executor
from stepwell import WorkflowRunState as State
from stepwell.graph.edges import Direct, Edge, FanIn, FanOut, Select, Switch
from stepwell.graph.graph import Graph
from stepwell.kernel import (
    CommitDecision,
    apply,
    begin,
    cancel,
    events,
    fail,
    fork,
    merge,
    output_events,
    plan,
    route,
    waiting_joins,
)
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.commit import Commit, CommitKind, Stamp
from stepwell.model.event import WorkflowErrorDetails, WorkflowEvent
from stepwell.model.message import Delivery, Outcome, Output, Routed, RoutedMessage, Sent
from stepwell.model.payload import Payload, pack_copy
from stepwell.model.state_writes import Appended, Assigned, Deleted, Edited

NOW = Stamp("id-of-now", "2026-01-01T00:00:00+00:00")
THEN = Stamp("id-of-then", "2025-01-01T00:00:00+00:00")
HEADER = RunHeader("r", "w", {}, "digest")


def closed(value: object) -> Payload:
    return pack_copy(value, "$")


def taker(id: str, takes: Any) -> Any:
    async def take(message: Any) -> None: ...

    return executor(id=id, input=takes)(take)


def graph(*edges: Edge, takes: Any = int, joins: Sequence[str] = (), **more: Any) -> Graph:
    ids = dict.fromkeys(["a", *(id for edge in edges for id in (*edge.sources, *edge.targets))])
    return Graph("a", {id: taker(id, list[int] if id in joins else takes) for id in ids}, edges, **more)


def message(id: str, source: str | None, value: object, *takers: str, joins: Sequence[str] = ()) -> RoutedMessage:
    return RoutedMessage(id, source, closed(value), None, takers, tuple(joins))


def checkpoint(**changes: Any) -> Checkpoint:
    made = Checkpoint(HEADER, 4, THEN, "id-before", State.IN_PROGRESS, iteration=3, since_input=2, place=4)
    return replace(made, **changes)


def calls(deliveries: Sequence[Delivery]) -> list[tuple[str, str, Any, tuple[str, ...]]]:
    return [(d.id, d.executor, d.payload.open(), d.sources) for d in deliveries]


# --- begin, fork, fail, cancel, apply -----------------------------------------------------------------------------


def test_a_run_begins_with_a_commit_that_holds_the_input_and_every_executors_state() -> None:
    first = begin("a", closed("hello"), {"a": closed({"n": 1})}, NOW)
    at = apply(HEADER, None, first, previous_id=None)
    assert (first.number, first.kind, first.status) == (0, CommitKind.INPUT, State.IN_PROGRESS)
    assert (at.iteration, at.since_input, at.place, at.previous_id, at.stamp) == (0, 0, 0, None, NOW)
    assert at.executors["a"].open() == {"n": 1}
    assert calls(plan(graph(), at.place, at.messages, at.held).deliveries) == [("0.0", "a", "hello", ())]


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (State.IN_PROGRESS, State.IN_PROGRESS),
        (State.FAILED, State.IN_PROGRESS),
        (State.CANCELLED, State.IN_PROGRESS),
        (State.IDLE, State.IDLE),
    ],
)
def test_a_fork_is_the_first_commit_of_a_run_that_neither_failed_nor_was_cancelled(was: State, becomes: State) -> None:
    source = checkpoint(
        status=was,
        messages=(message("3.0.0", "a", 1, "b"),),
        held={"j": {"a": (closed(1),)}},
        state={"k": closed(1)},
        executors={"a": closed({})},
    )
    first = fork(source, NOW)
    at = apply(replace(HEADER, run_id="r2", parent_id="id-of-then"), None, first, previous_id="id-of-then")
    assert (first.kind, first.number, first.place, first.status) == (CommitKind.FORKED, 0, 0, becomes)
    assert (at.previous_id, at.iteration, at.since_input) == ("id-of-then", 3, 2)
    assert (at.messages, at.held, at.state, at.executors) == (
        source.messages,
        source.held,
        source.state,
        source.executors,
    )


@pytest.mark.parametrize("kind", [CommitKind.FAILED, CommitKind.CANCELLED])
def test_failing_and_cancelling_change_the_status_and_nothing_else(kind: CommitKind) -> None:
    details = WorkflowErrorDetails("ValueError", "no", executor_id="a")
    before = checkpoint(messages=(message("3.0.0", "a", 1, "b"),), state={"k": closed(1)}, executors={"a": closed({})})
    commit = fail(before, (details,), NOW) if kind is CommitKind.FAILED else cancel(before, NOW)
    after = apply(HEADER, before, commit)
    assert (commit.kind, commit.number) == (kind, 5)
    assert commit.failures == ((details,) if kind is CommitKind.FAILED else ())
    assert after == replace(
        before, number=5, stamp=NOW, previous_id="id-of-then", status=State[kind.name], state=dict(before.state)
    )
    assert after.place == before.place  # so its deliveries keep their names, and what was remembered is found


def test_applying_a_commit_writes_what_changed_and_keeps_the_rest() -> None:
    before = checkpoint(
        messages=(message("3.0.0", "a", 1, "b"),),
        held={"j": {"a": (closed(1),)}},
        state={"set": closed(1), "gone": closed(1), "log": closed([1]), "kept": closed(1)},
        executors={"a": closed({"n": 1}), "b": closed({"n": 1})},
    )
    commit = Commit(
        5,
        CommitKind.SUPERSTEP,
        NOW,
        State.IDLE,
        4,
        3,
        5,
        messages=(),
        state={"set": Assigned(closed(2)), "gone": Deleted(), "log": Appended((closed(2),)), "new": Appended(())},
        executors={"b": closed({"n": 2})},
    )
    after = apply(HEADER, before, commit)
    assert {key: value.open() for key, value in after.state.items()} == {"set": 2, "log": [1, 2], "kept": 1, "new": []}
    assert {id: value.open() for id, value in after.executors.items()} == {"a": {"n": 1}, "b": {"n": 2}}
    assert (after.messages, after.held, after.previous_id) == ((), before.held, "id-of-then")
    assert {key: value.open() for key, value in before.state.items()}["log"] == [1]


# --- plan ---------------------------------------------------------------------------------------------------------


def test_every_taker_of_every_message_is_called_in_the_order_of_sending() -> None:
    messages = (message("m0", "a", 1, "b", "c"), message("m1", "b", 2, "c"), message("m2", None, 3, "b"))
    found = plan(graph(), 7, messages, {})
    assert calls(found.deliveries) == [
        ("7.0", "b", 1, ("a",)),
        ("7.1", "c", 1, ("a",)),
        ("7.2", "c", 2, ("b",)),
        ("7.3", "b", 3, ()),
    ]


def test_a_message_without_takers_is_no_delivery() -> None:
    assert plan(graph(), 1, (message("m", "a", 1),), {}).deliveries == ()


JOIN = FanIn(("a", "b", "c"), "j")


def test_a_fan_in_holds_what_is_early_and_changes_nothing_that_was_handed_to_it() -> None:
    before = {JOIN.key: {"a": (closed(1),)}}
    found = plan(graph(JOIN, joins="j"), 2, (message("m", "b", 2, joins=[JOIN.key]),), before)
    assert found.deliveries == ()
    assert {source: [p.open() for p in ps] for source, ps in found.held[JOIN.key].items()} == {"a": [1], "b": [2]}
    assert list(before[JOIN.key]) == ["a"]


def test_a_fan_in_delivers_all_that_was_sent_in_the_order_of_its_sources() -> None:
    held = {JOIN.key: {"c": (closed(30),), "a": (closed(10),)}}
    messages = [
        message(f"m{n}", source, value, joins=[JOIN.key])
        for n, (source, value) in enumerate([("c", 31), ("b", 20), ("a", 11), ("b", 21)])
    ]
    found = plan(graph(JOIN, joins="j"), 3, messages, held)
    assert calls(found.deliveries) == [("3.0", "j", [10, 11, 20, 21, 30, 31], ("a", "b", "c"))]
    assert found.held == {}


def test_two_fan_ins_into_one_executor_are_kept_apart() -> None:
    other = FanIn(("d", "e"), "j")
    messages = [message("m0", "a", 1, joins=[JOIN.key]), message("m1", "d", 2, joins=[other.key])]
    messages += [message("m2", "e", 3, joins=[other.key])]
    found = plan(graph(JOIN, other, joins="j"), 1, messages, {})
    assert calls(found.deliveries) == [("1.0", "j", [2, 3], ("d", "e"))]
    assert list(found.held) == [JOIN.key]


def test_a_plan_without_joins_hands_on_what_is_held_as_it_is() -> None:
    held = {JOIN.key: {"a": (closed(1),)}}
    assert plan(graph(JOIN, joins="j"), 1, (message("m", "a", 1, "b"),), held).held is held


def test_a_fan_in_that_still_waits_is_told_with_those_it_waits_for() -> None:
    (words,) = waiting_joins(graph(JOIN, joins="j"), {JOIN.key: {"a": (closed(1), closed(2)), "c": (closed(3),)}})
    assert words == "the fan-in into 'j' still holds 3 message(s): no message from 'b'"
    assert waiting_joins(graph(JOIN, joins="j"), {}) == []


# --- route --------------------------------------------------------------------------------------------------------

AB, AC, AJ = Direct("a", "b"), Direct("a", "c"), FanIn(("a", "c"), "j")


def odd(value: int) -> bool:
    return value % 2 == 1


def pick(value: int, ids: list[str]) -> list[str]:
    return ids[:1]


ROUTES: dict[str, tuple[Graph, Any, str | None, list[tuple[str, ...]], tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "all edges": (graph(AB, AC), 1, None, [("b",), ("c",)], (("b", "c"), ())),
    "the chosen ones": (graph(AB, AC), 1, None, [(), ("c",)], (("c",), ())),
    "a target": (graph(AB, AC), 1, "c", [("b",), ("c",)], (("c",), ())),
    "a target of a fan-out": (graph(FanOut("a", ("b", "c"))), 1, "c", [("b", "c")], (("c",), ())),
    "a fan-in": (graph(AB, AJ, joins="j"), 1, None, [("b",), ("j",)], (("b",), (AJ.key,))),
    "a target behind a fan-in": (graph(AB, AJ, joins="j"), 1, "j", [("b",), ("j",)], ((), (AJ.key,))),
    "those whose handlers take it": (graph(AB, AJ, joins=("b", "j")), 1, None, [("b",), ("j",)], ((), (AJ.key,))),
}


@pytest.mark.parametrize("case", ROUTES)
def test_a_message_goes_to(case: str) -> None:
    on, value, target, chosen, expected = ROUTES[case]
    found = route(on, "a", value, target, chosen)
    assert (found.takers, found.joins) == expected
    assert (found.missing, found.declined) == (None, None)


NOBODY: dict[str, tuple[Graph, Any, str | None, list[tuple[str, ...]], str]] = {
    "no edge": (graph(), 1, None, [], "'a' sent a int, but no edge leaves 'a'"),
    "an unknown target": (graph(AB), 1, "x", [()], "'a' sent a int to 'x', but its edges lead only to 'b'"),
    "no handler": (
        graph(AB, AC),
        "text",
        None,
        [("b",), ("c",)],
        "'a' sent a str, but no handler accepts it: 'b' accepts int; 'c' accepts int",
    ),
    "no handler for the list of a fan-in": (
        graph(AJ, takes=int),
        1,
        None,
        [("j",)],
        "'a' sent a int, but no handler accepts it: 'j' accepts int",
    ),
}


@pytest.mark.parametrize("case", NOBODY)
def test_what_nobody_can_take_names_what_is_missing(case: str) -> None:
    on, value, target, chosen, words = NOBODY[case]
    assert route(on, "a", value, target, chosen) == Routed(missing=words)


def test_what_every_condition_declined_is_not_missing_anything() -> None:
    edges = Direct("a", "b", odd), Select("a", ("c", "d"), pick)
    found = route(graph(*edges), "a", 2, None, [(), ()])
    assert found.missing is None
    assert found.declined == (
        "'a' sent a int, and every condition declined it: a -> b if odd; a -> those of c, d chosen by pick"
    )


# --- merge --------------------------------------------------------------------------------------------------------


def outcome(delivery: str, executor: str, *sent: Any, **more: Any) -> Outcome:
    return Outcome(delivery, executor, tuple(Sent(closed(value), None) for value in sent), **more)


def merged(
    on: Graph, before: Checkpoint, *outcomes: Outcome, routes: dict[str, list[Routed]] | None = None
) -> CommitDecision:
    made = plan(on, before.place, before.messages, before.held)
    by_id = {one.delivery: one for one in outcomes}
    taken = routes or {one.delivery: [Routed(("b",))] * len(one.sent) for one in outcomes}
    return merge(on, before, made, by_id, taken, pack_copy, NOW)


TWO = checkpoint(messages=(message("3.0.0", "s", 1, "a"), message("3.0.1", "s", 2, "c")))
ABC = graph(AB, Direct("c", "b"))


def test_outcomes_are_folded_in_plan_order_whatever_the_finishing_order() -> None:
    first, second = outcome("4.0", "a", 10, 11), outcome("4.1", "c", 20)
    one, other = merged(ABC, TWO, first, second), merged(ABC, TWO, second, first)
    assert [(m.id, m.source, m.payload.open()) for m in one.commit.messages or ()] == [
        ("4.0.0", "a", 10),
        ("4.0.1", "a", 11),
        ("4.1.0", "c", 20),
    ]
    assert [m.id for m in other.commit.messages or ()] == ["4.0.0", "4.0.1", "4.1.0"]
    assert [(d.delivery, d.executor, d.sent) for d in other.commit.done] == [
        ("4.0", "a", ("4.0.0", "4.0.1")),
        ("4.1", "c", ("4.1.0",)),
    ]
    assert calls(deliveries_after(one)) == [
        ("5.0", "b", 10, ("a",)),
        ("5.1", "b", 11, ("a",)),
        ("5.2", "b", 20, ("c",)),
    ]


def deliveries_after(decision: CommitDecision) -> tuple[Delivery, ...]:
    assert decision.next is not None
    return decision.next.deliveries


def test_a_superstep_moves_all_counters_and_names_its_deliveries_after_its_commit() -> None:
    commit = merged(ABC, TWO, outcome("4.0", "a", 1), outcome("4.1", "c")).commit
    assert (commit.number, commit.iteration, commit.since_input, commit.place) == (5, 4, 3, 5)
    assert (commit.kind, commit.status, commit.stamp) == (CommitKind.SUPERSTEP, State.IN_PROGRESS, NOW)


def test_a_run_with_nothing_to_deliver_is_idle() -> None:
    found = merged(ABC, TWO, outcome("4.0", "a"), outcome("4.1", "c"))
    assert found.commit.status is State.IDLE
    assert deliveries_after(found) == ()


def test_a_run_that_is_idle_with_a_waiting_fan_in_warns_of_it() -> None:
    on = graph(AJ, Direct("s", "a"), joins="j")
    before = checkpoint(messages=(message("3.0.0", "s", 1, "a"),))
    found = merged(on, before, outcome("4.0", "a", 1), routes={"4.0": [Routed((), (AJ.key,))]})
    assert found.commit.status is State.IDLE
    assert found.commit.warnings == ("the fan-in into 'j' still holds 1 message(s): no message from 'c'",)


def test_what_fan_ins_hold_is_written_only_where_it_changed() -> None:
    on = graph(AJ, Direct("s", "a"), joins="j")
    before = checkpoint(messages=(message("3.0.0", "s", 1, "a"),), held={"other": {"x": (closed(1),)}})
    assert merged(on, before, outcome("4.0", "a")).commit.held is None
    joining = replace(before, messages=(*before.messages, message("3.0.1", "c", 5, joins=[AJ.key])))
    assert set(merged(on, joining, outcome("4.0", "a")).commit.held or {}) == {"other", AJ.key}


def test_the_last_state_of_an_executor_that_ran_is_saved_and_no_others() -> None:
    before = replace(TWO, messages=(*TWO.messages, message("3.0.2", "s", 3, "a")))
    commit = merged(
        ABC,
        before,
        outcome("4.0", "a", saved=closed({"n": 1})),
        outcome("4.1", "c", saved=None),
        outcome("4.2", "a", saved=closed({"n": 2})),
    ).commit
    assert set(commit.executors) == {"a"}
    saved = commit.executors["a"]
    assert not isinstance(saved, Edited)
    assert saved.open() == {"n": 2}


def test_an_executor_state_that_is_what_it_was_is_not_written_again() -> None:
    same = closed({"n": 1})
    before = replace(TWO, executors={"a": same})
    assert merged(ABC, before, outcome("4.0", "a", saved=same), outcome("4.1", "c")).commit.executors == {}


def test_a_message_without_a_taker_fails_the_superstep_and_names_all_that_is_missing() -> None:
    routes = {"4.0": [Routed(missing="first")], "4.1": [Routed(missing="second")]}
    with pytest.raises(RoutingFailed, match=r'first; second.*on_unroutable="drop"') as caught:
        merged(ABC, TWO, outcome("4.0", "a", 1), outcome("4.1", "c", 2), routes=routes)
    assert caught.value.run_id == "r"


def test_on_unroutable_drop_makes_it_a_warning_and_the_message_goes_nowhere() -> None:
    on = graph(AB, Direct("c", "b"), on_unroutable="drop")
    routes = {"4.0": [Routed(missing="first")], "4.1": [Routed(declined="second")]}
    found = merged(on, TWO, outcome("4.0", "a", 1), outcome("4.1", "c", 2), routes=routes)
    assert found.commit.warnings == ("dropped: first", "second")
    assert found.commit.status is State.IDLE
    assert deliveries_after(found) == ()


def test_a_conflict_raises_and_changes_nothing() -> None:
    write = {"k": Assigned(closed(1))}
    with pytest.raises(StateConflict):
        merged(ABC, TWO, outcome("4.0", "a", writes=write), outcome("4.1", "c", writes=write))
    assert TWO.state == {}


# --- events -------------------------------------------------------------------------------------------------------


def told(commit: Commit, **how: Any) -> list[WorkflowEvent]:
    return list(events("r", commit, **{"stored": True, **how}))


def superstep() -> Commit:
    output, between = Output("output", closed("out")), Output("intermediate", closed("between"))
    return merged(
        graph(AB, Direct("c", "b"), on_unroutable="drop"),
        TWO,
        outcome("4.0", "a", 10, outputs=(output, between)),
        outcome("4.1", "c", 20),
        routes={"4.0": [Routed(("b",))], "4.1": [Routed(missing="nobody")]},
    ).commit


def test_a_superstep_tells_outputs_then_the_executor_then_warnings_then_its_end() -> None:
    found = told(superstep())
    assert [(e.type, e.executor_id) for e in found] == [
        ("output", "a"),
        ("intermediate", "a"),
        ("executor_completed", "a"),
        ("executor_completed", "c"),
        ("warning", None),
        ("superstep_completed", None),
    ]
    assert [e.data for e in found] == ["out", "between", [10, "out", "between"], [20], "dropped: nobody", None]
    assert {(e.run_id, e.commit, e.state, e.replayed) for e in found} == {("r", 5, State.IN_PROGRESS, False)}


def test_the_end_of_a_superstep_says_where_it_is_stored() -> None:
    (end,) = [e for e in told(superstep()) if e.type == "superstep_completed"]
    assert end.checkpoint is not None
    assert (end.checkpoint.run_id, end.checkpoint.checkpoint_id, end.checkpoint.number) == ("r", "id-of-now", 5)
    assert end.iteration == 4
    (end,) = [e for e in told(superstep(), stored=False) if e.type == "superstep_completed"]
    assert end.checkpoint is None


def test_an_executor_that_gave_nothing_completes_with_none() -> None:
    found = told(merged(ABC, TWO, outcome("4.0", "a"), outcome("4.1", "c")).commit)
    assert [(e.type, e.data) for e in found] == [
        ("executor_completed", None),
        ("executor_completed", None),
        ("superstep_completed", None),
        ("status", None),
    ]
    assert found[-1].state is State.IDLE


def test_a_failure_tells_each_executor_then_the_run_then_the_status() -> None:
    failures = tuple(WorkflowErrorDetails("ValueError", f"no {id}", "trace", id) for id in "ac")
    found = told(fail(TWO, failures, NOW))
    assert [(e.type, e.executor_id, e.details) for e in found] == [
        ("executor_failed", "a", failures[0]),
        ("executor_failed", "c", failures[1]),
        ("failed", "a", failures[0]),
        ("status", None, None),
    ]
    assert [e.data for e in found[:3]] == [failures[0], failures[1], failures[0]]
    assert {e.state for e in found} == {State.FAILED}


def test_a_failure_of_no_executor_is_told_once() -> None:
    found = told(fail(TWO, (WorkflowErrorDetails("StateConflict", "both"),), NOW))
    assert [e.type for e in found] == ["failed", "status"]


def test_a_cancellation_tells_its_status() -> None:
    assert [(e.type, e.state) for e in told(cancel(TWO, NOW))] == [("status", State.CANCELLED)]


@pytest.mark.parametrize("first", [begin("a", closed(1), {}, NOW), fork(checkpoint(status=State.IDLE), NOW)])
def test_the_first_commit_of_a_run_tells_nothing_of_itself(first: Commit) -> None:
    assert told(first) == []


def test_a_checkpoint_is_told_before_the_status_and_is_not_durable() -> None:
    found = told(cancel(TWO, NOW), seen=closed("the checkpoint"))
    assert [(e.type, e.data, e.durable) for e in found] == [
        ("checkpoint", "the checkpoint", False),
        ("status", None, True),
    ]
    assert found[0].checkpoint is not None
    assert found[0].checkpoint.checkpoint_id == "id-of-now"


def test_events_told_again_are_the_same_and_say_so() -> None:
    def shape(e: WorkflowEvent) -> tuple[Any, ...]:
        return (e.type, e.data, e.executor_id, e.commit, e.state, e.iteration)

    again = told(superstep(), replayed=True)
    assert [shape(e) for e in again] == [shape(e) for e in told(superstep())]
    assert all(e.replayed for e in again)


def test_outputs_alone_can_be_told_again() -> None:
    found = list(output_events("r", superstep()))
    assert [(e.type, e.data, e.replayed) for e in found] == [("output", "out", True), ("intermediate", "between", True)]


def test_whoever_reads_an_event_gets_a_copy_of_their_own() -> None:
    commit = merged(
        ABC, TWO, outcome("4.0", "a", outputs=(Output("output", closed(["x"])),)), outcome("4.1", "c")
    ).commit
    first, second = told(commit)[0], told(commit)[0]
    first.data.append("y")
    assert second.data == ["x"]


def test_a_switch_names_all_its_ways_in_the_words_for_a_decline() -> None:
    edge = Switch("a", ((odd, "b"),), "c")
    assert route(graph(edge), "a", 1, "c", [("b",)]).declined == (
        "'a' sent a int, and every condition declined it: a -> first of b if odd, c otherwise"
    )
