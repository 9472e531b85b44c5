"""The classes that commands name in annotations, which nobody evaluates.

Only a type checker loads them. At run time each name is `Any`: see the rules in `stepwell.cli`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stepwell.codec.codec import Codec as Codec
    from stepwell.declarative.instance import AgentWorkflowInstance
    from stepwell.engine.drive.run_stream import RunStream
    from stepwell.engine.durability.deferred_archive import Durability as Durability
    from stepwell.model.checkpoint import Checkpoint as Checkpoint
    from stepwell.model.commit import Commit as Commit
    from stepwell.model.event import WorkflowErrorDetails as WorkflowErrorDetails
    from stepwell.model.event import WorkflowEvent as WorkflowEvent
    from stepwell.model.message import RoutedMessage as RoutedMessage
    from stepwell.model.request import Request as Request
    from stepwell.model.timing import StepRecord as StepRecord
    from stepwell.storage.answers import Response as Response
    from stepwell.storage.built_in_storage import BuiltInStorage as BuiltInStorage
    from stepwell.storage.pending_requests import PendingRequest as PendingRequest
    from stepwell.storage.run_list import RunInfo as RunInfo
    from stepwell.storage.worker_registry import WorkerInfo as WorkerInfo
    from stepwell.workflows.result import WorkflowRunResult
    from stepwell.workflows.workflow import Workflow as Workflow

    Runnable = Workflow | AgentWorkflowInstance
    Stream = RunStream[WorkflowRunResult]
    OpenRun = Callable[[Runnable, BuiltInStorage], Awaitable[Stream]]
else:

    def __getattr__(name: str) -> Any:
        return Any
