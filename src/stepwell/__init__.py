"""Stepwell: agent workflows that do not lose their place.

Here are the names that most programs need: the workflow and its builder, executors and their decorators,
storages, retention, and every error a program may catch. The rest is in the packages:
`stepwell.agents`, `stepwell.workflows`, `stepwell.storage`, and so on. Each name is loaded with its
module when it is first used, so a program pays only for what it uses. Type checkers read `__init__.pyi`.
"""

from stepwell import defaults as _defaults
from stepwell.codec import modules as _modules

__version__ = "0.2.0"

_HOMES = {
    "AgentExecutor": "agents.executor",
    "AgentWorkflow": "declarative.builder",
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
    "DurabilityError": "errors",
    "Executor": "graph.executor",
    "FileCheckpointStorage": "stores.files.store",
    "FullHistory": "model.checkpoint",
    "GraphChanged": "errors",
    "HandlerFailed": "errors",
    "HandlerTimeout": "errors",
    "InMemoryCheckpointStorage": "stores.memory.store",
    "InputMismatch": "errors",
    "LatestOnly": "model.checkpoint",
    "Message": "agents.messages",
    "Migration": "graph.migration",
    "MigrationFailed": "errors",
    "NewerFormat": "errors",
    "PostgresCheckpointStorage": "stores.postgres.storage",
    "PrivateMissing": "errors",
    "RequestError": "errors",
    "RequestExpired": "errors",
    "ResponseRejected": "errors",
    "Retention": "model.checkpoint",
    "RetryPolicy": "graph.retry",
    "RoutingFailed": "errors",
    "RunBusy": "errors",
    "RunContext": "functional.run_context",
    "RunError": "errors",
    "RunSetAside": "errors",
    "SQLiteCheckpointStorage": "stores.sqlite.store",
    "Seal": "storage.encryption",
    "StateConflict": "errors",
    "StepChanged": "errors",
    "StepFailed": "errors",
    "StepOptions": "graph.step_options",
    "StepwellError": "errors",
    "StoreUnavailable": "errors",
    "SuperstepLimit": "errors",
    "UnknownRequest": "errors",
    "Workflow": "workflows.workflow",
    "WorkflowAgent": "workflows.workflow_agent",
    "WorkflowBuilder": "workflows.builder",
    "WorkflowCheckpoint": "storage.checkpoint",
    "WorkflowContext": "graph.context",
    "WorkflowEvent": "model.event",
    "WorkflowExecutor": "workflows.subworkflow",
    "WorkflowRunResult": "workflows.result",
    "WorkflowRunState": "model.event",
    "WorkflowViz": "viz.workflow_viz",
    "executor": "graph.function_executor",
    "get_run_context": "functional.run_context",
    "handler": "graph.handler",
    "persistent": "graph.executor",
    "register_checkpoint_type": "codec.codec",
    "response_handler": "graph.handler",
    "step": "functional.step_function",
    "timer_handler": "graph.handler",
    "workflow": "functional.durable_function",
}
_PACKAGES = (
    "admin",
    "agents",
    "declarative",
    "functional",
    "orchestrations",
    "storage",
    "testing",
    "viz",
    "worker",
    "workflows",
)

__getattr__, __dir__, __all__ = _modules.export_lazily(__name__, _HOMES, _PACKAGES)

del _defaults
