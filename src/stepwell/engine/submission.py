"""Stores a new run without driving it."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from stepwell.engine.definition import WorkflowDefinition
from stepwell.engine.drive_options import ExecutorSource
from stepwell.engine.executor_state import RunExecutors
from stepwell.engine.lease_renewal import hold_run
from stepwell.engine.open_run import StartRun, check_same_start, make_first_commit, start_run
from stepwell.errors import RunBusy
from stepwell.storage.archive import Archive

_LOOK_EVERY = 0.05  # seconds between two looks at a run that another process is about to start


async def submit_run(
    definition: WorkflowDefinition, position: StartRun, archive: Archive, executor_source: ExecutorSource
) -> None:
    """Store the first commit of a run, unless the same run is stored already. Nothing is executed.

    Raises InputMismatch or RunError if a run with that id was started with something else.
    """
    while True:
        try:
            async with hold_run(archive, position.run_id) as stored:
                head = stored.head
                if head is None:
                    await _commit_input(definition, position, archive, executor_source)
                    return
        except RunBusy:
            head = await archive.head(position.run_id)
        if head is not None:
            check_same_start(definition, head, position.message)
            return
        await asyncio.sleep(_LOOK_EVERY)


async def _commit_input(
    definition: WorkflowDefinition, position: StartRun, archive: Archive, executor_source: ExecutorSource
) -> None:
    run = start_run(definition, position, archive)
    run = replace(run, header=replace(run.header, retention=archive.retention))
    instances = executor_source.acquire()
    try:
        executors = RunExecutors(run.run_id, instances, archive.pack)
        await make_first_commit(definition, run, archive, executors, by=position.by)
    finally:
        executor_source.release(instances, None, archive)
