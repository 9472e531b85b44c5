"""Holdfast: agent workflows that do not lose their place."""

from . import defaults as _defaults
from .core.errors import (
    CheckpointCorrupt,
    CheckpointMissing,
    CodecError,
    CommitConflict,
    DefinitionError,
    DurabilityError,
    GraphChanged,
    HandlerFailed,
    HoldfastError,
    InputMismatch,
    PrivateMissing,
    RequestError,
    RequestExpired,
    ResponseRejected,
    RoutingFailed,
    RunBusy,
    RunError,
    StateConflict,
    StoreUnavailable,
    SuperstepLimit,
    UnknownRequest,
)
from .core.events import (
    CheckpointInfo,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowEventType,
    WorkflowRunState,
)
from .durable.checkpoint import WorkflowCheckpoint, WorkflowMessage
from .durable.codec import register_checkpoint_type
from .durable.contract import CheckpointStorage
from .durable.pending import PendingRequest
from .graph.context import WorkflowContext
from .graph.edges import Case, Default
from .graph.executor import Executor
from .graph.function import FunctionExecutor, executor
from .graph.handlers import handler, response_handler
from .graph.persistent import persistent
from .stores.file import FileCheckpointStorage
from .stores.memory import InMemoryCheckpointStorage
from .stores.sqlite import SQLiteCheckpointStorage
from .viz import WorkflowViz
from .workflow.builder import DEFAULT_MAX_ITERATIONS, WorkflowBuilder
from .workflow.result import WorkflowRunResult
from .workflow.workflow import Workflow

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_MAX_ITERATIONS",
    "Case",
    "CheckpointCorrupt",
    "CheckpointInfo",
    "CheckpointMissing",
    "CheckpointStorage",
    "CodecError",
    "CommitConflict",
    "Default",
    "DefinitionError",
    "DurabilityError",
    "Executor",
    "FileCheckpointStorage",
    "FunctionExecutor",
    "GraphChanged",
    "HandlerFailed",
    "HoldfastError",
    "InMemoryCheckpointStorage",
    "InputMismatch",
    "PendingRequest",
    "PrivateMissing",
    "RequestError",
    "RequestExpired",
    "ResponseRejected",
    "RoutingFailed",
    "RunBusy",
    "RunError",
    "SQLiteCheckpointStorage",
    "StateConflict",
    "StoreUnavailable",
    "SuperstepLimit",
    "UnknownRequest",
    "Workflow",
    "WorkflowBuilder",
    "WorkflowCheckpoint",
    "WorkflowContext",
    "WorkflowErrorDetails",
    "WorkflowEvent",
    "WorkflowEventSource",
    "WorkflowEventType",
    "WorkflowMessage",
    "WorkflowRunResult",
    "WorkflowRunState",
    "WorkflowViz",
    "executor",
    "handler",
    "persistent",
    "register_checkpoint_type",
    "response_handler",
]

del _defaults
