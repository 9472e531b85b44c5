"""What type checkers see of `stepwell`: every public name, and where it is at home. `__init__.py` says it to Python."""

from .agents.executor import AgentExecutor
from .agents.values import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    Message,
)
from .core.errors import (
    CannotUnseal,
    CheckpointCorrupt,
    CheckpointMissing,
    CodecError,
    CommitConflict,
    DefinitionError,
    DurabilityError,
    GraphChanged,
    HandlerFailed,
    HandlerTimeout,
    InputMismatch,
    MigrationFailed,
    NewerFormat,
    PrivateMissing,
    RequestError,
    RequestExpired,
    ResponseRejected,
    RoutingFailed,
    RunBusy,
    RunError,
    StateConflict,
    StepChanged,
    StepFailed,
    StepwellError,
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
from .core.model import FullHistory, LatestOnly, Retention
from .durable.checkpoint import WorkflowCheckpoint, WorkflowMessage
from .durable.codec import register_checkpoint_type
from .durable.contract import CheckpointStorage
from .durable.due import DueRun
from .durable.pending import PendingRequest
from .durable.runs import RunInfo
from .durable.seal import Seal
from .graph.context import WorkflowContext
from .graph.edges import Case, Default
from .graph.executor import Executor
from .graph.function import FunctionExecutor, executor
from .graph.handlers import handler, response_handler
from .graph.migrations import Migration
from .graph.nested import SubWorkflowRequest, SubWorkflowRequestMessage, SubWorkflowResponseMessage
from .graph.persistent import persistent
from .graph.policy import RetryPolicy
from .stores.file import FileCheckpointStorage
from .stores.memory import InMemoryCheckpointStorage
from .stores.postgres import PostgresCheckpointStorage
from .stores.sqlite import SQLiteCheckpointStorage
from .viz import WorkflowViz
from .workflow.agent import AgentSession, AgentStream, WorkflowAgent
from .workflow.builder import DEFAULT_MAX_ITERATIONS, WorkflowBuilder
from .workflow.handle import RunHandle
from .workflow.nested import WorkflowExecutor
from .workflow.result import WorkflowRunResult
from .workflow.workflow import Workflow

__version__: str

__all__ = [
    "DEFAULT_MAX_ITERATIONS",
    "AgentExecutor",
    "AgentExecutorRequest",
    "AgentExecutorResponse",
    "AgentResponse",
    "AgentResponseUpdate",
    "AgentSession",
    "AgentStream",
    "CannotUnseal",
    "Case",
    "CheckpointCorrupt",
    "CheckpointInfo",
    "CheckpointMissing",
    "CheckpointStorage",
    "CodecError",
    "CommitConflict",
    "Default",
    "DefinitionError",
    "DueRun",
    "DurabilityError",
    "Executor",
    "FileCheckpointStorage",
    "FullHistory",
    "FunctionExecutor",
    "GraphChanged",
    "HandlerFailed",
    "HandlerTimeout",
    "InMemoryCheckpointStorage",
    "InputMismatch",
    "LatestOnly",
    "Message",
    "Migration",
    "MigrationFailed",
    "NewerFormat",
    "PendingRequest",
    "PostgresCheckpointStorage",
    "PrivateMissing",
    "RequestError",
    "RequestExpired",
    "ResponseRejected",
    "Retention",
    "RetryPolicy",
    "RoutingFailed",
    "RunBusy",
    "RunError",
    "RunHandle",
    "RunInfo",
    "SQLiteCheckpointStorage",
    "Seal",
    "StateConflict",
    "StepChanged",
    "StepFailed",
    "StepwellError",
    "StoreUnavailable",
    "SubWorkflowRequest",
    "SubWorkflowRequestMessage",
    "SubWorkflowResponseMessage",
    "SuperstepLimit",
    "UnknownRequest",
    "Workflow",
    "WorkflowAgent",
    "WorkflowBuilder",
    "WorkflowCheckpoint",
    "WorkflowContext",
    "WorkflowErrorDetails",
    "WorkflowEvent",
    "WorkflowEventSource",
    "WorkflowEventType",
    "WorkflowExecutor",
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
