"""Recognising agents: our own protocol, async functions, and agents of other libraries."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from stepwell.agents.agent import Agent
from stepwell.agents.function_agent import FunctionAgent
from stepwell.errors import DefinitionError

# Supported libraries: the module that shows a library is loaded, and the module of `adapters` for it.
_ADAPTERS = {
    "pydantic_ai": "pydantic_ai",
    # The SDK's package is called `agents`, a name many programs use for their own code, so a
    # submodule that only the SDK has is looked for.
    "agents.tool_context": "openai_agents",
    "agent_framework": "agent_framework",
    "langgraph.graph.state": "langgraph",
}


def agent_of(candidate: Any) -> Agent:
    """Return `candidate` as an agent, adapted if it belongs to another library.

    Raises DefinitionError if it is not an agent.
    """
    if isinstance(candidate, type):
        raise DefinitionError(f"{candidate.__name__} is a class: pass an instance of it")
    if isinstance(candidate, Agent):
        return candidate
    for adapt in _adapters():
        if (agent := adapt(candidate)) is not None:
            return agent
    if inspect.iscoroutinefunction(candidate):
        return FunctionAgent(candidate)
    # WorkflowAgent lives above this room and cannot be imported here, so it is known by its attributes.
    if hasattr(candidate, "workflow") and hasattr(candidate, "as_input"):
        raise DefinitionError(f"{candidate!r:.80} is a workflow: pass it to the builder without an AgentExecutor")
    raise DefinitionError(
        f"{candidate!r:.80} is not an agent: pass an object with `name` and `take_turn`, an async function, or an "
        f"agent of pydantic-ai, the OpenAI Agents SDK, agent-framework or LangChain"
    )


def is_agent(candidate: Any) -> bool:
    """Say whether something is an agent that may be used where an executor is expected.

    A bare function is not: there it could just as well be meant as an executor.
    """
    if isinstance(candidate, type) or inspect.isroutine(candidate):
        return False
    return isinstance(candidate, Agent) or any(adapt(candidate) is not None for adapt in _adapters())


def name_of_agent(agent: Agent) -> str:
    """Return the id for an agent's executor. Raises DefinitionError if the agent has no name."""
    if not isinstance(agent.name, str) or not agent.name:
        raise DefinitionError(
            f"{agent!r:.80} has no name: give it one, or use AgentExecutor(agent, id=...); stored runs refer to the "
            f"agent by this name, so it must be the same in every process"
        )
    return agent.name


def _adapters() -> Iterator[Callable[[Any], Agent | None]]:
    # An object can only be an agent of a library that the program has imported. Looking at
    # `sys.modules` keeps these optional dependencies, which are slow to import, out of other programs.
    for library, adapter in _ADAPTERS.items():
        if library in sys.modules:
            adapt: Callable[[Any], Agent | None] = import_module(f".adapters.{adapter}", __package__).adapt
            yield adapt
