"""What a policy lets go, decided without a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import DefinitionError, WorkflowRunState
from stepwell.admin.retention.policy import Keep, RunFacts, plan_deletion, plan_removal
from stepwell.storage.stored_values import Entry, RunEntry, RunMetadata

NOW = datetime(2026, 6, 30, tzinfo=UTC)
DONE, FAILED, BUSY = "IDLE", "FAILED", "IN_PROGRESS"


def facts(
    run_id: str,
    ages: list[int],
    status: str = DONE,
    *,
    outputs: tuple[int, ...] = (),
    caller: str | None = None,
    **more: Any,
) -> RunFacts:
    """A run whose checkpoints are so many days old."""
    times = [(NOW - timedelta(days=days)).isoformat() for days in ages]
    entries = tuple(
        Entry(run_id, n, f"{run_id}-{n}", "w", status, n, at, n == 0, n in outputs) for n, at in enumerate(times)
    )
    last = entries[-1]
    run = RunEntry(
        run_id, "w", status, last.number, last.checkpoint_id, last.iteration, last.at, times[0], RunMetadata({}, caller)
    )
    return RunFacts(run, entries, **more)


def days(number: int) -> timedelta:
    return timedelta(days=number)


@pytest.mark.parametrize(
    ("policy", "status", "runs", "numbers"),
    [
        (Keep(last=2), DONE, (), (2, 1, 0)),
        (Keep(last=9), DONE, (), ()),
        (Keep(last=0), DONE, ("r",), None),
        (Keep(last=0), "CANCELLED", ("r",), None),
        (Keep(last=0), BUSY, (), (3, 2, 1, 0)),
        (Keep(last=0), FAILED, (), (3, 2, 1, 0)),
        (Keep(last=9, by_status={FAILED: Keep(last=0)}), FAILED, ("r",), None),
        (Keep(last=0, by_status={WorkflowRunState.IDLE: None}), DONE, (), ()),
        (Keep(last=0, by_status={BUSY: Keep(last=0)}), BUSY, (), (3, 2, 1, 0)),
        (Keep(age=days(25)), DONE, (), (1, 0)),
        (Keep(age=days(5)), DONE, ("r",), None),
        (Keep(age=days(5)), BUSY, (), (3, 2, 1, 0)),
        (Keep(age=days(15), last=3), DONE, (), (1, 0)),
        (Keep(age=days(5), last=1), DONE, (), (3, 2, 1, 0)),
    ],
)
def test_what_is_neither_among_the_last_nor_young_goes(
    policy: Keep, status: str, runs: tuple[str, ...], numbers: tuple[int, ...] | None
) -> None:
    goes = plan_removal(policy, [facts("r", [50, 40, 20, 15, 10], status)], NOW)
    assert goes.runs == runs
    assert goes.checkpoints.get("r", ()) == (numbers or ())


def test_commits_with_outputs_stay() -> None:
    assert plan_removal(Keep(last=1), [facts("r", [9, 9, 9, 9], outputs=(1,))], NOW).checkpoints == {"r": (2, 0)}


def test_runs_with_open_questions_are_left_alone_unless_they_are_named() -> None:
    runs = [
        facts("r", [9, 9, 9], "CANCELLED", has_requests=True),
        facts("s", [9, 9], "IDLE_WITH_PENDING_REQUESTS", has_requests=True),
    ]
    goes = plan_removal(Keep(last=0), runs, NOW)
    assert (goes.runs, goes.checkpoints) == ((), {})
    goes = plan_removal(Keep(last=0), runs, NOW, ["r", "s"])
    assert (goes.runs, goes.checkpoints) == (("r",), {"s": (0,)})


def test_a_run_with_mail_stays() -> None:
    assert plan_removal(Keep(last=0), [facts("r", [9], has_signals=True)], NOW).runs == ()


def test_what_a_fork_was_begun_from_stays_as_long_as_the_fork() -> None:
    parent, young = facts("p", [9, 9, 9, 9]), facts("f", [1], parent=("p", 1))
    goes = plan_removal(Keep(age=days(5)), [parent, young], NOW)
    assert (goes.runs, goes.checkpoints) == ((), {"p": (2, 0)})
    old = facts("f", [8], parent=("p", 1))
    assert plan_removal(Keep(age=days(5)), [parent, old], NOW).runs == ("f", "p")
    grandchild = facts("g", [1], parent=("f", 0))
    assert plan_removal(Keep(age=days(5)), [parent, old, grandchild], NOW).runs == ()


def test_runs_inside_go_with_the_run_they_work_for_and_after_it() -> None:
    caller, inner, deeper = facts("r", [9, 9]), facts("i", [9, 9], BUSY, caller="r"), facts("d", [9, 9], caller="i")
    goes = plan_removal(Keep(last=0), [inner, deeper, caller], NOW)
    assert (goes.runs, goes.checkpoints) == (("r", "i", "d"), {})
    goes = plan_removal(Keep(last=1), [inner, deeper, caller], NOW)
    assert (goes.runs, goes.checkpoints) == ((), {"r": (0,)})


def test_runs_inside_whose_caller_is_gone_are_nobody_s() -> None:
    assert plan_removal(Keep(age=days(5)), [facts("i", [9], BUSY, caller="gone")], NOW).runs == ("i",)
    assert plan_removal(Keep(age=days(5)), [facts("i", [1], BUSY, caller="gone")], NOW).runs == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"last": -1},
        {"last": True},
        {"age": 5},
        {"age": -days(1)},
        {"last": 1, "by_status": {"done": Keep(last=1)}},
        {"last": 1, "by_status": {"IDLE": 5}},
        {"last": 1, "by_status": {"IDLE": Keep(last=1, by_status={"IDLE": None})}},
    ],
)
def test_a_policy_that_says_nothing_sensible_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        Keep(**wrong)


@st.composite
def stored(draw: st.DrawFn) -> list[RunFacts]:
    """Runs, some begun from others or working for others that came before them."""
    found: list[RunFacts] = []
    for n in range(draw(st.integers(1, 6))):
        ages = sorted(draw(st.lists(st.integers(0, 9), min_size=1, max_size=5)), reverse=True)
        more: dict[str, Any] = {"has_requests": draw(st.booleans()), "has_signals": draw(st.integers(0, 5)) == 0}
        if len(found) > 0 and draw(st.booleans()):
            parent = draw(st.sampled_from(found))
            more["parent"] = (parent.run.run_id, draw(st.integers(0, parent.run.number)))
        if found and draw(st.integers(0, 3)) == 0:
            more["caller"] = draw(st.sampled_from(found)).run.run_id
        status = draw(st.sampled_from([DONE, FAILED, BUSY, "CANCELLED", "IDLE_WITH_PENDING_REQUESTS"]))
        outputs = tuple(draw(st.lists(st.integers(0, 4), max_size=2)))
        found.append(facts(f"r{n}", ages, status, outputs=outputs, **more))
    return found


@pytest.mark.long
@given(stored(), st.integers(0, 4), st.one_of(st.none(), st.integers(0, 9)))
def test_nothing_that_is_needed_goes(runs: list[RunFacts], last: int, age: int | None) -> None:
    goes = plan_removal(Keep(last=last, age=None if age is None else days(age)), runs, NOW)
    by_id = {one.run.run_id: one for one in runs}
    staying = [one for one in runs if one.run.run_id not in goes.runs]
    for one in staying:
        if one.parent is not None:
            assert one.parent[0] not in goes.runs
            assert one.parent[1] not in goes.checkpoints.get(one.parent[0], ())
        assert one.run.number not in goes.checkpoints.get(one.run.run_id, ())
    for id in goes.runs:
        caller = by_id[id].run.metadata.caller
        assert caller in goes.runs or by_id[id].run.status in (DONE, "CANCELLED")
        assert caller in goes.runs or not (by_id[id].has_requests or by_id[id].has_signals)
    for id, numbers in goes.checkpoints.items():
        assert not by_id[id].has_requests
        assert list(numbers) == sorted(numbers, reverse=True)
        assert not any(by_id[id].entries[number].outputs for number in numbers)
    assert len(set(goes.runs)) == len(goes.runs)
    for n, id in enumerate(goes.runs):  # what is left when it ends in the middle needs nothing that is gone
        assert all(one.parent is None or one.parent[0] != id for one in map(by_id.__getitem__, goes.runs[n + 1 :]))


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (facts("r", [9], DONE, has_signals=True), "it has signals that are not applied yet"),
        (facts("r", [9], DONE, has_requests=True), "it waits for an answer"),
        (facts("r", [1], DONE), "it changed too recently"),
        (facts("r", [9], FAILED), "it failed and can be resumed"),
        (facts("r", [9], BUSY), "it has not ended"),
        (facts("r", [9], "CANCELLED"), "the policy keeps runs of its status"),
    ],
)
def test_what_stays_says_why(one: RunFacts, why: str) -> None:
    goes = plan_removal(Keep(age=days(5), by_status={"CANCELLED": None}), [one], NOW)
    assert (goes.runs, goes.stays) == ((), {"r": why})


def test_what_stays_because_of_others_says_who_they_are() -> None:
    runs = [facts("p", [9]), facts("f", [1], parent=("p", 0))]
    assert plan_removal(Keep(age=days(5)), runs, NOW).stays["p"] == "run 'f' was forked from it, and stays"
    assert plan_deletion(["p"], runs).stays == {"p": "run 'f' was forked from it, and stays"}
    assert plan_deletion(["p", "f"], runs).waves == (("f",), ("p",))


@pytest.mark.long
@given(stored(), st.data())
def test_deleted_runs_take_along_what_works_for_them_and_nothing_else(
    runs: list[RunFacts], data: st.DataObject
) -> None:
    ids = data.draw(st.sets(st.sampled_from([one.run.run_id for one in runs])))
    goes = plan_deletion(ids, runs)
    needed = {one.parent[0] for one in runs if one.parent is not None and one.run.run_id not in goes.runs}
    for one in runs:
        id, caller = one.run.run_id, one.run.metadata.caller
        assert id not in goes.runs or id in ids or caller in goes.runs
        assert caller not in goes.runs or id in goes.runs or id in needed
        assert id in goes.runs or one.parent is None or one.parent[0] not in goes.runs
    assert goes.stays.keys() == ids - set(goes.runs)
