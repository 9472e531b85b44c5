"""Stepwell: durable agent workflows that resume where they stopped.

Public names are loaded on first use, each from the module that defines it, so that a program pays
only for what it uses. Type checkers read `__init__.pyi` instead.
"""

# imported for its effect: it registers what picks a store when none was named
from stepwell import defaults as _defaults
from stepwell.codec import modules as _modules

__version__ = "0.2.0"

_HOMES = {
    "DEFAULT_MAX_ITERATIONS": "workflows.builder",
    "AgentExecutor": "agents.executor",
    "AgentExecutorRequest": "agents.messages",
    "AgentExecutorResponse": "agents.messages",
    "AgentResponse": "agents.messages",
    "AgentResponseUpdate": "agents.messages",
    "AgentSession": "workflows.workflow_agent",
    "AgentStream": "workflows.workflow_agent",
    "CannotUnseal": "errors",
    "Case": "graph.edges",
    "CheckpointCorrupt": "errors",
    "CheckpointInfo": "model.event",
    "CheckpointMissing": "errors",
    "CheckpointStorage": "storage.checkpoint_storage",
    "CodecError": "errors",
    "CommitConflict": "errors",
    "Default": "graph.edges",
    "DefinitionError": "errors",
    "DueRun": "storage.due_runs",
    "DurabilityError": "errors",
    "Executor": "graph.executor",
    "FileCheckpointStorage": "stores.files.store",
    "FullHistory": "model.superstep",
    "FunctionExecutor": "graph.function_executor",
    "GraphChanged": "errors",
    "HandlerFailed": "errors",
    "HandlerTimeout": "errors",
    "InMemoryCheckpointStorage": "stores.memory.store",
    "InputMismatch": "errors",
    "LatestOnly": "model.superstep",
    "Message": "agents.messages",
    "Migration": "graph.migration",
    "MigrationFailed": "errors",
    "NewerFormat": "errors",
    "PendingRequest": "storage.pending_requests",
    "PostgresCheckpointStorage": "stores.postgres.storage",
    "PrivateMissing": "errors",
    "RequestError": "errors",
    "RequestExpired": "errors",
    "ResponseRejected": "errors",
    "Retention": "model.superstep",
    "RetryPolicy": "graph.retry",
    "RoutingFailed": "errors",
    "RunBusy": "errors",
    "RunError": "errors",
    "RunHandle": "workflows.handle",
    "RunInfo": "storage.run_list",
    "SQLiteCheckpointStorage": "stores.sqlite.store",
    "Seal": "storage.encryption",
    "StateConflict": "errors",
    "StepChanged": "errors",
    "StepFailed": "errors",
    "StepwellError": "errors",
    "StoreUnavailable": "errors",
    "SubWorkflowRequest": "graph.subworkflow",
    "SubWorkflowRequestMessage": "graph.subworkflow",
    "SubWorkflowResponseMessage": "graph.subworkflow",
    "SuperstepLimit": "errors",
    "UnknownRequest": "errors",
    "Workflow": "workflows.workflow",
    "WorkflowAgent": "workflows.workflow_agent",
    "WorkflowBuilder": "workflows.builder",
    "WorkflowCheckpoint": "storage.checkpoint",
    "WorkflowContext": "graph.context",
    "WorkflowErrorDetails": "model.event",
    "WorkflowEvent": "model.event",
    "WorkflowEventSource": "model.event",
    "WorkflowEventType": "model.event",
    "WorkflowExecutor": "workflows.subworkflow",
    "WorkflowMessage": "storage.checkpoint",
    "WorkflowRunResult": "workflows.result",
    "WorkflowRunState": "model.event",
    "WorkflowViz": "viz.picture",
    "executor": "graph.function_executor",
    "handler": "graph.handler",
    "persistent": "graph.persistent",
    "register_checkpoint_type": "codec.codec",
    "response_handler": "graph.handler",
}
_ROOMS = ("admin", "agents", "declarative", "orchestrations", "testing")

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        # kept in the module's globals, so that Python calls this function once for each name
        value = globals()[name] = getattr(_modules.load(f"{__name__}.{_HOMES[name]}"), name)
        return value
    if name in _ROOMS:
        return _modules.load(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})


del _defaults
