"""A workflow as an executor of another: each call is a run of its own, stored where the calling run is stored.

The sub-workflow run is driven within the superstep that called it, and commits its own supersteps. If the process
dies, the call is repeated, finds the run by its derived id, and resumes it.
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
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.drive.drive import Drive
from stepwell.engine.durability.superstep_log import Parked
from stepwell.engine.handler.internal_context import InternalContext
from stepwell.engine.opening.drive_options import ExecutorSource
from stepwell.engine.opening.open_run import FromCheckpoint, Position, ResumeRun, StartRun
from stepwell.engine.superstep.edge_conditions import choose_route
from stepwell.errors import CheckpointMissing, HandlerFailed, InputMismatch, RoutingFailed, RunError
from stepwell.graph.executor import Executor, HandlerTable
from stepwell.graph.handler import HandlerSpec
from stepwell.graph.retry import RetryPolicy
from stepwell.graph.subworkflow import (
    InnerTable,
    Nesting,
    SubWorkflowRequest,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
)
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.model.payload import PayloadList
from stepwell.model.request import Request
from stepwell.storage.archive import Archive
from stepwell.storage.cancellation_shield import finish
from stepwell.storage.ids import child_run_id, forked_child_id
from stepwell.storage.json_text import json_of
from stepwell.workflows.response_effects import compare_requests, find_effects, is_new, read_effects
from stepwell.workflows.workflow import Workflow


@dataclass(frozen=True, slots=True)
class _SuspendedRun:
    """A sub-workflow run that waits and is not stored: where it is kept, and its executors as they were."""

    archive: Archive
    executors: Mapping[str, Executor]


class WorkflowExecutor(Nesting):
    """A workflow as an executor: a message starts a run of it, and its outputs are sent as messages.

    With `allow_direct_output` its outputs become outputs of the calling workflow. Its requests are asked by the
    calling workflow, under the same ids; an executor beside it that accepts `SubWorkflowRequestMessage` gets them
    first and may answer, unless `propagate_request` is set.
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
        self._handler_table = _table(workflow, self._forwarded_types, output_types if allow_direct_output else ())
        # Waiting sub-workflow runs that are not stored: they are kept here.
        self._suspended: dict[str, _SuspendedRun] = {}
        # Weak: a lock is needed only while responses to its run are under way.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Of the checkpoint with this run id, epoch and number: see `_first_answers`.
        self._answers_at: tuple[str, int, int] | None = None
        self._answers: dict[tuple[str, str], str] = {}

    async def call(self, message: Any, ctx: InternalContext) -> None:
        """Run the workflow with a message, until it is completed or waits."""
        # Commits of the child must not be stored before those that led to it.
        await finish(ctx.scope.archive.flush())
        # Derived from the delivery: a repetition of the call finds the run that it started before.
        key = child_run_id(ctx.run_id, ctx.scope.epoch, ctx.delivery.id)
        outputs: list[Any] = []
        position = StartRun(message, key, named=True, digest=self._digest(ctx))
        drive = self._drive(ctx, position, {}, self._archive(ctx), key=key)
        try:
            async for event in self._events(ctx, drive):
                if event.type == "output" and not event.path:
                    outputs.append(event.data)
        except InputMismatch as mismatch:
            # The run was opened: the mismatch is one further inside.
            if drive.run_id is not None:
                raise
            raise InputMismatch(
                f"run {key!r} inside {self.id!r} was started with another message, by an earlier run {ctx.run_id!r} "
                f"that was deleted without it; give the new run another id, or delete that one too",
                run_id=ctx.run_id,
            ) from mismatch
        at = await self._come_to_rest(ctx, key, drive)
        self._keep_child(ctx, key, drive, at)
        await self._pass_on(ctx, key, outputs, drive.open_requests.values(), at)

    def _digest(self, ctx: InternalContext) -> str | None:
        """Return a digest of the stored message. Decoding it first might change it: classes get new fields."""
        if not ctx.scope.archive.is_durable:
            return None
        payload = ctx.delivery.payload
        parts = payload.payloads if isinstance(payload, PayloadList) else (payload,)
        plain = [json.loads(json_of(part)) for part in parts]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    async def handle_response(self, question: Any, response: Any, ctx: InternalContext) -> None:
        """Apply a response from outside."""
        reply = ctx.delivery.reply
        assert reply is not None
        key = reply.child or ""
        request_id = kernel.inner_id(reply.request_id, key)
        # If another response has moved the run on, and it does not wait for this one, the commit has a warning.
        await self._answer(ctx, key, request_id, response)

    async def handle_timer(self, key: str, ctx: InternalContext) -> None:
        """Resume a run one of whose timers is due."""
        await self._continue(ctx, key, {}, timers_until=ctx.delivery.timer)

    async def handle_sibling_answer(self, message: SubWorkflowResponseMessage, ctx: InternalContext) -> None:
        """Apply a response of an executor beside this one."""
        request = message.source_event
        first = self._first_answers(ctx).get((request.child, request.request_id))
        if first != ctx.delivery.id or not await self._answer(ctx, request.child, request.request_id, message.data):
            text = kernel.unused_warning(request.request_id, ", ".join(ctx.source_executor_ids))
            await ctx.add_event(WorkflowEvent("warning", text))

    def _first_answers(self, ctx: InternalContext) -> Mapping[tuple[str, str], str]:
        """Return which of several responses to one request counts: the first in the plan, in every repetition."""
        at = ctx.at
        here = (at.run_id, at.header.epoch, at.number)
        if self._answers_at != here:
            first: dict[tuple[str, str], str] = {}
            for delivery in kernel.plan(ctx.scope.graph, at.place, at.messages, at.held).deliveries:
                answer = delivery.payload.open() if delivery.executor == self.id and delivery.reply is None else None
                if isinstance(answer, SubWorkflowResponseMessage):
                    first.setdefault((answer.source_event.child, answer.source_event.request_id), delivery.id)
            self._answers_at, self._answers = here, first
        return self._answers

    async def _answer(self, ctx: InternalContext, key: str, request_id: str, value: Any) -> bool:
        """Resume a run with a response; False if it does not wait for it (any more)."""
        return await self._continue(ctx, key, {request_id: value})

    async def _continue(
        self, ctx: InternalContext, key: str, responses: Mapping[str, Any], *, timers_until: str | None = None
    ) -> bool:
        """Resume a run with a response, or because a timer is due; False if it does not wait for that (any more)."""
        # Concurrent responses resume a run one by one.
        async with self._turns.setdefault(key, asyncio.Lock()):
            child = ctx.children.get(key)
            if child is None:
                return False
            await finish(ctx.scope.archive.flush())
            position, suspended = self._position(ctx, child), self._suspended.get(key)
            # With LatestOnly, records since `needed` must stay: the effects of the response are read from them,
            # also by a repetition after a crash, or by a caller that is moved back itself.
            is_resumed = isinstance(position, ResumeRun) and ctx.scope.archive.needed is None
            archive = self._archive(ctx, child.number if is_resumed else 0) if suspended is None else suspended.archive
            drive = self._drive(ctx, position, responses, archive, suspended, key=key, timers_until=timers_until)
            try:
                async for _ in self._events(ctx, drive):
                    pass
            except CheckpointMissing as missing:
                if drive.run_id is not None:
                    raise
                waits = f"asked {next(iter(responses))!r}" if responses else "has set a timer"
                raise CheckpointMissing(
                    f"run {child.run_id!r} inside {self.id!r}, which {waits}, is not in this storage: a checkpoint "
                    f"only refers to its sub-workflow runs, so copy them together with it"
                ) from missing
            at = await self._come_to_rest(ctx, key, drive)
            since = child.number if at.run_id == child.run_id else -1
            history = await archive.commits(at.run_id, after=since)
            commits = find_effects(history, responses, drive.open_requests)
            if commits is None:
                return False
            self._keep_child(ctx, key, drive, at)
        outputs, requests = read_effects(commits, at, drive.open_requests, responses)
        closed, new = compare_requests(ctx.at, key, drive.open_requests, requests, answers=responses)
        for id in closed:
            ctx.withdraw(id)
        await self._pass_on(ctx, key, outputs, new, at)
        return True

    def _position(self, ctx: InternalContext, child: Child) -> Position:
        """Return where to resume a run; a fork of the calling run resumes a fork of it."""
        if child.caller == Child.caller_of(ctx.run_id, ctx.scope.epoch):
            return ResumeRun(child.run_id)
        return FromCheckpoint(child.checkpoint_id, forked_child_id(ctx.run_id, ctx.scope.epoch, child.run_id))

    def _drive(
        self,
        ctx: InternalContext,
        position: Position,
        responses: Mapping[str, Any],
        archive: Archive,
        suspended: _SuspendedRun | None = None,
        *,
        key: str | None = None,
        timers_until: str | None = None,
    ) -> Drive:
        options = replace(
            ctx.scope.options,
            position=position,
            archive=archive,
            private=dict(ctx.scope.private),
            responses=responses,
            caller=ctx.run_id,
            root=ctx.root_run_id,
            may_take_over=ctx.scope.holds_lease,
            timers_until=timers_until,
            list_request=None if key is None else partial(self._list_request, ctx, key),
        )
        pool = self.workflow._executor_pool
        acquire = pool.acquire if suspended is None else lambda: suspended.executors
        source = ExecutorSource(acquire, lambda executors, at, archive: pool.release(executors))
        return Drive(self.workflow._definition, options, source)

    def _archive(self, ctx: InternalContext, needed: int | None = None) -> Archive:
        return ctx.scope.options.archive_for(self.workflow.name, self.workflow._definition.codec, needed)

    async def _events(self, ctx: InternalContext, drive: Drive) -> Any:
        """Yield the events of the sub-workflow run, and emit them in the calling run with a longer path."""
        # Raised outside the `except`: inside, the error would become the context of its own cause.
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

    def _translate_error(self, ctx: InternalContext, error: RunError) -> BaseException:
        """Return an error of the sub-workflow run as one of the calling run, which is the one to resume."""
        inside = f"in run {error.run_id!r} inside {self.id!r}"
        error.run_id = ctx.run_id
        # The user's own error is raised again, so that the retry policy of this executor sees its class.
        if isinstance(error, HandlerFailed) and error.__cause__ is not None:
            cause = error.__cause__
            cause.add_note(f"in executor {error.executor_id!r}, {inside}")
            return cause
        error.add_note(inside)
        return error

    def _emit(self, ctx: InternalContext, event: WorkflowEvent) -> None:
        # `_pass_on` decides who is asked; only a request that was passed on further inside has its event already.
        if event.type == "request_info" and not event.path:
            return
        # A warning about the storage is one that the calling run has emitted already.
        if event.type == "warning" and event.data is not None and event.data == ctx.scope.archive.shortcomings:
            return
        # A copy: the drive that emitted it may hand the same object to other watchers.
        outer_event = copy.copy(event)
        outer_event.path = (self.id, *event.path)
        # Progress inside is a sign of life of the handler that drives it.
        ctx.keep_alive()
        ctx.scope.emit(outer_event)

    async def _come_to_rest(self, ctx: InternalContext, key: str, drive: Drive) -> Checkpoint:
        """Return where the sub-workflow run has come to rest. Raises Parked if it sleeps; what it asks is listed."""
        try:
            return self._resting_checkpoint(ctx, drive)
        except Parked:
            for request in drive.open_requests.values():
                await self._list_request(ctx, key, request, True)
            raise

    def _resting_checkpoint(self, ctx: InternalContext, drive: Drive) -> Checkpoint:
        """Return where the sub-workflow run has come to rest. Raises Parked if it sleeps."""
        at, graph = drive.at, self.workflow._definition.graph
        assert at is not None
        if at.status is WorkflowRunState.CANCELLED:
            raise RunError(
                f"run {at.run_id!r} inside {self.id!r} was cancelled; resuming run {ctx.run_id!r} resumes it too",
                run_id=ctx.run_id,
            )
        # A parked child parks its caller, which then wakes at the same time. One that rests with a timer does not.
        if at.wake is not None and kernel.plan(graph, at.place, at.messages, at.held).deliveries:
            raise Parked(at.wake)
        return at

    def _keep_child(self, ctx: InternalContext, key: str, drive: Drive, at: Checkpoint) -> None:
        self._suspended.pop(key, None)
        if at.status is not WorkflowRunState.IDLE:
            caller = Child.caller_of(ctx.run_id, ctx.scope.epoch)
            ctx.keep_child(key, Child(at.run_id, self.id, at.stamp.checkpoint_id, at.number, caller, at.wake))
            if not drive.is_stored:
                self._suspended[key] = _SuspendedRun(drive.archive, drive.executors)
        elif key in ctx.children:
            ctx.keep_child(key, None)

    async def _pass_on(
        self, ctx: InternalContext, key: str, outputs: Iterable[Any], requests: Iterable[Request], at: Checkpoint
    ) -> None:
        """Forward outputs and requests of the sub-workflow run, which is at rest."""
        for output in outputs:
            if self.allow_direct_output:
                ctx.yield_output(output)
            else:
                self._check_routable(ctx, output)
                ctx.send_message(output)
        for request in requests:
            question = SubWorkflowRequestMessage(SubWorkflowRequest.of(request, key), self.id)
            answerers = [] if self.propagate_request else await self._answerers(ctx, question)
            if not answerers:
                ctx.forward_request(replace(request, executor=self.id, child=key))
                continue
            if request.id not in at.requests:
                continue  # an early one: they get it when its superstep is committed
            # The calling run does not ask it, and has no event of its own for it.
            about: dict[str, Any] = {"run_id": at.run_id, "state": at.status, "path": (self.id,)}
            ctx.scope.emit(
                WorkflowEvent(
                    "request_info", payload=request.payload, executor_id=request.executor, request=request, **about
                )
            )
            for answerer in answerers:
                ctx.send_message(question, target_id=answerer)

    async def _list_request(self, ctx: InternalContext, key: str, request: Request, is_open: bool) -> None:
        """List a request of a run at work, or take it off the list, unless an executor beside this one answers it."""
        if is_open and not is_new(ctx.at, key, request, ctx.delivery.reply):
            return
        question = SubWorkflowRequestMessage(SubWorkflowRequest.of(request, key), self.id)
        if self.propagate_request or not await self._answerers(ctx, question):
            await ctx.list_request(replace(request, executor=self.id, child=key), is_open=is_open)

    async def _answerers(self, ctx: InternalContext, question: SubWorkflowRequestMessage) -> list[str]:
        """Return the executors beside this one that accept requests of a sub-workflow and get this one by an edge."""
        graph = ctx.scope.graph
        beside = {target for edge in graph.outgoing.get(self.id, ()) for target in edge.targets}
        if not any(SubWorkflowRequestMessage in graph.executors[id].input_types for id in beside):
            return []
        routed = await choose_route(graph, ctx.run_id, self.id, question, None)
        return [id for id in routed.takers if SubWorkflowRequestMessage in graph.executors[id].input_types]

    def _check_routable(self, ctx: InternalContext, output: Any) -> None:
        graph = ctx.scope.graph
        if graph.on_unroutable == "fail" and not graph.outgoing.get(self.id):
            raise RoutingFailed(
                f"the sub-workflow {self.id!r} yielded a {type(output).__name__}, but it has no outgoing edge: "
                f"add one, or build it with allow_direct_output=True, and run it again",
                run_id=ctx.run_id,
            )


