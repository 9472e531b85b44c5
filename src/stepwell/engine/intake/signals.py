"""The signals of a run: which of them apply. Each is applied once, by the commit that consumes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.durability.superstep_log import is_far
from stepwell.engine.failures import details_of
from stepwell.engine.intake.responses import convert_response, expiry_error, find_overdue, send_defaults
from stepwell.engine.intake.timers import find_due
from stepwell.errors import ResponseRejected
from stepwell.graph.graph import Graph
from stepwell.kernel import CommitDecision
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, Stamp
from stepwell.model.event import WorkflowRunState
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Plan
from stepwell.model.payload import Pack
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedCancel, ReceivedInput, ReceivedJson, ReceivedResponse, Signal
from stepwell.storage.archive import EMPTY_LOG, Archive
from stepwell.storage.ids import new_stamp
from stepwell.storage.signals import answer_key, first_answer_key, is_of_epoch

_OVER = (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)


class JudgedSignals(msgspec.Struct, frozen=True):
    """The signals to apply, and the keys to consume with them."""

    arrived: tuple[ReceivedResponse | ReceivedInput, ...] = ()
    keys: tuple[str, ...] = ()
    # Why JSON responses could not be converted to the requested type.
    refused: tuple[ResponseRejected, ...] = ()
    # What becomes of responses to requests that are not open any more.
    warnings: tuple[str, ...] = ()

    @property
    def answered(self) -> set[str]:
        """The requests that get a response."""
        return {signal.request_id for signal in self.arrived if isinstance(signal, ReceivedResponse)}


def judge_signals(
    graph: Graph, at: Checkpoint, signals: Mapping[str, Signal], pack: Pack, log: RecalledLog = EMPTY_LOG
) -> JudgedSignals:
    """Decide which signals are applied. Those of an earlier epoch are ignored, and consumed with the others."""
    # By their keys: a request id may have been used before, and that of a sub-workflow's request may change.
    epoch, early = at.header.epoch, find_early(at, log)
    requests = {answer_key(epoch, request): request for request in (*early.values(), *at.requests.values())}
    used = kernel.find_used(log)
    used_keys = {answer_key(epoch, request) for id, request in log.asked.items() if id in used}
    warnings: list[str] = []
    arrived: list[ReceivedResponse | ReceivedInput] = []
    refused: list[ResponseRejected] = []
    kept: set[str] = set()
    for key, signal in select_epoch(at, signals).items():
        if isinstance(signal, ReceivedInput):
            arrived.append(signal)
        request = requests.get(first_answer_key(key) or "")
        if request is not None and request.is_awaited:
            kept.add(key)  # for a handler that waits, not for an intake
            continue
        if isinstance(signal, ReceivedResponse) and request is not None:
            arrived.append(replace(signal, request_id=request.id))
        elif isinstance(signal, ReceivedJson) and request is not None:
            try:
                value = convert_response(graph, at, request, msgspec.json.decode(signal.value), pack)
            except ResponseRejected as error:
                refused.append(error)
            else:
                by, comment = signal.by, signal.comment
                arrived.append(ReceivedResponse(request.id, value, by=by, comment=comment, at=signal.at))
        elif isinstance(signal, ReceivedResponse | ReceivedJson) and first_answer_key(key) not in used_keys:
            warnings.append(kernel.unused_warning(signal.request_id, signal.by))
    keys = tuple(key for key in signals if key not in kept)
    return JudgedSignals(tuple(arrived), keys, refused=tuple(refused), warnings=tuple(warnings))


def find_early(at: Checkpoint, log: RecalledLog) -> Mapping[str, Request]:
    """Return the open requests of a superstep that is not committed yet, if its handlers sleep or wait."""
    return kernel.early_requests(at, log) if kernel.is_parked(at) else {}


def select_epoch(at: Checkpoint, signals: Mapping[str, Signal]) -> dict[str, Signal]:
    """Leave out signals that were sent to the run before it was moved back."""
    return {key: signal for key, signal in signals.items() if is_of_epoch(key, at.header.epoch)}


class Cancels(msgspec.Struct, frozen=True):
    """The keys of the cancel signals of a run."""

    valid: tuple[str, ...] = ()
    first: ReceivedCancel | None = None  # of the valid ones: the oldest, which counts
    # Sent before the run was completed, or before it was cancelled and resumed on purpose.
    stale: tuple[str, ...] = ()


NO_CANCELS = Cancels()


async def find_cancels(archive: Archive, at: Checkpoint, signals: Mapping[str, Signal]) -> Cancels:
    """Find the signals that cancel the run now, and those that came too late."""
    current = select_epoch(at, signals).items()
    cancels = {key: signal for key, signal in current if isinstance(signal, ReceivedCancel)}
    if not cancels:
        return NO_CANCELS
    since = await archive.commits(at.run_id, after=min(cancel.number for cancel in cancels.values()))
    stops = [commit.number for commit in since if commit.status in _OVER]
    last = at.number + 1 if at.status is WorkflowRunState.IDLE else max(stops, default=-1)
    valid = [key for key, cancel in cancels.items() if cancel.number >= last]
    stale = tuple(key for key in cancels if key not in valid)
    return Cancels(tuple(valid), cancels[valid[0]] if valid else None, stale)


class Intake:
    """The signals of one drive: decides on the commits that apply them."""

    def __init__(self, graph: Graph, archive: Archive, timers_until: str | None = None) -> None:
        self._graph, self._archive, self._timers_until = graph, archive, timers_until
        # Signals that were read and not applied yet; None: they have to be read again.
        self.signals: Mapping[str, Signal] | None = None
        # Keys of cancel signals that came too late: the next commit consumes them.
        self.stale_cancels: tuple[str, ...] = ()
        # Of the superstep that is not committed yet, as it was when the run was opened.
        self.log: RecalledLog = EMPTY_LOG

    def judge(self, at: Checkpoint) -> JudgedSignals:
        """Judge the signals that were read."""
        return judge_signals(self._graph, at, self.signals or {}, self._archive.pack, self.log)

    def find_answered(self, at: Checkpoint) -> set[str]:
        """Return the requests that get a response, or their default, at the next intake."""
        overdue = {request.id for request in find_overdue(at) if request.default is not None}
        return self.judge(at).answered | overdue | self.find_asks(at)

    def find_asks(self, at: Checkpoint) -> set[str]:
        """Return the requests that handlers wait for and that have a response, or are overdue."""
        sent = {first_answer_key(key) for key in select_epoch(at, self.signals or {})}
        asked = [request for request in at.requests.values() if request.is_awaited]
        answered = {request.id for request in asked if answer_key(at.header.epoch, request) in sent}
        return answered | {request.id for request in find_overdue(at) if request.is_awaited}

    def is_late(self, at: Checkpoint, plan: Plan) -> bool:
        """Return whether there is something to apply in the middle of a superstep whose handlers sleep or wait."""
        # An answer that a handler has used is on record in the next commit of its superstep: that one comes first.
        if not plan.deliveries or not kernel.is_parked(at) or self.find_asks(at):
            return False
        return bool(self.signals or self._find_overdue(at) or find_due(at, self._timers_until))

    def end_superstep(self, log: RecalledLog, consumed: Sequence[str]) -> None:
        """Note that a superstep was committed, or parked with that log, and which signals its handlers have used."""
        self.log = log
        if consumed:
            left = {key: signal for key, signal in (self.signals or {}).items() if key not in consumed}
            self.signals = left or None  # read them again

    def can_continue(self, at: Checkpoint, plan: Plan) -> bool:
        """Return whether a run that was just parked has a response or input that it could not apply before.

        One that was resumed after it had failed or was cancelled calls its handlers first.
        """
        return self.is_late(at, plan) and bool(self.judge(at).arrived)

    def rests(self, at: Checkpoint, plan: Plan) -> bool:
        """Return whether the handlers of a run sleep or wait, and there is nothing to do yet."""
        if not plan.deliveries or self.is_late(at, plan):
            return False
        if at.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:  # they wait in `ctx.ask`
            return (at.wake is None or is_far(at.wake)) and not self.find_asks(at)
        return at.wake is not None and is_far(at.wake)

    def _find_overdue(self, at: Checkpoint) -> list[Request]:
        left = kernel.find_left(at, self.log)
        return [request for request in find_overdue(at, find_early(at, self.log)) if request.id not in left]

    async def find_cancels(self, at: Checkpoint, signals: Mapping[str, Signal] | None = None) -> Cancels:
        """Return the signals that cancel the run now; without `signals`, those that are stored."""
        if signals is None:
            signals = await self._archive.pending_signals(at.run_id)
        cancels = await find_cancels(self._archive, at, signals)
        self.stale_cancels = cancels.stale
        return cancels

    async def decide_cancel(self, at: Checkpoint, asked: ReceivedCancel | None) -> CommitDecision | None:
        """Decide to cancel the run if somebody asked for it: in this process, or by a signal."""
        cancels = await self.find_cancels(at, self.signals)
        if cancels.first is None and (asked is None or at.status in _OVER):
            return None
        commit = kernel.settle_asks(at, cancel_commit(at, asked or cancels.first), self.log)
        return CommitDecision(commit, None, consumed=cancels.valid)

    async def decide(self, at: Checkpoint, plan: Plan) -> CommitDecision | None:
        """Decide on the signals that arrived since the last commit, and on requests that got no response in time."""
        is_late = self.is_late(at, plan)
        # Those of the opening, if there were any; what is sent meanwhile is read after the next commit.
        self.signals = self.signals or await self._archive.pending_signals(at.run_id)
        judged = self.judge(at)
        # A default is stored as a signal, so that the first response wins no matter who sends it.
        if await send_defaults(self._archive, at, [r for r in self._find_overdue(at) if r.id not in judged.answered]):
            self.signals = await self._archive.pending_signals(at.run_id)
            judged = self.judge(at)
        signals, self.signals = self.signals, None
        cancels = await self.find_cancels(at, signals)
        if cancels.first is not None:
            return CommitDecision(cancel_commit(at, cancels.first), None, consumed=cancels.valid)
        may_end = is_late or not plan.deliveries
        overdue = self._find_overdue(at) if may_end else []
        expired = next((expiry_error(at, request) for request in overdue if request.default is None), None)
        # Responses come first: their handlers may cancel a timer.
        due = [] if judged.arrived else find_due(at, self._timers_until)
        resumed = expired is None and not plan.deliveries and _is_resumed(at, plan)
        if judged.arrived or due or (judged.keys and may_end) or resumed:
            intake = kernel.intake(
                self._graph,
                at,
                judged.arrived,
                _next_stamp(at),
                due=due,
                early=find_early(at, self.log),
                is_late=is_late,
                pack=self._archive.pack,
            )
            commit = replace(intake.commit, warnings=(*map(str, judged.refused), *judged.warnings))
            # A rejected response fails the call, unless there is something else to continue with.
            error = None if judged.arrived or is_late else next(iter(judged.refused), None)
            return replace(intake, commit=commit, error=error, consumed=judged.keys)
        if expired is None:
            return None
        # A failure is stored once and raised each time.
        if at.status is WorkflowRunState.FAILED:
            raise expired
        return CommitDecision(kernel.fail(at, (details_of(None, expired),), _next_stamp(at)), plan, expired)


def _is_resumed(at: Checkpoint, plan: Plan) -> bool:
    """Return whether a run has nothing to do and its newest commit does not say so.

    It was stopped while it waited, or forked or moved back to where it did: a commit says that it waits again.
    """
    wake = kernel.next_timer(at.timers, at.children) if at.timers or at.children else None
    status = kernel.status_of(plan, waiting=bool(at.requests), wake=wake)
    return (at.status, at.wake) != (status, wake)


def cancel_commit(at: Checkpoint, asked: ReceivedCancel | None) -> Commit:
    """Return the commit that cancels a run, with who asked for it and why."""
    by, reason = (None, None) if asked is None else (asked.by, asked.reason)
    return kernel.cancel(at, _next_stamp(at), by=by, reason=reason)


def _next_stamp(at: Checkpoint) -> Stamp:
    """Return the stamp of the next commit, not before the newest one: the times of answers are compared with it."""
    stamp = new_stamp(at.run_id, at.header.epoch, at.number + 1)
    return replace(stamp, at=at.stamp.at) if kernel.is_later(at.stamp.at, stamp) else stamp
