"""A workflow as an executor of another: each call is a run of its own, kept where the run around it is kept.

The run inside is driven within the superstep that called it, and commits its own supersteps. If the process
dies, the call is made again, finds the run by its derived id, and goes on where that run was.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

from ..core.errors import HandlerFailed, RunError, UnknownRequest
from ..core.events import WorkflowEvent, WorkflowRunState
from ..core.model import Checkpoint, Child, Commit, CommitKind
from ..core.request import Request
from ..durable.archive import Archive
from ..durable.ids import child_run_id, forked_child_id
from ..graph.executor import Executor, HandlerTable
from ..graph.handlers import HandlerSpec
from ..graph.nested import SubWorkflowRequest, SubWorkflowRequestMessage, SubWorkflowResponseMessage
from ..graph.policy import RetryPolicy
from ..runtime.context import HandlerContext
from ..runtime.engine import Drive
from ..runtime.opening import Continue, Fresh, Position, Rewind, Suspended
from ..runtime.options import Options, Troupe
from ..runtime.timers import Parked
from .workflow import Workflow


class _InnerTable(HandlerTable):
    """What a sub-workflow takes: what its start takes, and answers to whatever any of its executors asks."""

    def __init__(self, specs: Iterable[HandlerSpec], inner: Mapping[str, Executor]) -> None:
        super().__init__(specs)
        self._inner = inner

    def reply_types(self, question: object) -> tuple[object, ...]:
        found = (given for executor in self._inner.values() for given in executor.handlers.reply_types(question))
        return tuple(dict.fromkeys(found))

    def every_type(self) -> Iterable[object]:
        yield from super().every_type()
        yield SubWorkflowRequestMessage
        for executor in self._inner.values():
            yield from executor.handlers.every_type()


@dataclass(frozen=True, slots=True)
class _Asleep:
    """A run inside a run that is kept nowhere but here, waiting for an answer."""

    at: Checkpoint
    told: Sequence[Commit]
    executors: Mapping[str, Executor]


class WorkflowExecutor(Executor):
    """A workflow as an executor: a message starts a run of it, and what that run yields is sent on.

    With `allow_direct_output` its outputs become outputs of the workflow around it. Its questions are asked
    by the workflow around it, under the same ids; unless `propagate_request` says so in any case, an
    executor beside it that takes `SubWorkflowRequestMessage` gets them first and may answer.
    """

    takes_many = True

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
        self.workflow = workflow
        self.allow_direct_output, self.propagate_request = allow_direct_output, propagate_request
        self._table = _table(workflow, allow_direct_output)
        self._asleep: dict[str, _Asleep] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def handlers(self) -> HandlerTable:
        return self._table

    async def call(self, message: Any, ctx: HandlerContext) -> None:
        """Run the workflow with a message, until it is done or waits."""
        key = child_run_id(ctx.run_id, ctx.scope.epoch, ctx.delivery.id)
        outputs: list[Any] = []
        drive = self._drive(ctx, Fresh(message, key, named=True), {})
        async for event in self._events(ctx, drive):
            if event.type == "output" and not event.path:
                outputs.append(event.data)
        at = self._came_to_rest(ctx, drive)
        self._keep(ctx, key, drive, at)
        self._pass_on(ctx, key, outputs, at.requests.values())

    async def replied(self, question: Any, response: Any, ctx: HandlerContext) -> None:
        """Somebody outside answered."""
        reply = ctx.delivery.reply
        assert reply is not None
        await self._answer(ctx, reply.child or "", reply.request_id, response)

    async def answered(self, message: SubWorkflowResponseMessage, ctx: HandlerContext) -> None:
        """An executor beside this one answered."""
        await self._answer(ctx, message.source_event.child, message.source_event.request_id, message.data)

    async def _answer(self, ctx: HandlerContext, key: str, request_id: str, value: Any) -> None:
        async with self._turns.setdefault(key, asyncio.Lock()):  # one answer at a time moves a run on
            child = ctx.children.get(key)
            if child is None:
                raise UnknownRequest(
                    f"{self.id!r} has no run that asks {request_id!r} (or it was answered already)",
                    run_id=ctx.run_id,
                    request_id=request_id,
                )
            drive = self._drive(ctx, self._position(ctx, key, child), {request_id: value})
            async for _ in self._events(ctx, drive):
                pass
            at = self._came_to_rest(ctx, drive)
            commits = await self._commits(ctx, drive, at, child)
        self._keep(ctx, key, drive, at)
        outputs, requests = _brought(commits, request_id)
        self._pass_on(ctx, key, outputs, [request for request in requests if request.id in at.requests])

    def _position(self, ctx: HandlerContext, key: str, child: Child) -> Position:
        """Where to go on with a run; a fork of the run around it goes on with a fork of it."""
        if (asleep := self._asleep.pop(key, None)) is not None:
            return Suspended(asleep.at, asleep.told, asleep.executors)
        if child.caller == Child.caller_of(ctx.run_id, ctx.scope.epoch):
            return Continue(child.run_id)
        return Rewind(child.checkpoint_id, forked_child_id(ctx.run_id, ctx.scope.epoch, child.run_id))

    def _drive(self, ctx: HandlerContext, position: Position, responses: Mapping[str, Any]) -> Drive:
        scope, definition = ctx.scope, self.workflow.definition
        options = Options(
            position,
            self._archive(ctx),
            scope.streaming,
            dict(scope.private),
            responses,
            scope.archive_for,
            caller=ctx.run_id,
            durability=scope.durability,
        )
        return Drive(definition, options, self._troupe(position))

    def _archive(self, ctx: HandlerContext) -> Archive | None:
        return ctx.scope.archive_for(self.workflow.name, self.workflow.definition.codec)

    def _troupe(self, position: Position) -> Troupe:
        casting = self.workflow.casting
        kept = position.executors if isinstance(position, Suspended) else None

        def give_back(executors: Mapping[str, Executor], at: Checkpoint | None, told: Sequence[Commit]) -> None:
            casting.give_back(executors)

        return Troupe(casting.take if kept is None else lambda: kept, give_back)

    async def _events(self, ctx: HandlerContext, drive: Drive) -> Any:
        """What the run inside tells; passed on outside under the name of this executor."""
        try:
            async with aclosing(drive.events()) as events:
                async for event in events:
                    if not event.replayed:
                        self._tell(ctx, event)
                    yield event
        except HandlerFailed as failed:
            raise failed.__cause__ or failed from failed  # what went wrong in there, for whoever looks from outside

    def _tell(self, ctx: HandlerContext, event: WorkflowEvent) -> None:
        seen = copy.copy(event)
        seen.path = (self.id, *event.path)
        ctx.scope.tell(seen)

    def _came_to_rest(self, ctx: HandlerContext, drive: Drive) -> Checkpoint:
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

    def _keep(self, ctx: HandlerContext, key: str, drive: Drive, at: Checkpoint) -> None:
        waits = at.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        if waits:
            caller = Child.caller_of(ctx.run_id, ctx.scope.epoch)
            ctx.keep_child(key, Child(at.run_id, self.id, at.stamp.checkpoint_id, at.number, caller))
            if self._archive(ctx) is None:
                self._asleep[key] = _Asleep(at, drive.yielded, drive.executors)
        elif key in ctx.children:
            ctx.keep_child(key, None)

    async def _commits(self, ctx: HandlerContext, drive: Drive, at: Checkpoint, child: Child) -> list[Commit]:
        """What the run inside committed since it was left."""
        archive = self._archive(ctx)
        if archive is None:
            return drive.made
        return await archive.commits(at.run_id, after=child.number if at.run_id == child.run_id else -1)

    def _pass_on(self, ctx: HandlerContext, key: str, outputs: Iterable[Any], requests: Iterable[Request]) -> None:
        for output in outputs:
            if self.allow_direct_output:
                ctx.yield_output(output)
            else:
                ctx.send_message(output)
        answerers = [] if self.propagate_request else self._answerers(ctx)
        for request in requests:
            if not answerers:
                ctx.ask(replace(request, executor=self.id, child=key))
            for answerer in answerers:
                ctx.send_message(SubWorkflowRequestMessage(_as_data(request, key), self.id), target_id=answerer)

    def _answerers(self, ctx: HandlerContext) -> list[str]:
        """The executors beside this one that were written to answer its questions."""
        graph = ctx.scope.graph
        targets = dict.fromkeys(target for edge in graph.outgoing.get(self.id, ()) for target in edge.targets)
        return [id for id in targets if SubWorkflowRequestMessage in graph.executors[id].input_types]


def _table(workflow: Workflow, allow_direct_output: bool) -> HandlerTable:
    # answers are never input: where the workflow starts with a sub-workflow of its own, they are meant for this one
    taken = tuple(one for one in workflow.input_types if one is not SubWorkflowResponseMessage)
    yielded = tuple(workflow.output_types)
    sends = (SubWorkflowRequestMessage, *(() if allow_direct_output else yielded))
    yields = yielded if allow_direct_output else ()
    known: dict[str, Any] = {"output": sends, "workflow_output": yields, "takes_context": True, "is_async": True}
    specs = [
        HandlerSpec("call", input=taken, **known),
        HandlerSpec("answered", input=(SubWorkflowResponseMessage,), **known),
        HandlerSpec("replied", input=(Any,), response=(Any,), **known),
    ]
    return _InnerTable(specs, workflow.executors)


def _as_data(request: Request, key: str) -> SubWorkflowRequest:
    known = (request.executor, request.request_type, request.response_type, json.loads(request.schema))
    return SubWorkflowRequest(request.id, request.payload.open(), *known, request.deadline, key)


def _brought(commits: Sequence[Commit], request_id: str) -> tuple[list[Any], list[Request]]:
    """The outputs and questions that an answer led to: from where it was taken in to where the next one was."""
    begin = next((n for n, commit in enumerate(commits) if request_id in commit.closed), len(commits))
    after = commits[begin + 1 :]
    end = next((n for n, commit in enumerate(after) if commit.kind is CommitKind.INTAKE), len(after))
    led_to = after[:end]
    outputs = [
        output.payload.open()
        for commit in led_to
        for done in commit.done
        for output in done.outputs
        if output.kind == "output"
    ]
    return outputs, [request for commit in led_to for request in commit.asked]
