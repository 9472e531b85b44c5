"""What type checkers see of `stepwell.workflows`. `__init__.py` lists the same names for Python."""

from stepwell.graph.function_executor import FunctionExecutor
from stepwell.graph.subworkflow import SubWorkflowRequest, SubWorkflowRequestMessage, SubWorkflowResponseMessage
from stepwell.model.event import WorkflowErrorDetails, WorkflowEventSource, WorkflowEventType
from stepwell.model.status_words import status_word
from stepwell.workflows.background_drive import leave_runs
from stepwell.workflows.builder import DEFAULT_MAX_ITERATIONS, WorkflowBuilder
from stepwell.workflows.handle import RunHandle
from stepwell.workflows.result import WorkflowRunResult
from stepwell.workflows.subworkflow import WorkflowExecutor
from stepwell.workflows.workflow import Workflow
from stepwell.workflows.workflow_agent import AgentSession, AgentStream, WorkflowAgent

__all__ = [
    "DEFAULT_MAX_ITERATIONS",
    "AgentSession",
    "AgentStream",
    "FunctionExecutor",
    "RunHandle",
    "SubWorkflowRequest",
    "SubWorkflowRequestMessage",
    "SubWorkflowResponseMessage",
    "Workflow",
    "WorkflowAgent",
    "WorkflowBuilder",
    "WorkflowErrorDetails",
    "WorkflowEventSource",
    "WorkflowEventType",
    "WorkflowExecutor",
    "WorkflowRunResult",
    "leave_runs",
    "status_word",
]
