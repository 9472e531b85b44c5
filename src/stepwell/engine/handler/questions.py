"""Questions that handlers wait for (`ctx.ask`): asks them, waits, and fixes the answers.

A question is an entry of the superstep log, and its request can be answered from then on. The handler waits in
memory while anything else of its superstep works: an answer that arrives meanwhile lets it continue right there. When
all handlers that are not done wait, they are left, and the run is parked. It is resumed with an answer, and the
handler is called again from its beginning; what it did in steps is recalled.

An answer is fixed by another entry of the log when it is first used, together with the end of its request: from then
on the question has this answer, whatever else is sent. Its signal is consumed by the next commit, so that a run whose
process dies in between is found by those who look for runs with signals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.durability.superstep_log import WAITS_HERE, Parked, SuperstepLog, earliest, is_far
from stepwell.engine.intake.responses import expiry_error, find_overdue, has_passed, rejection_error
from stepwell.engine.opening.drive_options import ListRequest
from stepwell.kernel import CommitDecision
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.model.event import WorkflowEvent, WorkflowEventSource, WorkflowRunState
from stepwell.model.log_keys import (
    LogEntry,
    RecalledLog,
    answer_log_key,
    child_request_key,
    closed_request_key,
    rejection_log_key,
)
from stepwell.model.message import Outcome
from stepwell.model.request import AnswerRecord, Request
from stepwell.model.signal import ReceivedJson, ReceivedResponse, Signal
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.response_types import NotOfType, answer_as
from stepwell.storage.signals import answer_key, first_answer_key, next_answer_key

# Seconds for which all handlers must have waited before they are left: the tasks of a handler start one by one.
_GRACE = 0.01


class Asker(Protocol):
    """A handler call that asks."""

    asking: int  # how many of its questions wait for an answer

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for an answer, and none of its steps and sleeps is under way."""


async def list_changes(
    list_request: ListRequest, commit: Commit, requests: Mapping[str, Request], after: Checkpoint, *, at_rest: bool
) -> None:
    """List what a sub-workflow run asks in a commit, unless it rests now, and take off the list what it has closed.

    `requests` are those that were open before, by id, and the questions of its handlers. What an intake has answered
    early is on record in its commit, and not open after it.
    """
    for request in () if at_rest else commit.asked:
        if request.id in after.requests:
            await list_request(request, True)
    for id in commit.closed:
        if id in requests:
            await list_request(requests[id], False)


