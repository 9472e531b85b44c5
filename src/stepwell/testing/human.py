"""A scripted person who responds to requests and, if asked to, errs, is late or repeats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from stepwell.errors import RequestError, RequestExpired
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.testing.clock import FakeClock
from stepwell.workflows.result import WorkflowRunResult

Resume = Callable[[Mapping[str, Any]], Awaitable[WorkflowRunResult]]
"""Resumes a waiting run with these answers, by request id."""

_NOTHING: Any = object()


class ScriptedHuman:
    """A person who responds to the requests of a run.

    `script` is a list of answers, used in the order of the requests, or a mapping from types of requests
    to answers. An answer that is a function is called with the request. The same request, asked again
    after a crash, gets the same answer. A request that the script does not cover raises AssertionError.

    `wrong` is sent before each answer and must be refused. `late` is how long the person thinks, by the
    clock of the test: if a deadline passes meanwhile, the run continues without the answer. `twice` sends
    each answer a second time, which must be refused. `asked` holds the requests in the order they came.
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
        self._answers: dict[str, Any] = {}  # by request id
        self.asked: list[Any] = []

    def __call__(self, event: WorkflowEvent) -> Any:
        """Return the answer to a `request_info` event."""
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
            raise AssertionError(f"the script has only {len(self._script)} answers, but was also asked: {question!r}")
        for kind, answer in self._script.items():
            if isinstance(question, kind):
                return answer
        raise AssertionError(f"the script has no answer to a {type(question).__name__}: {question!r}")

    async def talk(
        self, result: WorkflowRunResult, resume: Resume, *, clock: FakeClock | None = None
    ) -> WorkflowRunResult:
        """Answer all requests of a run until it has none; return its last result.

        `resume` resumes the run: `lambda answers: workflow.run(run_id="r", responses=answers)`. `clock` is
        needed if the person is `late`.
        """
        while result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            answers = {event.request_id: self(event) for event in result.get_request_info_events()}
            result = await self.give(answers, resume, clock=clock)
        return result

    async def give(
        self, answers: Mapping[str, Any], resume: Resume, *, clock: FakeClock | None = None
    ) -> WorkflowRunResult:
        """Send these answers to a run: late, wrong first, or twice, as configured."""
        if self._late is not None:
            if clock is None:
                raise ValueError("a human who is late needs the clock of the test; pass clock=FakeClock()")
            clock(seconds=self._late.total_seconds())
        if self._wrong is not _NOTHING:
            for request_id in answers:
                await _expect_refusal(resume, {request_id: self._wrong}, "a wrong answer")
        try:
            result = await resume(answers)
        except RequestExpired:
            # The deadline has passed. A default takes the place of the answer; without one, this
            # raises again.
            return await resume({})
        if self._twice:
            await _expect_refusal(resume, answers, "a second answer")
        return result


async def _expect_refusal(resume: Resume, answers: Mapping[str, Any], what: str) -> None:
    try:
        await resume(answers)
    except RequestError:
        return
    raise AssertionError(f"{what} was accepted: {dict(answers)!r}")
