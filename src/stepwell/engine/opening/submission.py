"""Stores a new run without driving it."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.durability.lease_renewal import hold_run
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.drive_options import ExecutorSource
from stepwell.engine.opening.executor_state import RunExecutors
from stepwell.engine.opening.open_run import StartRun, check_same_start, create_input_commit, start_run
from stepwell.errors import RunBusy
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.storage.archive import Archive
from stepwell.storage.ids import new_stamp

_LOOK_EVERY = 0.05  # seconds between two looks at a run that another process is about to start


async def submit_run(
    definition: WorkflowDefinition, position: StartRun, archive: Archive, executor_source: ExecutorSource
) -> None:
    """Store the first commit of a run, unless the same run is stored already. Nothing is executed.

    Raises RoutingFailed for an input that the workflow does not accept, and InputMismatch or RunError if a run with
    that id was started with something else.
    """
    first, after = await _create_first_commit(definition, position, archive, executor_source)
    # Nearly always the run is new, and one call stores it. Otherwise find out what there is.
    while not await archive.submit(first, after):
        try:
            async with hold_run(archive, position.run_id) as stored:
                head = stored.head
                if head is None:
                    await archive.commit(first, after)
                    return
        except RunBusy:
            head = await archive.head(position.run_id)
        if head is not None:
            check_same_start(definition, head, position.message)
            return
        await asyncio.sleep(_LOOK_EVERY)


async def _create_first_commit(
    definition: WorkflowDefinition, position: StartRun, archive: Archive, executor_source: ExecutorSource
) -> tuple[Commit, Checkpoint]:
    run = start_run(definition, position, archive)
    instances = executor_source.acquire()
    try:
        executors = RunExecutors(run.run_id, instances, archive.pack)
        stamp = new_stamp(run.run_id, run.header.epoch, 0)
        first = await create_input_commit(definition, run.message, archive, executors, stamp)
    finally:
        executor_source.release(instances, None, archive)
    first = replace(first, by=position.by)
    header = replace(run.header, retention=archive.retention)
    return first, kernel.apply(header, None, first, previous_id=header.parent_id)
