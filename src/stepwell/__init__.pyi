"""What type checkers see of `stepwell`. `__init__.py` lists the same names for Python."""

from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import Message
from stepwell.codec.codec import register_checkpoint_type
from stepwell.declarative.builder import AgentWorkflow
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
    RunSetAside,
    StateConflict,
    StepChanged,
    StepFailed,
    StepwellError,
    StoreUnavailable,
    SuperstepLimit,
    UnknownRequest,
)
from stepwell.functional.durable_function import workflow
from stepwell.functional.run_context import RunContext, get_run_context
from stepwell.functional.step_function import step
from stepwell.graph.context import WorkflowContext
from stepwell.graph.edges import Case, Default
from stepwell.graph.executor import Executor, persistent
from stepwell.graph.function_executor import executor
from stepwell.graph.handler import handler, response_handler, timer_handler
from stepwell.graph.migration import Migration
from stepwell.graph.retry import RetryPolicy
from stepwell.graph.step_options import StepOptions
from stepwell.model.checkpoint import FullHistory, LatestOnly, Retention
from stepwell.model.event import CheckpointInfo, WorkflowEvent, WorkflowRunState
from stepwell.storage.checkpoint import WorkflowCheckpoint
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.encryption import Seal
from stepwell.stores.files.store import FileCheckpointStorage
from stepwell.stores.memory.store import InMemoryCheckpointStorage
from stepwell.stores.postgres.storage import PostgresCheckpointStorage
from stepwell.stores.sqlite.store import SQLiteCheckpointStorage
from stepwell.viz.workflow_viz import WorkflowViz
from stepwell.workflows.builder import WorkflowBuilder
from stepwell.workflows.result import WorkflowRunResult
from stepwell.workflows.subworkflow import WorkflowExecutor
from stepwell.workflows.workflow import Workflow
from stepwell.workflows.workflow_agent import WorkflowAgent

__version__: str

__all__ = [
    "AgentExecutor",
    "AgentWorkflow",
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
    "DurabilityError",
    "Executor",
    "FileCheckpointStorage",
    "FullHistory",
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
    "PostgresCheckpointStorage",
    "PrivateMissing",
    "RequestError",
    "RequestExpired",
    "ResponseRejected",
    "Retention",
    "RetryPolicy",
    "RoutingFailed",
    "RunBusy",
    "RunContext",
    "RunError",
    "RunSetAside",
    "SQLiteCheckpointStorage",
    "Seal",
    "StateConflict",
    "StepChanged",
    "StepFailed",
    "StepOptions",
    "StepwellError",
    "StoreUnavailable",
    "SuperstepLimit",
    "UnknownRequest",
    "Workflow",
    "WorkflowAgent",
    "WorkflowBuilder",
    "WorkflowCheckpoint",
    "WorkflowContext",
    "WorkflowEvent",
    "WorkflowExecutor",
    "WorkflowRunResult",
    "WorkflowRunState",
    "WorkflowViz",
    "executor",
    "get_run_context",
    "handler",
    "persistent",
    "register_checkpoint_type",
    "response_handler",
    "step",
    "timer_handler",
    "workflow",
]
