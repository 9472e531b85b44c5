"""Agent Framework's workflows as functions: a function is the handler of the only node of a Stepwell graph.

The framework's decorators, checks and contexts stay (`decorators`); a call of a step is a step of our engine
(`function_context`), and a run of the function is a run of our engine (`function_workflow`).
"""

import warnings

with warnings.catch_warnings():
    # Our context is a subclass of theirs, which they call experimental when a program uses it.
    warnings.simplefilter("ignore", FutureWarning)
    from stepwell.compat.agent_framework.functional.decorators import FunctionalWorkflowDefinition, step, workflow
    from stepwell.compat.agent_framework.functional.function_context import StepWrapper
    from stepwell.compat.agent_framework.functional.function_workflow import FunctionalWorkflow

__all__ = ["FunctionalWorkflow", "FunctionalWorkflowDefinition", "StepWrapper", "step", "workflow"]
