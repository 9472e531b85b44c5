"""The front door: build a workflow, run it, read what came of it."""

from stepwell.codec import modules as _modules

_HOMES = {
    "DEFAULT_MAX_ITERATIONS": "workflows.builder",
    "AgentSession": "workflows.workflow_agent",
    "AgentStream": "workflows.workflow_agent",
    "FunctionExecutor": "graph.function_executor",
    "RunHandle": "workflows.handle",
    "SubWorkflowRequest": "graph.subworkflow",
    "SubWorkflowRequestMessage": "graph.subworkflow",
    "SubWorkflowResponseMessage": "graph.subworkflow",
    "Workflow": "workflows.workflow",
    "WorkflowAgent": "workflows.workflow_agent",
    "WorkflowBuilder": "workflows.builder",
    "WorkflowErrorDetails": "model.event",
    "WorkflowEventSource": "model.event",
    "WorkflowEventType": "model.event",
    "WorkflowExecutor": "workflows.subworkflow",
    "WorkflowRunResult": "workflows.result",
    "leave_runs": "workflows.background_drive",
    "status_word": "model.status_words",
}

__getattr__, __dir__, __all__ = _modules.export_lazily(__name__, _HOMES)
