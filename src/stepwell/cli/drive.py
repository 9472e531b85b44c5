"""A run that is driven from the command line: by its code, on the store that is meant, told to whoever follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from stepwell.cli.code_loader import Code, get_workflow, load_code
from stepwell.cli.failures import FAILED, INTERRUPTED, WAITING, CommandFailed, exit_with
from stepwell.cli.hints import command_line
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.views.events import TimedEvent, data_of
from stepwell.cli.views.follow import Follower, make_follower
from stepwell.cli.views.output import print_document, print_json_line, print_note, print_value, reserve_stdout
from stepwell.cli.views.requests import format_requests
from stepwell.cli.views.result import Result, to_plain
from stepwell.cli.views.scene import Scene
from stepwell.cli.views.text import format_moment
from stepwell.errors import RunError, StoreUnavailable
from stepwell.storage import clock

if TYPE_CHECKING:
    from stepwell.declarative.instance import AgentWorkflowInstance
    from stepwell.engine.stream import RunStream
    from stepwell.model.event import WorkflowErrorDetails, WorkflowEvent
    from stepwell.storage.built_in_storage import BuiltInStorage
    from stepwell.workflows.result import WorkflowRunResult
    from stepwell.workflows.workflow import Workflow

    Runnable = Workflow | AgentWorkflowInstance
    Begin = Callable[[Runnable, BuiltInStorage], Awaitable[RunStream[WorkflowRunResult]]]


def drive(name: str, begin: Begin, *, follow: bool, json: bool, make: bool = False) -> None:
    """Drive the run that `begin` opens until it rests, tell what came of it, and end with the code for that."""
    session = _DriveSession(load_code(name), begin, follow, json)
    try:
        with reserve_stdout():
            result = run_on_store(session.run, make=make, patient=True)
    except KeyboardInterrupt:
        if session.run_id is None:
            raise
        problem = f"interrupted; run {session.run_id!r} stands at its last commit"
        raise CommandFailed(problem, session.resume_command(), INTERRUPTED) from None
    except StoreUnavailable as error:
        if session.run_id is None:
            raise
        raise CommandFailed(str(error), f"when it is there again: {session.resume_command()}", FAILED) from error
    except SystemExit as left:  # of a handler: the code would be taken for one of ours
        problem = f"the code in {name} ended the process: SystemExit: {left}"
        raise CommandFailed(problem, session.resume_command() if session.run_id else "", FAILED) from left
    session.report(result)


@dataclass
class _DriveSession:
    code: Code
    begin: Begin
    follow: bool
    json: bool
    run_id: str | None = None
    outputs: list[Any] = field(default_factory=list)
    failure: WorkflowErrorDetails | None = None
    raised: RunError | None = None  # knows where in a handler it happened

    async def run(self, storage: BuiltInStorage) -> Result:
        """Drive the run to where it rests. What it failed with is part of what it came to."""
        runnable = await self.code.build()
        workflow = get_workflow(runnable)
        stream = await self.begin(runnable, storage)
        scene = Scene("", workflow.name, list(workflow.executors), monotonic())
        with make_follower(follow=self.follow, json=self.json, scene=scene) as listener:
            try:
                error = await self._follow(stream, listener)
            except asyncio.CancelledError:
                listener.end("interrupted")
                raise
            assert self.run_id is not None
            head = await workflow.archive_on(storage).head(self.run_id)
            assert head is not None
            listener.end(head.status.value)
        if listener.redraws:  # it would have been in the way
            for output in self.outputs:
                print_value(to_plain(output))
        return Result(head, self.outputs, self._reason(error))

    async def _follow(self, stream: RunStream[WorkflowRunResult], listener: Follower) -> RunError | None:
        """Tell what happens until the run rests; what it failed with."""
        try:
            async with stream:
                async for event in stream:
                    self.run_id = stream.run_id
                    listener.show(TimedEvent(event, clock.stamp()))
                    self._record_event(event, at_once=not self.json and not listener.redraws)
        except RunError as error:
            if self.run_id is None:  # it was not even opened
                raise
            self.raised = error
            return error
        return None

    def _record_event(self, event: WorkflowEvent, *, at_once: bool) -> None:
        if event.path:  # what it means for this run is told of this run
            return
        if event.type == "failed":
            self.failure = event.details
        if event.type == "output":
            self.outputs.append(data_of(event))
            if at_once:
                print_value(to_plain(self.outputs[-1]))

    def _reason(self, error: RunError | None) -> str | None:
        if error is None or self.failure is None:
            return None if error is None else str(error)
        where = "" if self.failure.executor_id is None else f" in {self.failure.executor_id!r}"
        return f"run {self.run_id!r} failed{where}: {self.failure.error_type}: {self.failure.message}"

    def resume_command(self) -> str:
        return command_line("resume", self.run_id or "", self.code.name)

    def report(self, result: Result) -> None:
        """What came of it, for people and programs; ends the command unless the run is done."""
        if self.json and self.follow:
            print_json_line(type="result", **result.as_dict())
        elif self.json:
            print_document(**result.as_dict())
        status, name = result.at.status.value, result.at.run_id
        if status == "FAILED":
            raise CommandFailed(result.error or f"run {name!r} failed", self.resume_command(), FAILED) from self.raised
        if status == "CANCELLED":
            raise CommandFailed(f"run {name!r} was cancelled", self.resume_command(), FAILED)
        if result.error is not None:
            print_note(f"stepwell: {result.error}")
        if status != "IDLE":
            self._report_waiting(result)
            exit_with(WAITING)

    def _report_waiting(self, result: Result) -> None:
        at = result.at
        if at.wake is not None and at.status.value != "IDLE_WITH_PENDING_REQUESTS":
            print_note(f"run {at.run_id!r} sleeps until {format_moment(at.wake)} UTC")
            print_note(f"hint: then {self.resume_command()}")
            return
        how_many, *each = format_requests(at.requests.values())
        print_note(f"run {at.run_id!r} waits: {how_many}")
        for line in each:
            print_note(line)
        first = next(iter(at.requests))
        print_note(f"hint: {command_line('respond', at.run_id, first)}, then {self.resume_command()}")