class Questions(msgspec.Struct, eq=False):
    """The questions of one superstep, and the handlers that wait for their answers."""

    _archive: Archive
    _at: Checkpoint
    _log: SuperstepLog
    _emit_live: Callable[[WorkflowEvent], None]
    # Of a sub-workflow run: lists a request with the run that people know.
    _list: ListRequest | None = None
    # Lanes of the superstep that are not done.
    lanes: int = 0
    was_asked: bool = False  # perhaps before; otherwise nobody waits, and nothing is under way
    _signals: Mapping[str, Signal] = {}
    _waiting: dict[str, asyncio.Future[None]] = {}  # by request id
    _askers: set[Asker] = set()
    _leave_timer: asyncio.TimerHandle | None = None
    _looking: asyncio.Task[None] | None = None
    _rejected: list[str] = []  # keys of signals
    _shown: set[str] = set()  # ids of requests that were announced before their commit
    listed: dict[str, Request] = {}  # what handlers that have returned ask, by id
    warnings: list[str] = []

    def __post_init__(self) -> None:
        self.was_asked = bool(self.requests)

    @property
    def awaited(self) -> dict[str, Request]:
        """The questions of its handlers, by id."""
        return {id: request for id, request in self.requests.items() if request.is_awaited}

    @property
    def requests(self) -> dict[str, Request]:
        """What was open when the superstep started, and what its handlers have asked since, by id."""
        return {**self._at.requests, **RecalledLog(entries=self._log.entries).asked}

    def receive(self, signals: Mapping[str, Signal]) -> None:
        """Look at signals that have arrived: handlers whose answers are among them continue."""
        self._signals = {key: signal for key, signal in signals.items() if key not in self._rejected}
        for id, future in self._waiting.items():
            request = self.requests.get(id)
            if request is not None and self._find_answer(request) is not None and not future.done():
                future.set_result(None)

    async def ask(self, key: str, asker: Asker, make: Callable[[], Request], response_type: Any) -> Any:
        """Return the answer to the question that is logged under a key; `make` makes it if there is none yet.

        Raises Parked if the handler is to be left, and RequestExpired.
        """
        self.was_asked = True
        fixed = self._log[answer_log_key(key)]
        if fixed is not None and fixed.answer is not None:
            return answer_as(fixed.answer.value.open(), [response_type])
        request = self._recall(key)
        if request is None:
            request = make()
            await self._log.add(key, LogEntry("", request=request))
        if fixed is not None:
            raise expiry_error(self._at, request)
        while True:
            found = self._find_answer(request)
            if found is not None:
                try:
                    return await self._fix(key, request, found[1], response_type)
                except NotOfType as error:
                    await self._reject(key, request, found[0], error)
            elif has_passed(request.deadline) and self._at.header.caller is None:
                await self._expire(key, request)
            else:
                await self._wait(asker, request)

    def check_answered(self, delivery: str) -> None:
        """Raise Parked if a handler was left because it waits, and nothing that it waits for has come."""
        asked = [r for r in self._at.requests.values() if r.is_awaited and str(r.waiting).startswith(f"{delivery}/")]
        if not asked or any(self._log[answer_log_key(str(r.waiting))] or self._find_answer(r) for r in asked):
            return
        due = reduce(earliest, [*map(self._deadline_of, asked), *self._log.timers_of(delivery)])
        if due is None or is_far(due):
            raise Parked(due)

    async def list_for_child(self, delivery: str, request: Request, *, is_open: bool) -> None:
        """List a request of a sub-workflow run that a handler drives, before that run rests; or take it off the list.

        The latter is for one that was listed, and that the run has withdrawn.
        """
        # By what it is: another delivery that drives the same run may have listed it, or have returned with it.
        key, logged = child_request_key(delivery, request.id), self._log.requests
        if not is_open:
            if (listed_as := kernel.find_same(request, logged)) is not None:
                listed = logged[listed_as]
                await self._log.add(closed_request_key(listed_as), LogEntry(clock.stamp()), closed=(listed.id,))
                if self._list is not None:
                    await self._list(listed, False)
        elif key not in logged and kernel.find_same(request, {**logged, **self.listed}) is None:
            self.was_asked = True
            named = kernel.name_request(request, {*self._at.requests, *(r.id for r in logged.values()), *self.listed})
            await self._log.add(key, LogEntry("", request=named))
            if self._list is not None:
                await self._list(named, True)
            self.show(named)

    def leave(self, outcome: Outcome) -> tuple[Request, ...]:
        """Stop waiting for the answers that a handler does not wait for any more, and return what it has asked."""
        if not self.was_asked:
            return ()
        log = RecalledLog({outcome.delivery: outcome}, self._log.entries)
        left = {id: r for id, r in kernel.find_left(self._at, log).items() if not kernel.is_expired(r, log)}
        for id in left.keys() & self._waiting.keys():
            self._waiting[id].cancel()
        return tuple(left.values())

    async def list_after(self, write: Awaitable[None], requests: Sequence[Request], left: Sequence[Request]) -> None:
        """Wait for the write of an outcome, then list its requests, and take off the list what was `left`."""
        await write
        if self._list is not None:
            for request in requests:
                await self._list(request, True)
            for request in left:
                await self._list(request, False)

    def show(self, request: Request) -> None:
        """Emit a request that can be answered before the superstep is committed, once."""
        if request.id not in self._shown:
            self._shown.add(request.id)
            asker, origin = request.executor, WorkflowEventSource.EXECUTOR
            self._emit("request_info", payload=request.payload, request=request, executor_id=asker, origin=origin)

    def show_withdrawal(self, request: Request) -> None:
        """Emit that a request which was announced before its superstep is committed is not open any more."""
        if request.id in self._shown:
            self._emit("request_withdrawn", data=request.id, executor_id=request.executor)

    async def settle(self, decision: CommitDecision, log: RecalledLog) -> CommitDecision:
        """Return what a superstep leads to with what its handlers have asked, were answered, and have taken back."""
        commit = kernel.settle_asks(self._at, decision.commit, log)
        withdrawn = {id: self._at.requests[id] for id in commit.withdrawn if id in self._at.requests}
        unused = await self._find_unused({**kernel.find_left(self._at, log), **kernel.find_closed(log), **withdrawn})
        dropped = [kernel.unused_warning(signal.request_id, signal.by) for signal in unused.values()]
        warnings = (*commit.warnings, *self.warnings, *dropped)
        consumed = (*self._find_used_signals(), *unused)
        return replace(decision, commit=replace(commit, warnings=warnings), consumed=consumed)

    async def find_expired(self, early: Mapping[str, Request]) -> list[Request]:
        """Return those of the requests in the superstep log that have no default and got no response in time."""
        overdue = [request for request in find_overdue(self._at, early) if request.default is None]
        overdue = [request for request in overdue if request.id in early]
        if overdue:
            self.receive(await self._archive.pending_signals(self._at.run_id))
        return [request for request in overdue if self._find_answer(request) is None]

    async def _find_unused(self, ended: Mapping[str, Request]) -> dict[str, ReceivedResponse | ReceivedJson]:
        """Return the responses, by key, to requests that were closed without one."""
        if not ended:
            return {}
        self.receive(await self._archive.pending_signals(self._at.run_id))
        return dict(found for request in ended.values() if (found := self._find_answer(request)) is not None)

    def _find_used_signals(self) -> tuple[str, ...]:
        """Return the keys of the signals that were used as answers, or rejected."""
        entries = self._log.entries.values()
        answered = {entry.answer.request_id for entry in entries if entry.answer is not None}
        asked = (entry.request for entry in entries if entry.request is not None)
        keys = {answer_key(self._at.header.epoch, request) for request in asked if request.id in answered}
        return (*self._rejected, *(key for key in self._signals if first_answer_key(key) in keys))

    def check_lanes(self) -> None:
        """Note that a lane of the superstep is done, and fewer are left."""
        if self.lanes == 0:
            self._close()
        else:
            self.check_soon()

    def check_soon(self) -> None:
        """Leave the handlers soon if all that are not done wait; otherwise announce what they ask."""
        if self._waiting and self._leave_timer is None:
            self._leave_timer = asyncio.get_running_loop().call_later(_GRACE, self._check)

    def _emit(self, type: str, **attributes: Any) -> None:
        state = WorkflowRunState.IN_PROGRESS
        self._emit_live(WorkflowEvent(type, run_id=self._at.run_id, state=state, **attributes))

    # ---------------------------------------------------------------- answers

    def _recall(self, key: str) -> Request | None:
        entry = self._log[key]
        if entry is not None:
            return entry.request
        # A store without a superstep log has it in the checkpoint only.
        return next((r for r in self._at.requests.values() if r.is_awaited and r.waiting == key), None)

    def _find_answer(self, request: Request) -> tuple[str, ReceivedResponse | ReceivedJson] | None:
        first = answer_key(self._at.header.epoch, request)
        for key, signal in self._signals.items():
            if first_answer_key(key) == first and isinstance(signal, ReceivedResponse | ReceivedJson):
                return key, signal
        return None

    async def _fix(
        self,
        key: str,
        request: Request,
        signal: ReceivedResponse | ReceivedJson,
        response_type: Any,
    ) -> Any:
        """Fix the answer to a question, and return it. Raises NotOfType if it does not have the requested type."""
        sent = msgspec.json.decode(signal.value) if isinstance(signal, ReceivedJson) else signal.value.open()
        value = answer_as(sent, [response_type])
        answer = AnswerRecord(
            request.id,
            request.executor,
            value=self._archive.pack(value, f"$.responses.{request.id}"),
            at=signal.at or clock.stamp(),
            by=signal.by,
            comment=signal.comment,
        )
        await self._log.add(answer_log_key(key), LogEntry(self._now(), answer=answer), closed=(request.id,))
        return value

    def _now(self) -> str:
        """Return the time, later than that of the last commit: the clock of its driver may have been ahead."""
        now, last = clock.stamp(), self._at.stamp
        if kernel.is_later(now, last):
            return now
        return (datetime.fromisoformat(last.at) + timedelta(microseconds=1)).isoformat()

    async def _reject(self, key: str, request: Request, signal_key: str, error: NotOfType) -> None:
        """Free a question whose answer does not have the requested type."""
        text = str(rejection_error(self._at, request, error))
        self._rejected.append(signal_key)
        self.receive(self._signals)
        count = sum(1 for other in self._log.entries if other.startswith(rejection_log_key(key, "")))
        await self._log.add(rejection_log_key(key, str(count)), LogEntry(clock.stamp()), consumed=(signal_key,))
        self.warnings.append(text)
        self._emit("warning", data=text, origin=WorkflowEventSource.FRAMEWORK)

    async def _expire(self, key: str, request: Request) -> None:
        """Answer a question that is past its deadline with its default. Raises RequestExpired if it has none.

        An answer that is stored already counts: clocks differ, and the driver may not have seen it yet.
        """
        self.receive(await self._archive.pending_signals(self._at.run_id))
        if self._find_answer(request) is not None:
            return
        if request.default is None:
            # On record, so that the question stays expired when the handler is called again.
            await self._log.add(answer_log_key(key), LogEntry(clock.stamp()), closed=(request.id,))
            raise expiry_error(self._at, request)
        answer = ReceivedResponse(request.id, request.default, at=clock.stamp())
        sent_as = answer_key(self._at.header.epoch, request)
        # A signal, so that a response that was sent just now stands: it comes first.
        while not await self._archive.send(self._at.run_id, sent_as, answer, as_driver=True):
            sent_as = next_answer_key(sent_as)
        self.receive(await self._archive.pending_signals(self._at.run_id))

    # ---------------------------------------------------------------- waiting

    async def _wait(self, asker: Asker, request: Request) -> None:
        """Wait until there may be an answer, or the deadline has passed. Raises Parked if the handler is left."""
        future = self._waiting[request.id] = asyncio.get_running_loop().create_future()
        self._askers.add(asker)
        asker.asking += 1
        self.check_soon()
        deadline = self._deadline_of(request)
        left = WAITS_HERE if deadline is None else clock.until(deadline).total_seconds()
        try:
            await asyncio.wait([future], timeout=max(0.0, min(left, WAITS_HERE)))
            if future.done():
                future.result()
        finally:
            asker.asking -= 1
            if self._waiting.get(request.id) is future:
                del self._waiting[request.id]

    def _check(self) -> None:
        self._leave_timer = None
        if self._waiting and (self._looking is None or self._looking.done()):
            work = self._leave() if self._all_wait() else self._announce_waiting()
            self._looking = asyncio.get_running_loop().create_task(work)
            self._looking.add_done_callback(self._raise_where_handlers_wait)

    def _raise_where_handlers_wait(self, looking: asyncio.Task[None]) -> None:
        """Raise an error of the store in the handlers: nobody awaits the task, and they would wait for ever."""
        if not looking.cancelled() and (error := looking.exception()) is not None:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)

    async def _announce_waiting(self) -> None:
        """Announce the questions that wait while other handlers work: they can be answered already."""
        for id in list(self._waiting):
            request = self.requests.get(id)
            if request is not None and id not in self._at.requests:
                if self._list is not None:
                    await self._list(request, True)
                self.show(request)
        if self._all_wait() or not self._shown.issuperset(self._waiting.keys() - self._at.requests.keys()):
            self.check_soon()

    def _all_wait(self) -> bool:
        return sum(asker.is_waiting for asker in self._askers) >= self.lanes

    async def _leave(self) -> None:
        """Leave the handlers that wait, unless an answer has arrived."""
        self.receive(await self._archive.pending_signals(self._at.run_id))
        if any(future.done() for future in self._waiting.values()) or not self._all_wait():
            return
        for id, future in self._waiting.items():
            request = self.requests.get(id)
            if not future.done():
                future.set_exception(Parked(None if request is None else self._deadline_of(request)))

    def _deadline_of(self, request: Request) -> str | None:
        # The caller of a sub-workflow run keeps its deadlines.
        return None if self._at.header.caller is not None else request.deadline

    def _close(self) -> None:
        """Stop looking for answers: the handlers are done or left, with the tasks that they did not wait for."""
        if self._leave_timer is not None:
            self._leave_timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
        for future in self._waiting.values():
            future.cancel()
