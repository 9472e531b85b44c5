"""One drive of one run by a worker: acquired, checked, moved forward, let go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from stepwell.admin.deploy_check import find_incompatibilities
from stepwell.declarative.instance import AgentWorkflowInstance
from stepwell.engine.drive.drive import Drive
from stepwell.engine.opening.open_run import STOPPED
from stepwell.errors import GraphChanged
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker.metrics import Counters
from stepwell.workflows.workflow import Workflow

Served = Workflow | AgentWorkflowInstance


def workflow_of(served: Served) -> Workflow:
    """Return the workflow that the engine runs."""
    return served if isinstance(served, Workflow) else served.workflow


async def check_code(storage: BuiltInStorage, served: Served, run_id: str) -> None:
    """Raise GraphChanged if this code would strand the run; the run is only read."""
    workflow = workflow_of(served)
    why = await find_incompatibilities(storage._store, run_id, workflow)
    if why:
        raise GraphChanged(f"run {run_id!r} cannot continue with this code: {'; '.join(why)}", differences=why)
    if isinstance(served, AgentWorkflowInstance):  # its definition is stored with the run, and must match as well
        head = await workflow._archive_on(storage).head(run_id)
        if head is not None:
            served.check(head)


async def drive_slice(drive: Drive, is_over: Callable[[], bool], counters: Counters, *, was_left: bool) -> bool:
    """Drive a run until it rests or, once `is_over`, to its next commit; return whether it was left so.

    On return the lease is released. `was_left`: a driver had left the run in the middle.

    Cancelled in the middle of a superstep, it leaves the run at its last commit, with the outcomes
    of the handlers that have returned.
    """
    return await drive.reading_task.read(_read_slice(drive, is_over, counters, was_left=was_left))


async def _read_slice(drive: Drive, is_over: Callable[[], bool], counters: Counters, *, was_left: bool) -> bool:
    seen = None
    try:
        async with aclosing(drive.batches()) as batches:
            async for _ in batches:
                if seen is None:
                    counters.takeovers += was_left
                elif drive.at is not seen:
                    counters.commits += 1
                # Between two commits there is nothing to gain from leaving: the superstep would be
                # repeated. A run that has failed is not left: its error comes next.
                if drive.at is not seen and drive.at is not None and drive.at.status not in STOPPED and is_over():
                    drive.hands_over = True
                    return True
                seen = drive.at
    finally:
        counters.drives += seen is not None
    return False
