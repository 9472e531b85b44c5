"""Agent Framework's checkpoint storages, kept in Stepwell's stores."""

from __future__ import annotations

import dataclasses
from dataclasses import fields
from pathlib import Path
from typing import Any

from agent_framework import WorkflowCheckpoint, WorkflowEvent, WorkflowMessage
from agent_framework.exceptions import WorkflowCheckpointException
from msgspec.structs import replace

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointMissing
from stepwell.kernel.lifecycle import full_commit
from stepwell.model.event import WorkflowRunState
from stepwell.model.request import Request
from stepwell.storage import clock
from stepwell.storage.checkpoint import WorkflowCheckpoint as NativeCheckpoint
from stepwell.storage.checkpoint import unview, view
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.response_types import schema_of, type_words
from stepwell.workflows.storage_options import STORAGE_FACTORIES

GRAPH_HASH = "agent_framework"
"""Where the signature of a stored run keeps the hash by which that framework knows a graph."""

OWN_MESSAGES = "agent_framework_messages"
"""Where it says that a program made the checkpoint itself, with messages in flight."""

# Where a checkpoint that a program made itself is kept as it is; and where its state has those of its executors.
_SAVED, _EXECUTORS = "agent_framework", "_executor_state"
# Where a storage of a program keeps our checkpoint; and where we keep what adapts the storage.
_NATIVE, _ADAPTED = "_stepwell", "_stepwell_adapted"


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
        return list(map(framework_checkpoint, await self.native.list_checkpoints(workflow_name=workflow_name)))

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
    """Return the storage of ours behind one that a program passed; a class of its own is given its own values."""
    if isinstance(storage, _Storage):
        return storage.native
    # One for each object: what the engine knows of a storage belongs to it.
    adapted = getattr(storage, _ADAPTED, None)
    if not isinstance(adapted, AdaptedStorage):
        adapted = AdaptedStorage(storage)
        setattr(storage, _ADAPTED, adapted)
    return adapted


class AdaptedStorage:
    """A storage that was written for the framework: it saves what it knows, with our checkpoint as plain data in it."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    async def save(self, checkpoint: NativeCheckpoint) -> str:
        shown = framework_checkpoint(checkpoint)
        shown.state[_NATIVE] = checkpoint.to_dict()
        id: str = await self._storage.save(shown)
        return id

    async def load(self, checkpoint_id: str) -> NativeCheckpoint:
        return _native(await self._storage.load(checkpoint_id))

    async def list_checkpoints(self, *, workflow_name: str) -> list[NativeCheckpoint]:
        listed = await self._storage.list_checkpoints(workflow_name=workflow_name)
        return [_native(checkpoint) for checkpoint in sorted(listed, key=lambda checkpoint: checkpoint.timestamp)]

    async def delete(self, checkpoint_id: str) -> bool:
        return bool(await self._storage.delete(checkpoint_id))

    async def get_latest(self, *, workflow_name: str) -> NativeCheckpoint | None:
        latest = await self._storage.get_latest(workflow_name=workflow_name)
        return None if latest is None else _native(latest)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return list(await self._storage.list_checkpoint_ids(workflow_name=workflow_name))


def _native(checkpoint: WorkflowCheckpoint) -> NativeCheckpoint:
    """Return our checkpoint in one of the framework's; one that a program made itself is converted."""
    data = checkpoint.state.get(_NATIVE)
    return native_checkpoint(checkpoint) if data is None else NativeCheckpoint.from_dict(data)


def framework_checkpoint(checkpoint: NativeCheckpoint) -> WorkflowCheckpoint:
    """Return what the framework's programs see of a checkpoint."""
    if (saved := checkpoint.metadata.get(_SAVED)) is not None:
        made = WorkflowCheckpoint(**DEFAULT_CODEC.decode(saved.encode()))
        made.pending_request_info_events |= _request_events(checkpoint)
        return made
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
        state={**checkpoint.state, **({_EXECUTORS: executors} if executors else {})},
        pending_request_info_events=_request_events(checkpoint),
        iteration_count=checkpoint.iteration_count,
        metadata=dict(checkpoint.metadata),
    )


def _request_events(checkpoint: NativeCheckpoint) -> dict[str, WorkflowEvent[Any]]:
    return {
        id: WorkflowEvent.request_info(id, event.source_executor_id, event.data, _plain_type(event.response_type))
        for id, event in checkpoint.pending_request_info_events.items()
    }


def _plain_type(name: str) -> type:
    """Return a type of Python by its name; of other types only the name is stored."""
    return {kind.__name__: kind for kind in (bool, int, float, str, list, dict)}.get(name, object)


def native_checkpoint(checkpoint: WorkflowCheckpoint) -> NativeCheckpoint:
    """Return a checkpoint that a program made itself, to be stored.

    It is read back as it is. A run can be continued from it, unless it has messages: who receives a message is
    known only if a run has sent it.
    """
    parts = {field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)}
    asked = [event for event in checkpoint.pending_request_info_events.values() if _is_request(event)]
    at, _ = unview(
        NativeCheckpoint(
            workflow_name=checkpoint.workflow_name,
            graph_signature={GRAPH_HASH: checkpoint.graph_signature_hash, OWN_MESSAGES: bool(checkpoint.messages)},
            checkpoint_id=checkpoint.checkpoint_id,
            previous_checkpoint_id=checkpoint.previous_checkpoint_id,
            timestamp=checkpoint.timestamp,
            state={key: value for key, value in checkpoint.state.items() if key != _EXECUTORS},
            executor_states=checkpoint.state.get(_EXECUTORS, {}),
            iteration_count=checkpoint.iteration_count,
            status=WorkflowRunState.IDLE_WITH_PENDING_REQUESTS if asked else WorkflowRunState.IDLE,
        ),
        DEFAULT_CODEC,
    )
    at = replace(at, requests={event.request_id: _request(event) for event in asked})
    metadata = {_SAVED: DEFAULT_CODEC.encode(parts, "$").decode()}
    return dataclasses.replace(view(at, full_commit(at)), metadata=metadata)


def _is_request(event: Any) -> bool:
    return isinstance(event, WorkflowEvent) and event.type == "request_info"


def _request(event: WorkflowEvent[Any]) -> Request:
    kind: Any = event.response_type
    return Request(
        id=event.request_id,
        executor=event.source_executor_id,
        payload=DEFAULT_CODEC.pack(event.data, "$.request"),
        request_type=type(event.data).__name__,
        response_type=type_words(kind),
        schema=schema_of(kind),
        at=clock.stamp(),
    )