def _output_types(workflow: Workflow) -> tuple[object, ...]:
    """Return the declared output types of a workflow; empty if it declares none."""
    graph = workflow._definition.graph
    executors = [e for id, e in graph.executors.items() if graph.output_kind(id) == "output"]
    return tuple(dict.fromkeys(output_type for executor in executors for output_type in executor.workflow_output_types))


def _table(workflow: Workflow, sent_types: Sequence[object], output_types: Sequence[object]) -> HandlerTable:
    # A response is never input: if the inner workflow itself starts with a sub-workflow, it is meant for this one.
    input_types = tuple(
        input_type for input_type in workflow.input_types if input_type is not SubWorkflowResponseMessage
    )
    # A workflow that does not declare its outputs may send anything, not only requests.
    sends = (SubWorkflowRequestMessage, *sent_types) if sent_types or output_types else ()
    common: dict[str, Any] = {"output": sends, "workflow_output": output_types, "takes_context": True, "is_async": True}
    specs = [
        HandlerSpec("call", input=input_types, **common),
        HandlerSpec("handle_sibling_answer", input=(SubWorkflowResponseMessage,), **common),
        HandlerSpec("handle_response", input=(Any,), response=(Any,), **common),
        HandlerSpec("handle_timer", input=(str,), timers=(), **common),
    ]
    return InnerTable(specs, workflow.executors)
