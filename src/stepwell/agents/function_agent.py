"""`FunctionAgent`: an async function as an agent."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from stepwell.agents.messages import AgentResponse, Message
from stepwell.agents.replies import ONE_CALL, Answer, ModelReply
from stepwell.agents.turn import Turn
from stepwell.errors import DefinitionError


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
        input: Any = _last_text(turn) if self._takes_text else turn.conversation
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


def _last_text(turn: Turn) -> str:
    messages = turn.messages or turn.conversation
    return messages[-1].text if messages else ""


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
