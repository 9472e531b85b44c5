"""Agent Framework's checkpoint storages, kept in Stepwell's stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_framework import WorkflowCheckpoint, WorkflowEvent, WorkflowMessage
from agent_framework.exceptions import WorkflowCheckpointException

from stepwell.errors import CheckpointMissing
from stepwell.storage.checkpoint import WorkflowCheckpoint as NativeCheckpoint
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.workflows.storage_options import STORAGE_FACTORIES

GRAPH_HASH = "agent_framework"
"""Where the signature of a stored run keeps the hash by which that framework knows a graph."""


class _Storage:
    """The six methods with the framework's values, on a storage of ours."""

    def __init__(self, native: CheckpointStorage) -> None:
        # What runs are stored in.
        self.native = native

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint that a program made itself; runs are stored by Stepwell."""
        return await self.native.save(native_checkpoint(checkpoint))

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint. Raises WorkflowCheckpointException if it is not stored."""
        try:
            return framework_checkpoint(await self.native.load(checkpoint_id))
        except CheckpointMissing as error:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}") from error

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, oldest first."""
        return [framework_checkpoint(one) for one in await self.native.list_checkpoints(workflow_name=workflow_name)]

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; False if it is not stored."""
        return await self.native.delete(checkpoint_id)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the newest checkpoint of a workflow."""
        latest = await self.native.get_latest(workflow_name=workflow_name)
        return None if latest is None else framework_checkpoint(latest)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of a workflow's checkpoints, oldest first."""
        return list(await self.native.list_checkpoint_ids(workflow_name=workflow_name))


class InMemoryCheckpointStorage(_Storage):
    """Checkpoints in the memory of this process."""

    def __init__(self) -> None:
        super().__init__(STORAGE_FACTORIES["memory"]())


class FileCheckpointStorage(_Storage):
    """Checkpoints in a folder of files, written with fsync. Nothing is pickled, so no type needs to be allowed."""

    def __init__(self, storage_path: str | Path, *, allowed_checkpoint_types: list[str] | None = None) -> None:
        self.storage_path = Path(storage_path)
        super().__init__(STORAGE_FACTORIES["files"](self.storage_path))


def native_storage(storage: Any) -> CheckpointStorage:
    """Return the storage of ours behind one that a program passed; its own class if it is the program's."""
    native: CheckpointStorage = storage.native if isinstance(storage, _Storage) else storage
    return native


def framework_checkpoint(checkpoint: NativeCheckpoint) -> WorkflowCheckpoint:
    """Return what the framework's programs see of a checkpoint."""
    executors = dict(checkpoint.executor_states)
    return WorkflowCheckpoint(
        workflow_name=checkpoint.workflow_name,
        graph_signature_hash=checkpoint.graph_signature.get(GRAPH_HASH, checkpoint.graph_signature_hash),
        checkpoint_id=checkpoint.checkpoint_id,
        previous_checkpoint_id=checkpoint.previous_checkpoint_id,
        timestamp=checkpoint.timestamp,
        messages={
            source: [
                WorkflowMessage(data=message.data, source_id=source, target_id=message.target_id) for message in sent
            ]
            for source, sent in checkpoint.messages.items()
        },
        state={**checkpoint.state, **({"_executor_state": executors} if executors else {})},
        pending_request_info_events={
            id: WorkflowEvent.request_info(id, event.source_executor_id, event.data, object)
            for id, event in checkpoint.pending_request_info_events.items()
        },
        iteration_count=checkpoint.iteration_count,
        metadata=dict(checkpoint.metadata),
    )


def native_checkpoint(checkpoint: WorkflowCheckpoint) -> NativeCheckpoint:
    """Return a checkpoint that a program made itself, to be stored."""
    state = {key: value for key, value in checkpoint.state.items() if key != "_executor_state"}
    return NativeCheckpoint(
        workflow_name=checkpoint.workflow_name,
        graph_signature={GRAPH_HASH: checkpoint.graph_signature_hash},
        checkpoint_id=checkpoint.checkpoint_id,
        previous_checkpoint_id=checkpoint.previous_checkpoint_id,
        timestamp=checkpoint.timestamp,
        state=state,
        executor_states=checkpoint.state.get("_executor_state", {}),
        iteration_count=checkpoint.iteration_count,
        metadata=checkpoint.metadata,
    )
