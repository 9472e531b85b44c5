"""A run that is driven from the command line: by its code, on the store that is meant, told to whoever follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from stepwell.cli.code_loader import Code, code_of, workflow_of
from stepwell.cli.failures import FAILED, INTERRUPTED, WAITING, CommandFailed, ended
from stepwell.cli.hints import command_line
from stepwell.cli.stores.session import on_the_store
from stepwell.cli.views.follow import Follower, Picture, follower
from stepwell.cli.views.output import document, json_line, kept_for_data, note, value
from stepwell.cli.views.requests import questions
from stepwell.cli.views.result import Result, plainly
from stepwell.cli.views.scene import Scene
from stepwell.cli.views.text import moment
from stepwell.errors import StoreUnavailable

if TYPE_CHECKING:
    from stepwell.declarative.instance import AgentWorkflowInstance
    from stepwell.engine.stream import RunStream
    from stepwell.errors import RunError
    from stepwell.model.event import WorkflowErrorDetails, WorkflowEvent
    from stepwell.storage.built_in_storage import BuiltInStorage
    from stepwell.workflows.result import WorkflowRunResult
    from stepwell.workflows.workflow import Workflow

    Made = Workflow | AgentWorkflowInstance
    Begin = Callable[[Made, BuiltInStorage], Awaitable[RunStream[WorkflowRunResult]]]


def drive(name: str, begin: Begin, *, follow: bool, json: bool, make: bool = False) -> None:
    """Drive the run that `begin` opens until it rests, tell what came of it, and end with the code for that."""
    driving = _Driving(code_of(name), begin, follow, json)
    try:
        with kept_for_data():
            result = on_the_store(driving.move, make=make, patient=True)
    except KeyboardInterrupt:
        if driving.run_id is None:
            raise
        told = f"interrupted; run {driving.run_id!r} stands at its last commit"
        raise CommandFailed(told, driving.go_on(), INTERRUPTED) from None
    except StoreUnavailable as error:
        if driving.run_id is None:
            raise
        raise CommandFailed(str(error), f"when it is there again: {driving.go_on()}", FAILED) from error
    except SystemExit as left:  # of a handler: the code would be taken for one of ours
        told = f"the code in {name} ended the process: SystemExit: {left}"
        raise CommandFailed(told, driving.go_on() if driving.run_id else "", FAILED) from left
    driving.tell(result)


@dataclass
class _Driving:
    code: Code
    begin: Begin
    follow: bool
    json: bool
    run_id: str | None = None
    outputs: list[Any] = field(default_factory=list)
    failure: WorkflowErrorDetails | None = None
    raised: RunError | None = None  # knows where in a handler it happened

    async def move(self, storage: BuiltInStorage) -> Result:
        """Drive the run to where it rests. What it failed with is part of what it came to."""
        made = await self.code.made()
        workflow = workflow_of(made)
        stream = await self.begin(made, storage)
        scene = Scene("", workflow.name, list(workflow.executors), monotonic())
        with follower(follow=self.follow, json=self.json, scene=scene) as listener:
            try:
                error = await self._read(stream, listener)
            except asyncio.CancelledError:
                listener.end("interrupted")
                raise
            assert self.run_id is not None
            at = await workflow.archive_on(storage).head(self.run_id)
            assert at is not None
            listener.end(at.status.value)
        if isinstance(listener, Picture):  # it would have been in the way
            for one in self.outputs:
                value(plainly(one))
        return Result(at, self.outputs, self._reason(error))

    async def _read(self, stream: RunStream[WorkflowRunResult], listener: Follower) -> RunError | None:
        """Tell what happens until the run rests; what it failed with."""
        from stepwell.cli.views.events import Heard
        from stepwell.errors import RunError
        from stepwell.storage import clock

        try:
            async with stream:
                async for event in stream:
                    self.run_id = stream.run_id
                    listener.hear(Heard(event, clock.stamp()))
                    self._note(event, at_once=not self.json and not isinstance(listener, Picture))
        except RunError as error:
            if self.run_id is None:  # it was not even opened
                raise
            self.raised = error
            return error
        return None

    def _note(self, event: WorkflowEvent, *, at_once: bool) -> None:
        from stepwell.cli.views.events import data_of

        if event.path:  # what it means for this run is told of this run
            return
        if event.type == "failed":
            self.failure = event.details
        if event.type == "output":
            self.outputs.append(data_of(event))
            if at_once:
                value(plainly(self.outputs[-1]))

    def _reason(self, error: RunError | None) -> str | None:
        if error is None or self.failure is None:
            return None if error is None else str(error)
        where = "" if self.failure.executor_id is None else f" in {self.failure.executor_id!r}"
        return f"run {self.run_id!r} failed{where}: {self.failure.error_type}: {self.failure.message}"

    def go_on(self) -> str:
        return command_line("resume", self.run_id or "", self.code.name)

    def tell(self, result: Result) -> None:
        """What came of it, for people and programs; ends the command unless the run is done."""
        if self.json and self.follow:
            json_line(type="result", **result.told())
        elif self.json:
            document(**result.told())
        status, name = result.at.status.value, result.at.run_id
        if status == "FAILED":
            raise CommandFailed(result.error or f"run {name!r} failed", self.go_on(), FAILED) from self.raised
        if status == "CANCELLED":
            raise CommandFailed(f"run {name!r} was cancelled", self.go_on(), FAILED)
        if result.error is not None:
            note(f"stepwell: {result.error}")
        if status != "IDLE":
            self._tell_waiting(result)
            ended(WAITING)

    def _tell_waiting(self, result: Result) -> None:
        at = result.at
        if at.wake is not None and at.status.value != "IDLE_WITH_PENDING_REQUESTS":
            note(f"run {at.run_id!r} sleeps until {moment(at.wake)} UTC")
            note(f"hint: then {self.go_on()}")
            return
        how_many, *each = questions(at.requests.values())
        note(f"run {at.run_id!r} waits: {how_many}")
        for line in each:
            note(line)
        first = next(iter(at.requests))
        note(f"hint: {command_line('respond', at.run_id, first)}, then {self.go_on()}")
