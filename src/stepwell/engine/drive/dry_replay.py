"""Replays a durable function on what is recorded of it, up to its first new step, and changes nothing.

Shows before a deployment whether changed code still finds its recorded steps. The code between the steps runs, as it
does at every resume; no step is executed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from stepwell.engine.durability.superstep_log import Parked, SuperstepLog
from stepwell.engine.failures import find_own_error
from stepwell.engine.handler import branches
from stepwell.engine.handler.context import HandlerContext
from stepwell.engine.handler.drive_scope import create_scope
from stepwell.engine.handler.questions import Questions
from stepwell.engine.handler.threads import run_in_thread
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.drive_options import DriveOptions
from stepwell.engine.opening.executor_state import RunExecutors
from stepwell.engine.opening.open_run import ResumeRun
from stepwell.errors import StepChanged
from stepwell.graph.executor import Executor
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Delivery
from stepwell.model.state import StateView
from stepwell.storage.unstored_archive import UnstoredArchive

# Seconds without another recalled step after which a function waits for something that is not recorded; more, if
# recorded steps are still ahead of it: it may be at work between two of them.
_QUIET, _AT_WORK = 0.1, 2.0


async def replay(
    definition: WorkflowDefinition, at: Checkpoint, log: RecalledLog, delivery: Delivery
) -> StepChanged | None:
    """Return what no longer fits the recorded steps of a durable function; None if nothing is found."""
    archive = UnstoredArchive(at)
    branches.install(asyncio.get_running_loop())
    options = DriveOptions(
        ResumeRun(at.run_id),
        archive,
        streaming=False,
        private={},
        responses={},
        archive_for=lambda *_: archive,
        only_replay=True,
    )
    executor = definition.graph.executors[delivery.executor].clone()
    scope = create_scope(
        definition,
        options,
        at,
        archive=archive,
        executors=RunExecutors(at.run_id, {executor.id: executor}, archive.pack),
        emit=lambda event: None,
        is_left=lambda: False,
        holds_lease=_no_lease,
    )
    superstep_log = SuperstepLog(archive, at, dict(log.entries))
    asks = Questions(archive, at, superstep_log, lambda type, **attributes: None)
    asks.lanes = 1
    context = HandlerContext(
        scope,
        delivery,
        StateView(at.state, archive.pack, {}),
        at=at,
        log=superstep_log,
        questions=asks,
        limit=None,
        attempt=1,
    )
    return await _run_until_quiet(asyncio.create_task(_call(executor, context)), context)


async def _call(executor: Executor, context: HandlerContext) -> None:
    message = context.delivery.payload.open()
    spec = executor._handler_table.choose(message)
    assert spec is not None
    function = getattr(executor, spec.name)
    with context.branch:
        if spec.is_async:
            await function(message, context)
        else:
            await run_in_thread(function, message, context)


async def _run_until_quiet(running: asyncio.Task[None], context: HandlerContext) -> StepChanged | None:
    steps = context.steps
    recalled, quiet = -1, 0.0
    while not running.done() and quiet < (_AT_WORK if steps.expects_recorded else _QUIET):
        await asyncio.wait([running], timeout=_QUIET)
        quiet = quiet + _QUIET if len(steps.made) == recalled else 0.0
        recalled = len(steps.made)
    context.finish()
    running.cancel()
    # Other errors are left to the drive: a private value or a service may be missing here only.
    with suppress(asyncio.CancelledError, Parked, Exception):
        await running
    error = None if running.cancelled() else running.exception()
    own = None if error is None else find_own_error(error)
    return own if isinstance(own, StepChanged) else None


async def _no_lease() -> bool:
    return False
