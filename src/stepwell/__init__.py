"""Stepwell: agent workflows that do not lose their place.

Every public name is at home in a module of its own, which is loaded when the name is asked for first: a program pays
for what it uses. Type checkers read `__init__.pyi`.
"""

from . import defaults as _defaults
from .durable import modules as _modules

__version__ = "0.2.0"

_HOMES = {
    "DEFAULT_MAX_ITERATIONS": "workflow.builder",
    "AgentExecutor": "agents.executor",
    "AgentExecutorRequest": "agents.values",
    "AgentExecutorResponse": "agents.values",
    "AgentResponse": "agents.values",
    "AgentResponseUpdate": "agents.values",
    "AgentSession": "workflow.agent",
    "AgentStream": "workflow.agent",
    "CannotUnseal": "core.errors",
    "Case": "graph.edges",
    "CheckpointCorrupt": "core.errors",
    "CheckpointInfo": "core.events",
    "CheckpointMissing": "core.errors",
    "CheckpointStorage": "durable.contract",
    "CodecError": "core.errors",
    "CommitConflict": "core.errors",
    "Default": "graph.edges",
    "DefinitionError": "core.errors",
    "DueRun": "durable.due",
    "DurabilityError": "core.errors",
    "Executor": "graph.executor",
    "FileCheckpointStorage": "stores.file",
    "FullHistory": "core.model",
    "FunctionExecutor": "graph.function",
    "GraphChanged": "core.errors",
    "HandlerFailed": "core.errors",
    "HandlerTimeout": "core.errors",
    "InMemoryCheckpointStorage": "stores.memory",
    "InputMismatch": "core.errors",
    "LatestOnly": "core.model",
    "Message": "agents.values",
    "Migration": "graph.migrations",
    "MigrationFailed": "core.errors",
    "NewerFormat": "core.errors",
    "PendingRequest": "durable.pending",
    "PostgresCheckpointStorage": "stores.postgres",
    "PrivateMissing": "core.errors",
    "RequestError": "core.errors",
    "RequestExpired": "core.errors",
    "ResponseRejected": "core.errors",
    "Retention": "core.model",
    "RetryPolicy": "graph.policy",
    "RoutingFailed": "core.errors",
    "RunBusy": "core.errors",
    "RunError": "core.errors",
    "RunHandle": "workflow.handle",
    "RunInfo": "durable.runs",
    "SQLiteCheckpointStorage": "stores.sqlite",
    "Seal": "durable.seal",
    "StateConflict": "core.errors",
    "StepChanged": "core.errors",
    "StepFailed": "core.errors",
    "StepwellError": "core.errors",
    "StoreUnavailable": "core.errors",
    "SubWorkflowRequest": "graph.nested",
    "SubWorkflowRequestMessage": "graph.nested",
    "SubWorkflowResponseMessage": "graph.nested",
    "SuperstepLimit": "core.errors",
    "UnknownRequest": "core.errors",
    "Workflow": "workflow.workflow",
    "WorkflowAgent": "workflow.agent",
    "WorkflowBuilder": "workflow.builder",
    "WorkflowCheckpoint": "durable.checkpoint",
    "WorkflowContext": "graph.context",
    "WorkflowErrorDetails": "core.events",
    "WorkflowEvent": "core.events",
    "WorkflowEventSource": "core.events",
    "WorkflowEventType": "core.events",
    "WorkflowExecutor": "workflow.nested",
    "WorkflowMessage": "durable.checkpoint",
    "WorkflowRunResult": "workflow.result",
    "WorkflowRunState": "core.events",
    "WorkflowViz": "viz",
    "executor": "graph.function",
    "handler": "graph.handlers",
    "persistent": "graph.persistent",
    "register_checkpoint_type": "durable.codec",
    "response_handler": "graph.handlers",
}
_ROOMS = ("agents", "declarative", "operating", "orchestrations", "testing")

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        found = globals()[name] = getattr(_modules.load(f"{__name__}.{_HOMES[name]}"), name)
        return found
    if name in _ROOMS:
        return _modules.load(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})


del _defaults
