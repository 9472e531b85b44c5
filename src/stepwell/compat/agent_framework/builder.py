"""Agent Framework's `WorkflowBuilder`, whose workflows Stepwell runs."""

from __future__ import annotations

from agent_framework import WorkflowBuilder as FrameworkBuilder

from stepwell.compat.agent_framework.adopted_workflow import Workflow, adopt


class WorkflowBuilder(FrameworkBuilder):
    """Declares a workflow with the methods, checks and errors of Agent Framework."""

    def build(self) -> Workflow:
        """Return the workflow, to be run by Stepwell."""
        return adopt(super().build())
