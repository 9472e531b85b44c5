"""Agents and chat clients that follow a script, in the framework's own classes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from agent_framework import (
    Agent,
    AgentResponse,
    AgentResponseUpdate,
    BaseAgent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

Reply = str | list[Content]


class Client(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A chat client that gives these replies in turn, the last one for ever; it streams them word by word."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__()
        self.replies, self.requests = replies, list[list[tuple[str, str]]]()
        self.options = list[dict[str, Any]]()

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any) -> Any:
        self.requests.append([(message.role, message.text) for message in messages])
        self.options.append({**dict(options), **kwargs})
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        words = [Content.from_text(word) for word in reply.split(" ")] if isinstance(reply, str) else reply

        async def pieces() -> AsyncIterator[ChatResponseUpdate]:
            for word in words:
                yield ChatResponseUpdate(contents=[word], role="assistant", message_id="m")

        async def whole() -> ChatResponse[Any]:
            contents = [Content.from_text("".join(map(_text, words)))] if isinstance(reply, str) else reply
            return ChatResponse(messages=[Message("assistant", contents)])

        return self._build_response_stream(pieces()) if stream else whole()


def _text(content: Content) -> str:
    return content.text or ""


def agent(name: str, *replies: Reply, **options: Any) -> Agent[Any]:
    """Return an agent whose model gives these replies."""
    return Agent(Client(*replies), name=name, id=f"{name}-id", **options)


def call(name: str, id: str = "1", **arguments: Any) -> Content:
    """Return a model's call of a tool."""
    return Content.from_function_call(id, name, arguments=arguments)


class Echo(BaseAgent):
    """An agent of one's own: any object with `run` is one. It repeats what it heard last."""

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **kwargs: Any) -> Any:
        heard = messages if isinstance(messages, list) else [messages]
        text = heard[-1].text if heard and isinstance(heard[-1], Message) else str(heard[-1] if heard else "")

        async def pieces() -> AsyncIterator[AgentResponseUpdate]:
            for word in (f"{self.name}:", text):
                yield AgentResponseUpdate(contents=[Content.from_text(word)], role="assistant", author_name=self.name)

        async def whole() -> AgentResponse[Any]:
            said = Message("assistant", [f"{self.name}:{text}"], author_name=self.name)
            return AgentResponse(messages=[said])

        return ResponseStream(pieces(), finalizer=AgentResponse.from_updates) if stream else whole()
