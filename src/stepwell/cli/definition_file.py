"""Load a workflow of named agents from a JSON or YAML file, with the agents that a module has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.cli.failures import INCOMPATIBLE, USAGE, CommandFailed
from stepwell.error_ids import ErrorId
from stepwell.errors import DefinitionError

if TYPE_CHECKING:
    from stepwell.declarative.builder import AgentWorkflow
    from stepwell.declarative.definition import Definition

EXTENSIONS = (".json", ".yaml", ".yml")


def read_definition(path: str) -> Definition:
    """Read a definition from a file. Raises CommandFailed with every problem and its line."""
    from stepwell.declarative.files.reader import from_json, from_yaml  # lazy: 60 ms

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CommandFailed(ErrorId.WRONG_FILE, f"cannot read {path}: {error.strerror}", code=USAGE) from None
    try:
        return (from_json if path.endswith(".json") else from_yaml)(data, name=path)
    except DefinitionError as error:
        hint = "the keys are explained in docs/agents-by-name-files.md"
        raise CommandFailed(error.id, f"{path} is not a valid definition:\n{error}", hint, INCOMPATIBLE) from None


def builder_of_file(path: str, agents: Any) -> Callable[[], Awaitable[AgentWorkflow]]:
    """Return a function that makes the builder of a definition file.

    `agents` is a mapping of names to agents, or a function without arguments, async or not, that
    returns one. Classes in it are bound as the types of outputs.
    """
    definition = read_definition(path)

    async def make_builder() -> AgentWorkflow:
        from stepwell.declarative.builder import AgentWorkflow  # lazy: 200 ms

        bound = agents() if callable(agents) else agents
        bound = await bound if isawaitable(bound) else bound
        if not isinstance(bound, Mapping):
            kind = type(bound).__name__
            raise TypeError(f"--agents must name a mapping of names to agents, not an instance of {kind}")
        types = [value for value in bound.values() if isinstance(value, type)]
        named = {name: value for name, value in bound.items() if not isinstance(value, type)}
        return AgentWorkflow.from_definition(definition).with_agents(named).with_types(*types)

    return make_builder
