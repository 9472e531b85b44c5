"""`workflow` and `step`, and what `workflow` makes of a function."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import agent_framework
from agent_framework import FunctionalWorkflowAgent
from agent_framework import FunctionalWorkflowDefinition as FrameworkDefinition

from stepwell.compat.agent_framework.functional.function_context import StepWrapper
from stepwell.compat.agent_framework.functional.function_workflow import FunctionalWorkflow


class FunctionalWorkflowDefinition(FrameworkDefinition):
    """A function as a workflow: `build()` makes one for each caller.

    In earlier versions of the framework it was run as it is; that works too, for one caller.
    """

    # `inspect.signature` shows the parameters of the framework's class.
    __signature__ = inspect.signature(FrameworkDefinition)

    def __init__(self, func: Any, *, checkpoint_storage: Any = None, **options: Any) -> None:
        super().__init__(func, **options)
        self._checkpoint_storage = checkpoint_storage

    def build(self, *, checkpoint_storage: Any = None) -> FunctionalWorkflow:
        """Return the workflow, to be run by Stepwell."""
        return FunctionalWorkflow(
            self._func, name=self.name, description=self.description, checkpoint_storage=checkpoint_storage
        )

    @functools.cached_property
    def _only(self) -> FunctionalWorkflow:
        return self.build(checkpoint_storage=self._checkpoint_storage)

    @functools.wraps(agent_framework.FunctionalWorkflow.run)
    def run(self, *args: Any, **options: Any) -> Any:
        return self._only.run(*args, **options)

    @functools.wraps(agent_framework.FunctionalWorkflow.as_agent)
    def as_agent(self, *args: Any, **options: Any) -> FunctionalWorkflowAgent:
        return self._only.as_agent(*args, **options)


@functools.wraps(agent_framework.workflow)
def workflow(func: Any = None, **options: Any) -> Any:
    if func is None:
        return functools.partial(FunctionalWorkflowDefinition, **options)
    return FunctionalWorkflowDefinition(func, **options)


@functools.wraps(agent_framework.step)
def step(func: Any = None, **options: Any) -> Any:
    if func is None:
        return functools.partial(StepWrapper, **options)
    return StepWrapper(func, **options)
