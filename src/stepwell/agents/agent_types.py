"""What counts as an agent: our own kind, an async function, or an agent of a library that is loaded."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from stepwell.agents.agent import Agent
from stepwell.agents.function_agent import FunctionAgent
from stepwell.errors import DefinitionError

_ADAPTERS = {
    "pydantic_ai": "pydantic_ai",
    "agents.tool_context": "openai_agents",  # many programs have a module `agents` of their own
    "agent_framework": "agent_framework",
    "langgraph.graph.state": "langgraph",
}
"""The libraries whose agents are known, by the module they are found in, and the module of `adapters` for each."""


def agent_of(given: Any) -> Agent:
    """The agent that something stands for. Raises DefinitionError if it is none."""
    if isinstance(given, type):
        raise DefinitionError(f"{given.__name__} is a class: make an agent of it first")
    if isinstance(given, Agent):
        return given
    for adapt in _adapters():
        if (agent := adapt(given)) is not None:
            return agent
    if inspect.iscoroutinefunction(given):
        return FunctionAgent(given)
    if hasattr(given, "workflow") and hasattr(given, "as_input"):
        raise DefinitionError(f"{given!r:.80} is a workflow: give it to the builder as it is, without an AgentExecutor")
    raise DefinitionError(
        f"{given!r:.80} is no agent: give an object with `name` and `take_turn`, an async function, or an agent of "
        f"pydantic-ai, the OpenAI Agents SDK, agent-framework or LangChain"
    )


def is_agent(given: Any) -> bool:
    """Whether something is an agent that may stand where an executor is expected. A bare function may not."""
    if isinstance(given, type) or inspect.isroutine(given):
        return False
    return isinstance(given, Agent) or any(adapt(given) is not None for adapt in _adapters())


def name_of_agent(agent: Agent) -> str:
    """What the executor of an agent is called. Raises DefinitionError if the agent has no name."""
    if not isinstance(agent.name, str) or not agent.name:
        raise DefinitionError(
            f"{agent!r:.80} has no name: give it one, or say AgentExecutor(agent, id=...); it must be the same in "
            f"every process, because stored runs know the agent by it"
        )
    return agent.name


def _adapters() -> Iterator[Callable[[Any], Agent | None]]:
    """Those for the libraries that the program has loaded: only then can there be an agent of theirs."""
    for library, adapter in _ADAPTERS.items():
        if library in sys.modules:
            adapt: Callable[[Any], Agent | None] = import_module(f".adapters.{adapter}", __package__).adapt
            yield adapt
