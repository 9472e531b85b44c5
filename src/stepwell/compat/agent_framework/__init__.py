"""Agent Framework's workflow names, on Stepwell's engine: a program changes its imports and nothing else.

    from stepwell.compat.agent_framework import Executor, WorkflowBuilder, WorkflowContext, handler

What *describes* a workflow is that framework's own: executors and their decorators, edges, validation,
events, agents, messages. What *runs* it is Stepwell: each of its executors is a node of a Stepwell graph
(`nodes`), and its `Workflow` hands every run to a runner (`runner`) that drives the graph, commits each
superstep, and translates the events (`events`). A name that is not defined here is the framework's own.
Type checkers read `__init__.pyi`.
"""

from __future__ import annotations

from typing import Any

import agent_framework as _agent_framework

from stepwell.compat.agent_framework import stored_types as _stored_types
from stepwell.compat.agent_framework.adopted_workflow import Workflow
from stepwell.compat.agent_framework.agent_steps import Agent
from stepwell.compat.agent_framework.builder import WorkflowBuilder
from stepwell.compat.agent_framework.storages import FileCheckpointStorage, InMemoryCheckpointStorage

_stored_types.register_types()


_FUNCTIONAL = ("FunctionalWorkflow", "FunctionalWorkflowDefinition", "StepWrapper", "step", "workflow")


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONAL:
        from stepwell.compat.agent_framework import functional  # lazy: the framework warns that it is experimental

        return getattr(functional, name)
    return getattr(_agent_framework, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_agent_framework)})


__all__ = ["Agent", "FileCheckpointStorage", "InMemoryCheckpointStorage", "Workflow", "WorkflowBuilder"]
__all__ += [name for name in _agent_framework.__all__ if name not in __all__]
