"""Somebody who answers questions as a script says: in order or by type, and, on request, wrongly, late or twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from stepwell.errors import RequestError, RequestExpired
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.testing.clock import FakeClock
from stepwell.workflows.result import WorkflowRunResult

GoOn = Callable[[Mapping[str, Any]], Awaitable[WorkflowRunResult]]
"""Goes on with a run that waits, with these answers."""

_NOTHING: Any = object()


class ScriptedHuman:
    """Answers the questions of a run.

    `script` is a list of answers, given in the order in which questions are asked, or a mapping from types of questions
    to answers. An answer that is a function is called with the question. Asked the same question again, after a crash,
    the human says the same again. Asked what the script does not foresee, it raises AssertionError.

    `wrong` is said before each answer, and must be refused. `late` is how long the human thinks, by the clock of the
    test: if a deadline passes meanwhile, the run goes on without the answer. `twice` says each answer again, which must
    be refused. `asked` holds the questions, in the order in which they came.
    """

    def __init__(
        self,
        script: Sequence[Any] | Mapping[type, Any],
        *,
        wrong: Any = _NOTHING,
        late: timedelta | None = None,
        twice: bool = False,
    ) -> None:
        self._script = dict(script) if isinstance(script, Mapping) else list(script)
        self._wrong, self._late, self._twice = wrong, late, twice
        self._answers: dict[str, Any] = {}  # what was answered to which question
        self.asked: list[Any] = []

    def __call__(self, event: WorkflowEvent) -> Any:
        """The answer to a `request_info` event."""
        if event.request_id not in self._answers:
            question = event.data
            self.asked.append(question)
            answer = self._answer(question)
            self._answers[event.request_id] = answer(question) if callable(answer) else answer
        return self._answers[event.request_id]

    def _answer(self, question: Any) -> Any:
        if isinstance(self._script, list):
            if len(self.asked) <= len(self._script):
                return self._script[len(self.asked) - 1]
            raise AssertionError(f"the script has {len(self._script)} answers, and one more was asked: {question!r}")
        for kind, answer in self._script.items():
            if isinstance(question, kind):
                return answer
        raise AssertionError(f"the script has no answer to a {type(question).__name__}: {question!r}")

    async def talk(
        self, result: WorkflowRunResult, go_on: GoOn, *, clock: FakeClock | None = None
    ) -> WorkflowRunResult:
        """Answer everything a run asks until it asks no more; what it came to. `go_on` goes on with it:
        `lambda answers: workflow.run(run_id="r", responses=answers)`."""
        while result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            answers = {event.request_id: self(event) for event in result.get_request_info_events()}
            result = await self.give(answers, go_on, clock=clock)
        return result

    async def give(
        self, answers: Mapping[str, Any], go_on: GoOn, *, clock: FakeClock | None = None
    ) -> WorkflowRunResult:
        """Give these answers, in the manner of this human."""
        if self._late is not None:
            if clock is None:
                raise ValueError("a human who is late needs the clock of the test: clock=FakeClock()")
            clock(seconds=self._late.total_seconds())
        if self._wrong is not _NOTHING:
            for request_id in answers:
                await _expect_refusal(go_on, {request_id: self._wrong}, "a wrong answer")
        try:
            result = await go_on(answers)
        except RequestExpired:
            return await go_on({})  # a default has taken its place; without one, this raises again
        if self._twice:
            await _expect_refusal(go_on, answers, "a second answer")
        return result


async def _expect_refusal(go_on: GoOn, answers: Mapping[str, Any], what: str) -> None:
    try:
        await go_on(answers)
    except RequestError:
        return
    raise AssertionError(f"{what} was taken: {dict(answers)!r}")
