"""Durable functions: a workflow as plain code.

`@workflow` makes a function a workflow with one executor (`durable_function`); `@step` makes calls of a function
steps of it (`step_function`). What a function may use of its run is its `RunContext` (`run_context`).
"""

from stepwell.functional.durable_function import DurableFunction, workflow
from stepwell.functional.run_context import RunContext, get_run_context
from stepwell.functional.step_function import StepFunction, step

__all__ = ["DurableFunction", "RunContext", "StepFunction", "get_run_context", "step", "workflow"]
