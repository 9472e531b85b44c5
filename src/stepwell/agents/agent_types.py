"""What is an agent: the `Agent` protocol, async functions, and agents of other libraries."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Protocol, get_type_hints, runtime_checkable

from stepwell.agents.messages import ONE_CALL, AgentResponse, Answer, Message, ModelReply
from stepwell.agents.turn import Turn
from stepwell.errors import DefinitionError


@runtime_checkable
class Agent(Protocol):
    """Anything with a name that can take a turn.

    `take_turn` reads the turn (the messages to answer, the state its last turn left behind), calls
    its model and its tools through the turn, so that no call is repeated after a crash, and returns its answer.
    It may be called again for the same turn, after a crash or once a person has responded: calls
    that were already made then return their stored results.
    """

    @property
    def name(self) -> str | None: ...

    async def take_turn(self, turn: Turn) -> Answer: ...


class FunctionAgent:
    """An async function that answers a conversation: `async def writer(messages: list[Message]) -> str`.

    A parameter of type `str` receives the text of the last message instead. The whole call counts as
    one model call and is not repeated after a crash. A function with a second parameter receives the
    turn, and makes its own calls through it.
    """

    def __init__(self, function: Callable[..., Awaitable[Any]], name: str | None = None) -> None:
        self.name = name or getattr(function, "__name__", None)
        self.description = inspect.getdoc(function)
        self._function = function
        parameters = list(inspect.signature(function).parameters.values())
        if not 1 <= len(parameters) <= 2:
            raise DefinitionError(
                f"{self.name!r} cannot be an agent: it takes {len(parameters)} parameters; it must take the messages, "
                f"and optionally the turn"
            )
        self._takes_text = _annotation(function, parameters[0]) is str
        self._takes_turn = len(parameters) == 2

    async def take_turn(self, turn: Turn) -> Answer:
        input: Any = turn.conversation
        if self._takes_text:
            input = next((message.text for message in reversed(turn.messages or turn.conversation)), "")
        if self._takes_turn:
            return _answer(await self._function(input, turn), self.name)

        async def call() -> ModelReply:
            response = await self._function(input)
            answer = _answer(response, self.name)
            # A response with `usage` counts its own model calls; any other response counts as one call.
            usage = response.usage if isinstance(response, AgentResponse) and response.usage.calls else ONE_CALL
            return ModelReply(answer, "\n".join(message.text for message in answer.messages), usage=usage)

        answer: Answer = (await turn.model(call)).data
        return answer

    def __repr__(self) -> str:
        return f"<FunctionAgent {self.name!r}>"


def _annotation(function: Any, parameter: inspect.Parameter) -> Any:
    try:
        return get_type_hints(function).get(parameter.name)
    except NameError:
        # Some annotation of the function names something imported only under TYPE_CHECKING. With
        # `from __future__ import annotations`, `parameter.annotation` is its source code.
        return parameter.annotation if parameter.annotation != "str" else str


def _answer(response: Any, name: str | None) -> Answer:
    match response:
        case Answer():
            return response
        case AgentResponse():
            return Answer(response.messages, value=response.value, handoff=response.handoff)
        case Message():
            return Answer([response])
        case str():
            return Answer([Message("assistant", response)])
        case list() if all(isinstance(item, Message) for item in response):
            return Answer(response)
    raise TypeError(
        f"the agent {name!r} returned {type(response).__name__}; it must return a str, a Message, a list of messages, "
        f"an Answer or an AgentResponse"
    )


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
    if (agent := _adapt(candidate)) is not None:
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
    return isinstance(candidate, Agent) or _adapt(candidate) is not None


def name_of_agent(agent: Agent) -> str:
    """Return the id for an agent's executor. Raises DefinitionError if the agent has no name."""
    if not isinstance(agent.name, str) or not agent.name:
        raise DefinitionError(
            f"{agent!r:.80} has no name: give it one, or use AgentExecutor(agent, id=...); stored runs refer to the "
            f"agent by this name, so it must be the same in every process"
        )
    return agent.name


def _adapt(candidate: Any) -> Agent | None:
    """Wrap an agent of another library, or return None."""
    # An object can only be an agent of a library that the program has imported. Looking at
    # `sys.modules` keeps these optional dependencies, which are slow to import, out of other programs.
    for adapter in [adapter for library, adapter in _ADAPTERS.items() if library in sys.modules]:
        library_class, wrap = import_module(f".adapters.{adapter}", __package__).ADAPTED
        if isinstance(candidate, library_class):
            agent: Agent = wrap(candidate)
            return agent
    return None
