"""Agent Framework's `Workflow` with Stepwell as its runner."""

from __future__ import annotations

import inspect
from typing import Any

from agent_framework import Workflow as FrameworkWorkflow
from agent_framework import WorkflowExecutor

from stepwell.compat.agent_framework.nodes import WorkflowInbox
from stepwell.compat.agent_framework.runner import Runner


class Workflow(FrameworkWorkflow):
    """A workflow of Agent Framework whose runs are driven and stored by Stepwell."""

    # `inspect.signature` shows the parameters of the framework's class.
    __signature__ = inspect.signature(FrameworkWorkflow)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for executor in self.executors.values():
            # Teams build sub-workflows themselves; these must run here too.
            if isinstance(executor, WorkflowExecutor):
                executor.workflow = adopt(executor.workflow)
        self._runner: Any = Runner(self)


def adopt(workflow: FrameworkWorkflow) -> Workflow:
    """Return a built workflow of the framework as one that Stepwell runs."""
    if isinstance(workflow, Workflow):
        return workflow
    described = workflow.to_dict()
    adopted = Workflow(
        workflow.edge_groups,
        workflow.executors,
        workflow.get_start_executor(),
        WorkflowInbox(getattr(workflow._runner_context, "_checkpoint_storage", None)),
        workflow.name,
        description=workflow.description,
        max_iterations=workflow.max_iterations,
        output_from=described["output_executors"],
        intermediate_output_from=described["intermediate_executors"],
    )
    # It is the same workflow: the span of its build names it.
    adopted.id = workflow.id
    return adopted


class AdoptingBuilder:
    """Comes before a builder of the framework among the bases of a class."""

    def build(self) -> Workflow:
        """Return the workflow, to be run by Stepwell."""
        return adopt(super().build())  # type: ignore[misc]
