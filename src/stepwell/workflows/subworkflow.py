"""A workflow as an executor of another: each call is a run of its own, kept where the run around it is kept.

The run inside is driven within the superstep that called it, and commits its own supersteps. If the process
dies, the call is made again, finds the run by its derived id, and goes on where that run was.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.drive import Drive
from stepwell.engine.edge_conditions import choose_route
from stepwell.engine.handler_context import HandlerContext
from stepwell.engine.open_run import Continue, Fresh, Position, Rewind, Suspended
from stepwell.engine.run_options import Options, Troupe
from stepwell.engine.superstep_log import Parked
from stepwell.errors import CheckpointMissing, HandlerFailed, InputMismatch, RoutingFailed, RunError, UnknownRequest
from stepwell.graph.executor import Executor, HandlerTable
from stepwell.graph.handler import HandlerSpec
from stepwell.graph.retry import RetryPolicy
from stepwell.graph.subworkflow import (
    Nesting,
    SubWorkflowRequest,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
)
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.model.payload import PayloadList
from stepwell.model.request import Request
from stepwell.model.superstep import Checkpoint, Child, Commit, CommitKind
from stepwell.storage.archive import Archive
from stepwell.storage.ids import child_run_id, forked_child_id
from stepwell.storage.json_text import json_of
from stepwell.workflows.workflow import Workflow


class InnerTable(HandlerTable):
    """What a sub-workflow takes: what its start takes, and answers to whatever any of its executors asks."""

    def __init__(self, specs: Iterable[HandlerSpec], inner: Mapping[str, Executor]) -> None:
        super().__init__(specs)
        self._inner = inner

    def response_types(self, question: object) -> tuple[object, ...]:
        types = (
            response_type
            for executor in self._inner.values()
            for response_type in executor._handler_table.response_types(question)
        )
        return tuple(dict.fromkeys(types))

    def every_type(self) -> Iterable[object]:
        yield from super().every_type()
        yield SubWorkflowRequestMessage
        for executor in self._inner.values():
            yield from executor._handler_table.every_type()


@dataclass(frozen=True, slots=True)
class _SuspendedRun:
    """A run inside a run that is kept nowhere but here, waiting for an answer."""

    at: Checkpoint
    yielded: Sequence[Commit]
    executors: Mapping[str, Executor]


@dataclass(frozen=True, slots=True)
class _Answers:
    """Which delivery of a superstep answers which question, where several want to: the first in the plan does."""

    at: tuple[str, int, int]  # run, epoch and number of the checkpoint
    first: Mapping[tuple[str, str], str]


class WorkflowExecutor(Nesting):
    """A workflow as an executor: a message starts a run of it, and what that run yields is sent on.

    With `allow_direct_output` its outputs become outputs of the workflow around it. Its questions are asked
    by the workflow around it, under the same ids; unless `propagate_request` says so in any case, an
    executor beside it that takes `SubWorkflowRequestMessage` gets them first and may answer.
    """

    _handles_concurrently = True

    def __init__(
        self,
        workflow: Workflow,
        id: str | None = None,
        allow_direct_output: bool = False,
        propagate_request: bool = False,
        *,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        idle_timeout: float | timedelta | None = None,
    ) -> None:
        if not isinstance(workflow, Workflow):
            raise TypeError(f"a WorkflowExecutor runs a Workflow, not a {type(workflow).__name__}: call build() first")
        super().__init__(id or workflow.name, retry=retry, timeout=timeout, idle_timeout=idle_timeout)
        self.workflow: Workflow = workflow
        self.allow_direct_output, self.propagate_request = allow_direct_output, propagate_request
        output_types = _output_types(workflow)
        self._forwarded_types = () if allow_direct_output else output_types
        self._table = _table(workflow, self._forwarded_types, output_types if allow_direct_output else ())
        self._suspended: dict[str, _SuspendedRun] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._answers: _Answers | None = None

    @property
    def _handler_table(self) -> HandlerTable:
        return self._table

    async def call(self, message: Any, ctx: HandlerContext) -> None:
        """Run the workflow with a message, until it is done or waits."""
        await ctx.scope.settle()  # nothing inside is stored before what called it
        key = child_run_id(ctx.run_id, ctx.scope.epoch, ctx.delivery.id)
        outputs: list[Any] = []
        drive = self._drive(ctx, Fresh(message, key, named=True, digest=self._digest(ctx)), {})
        try:
            async for event in self._events(ctx, drive):
                if event.type == "output" and not event.path:
                    outputs.append(event.data)
        except InputMismatch as mismatch:
            if drive.run_id is not None:  # it was found: this is something else, from further inside
                raise
            raise InputMismatch(
                f"run {key!r} inside {self.id!r} was begun with another message, by an earlier run {ctx.run_id!r} that "
                f"was deleted without it; give the new run another id, or delete that one, too",
                run_id=ctx.run_id,
            ) from mismatch
        at = self._resting_checkpoint(ctx, drive)
        self._keep_child(ctx, key, drive, at)
        await self._pass_on(ctx, key, outputs, at.requests.values(), at)

    def _digest(self, ctx: HandlerContext) -> str | None:
        """What the message is known by. As it is stored: classes may have got new fields when it is read again."""
        if self._archive(ctx) is None:
            return None
        payload = ctx.delivery.payload
        parts = payload.payloads if isinstance(payload, PayloadList) else (payload,)
        plain = [json.loads(json_of(part)) for part in parts]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    async def handle_response(self, question: Any, response: Any, ctx: HandlerContext) -> None:
        """Somebody outside answered."""
        reply = ctx.delivery.reply
        assert reply is not None
        key = reply.child or ""
        request_id = kernel.inner_id(reply.request_id, key)
        if not await self._answer(ctx, key, request_id, response):
            raise UnknownRequest(
                f"the run inside {self.id!r} that asked {request_id!r} does not wait for that answer any more",
                run_id=ctx.run_id,
                request_id=request_id,
            )

    async def handle_sibling_answer(self, message: SubWorkflowResponseMessage, ctx: HandlerContext) -> None:
        """An executor beside this one answered."""
        request = message.source_event
        first = self._first_answers(ctx).get((request.child, request.request_id))
        if first != ctx.delivery.id or not await self._answer(ctx, request.child, request.request_id, message.data):
            by = ", ".join(map(repr, ctx.source_executor_ids)) or "somebody"
            words = f"what {by} answered to {request.request_id!r} is not used: {self.id!r} does not ask that any more"
            await ctx.add_event(WorkflowEvent("warning", words))

    def _first_answers(self, ctx: HandlerContext) -> Mapping[tuple[str, str], str]:
        """Of several answers to one question in one superstep the first counts, also if they are handled again."""
        at = ctx.at
        here = (at.run_id, at.header.epoch, at.number)
        if self._answers is None or self._answers.at != here:
            first: dict[tuple[str, str], str] = {}
            for delivery in kernel.plan(ctx.scope.graph, at.place, at.messages, at.held).deliveries:
                answer = delivery.payload.open() if delivery.executor == self.id and delivery.reply is None else None
                if isinstance(answer, SubWorkflowResponseMessage):
                    first.setdefault((answer.source_event.child, answer.source_event.request_id), delivery.id)
            self._answers = _Answers(here, first)
        return self._answers.first

    async def _answer(self, ctx: HandlerContext, key: str, request_id: str, value: Any) -> bool:
        """Move a run on with an answer; False if it does not ask that (any more)."""
        async with self._turns.setdefault(key, asyncio.Lock()):  # one answer at a time moves a run on
            child = ctx.children.get(key)
            if child is None:
                return False
            await ctx.scope.settle()
            drive = self._drive(ctx, self._position(ctx, key, child), {request_id: value}, child)
            try:
                async for _ in self._events(ctx, drive):
                    pass
            except CheckpointMissing as missing:
                if drive.run_id is not None:
                    raise
                raise CheckpointMissing(
                    f"run {child.run_id!r} inside {self.id!r}, which asked {request_id!r}, is not in this storage: "
                    f"a checkpoint only refers to the runs inside, so whoever copies it must copy theirs too"
                ) from missing
            at = self._resting_checkpoint(ctx, drive)
            effects = _collect_effects(await self._commits(ctx, drive, at, child), request_id)
            if effects is None:
                return False
            self._keep_child(ctx, key, drive, at)
        open_requests = [request for request in effects.requests if request.id in at.requests]
        await self._pass_on(ctx, key, effects.outputs, open_requests, at)
        return True

    def _position(self, ctx: HandlerContext, key: str, child: Child) -> Position:
        """Where to go on with a run; a fork of the run around it goes on with a fork of it."""
        if (suspended := self._suspended.get(key)) is not None:
            return Suspended(suspended.at, suspended.yielded, suspended.executors)
        if child.caller == Child.caller_of(ctx.run_id, ctx.scope.epoch):
            return Continue(child.run_id)
        return Rewind(child.checkpoint_id, forked_child_id(ctx.run_id, ctx.scope.epoch, child.run_id))

    def _drive(
        self, ctx: HandlerContext, position: Position, responses: Mapping[str, Any], child: Child | None = None
    ) -> Drive:
        scope, definition, archive = ctx.scope, self.workflow._definition, self._archive(ctx)
        if archive is not None and child is not None:  # what it commits is read again, also by an attempt after a crash
            # nor is it gone while the run around this one may still go back
            archive.needed = child.number if isinstance(position, Continue) and not scope.is_needed else 0
        options = Options(
            position,
            archive,
            scope.streaming,
            dict(scope.private),
            responses,
            scope.archive_for,
            caller=ctx.run_id,
            durability=scope.durability,
            by_right=scope.holds_lease,
            recall_changed=scope.recall_changed,
        )
        return Drive(definition, options, self._executors_for(position))

    def _archive(self, ctx: HandlerContext) -> Archive | None:
        return ctx.scope.archive_for(self.workflow.name, self.workflow._definition.codec)

    def _executors_for(self, position: Position) -> Troupe:
        pool = self.workflow._executor_pool
        suspended = position.executors if isinstance(position, Suspended) else None

        def give_back(executors: Mapping[str, Executor], at: Checkpoint | None, yielded: Sequence[Commit]) -> None:
            pool.release(executors)

        return Troupe(pool.acquire if suspended is None else lambda: suspended, give_back)

    async def _events(self, ctx: HandlerContext, drive: Drive) -> Any:
        """What the run inside tells; passed on outside under the name of this executor."""
        failed: RunError | None = None
        try:
            async with aclosing(drive.events()) as events:
                async for event in events:
                    if not event.replayed:
                        self._emit(ctx, event)
                    yield event
        except RunError as error:
            failed = error
        if failed is not None:
            raise self._translate_error(ctx, failed)

    def _translate_error(self, ctx: HandlerContext, error: RunError) -> BaseException:
        """What went wrong inside, for whoever looks from outside: the run to resume is the one around it."""
        inside = f"in run {error.run_id!r} inside {self.id!r}"
        error.run_id = ctx.run_id
        if isinstance(error, HandlerFailed) and error.__cause__ is not None:
            cause = error.__cause__
            cause.add_note(f"in executor {error.executor_id!r}, {inside}")
            return cause
        error.add_note(inside)
        return error

    def _emit(self, ctx: HandlerContext, event: WorkflowEvent) -> None:
        if event.type == "warning" and self._is_storage_warning(ctx, event.data):
            return
        outer_event = copy.copy(event)
        outer_event.path = (self.id, *event.path)
        ctx.keep_alive()
        ctx.scope.emit(outer_event)

    def _is_storage_warning(self, ctx: HandlerContext, warning: object) -> bool:
        """Whether a warning is about the storage: the run around it is kept there too, and has said so."""
        archive = self._archive(ctx)
        return archive is not None and warning == archive.shortcomings

    def _resting_checkpoint(self, ctx: HandlerContext, drive: Drive) -> Checkpoint:
        """Where the run inside is, if it is done or waits for answers. Raises Parked if it waits for a time."""
        at = drive.at
        assert at is not None
        if at.status is WorkflowRunState.CANCELLED:
            raise RunError(
                f"run {at.run_id!r} inside {self.id!r} was cancelled; resuming run {ctx.run_id!r} resumes it too",
                run_id=ctx.run_id,
            )
        if at.wake is not None:
            raise Parked(at.wake)
        return at

    def _keep_child(self, ctx: HandlerContext, key: str, drive: Drive, at: Checkpoint) -> None:
        self._suspended.pop(key, None)
        if at.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            caller = Child.caller_of(ctx.run_id, ctx.scope.epoch)
            ctx.keep_child(key, Child(at.run_id, self.id, at.stamp.checkpoint_id, at.number, caller))
            if self._archive(ctx) is None:
                self._suspended[key] = _SuspendedRun(at, drive.output_commits, drive.executors)
        elif key in ctx.children:
            ctx.keep_child(key, None)

    async def _commits(self, ctx: HandlerContext, drive: Drive, at: Checkpoint, child: Child) -> list[Commit]:
        """What the run inside committed since it was left."""
        archive = self._archive(ctx)
        if archive is None:
            return drive.own_commits
        return await archive.commits(at.run_id, after=child.number if at.run_id == child.run_id else -1)

    async def _pass_on(
        self, ctx: HandlerContext, key: str, outputs: Iterable[Any], requests: Iterable[Request], at: Checkpoint
    ) -> None:
        """Send on what the run inside came to, which is `at` rest now."""
        for output in outputs:
            if self.allow_direct_output:
                ctx.yield_output(output)
            else:
                self._check_routable(ctx, output)
                ctx.send_message(output)
        for request in requests:
            question = SubWorkflowRequestMessage(_as_data(request, key), self.id)
            answerers = [] if self.propagate_request else await self._answerers(ctx, question)
            if not answerers:
                ctx.ask(replace(request, executor=self.id, child=key))
            for answerer in answerers:
                ctx.send_message(question, target_id=answerer)

    async def _answerers(self, ctx: HandlerContext, question: SubWorkflowRequestMessage) -> list[str]:
        """The executors beside this one that were written to answer such questions, and whose edges let this pass."""
        graph = ctx.scope.graph
        beside = {target for edge in graph.outgoing.get(self.id, ()) for target in edge.targets}
        if not any(SubWorkflowRequestMessage in graph.executors[id].input_types for id in beside):
            return []
        routed = await choose_route(graph, ctx.run_id, self.id, question, None)
        return [id for id in routed.takers if SubWorkflowRequestMessage in graph.executors[id].input_types]

    def _check_routable(self, ctx: HandlerContext, output: Any) -> None:
        graph = ctx.scope.graph
        if graph.on_unroutable == "fail" and not graph.outgoing.get(self.id):
            raise RoutingFailed(
                f"the sub-workflow {self.id!r} yielded a {type(output).__name__}, but no edge leaves {self.id!r}: add "
                f"one, or build it with allow_direct_output=True, and run it again",
                run_id=ctx.run_id,
            )


def _output_types(workflow: Workflow) -> tuple[object, ...]:
    """The types of what a workflow is declared to yield as outputs; empty if it does not say."""
    graph = workflow._definition.graph
    executors = [e for id, e in graph.executors.items() if graph.output_kind(id) == "output"]
    return tuple(dict.fromkeys(output_type for executor in executors for output_type in executor.workflow_output_types))


def _table(workflow: Workflow, sent_types: Sequence[object], output_types: Sequence[object]) -> HandlerTable:
    # answers are never input: where the workflow starts with a sub-workflow of its own, they are meant for this one
    input_types = tuple(
        input_type for input_type in workflow.input_types if input_type is not SubWorkflowResponseMessage
    )
    # a workflow that does not say what it yields may send anything, not questions only
    sends = (SubWorkflowRequestMessage, *sent_types) if sent_types or output_types else ()
    common: dict[str, Any] = {"output": sends, "workflow_output": output_types, "takes_context": True, "is_async": True}
    specs = [
        HandlerSpec("call", input=input_types, **common),
        HandlerSpec("handle_sibling_answer", input=(SubWorkflowResponseMessage,), **common),
        HandlerSpec("handle_response", input=(Any,), response=(Any,), **common),
    ]
    return InnerTable(specs, workflow.executors)


def _as_data(request: Request, key: str) -> SubWorkflowRequest:
    return SubWorkflowRequest(
        request_id=request.id,
        data=request.payload.open(),
        source_executor_id=request.executor,
        request_type=request.request_type,
        response_type=request.response_type,
        response_schema=json.loads(request.schema),
        deadline=request.deadline,
        child=key,
    )


@dataclass(frozen=True, slots=True)
class _AnswerEffects:
    """What an answer led to."""

    outputs: list[Any]
    requests: list[Request]


def _collect_effects(commits: Sequence[Commit], request_id: str) -> _AnswerEffects | None:
    """The outputs and questions from where an answer was taken in to where the next one was; None if it never was.

    If several were taken in at once, that is put down to the first of them. A commit may be one that says everything:
    what was new in it is read from what was done.
    """
    begin = next((n for n, commit in enumerate(commits) if request_id in _applied_requests(commit)), None)
    if begin is None:
        return None
    if _applied_requests(commits[begin])[0] != request_id:
        return _AnswerEffects([], [])
    after = commits[begin + 1 :]
    end = next((n for n, commit in enumerate(after) if _applied_requests(commit)), len(after))
    effects = _AnswerEffects([], [])
    for commit in after[:end]:
        effects.outputs.extend(o.payload.open() for done in commit.done for o in done.outputs if o.kind == "output")
        new = {id for done in commit.done for id in done.asked}
        effects.requests.extend(request for request in commit.asked if request.id in new)
    return effects


def _applied_requests(commit: Commit) -> list[str]:
    """The questions whose answers a commit took in."""
    if commit.kind is not CommitKind.INTAKE:
        return []
    prefix = f"{commit.number}."
    return [m.reply.request_id for m in commit.messages or () if m.reply is not None and m.id.startswith(prefix)]
