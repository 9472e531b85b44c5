"""What services do with the runs of a workflow: store, answer, cancel and read them. Nothing here drives a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Generic

from msgspec.structs import replace

from stepwell.engine.drive.cancellation import cancel_or_signal
from stepwell.engine.intake.responses import check_no_caller
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.drive_options import ExecutorSource
from stepwell.engine.opening.open_run import StartRun
from stepwell.engine.opening.submission import submit_run
from stepwell.model.event import WorkflowRunState
from stepwell.model.valid_text import check_words
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.limits import check_priority
from stepwell.workflows.deduplication import KEY_TAG, submit_once
from stepwell.workflows.result import OutputT, WorkflowRunResult
from stepwell.workflows.run_signals import read_head, send_answers
from stepwell.workflows.start_position import position_of
from stepwell.workflows.storage_options import StorageLike
from stepwell.workflows.stored_result import failure_at, result_at
from stepwell.workflows.waiting_runs import WaitingRun


class RunVerbs(Generic[OutputT]):
    """The verbs of `Workflow` for runs that another process drives: each stores or reads, and returns."""

    _definition: WorkflowDefinition

    def _storage_for(self, requested: StorageLike | None) -> CheckpointStorage:
        raise NotImplementedError

    def _archive_on(self, storage: CheckpointStorage) -> Archive:
        raise NotImplementedError

    def _executors_for(self, storage: CheckpointStorage | None, waiting: WaitingRun | None) -> ExecutorSource:
        raise NotImplementedError

    async def submit(
        self,
        message: Any = None,
        *,
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        priority: int = 0,
        by: str | None = None,
        checkpoint_storage: StorageLike | None = None,
        connection: Any = None,
        deduplication_key: str | None = None,
        window: timedelta = timedelta(days=1),
    ) -> str:
        """Store a run and return its id when it is durable. Nothing is executed: `ready_runs` lists the run.

        Of the runs that are ready, those with the highest `priority` are driven first, and of these the oldest:
        a whole number from -100 to 100.

        If `run_id` names a stored run that was started with the same message, nothing changes. On PostgreSQL,
        `connection` is a psycopg connection of your own, to the same database: then the run is stored in its
        transaction, and exists if and only if you commit.

        If a run of this workflow was submitted with the same `deduplication_key` within the `window`, its id is
        returned and nothing is stored, even if two processes submit at the same moment. The key is a tag of the run.

        Raises RoutingFailed if the start executor does not accept the message, and InputMismatch or RunError if the
        id belongs to another run.
        """
        check_words("by", by)
        check_words("deduplication_key", deduplication_key)
        check_priority(priority)
        if deduplication_key is not None:
            if connection is not None or run_id is not None:
                raise ValueError("pass a deduplication_key alone: neither with a run_id nor with a connection")
            tags = {**(tags or {}), KEY_TAG: deduplication_key}
        position = position_of(message, run_id, None, tags)
        assert isinstance(position, StartRun)
        position = replace(position, by=by, priority=priority)
        storage = self._storage_for(checkpoint_storage)
        if connection is not None:
            storage = await _storage_on(storage, connection)
        archive = self._archive_on(storage)

        async def submit() -> str:
            await submit_run(self._definition, position, archive, self._executors_for(storage, None))
            return position.run_id

        if deduplication_key is None:
            return await submit()
        name = self._definition.name
        return await submit_once(storage, archive, name, key=deduplication_key, window=window, submit=submit)

    async def respond(
        self,
        run_id: str,
        request_id: str,
        value: Any,
        *,
        by: str | None = None,
        comment: str | None = None,
        checkpoint_storage: StorageLike | None = None,
    ) -> None:
        """Answer an open request of a run. Durable when it returns; the process that drives the run applies it.

        The answer is checked against the requested type; plain JSON for a class that the code of the executor does not
        have under its name is checked by the handler that waits for it. The first one wins. `by` and `comment` are
        stored with it.

        Raises UnknownRequest, ResponseRejected or RequestExpired, RunError if the run failed or was cancelled, and
        GraphChanged if the executor that asks is not in this workflow.
        """
        archive = self._archive_on(self._storage_for(checkpoint_storage))
        await send_answers(self._definition, archive, run_id, {request_id: value}, by=by, comment=comment)

    async def cancel(
        self,
        run_id: str,
        *,
        reason: str | None = None,
        by: str | None = None,
        checkpoint_storage: StorageLike | None = None,
    ) -> WorkflowRunState:
        """Cancel a run, and return its status at once. A completed or cancelled run stays as it is.

        If no process drives the run, it is CANCELLED when this returns. Otherwise its driver is asked to stop, durably,
        and the status is that of the last commit. `reason` and `by` are stored with the commit that cancels it.
        """
        check_words("reason", reason)
        check_words("by", by)
        archive = self._archive_on(self._storage_for(checkpoint_storage))
        head = await read_head(archive, run_id)
        check_no_caller(head)
        return (await cancel_or_signal(archive, head, by=by, reason=reason)).status

    async def result(self, run_id: str, *, checkpoint_storage: StorageLike | None = None) -> WorkflowRunResult[OutputT]:
        """Return what a run has come to, as it is stored now: of one that is not completed, what there is so far.

        Raises what the run failed with.
        """
        archive = self._archive_on(self._storage_for(checkpoint_storage))
        head = await read_head(archive, run_id)
        if head.status is WorkflowRunState.FAILED:
            raise await failure_at(archive, head)
        return await result_at(archive, head, self._definition.signature)


async def _storage_on(storage: CheckpointStorage, connection: Any) -> CheckpointStorage:
    """Return a storage that writes in the transaction of a connection. Raises TypeError if there is no such storage."""
    join = getattr(storage, "_join_transaction", None)
    if join is None:
        raise TypeError(f"connection= needs a PostgresCheckpointStorage, not a {type(storage).__name__}")
    joined: CheckpointStorage = await join(connection)
    return joined
