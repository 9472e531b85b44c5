"""Drive a run from the command line: load its code, show its events, report its result.

Used by `stepwell run` and `stepwell resume`, which differ only in how they open the run.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from stepwell.admin.event_documents import data_of
from stepwell.admin.overview.request_documents import request_to_dict
from stepwell.admin.overview.request_lines import format_requests
from stepwell.admin.run_events import TimedEvent
from stepwell.admin.values import main_part, to_data, to_line
from stepwell.cli.code_loader import Code, get_workflow, load_code
from stepwell.cli.failures import (
    FAILED,
    INTERRUPTED,
    USAGE,
    WAITING,
    CommandFailed,
    command_line,
    exit_with,
    format_command,
)
from stepwell.cli.settings import Settings
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage, Checkpoint, OpenRun, Stream, WorkflowErrorDetails, WorkflowEvent
from stepwell.cli.views.events import Follower
from stepwell.cli.views.follow import make_follower
from stepwell.cli.views.live_view_state import Scene
from stepwell.cli.views.output import print_document, print_json_line, print_lines, print_note, reserve_stdout
from stepwell.cli.views.text import format_moment
from stepwell.declarative.stored_run import find_node
from stepwell.error_ids import ErrorId
from stepwell.errors import InputMismatch, RunError, StoreUnavailable
from stepwell.model.status_words import SLEEPING, status_word
from stepwell.model.visible_text import visible
from stepwell.storage import clock


def drive(name: str, open_run: OpenRun, *, agents: str | None, follow: bool, json: bool, make: bool = False) -> None:
    """Drive the run that `open_run` opens until it stops; report its result, and exit."""
    session = _DriveSession(load_code(name, agents), open_run, follow, json)
    try:
        with reserve_stdout():
            at = run_on_store(session.run, make=make, patient=True)
    except KeyboardInterrupt:
        if session.run_id is None:
            raise
        problem = f"interrupted; run {session.run_id!r} is stored up to its last commit"
        raise CommandFailed(ErrorId.RUN_LEFT, problem, session.resume_command(), INTERRUPTED) from None
    except InputMismatch as error:
        hint = f"{session.resume_command(error.run_id)}, or pass another --run-id"
        raise CommandFailed(error.id, str(error), hint, USAGE) from error
    except StoreUnavailable as error:
        if session.run_id is None:
            raise
        hint = f"once the store is available again: {session.resume_command()}"
        raise CommandFailed(error.id, str(error), hint, FAILED) from error
    except SystemExit as left:
        # Raised by a handler. Its code must not become ours: scripts would read it as one of our
        # exit codes.
        problem = f"the code in {name} exited the process: SystemExit: {left}"
        raise CommandFailed(
            ErrorId.CODE_FAILED, problem, session.resume_command() if session.run_id else "", FAILED
        ) from left
    session.report(at)


@dataclass
class _DriveSession:
    code: Code
    open_run: OpenRun
    follow: bool
    json: bool
    run_id: str | None = None  # None until the first event: there is nothing to resume before
    outputs: list[Any] = field(default_factory=list)  # in their stored form
    failure: WorkflowErrorDetails | None = None
    raised: RunError | None = None  # the cause of a failure, for the traceback of --debug

    async def run(self, storage: BuiltInStorage) -> Checkpoint:
        """Drive the run until it stops, and return its checkpoint. A failure of the run is not raised."""
        runnable = await self.code.build()
        workflow = get_workflow(runnable)
        stream = await self.open_run(runnable, storage)
        # Of named agents, people know the nodes.
        of_named_agents = runnable is not workflow
        executors = [id for id in workflow.executors if not of_named_agents or find_node(id) == id]
        scene = Scene("", workflow.name, executors, monotonic())
        with make_follower(
            follow=self.follow, json=self.json, scene=scene, of_named_agents=of_named_agents
        ) as follower:
            try:
                await self._follow(stream, follower)
            except asyncio.CancelledError:
                follower.end("interrupted")
                raise
            assert self.run_id is not None
            head = await workflow._archive_on(storage).head(self.run_id)
            assert head is not None
            follower.end(status_word(head.status, wake=head.wake))
        # A picture is redrawn in place: outputs printed meanwhile would be painted over.
        if follower.redraws:
            for output in self.outputs:
                _print_output(output)
        return head

    async def _follow(self, stream: Stream, follower: Follower) -> None:
        """Show events until the run stops."""
        try:
            async with stream:
                async for event in stream:
                    self.run_id = stream.run_id
                    follower.show(TimedEvent(event, clock.stamp()))
                    self._record_event(event, print_now=not self.json and not follower.redraws)
        except RunError as error:
            if self.run_id is None:  # the run was not opened: an error of the command, not of the run
                raise
            self.raised = error

    def _record_event(self, event: WorkflowEvent, *, print_now: bool) -> None:
        # An event with a path comes from a sub-workflow. Its effect on this run has an event of its
        # own.
        if event.path:
            return
        if event.type == "failed":
            self.failure = event.details
        if event.type == "output":
            self.outputs.append(data_of(event))
            if print_now:
                _print_output(self.outputs[-1])

    def _describe_failure(self) -> str | None:
        if self.raised is None:
            return None
        if self.failure is None:
            return str(self.raised)
        where = "" if self.failure.executor_id is None else f" in {self.failure.executor_id!r}"
        return f"run {self.run_id!r} failed{where}: {self.failure.error_type}: {self.failure.message}"

    def resume_command(self, run_id: str | None = None) -> str:
        run_id = run_id or self.run_id or ""
        return format_command(Settings.current(), "resume", run_id, self.code.name, options=self.code.options)

    def report(self, at: Checkpoint) -> None:
        """Print the result for programs and people.

        Exits the command unless the run is completed.
        """
        status, error = status_word(at.status, wake=at.wake), self._describe_failure()
        if self.json:
            result = {
                "run_id": at.run_id,
                "workflow": at.header.workflow,
                "status": status,
                "number": at.number,
                "checkpoint_id": at.stamp.checkpoint_id,
                "iteration": at.iteration,
                "outputs": [to_data(output) for output in self.outputs],
                "requests": [request_to_dict(request) for request in at.requests.values()],
                "wakes_at": at.wake,
                "error": error,
            }
            print_json_line(type="result", **result) if self.follow else print_document(**result)
        if status == "failed":
            id = ErrorId.RUN_FAILED if self.raised is None else self.raised.id
            problem = error or f"run {at.run_id!r} failed"
            raise CommandFailed(id, problem, self.resume_command(), FAILED) from self.raised
        if status == "cancelled":
            raise CommandFailed(
                ErrorId.RUN_CANCELLED, f"run {at.run_id!r} was cancelled", self.resume_command(), FAILED
            )
        if error is not None:
            print_note(f"stepwell: {error}")
        if status == "completed":
            return
        if status == SLEEPING:
            assert at.wake is not None
            print_note(f"run {at.run_id!r} is sleeping until {format_moment(at.wake)}")
            print_note(f"hint: after that, {self.resume_command()}")
        else:
            count, *requests = format_requests(at.requests.values(), moment=format_moment)
            for line in (f"run {at.run_id!r} is waiting: {count}", *requests):
                print_note(line)
            first = next(iter(at.requests))
            print_note(f"hint: {command_line('respond', at.run_id, first)}, then {self.resume_command()}")
        exit_with(WAITING)


def _print_output(stored: Any) -> None:
    """Print a stored output of a run: a string without control characters, or one line of JSON."""
    output = main_part(stored)
    if isinstance(output, str):
        print_lines("\t".join(map(visible, line.split("\t"))) for line in output.split("\n"))
    else:
        print_lines([to_line(output, longest=None)])
