"""What comes from outside becomes messages: before → after, without an event loop."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import Executor, RunError, WorkflowContext, WorkflowRunState, handler, response_handler
from stepwell.graph.graph import Graph
from stepwell.kernel import CommitDecision, apply, events, fork, intake, merge, request_events
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.commit import Stamp
from stepwell.model.message import Delivery, Outcome, Plan, RoutedMessage
from stepwell.model.payload import pack_copy
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedResponse

AT = Stamp("id", "2026-01-01T00:00:00+00:00")
HEADER = RunHeader("r", "w", {}, "")


class Asker(Executor):
    @handler
    async def ask(self, n: int, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def take(self, original_request: str, response: bool, ctx: WorkflowContext) -> None: ...


GRAPH = Graph("asker", {"asker": Asker("asker")}, ())


def request(id: str) -> Request:
    return Request(id, "asker", pack_copy(f"{id}?", "$"), "str", "bool", "{}", AT.at)


def waiting(*ids: str, **more: Any) -> Checkpoint:
    given = {"number": 4, "since_input": 9, "iteration": 9, "place": 4, **more}
    status = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    requests = {id: request(id) for id in ids}
    return Checkpoint(HEADER, stamp=AT, previous_id=None, status=status, requests=requests, **given)


def deliveries_after(decision: CommitDecision) -> tuple[Delivery, ...]:
    assert decision.next is not None
    return decision.next.deliveries


def test_an_answer_goes_to_whoever_asked_with_the_question_and_closes_it() -> None:
    merged = intake(GRAPH, waiting("q", "p"), [ReceivedResponse("q", pack_copy(True, "$"))], AT)
    (delivery,) = deliveries_after(merged)
    assert (delivery.id, delivery.executor, delivery.payload.open()) == ("5.0", "asker", True)
    assert delivery.reply is not None
    assert (delivery.reply.request_id, delivery.reply.question.open()) == ("q", "q?")
    assert merged.commit.closed == ("q",)
    after = apply(HEADER, waiting("q", "p"), merged.commit)
    assert list(after.requests) == ["p"]
    assert after.status is WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS
    assert (after.since_input, after.iteration, after.place) == (0, 9, 5)


def test_an_answer_to_a_question_that_went_away_changes_nothing_but_is_taken_from_the_mail() -> None:
    merged = intake(GRAPH, waiting("p"), [ReceivedResponse("gone", pack_copy(True, "$"))], AT)
    assert deliveries_after(merged) == ()
    assert merged.commit.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


def test_two_answers_to_one_question_are_one() -> None:
    answers = [ReceivedResponse("q", pack_copy(True, "$")), ReceivedResponse("q", pack_copy(False, "$"))]
    merged = intake(GRAPH, waiting("q"), answers, AT)
    assert [delivery.payload.open() for delivery in deliveries_after(merged)] == [True]


def test_an_answer_goes_beside_what_is_already_on_its_way() -> None:
    before = waiting("q", messages=(RoutedMessage("4.0.0", "asker", pack_copy(1, "$"), takers=("asker",)),))
    merged = intake(GRAPH, before, [ReceivedResponse("q", pack_copy(True, "$"))], AT)
    assert [(d.payload.open(), d.sources) for d in deliveries_after(merged)] == [(1, ("asker",)), (True, ())]


def test_a_question_asked_in_a_superstep_is_told_and_stays_open() -> None:
    before = waiting()
    plan = Plan((Delivery("4.0", "asker", pack_copy(1, "$"), ()),), {})
    outcome = Outcome("4.0", "asker", requests=(request("q"),))
    merged = merge(GRAPH, before, plan, {"4.0": outcome}, {"4.0": ()}, pack_copy, AT)
    assert merged.commit.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    told = [event for event in events("r", merged.commit, stored=True) if event.type == "request_info"]
    assert [(event.request_id, event.data) for event in told] == [("q", "q?")]
    after = apply(HEADER, before, merged.commit)
    assert [event.request_id for event in request_events("r", after)] == ["q"]
    assert list(apply(HEADER, None, fork(after, AT)).requests) == ["q"]


def test_two_open_questions_may_not_share_an_id() -> None:
    plan = Plan((Delivery("4.0", "asker", pack_copy(1, "$"), ()),), {})
    outcome = Outcome("4.0", "asker", requests=(request("q"),))
    with pytest.raises(RunError, match="already has; leave out request_id"):
        merge(GRAPH, waiting("q"), plan, {"4.0": outcome}, {"4.0": ()}, pack_copy, AT)
