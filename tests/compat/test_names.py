"""Every workflow name of the installed Agent Framework is there with the same signature, or left out with a reason."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import agent_framework
import agent_framework_orchestrations
import pytest

from stepwell.compat import agent_framework as door
from stepwell.compat.agent_framework import exceptions, orchestrations
from tests.compat.differences import PAGE

# The framework says so of workflows as functions.
pytestmark = pytest.mark.filterwarnings("ignore:.* is experimental")

OWN_ENGINE = "it is a part of that framework's own engine, which is not used here"
LEFT_OUT = {"Runner": OWN_ENGINE, "create_edge_runner": OWN_ENGINE}
# These run on Stepwell too; the others of their kind only describe.
FUNCTIONAL = ("FunctionalWorkflow", "FunctionalWorkflowDefinition", "StepWrapper", "step", "workflow")


def _workflow_names() -> list[str]:
    """Return the names that the framework's package loads from its workflow modules."""
    tree = ast.parse(Path(agent_framework.__file__).read_text())
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    return sorted(
        name
        for table in tables
        for module, names in zip(table.keys, table.values, strict=True)
        if isinstance(module, ast.Constant) and str(module.value).startswith("._workflows")
        for name in ast.literal_eval(names)
    )


NAMES = _workflow_names()
TEAM_NAMES = [name for name in agent_framework_orchestrations.__all__ if name != "__version__"]


def _shape(thing: Any) -> list[tuple[str, object, object]] | None:
    """Return the parameters of a callable: their names, kinds and defaults."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return None
    return [(parameter.name, parameter.kind, repr(parameter.default)) for parameter in parameters]


def test_the_workflow_names_are_found() -> None:
    assert len(NAMES) > 60
    assert {"WorkflowBuilder", "Executor", "step", "WorkflowExecutor"} <= set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LEFT_OUT])
def test_a_workflow_name_has_the_same_signature(name: str) -> None:
    ours, theirs = getattr(door, name), getattr(agent_framework, name)
    assert _shape(ours) == _shape(theirs)
    if isinstance(theirs, type):
        public = [method for method in dir(theirs) if not method.startswith("_")]
        missing = [method for method in public if not hasattr(ours, method)]
        assert missing == []
        assert [m for m in public if _shape(getattr(ours, m)) != _shape(getattr(theirs, m))] == []


@pytest.mark.parametrize("name", TEAM_NAMES)
def test_a_name_of_a_team_has_the_same_signature(name: str) -> None:
    assert _shape(getattr(orchestrations, name)) == _shape(getattr(agent_framework_orchestrations, name))


def test_the_errors_are_theirs() -> None:
    names = [name for name in dir(agent_framework.exceptions) if name.endswith(("Exception", "Error"))]
    assert [getattr(exceptions, name) for name in names] == [getattr(agent_framework.exceptions, n) for n in names]


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_workflows_as_functions_are_those_of_the_door(name: str) -> None:
    ours, theirs = getattr(door, name), getattr(agent_framework, name)
    assert ours is not theirs
    assert ours.__module__.startswith("stepwell.") or ours.__wrapped__ is theirs
    assert ours.__feature_stage__ == theirs.__feature_stage__


def test_the_page_names_what_is_left_out() -> None:
    assert all(f"`{name}`" in PAGE.read_text() for name in LEFT_OUT)


def test_a_name_is_never_a_module_of_the_door() -> None:
    assert [name for name in NAMES if name not in LEFT_OUT and inspect.ismodule(getattr(door, name))] == []
    assert set(agent_framework.__all__) <= set(door.__all__)
