"""Agent Framework's `WorkflowBuilder`, whose workflows Stepwell runs."""

from __future__ import annotations

from agent_framework import WorkflowBuilder as FrameworkBuilder

from stepwell.compat.agent_framework.adopted_workflow import AdoptingBuilder


class WorkflowBuilder(AdoptingBuilder, FrameworkBuilder):
    """Declares a workflow with the methods, checks and errors of Agent Framework."""
