"""Which timers are set, which are due, and what a run with timers does next: decided without a clock."""

from __future__ import annotations

from msgspec.structs import replace

from stepwell import Executor, WorkflowBuilder, WorkflowContext, handler, timer_handler
from stepwell import WorkflowRunState as State
from stepwell.kernel import DueTimer, apply, events, find_due, find_fired, fork, intake, next_timer, restore, retry
from stepwell.kernel.lifecycle import full_commit
from stepwell.kernel.timers import change_timers
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.child import Child
from stepwell.model.commit import Stamp

STAMP = Stamp("c", "2030-01-01T00:00:00+00:00")
NINE, TEN, ELEVEN = (f"2030-01-01T{hour:02}:00:00+00:00" for hour in (9, 10, 11))
# The same moment as TEN, written in another way: times are compared as times.
ALSO_TEN = "2030-01-01T10:00:00.000000+00:00"


class Desk(Executor):
    @handler
    async def begin(self, n: int, ctx: WorkflowContext) -> None: ...

    @timer_handler
    async def ring(self, name: str, ctx: WorkflowContext) -> None: ...


GRAPH = WorkflowBuilder(start_executor=Desk("desk")).build()._definition.graph


def checkpoint(**parts: object) -> Checkpoint:
    header = RunHeader("r", "w", {"executors": ["desk"]}, "")
    at = Checkpoint(header, 4, STAMP, None, status=State.IN_PROGRESS, iteration=1, since_input=1, place=4)
    return replace(at, **parts)


def child(wake: str | None) -> Child:
    return Child("k", "inner", "c", 2, "0/r", wake)


def test_a_change_sets_replaces_and_ends_timers() -> None:
    before = {"desk": {"a": NINE, "b": TEN}, "other": {"a": NINE}}
    changed = change_timers(before, {"desk": {"a": ELEVEN, "c": NINE, "b": None}, "other": {"a": None}})
    assert changed == {"desk": {"a": ELEVEN, "c": NINE}}
    assert before["desk"] == {"a": NINE, "b": TEN}


def test_the_next_timer_is_the_earliest_of_the_run_and_its_sub_workflows() -> None:
    assert next_timer({}, {}) is None
    assert next_timer({"desk": {"a": ELEVEN, "b": TEN}}, {"k": child(None)}) == TEN
    assert next_timer({"desk": {"a": ELEVEN}}, {"k": child(NINE)}) == NINE


def test_timers_are_due_in_order_of_time_and_then_of_names() -> None:
    at = checkpoint(timers={"desk": {"b": TEN, "a": ALSO_TEN, "late": ELEVEN}}, children={"k": child(NINE)})
    assert find_due(at, "2030-01-01T08:59:59+00:00") == []
    expected = [DueTimer("inner", "k", NINE), DueTimer("desk", "a", ALSO_TEN), DueTimer("desk", "b", TEN)]
    assert find_due(at, TEN) == expected


def test_an_intake_ends_timers_that_are_due_and_calls_their_handlers() -> None:
    at = checkpoint(timers={"desk": {"a": NINE, "b": ELEVEN}}, wake=NINE)
    decision = intake(GRAPH, at, [], STAMP, due=find_due(at, TEN))
    after = apply(at.header, at, decision.commit)
    assert (after.timers, after.wake, after.status) == ({"desk": {"b": ELEVEN}}, None, State.IN_PROGRESS)
    (fired,) = find_fired(decision.commit)
    assert (fired.id, fired.takers, fired.timer, fired.payload.open()) == ("5.0", ("desk",), NINE, "a")
    assert decision.next is not None
    assert [(d.executor, d.timer) for d in decision.next.deliveries] == [("desk", NINE)]
    told = events("r", decision.commit, stored=True)
    assert [(e.data, e.executor_id) for e in told if e.type == "timer_fired"] == [("a", "desk")]


def test_an_intake_wakes_a_sub_workflow_once() -> None:
    at = checkpoint(children={"k": child(NINE)}, wake=NINE)
    after = apply(at.header, at, intake(GRAPH, at, [], STAMP, due=find_due(at, TEN)).commit)
    assert (after.children["k"].wake, find_due(after, ELEVEN)) == (None, [])


def test_a_run_that_has_nothing_but_timers_sleeps_and_says_so() -> None:
    at = checkpoint(timers={"desk": {"a": ELEVEN}}, status=State.CANCELLED)
    commit = intake(GRAPH, at, [], STAMP).commit
    assert (commit.status, commit.wake) == (State.IN_PROGRESS, ELEVEN)
    assert [e.type for e in events("r", commit, stored=True)] == ["sleeping", "status"]


def test_forks_and_restored_runs_keep_timers_and_a_retried_run_is_ready() -> None:
    at = checkpoint(timers={"desk": {"a": ELEVEN}}, wake=ELEVEN)
    for commit in (fork(at, STAMP), restore(checkpoint(number=9), at, STAMP), full_commit(at)):
        assert apply(at.header, None, commit).timers == at.timers
    again = retry(replace(at, status=State.FAILED, wake=None), STAMP, by="ann")
    assert (again.status, again.wake, again.by) == (State.IN_PROGRESS, STAMP.at, "ann")
