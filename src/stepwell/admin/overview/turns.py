"""The turns of agents in a run: what each heard, which calls it made, whom it asked, and what it said. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepwell.admin.calls import HandlerCall, calls_of
from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.overview.request_documents import answer_to_dict, value_of
from stepwell.admin.overview.run_overview import RunOverview
from stepwell.admin.questions import question_of
from stepwell.admin.values import is_message, to_data, to_line
from stepwell.agents.messages import conversation_key
from stepwell.model.commit import Commit, Done
from stepwell.model.request import AnswerRecord
from stepwell.model.state_writes import Appended
from stepwell.model.timing import CallTime
from stepwell.storage.answers import Response

_OF_A_TURN = ("/turn", "/done", "/stand", "/working")  # keys of what an executor keeps while an agent's turn lasts


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """What a turn asked a person, and the answer that closed the request or is on its way, if there is one."""

    request_id: str
    question: str
    answer: AnswerRecord | None
    pending: Response | None = None  # one that is not applied yet

    def describe(self) -> str:
        """Return it on one line: `asked: May clerk call refund(order=7)? → approve by ada`."""
        given = self.answer or self.pending
        if given is None:
            return f"asked: {self.question} → no answer yet"
        by = f" by {given.by}" if given.by else ""
        value = plain_value(given.value) if isinstance(given, AnswerRecord) else value_of(given)
        return f"asked: {self.question} → {to_line(value)}{by}{'' if self.answer else ', not applied yet'}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data; `answer` is the one that was applied."""
        answer = None if self.answer is None else answer_to_dict(self.answer)
        return {"request_id": self.request_id, "question": self.question, "answer": answer}


@dataclass(frozen=True, slots=True)
class HandlerTurn:
    """A handler call with the steps it made: a turn of an agent, or a handler that uses `ctx.step`.

    `heard` and `said` are messages in their stored form; a handler that is not an agent has none.
    """

    executor: str
    commit: int  # the number of the commit
    at: str  # when it was committed
    time: CallTime | None
    attempts: int
    heard: tuple[Any, ...]
    calls: tuple[HandlerCall, ...]
    asked: tuple[AskedQuestion, ...]
    said: tuple[Any, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "executor": self.executor,
            "commit": self.commit,
            "at": self.at,
            "began": None if self.time is None else self.time.began,
            "seconds": None if self.time is None else self.time.seconds,
            "attempts": self.attempts,
            "heard": [to_data(message) for message in self.heard],
            "calls": [call.to_dict() for call in self.calls],
            "asked": [question.to_dict() for question in self.asked],
            "said": [to_data(message) for message in self.said],
        }


def turns_of(overview: RunOverview) -> Iterator[HandlerTurn]:
    """Yield the turns of recent commits, oldest first: handler calls that made steps or took part in a conversation."""
    answers = {answer.request_id: answer for answer in overview.answers}
    for commit, done in overview.calls:
        turn = read_turn(done, commit, answers, overview.pending)
        if turn.calls or turn.heard or turn.said:
            yield turn


def drop_turn_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state without what executors keep of a turn, which is shown as calls and requests."""
    return {key: value for key, value in state.items() if not (key.startswith("agents/") and key.endswith(_OF_A_TURN))}


def read_turn(
    done: Done, commit: Commit, answers: Mapping[str, AnswerRecord], pending: Mapping[str, Response] = {}
) -> HandlerTurn:
    """Return what a handler call did as a turn.

    `answers` are those that were given later, by request, and `pending` those that are not applied yet.
    """
    write = commit.state.get(conversation_key(done.executor))
    items = [plain_value(item) for item in write.items] if isinstance(write, Appended) else []
    messages = [item for item in items if is_message(item)]
    said = tuple(message for message in messages if message["v"].get("role") == "assistant")
    questions = {request.id: question_of(plain_value(request.payload)) for request in commit.asked}
    return HandlerTurn(
        done.executor,
        commit.number,
        commit.stamp.at,
        time=done.time,
        attempts=done.attempts,
        heard=tuple(message for message in messages if message not in said),
        calls=tuple(calls_of(done.steps)),
        asked=tuple(
            AskedQuestion(id, questions[id], answers.get(id), pending.get(id)) for id in done.asked if id in questions
        ),
        said=said,
    )
