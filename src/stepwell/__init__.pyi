"""What type checkers see of `stepwell`: every public name and the module that defines it.

At run time `__init__.py` loads the same names lazily; a test compares the two.
"""

from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    Message,
)
from stepwell.codec.codec import register_checkpoint_type
from stepwell.errors import (
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
from stepwell.graph.context import WorkflowContext
from stepwell.graph.edges import Case, Default
from stepwell.graph.executor import Executor
from stepwell.graph.function_executor import FunctionExecutor, executor
from stepwell.graph.handler import handler, response_handler
from stepwell.graph.migration import Migration
from stepwell.graph.persistent import persistent
from stepwell.graph.retry import RetryPolicy
from stepwell.graph.subworkflow import SubWorkflowRequest, SubWorkflowRequestMessage, SubWorkflowResponseMessage
from stepwell.model.event import (
    CheckpointInfo,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowEventType,
    WorkflowRunState,
)
from stepwell.model.superstep import FullHistory, LatestOnly, Retention
from stepwell.storage.checkpoint import WorkflowCheckpoint, WorkflowMessage
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.due_runs import DueRun
from stepwell.storage.encryption import Seal
from stepwell.storage.pending_requests import PendingRequest
from stepwell.storage.run_list import RunInfo
from stepwell.stores.files.store import FileCheckpointStorage
from stepwell.stores.memory.store import InMemoryCheckpointStorage
from stepwell.stores.postgres.storage import PostgresCheckpointStorage
from stepwell.stores.sqlite.store import SQLiteCheckpointStorage
from stepwell.viz.picture import WorkflowViz
from stepwell.workflows.builder import DEFAULT_MAX_ITERATIONS, WorkflowBuilder
from stepwell.workflows.handle import RunHandle
from stepwell.workflows.result import WorkflowRunResult
from stepwell.workflows.subworkflow import WorkflowExecutor
from stepwell.workflows.workflow import Workflow
from stepwell.workflows.workflow_agent import AgentSession, AgentStream, WorkflowAgent

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
