"""The kit of LangChain, with a chat model that calls the server by OpenAI's own SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from openai import AsyncOpenAI

from stepwell.agents.adapters.langchain import StepwellMiddleware

from .deeds import Report, pay, weather


class Model(BaseChatModel):
    """A chat model of the server."""

    url: str

    @property
    def _llm_type(self) -> str:
        return "local"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError("this model is called asynchronously")

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        async with self._client() as client:
            reply = await client.chat.completions.create(**self._request(messages, **kwargs))
        said = reply.choices[0].message
        calls = [
            {"name": one.function.name, "args": json.loads(one.function.arguments), "id": one.id}
            for one in said.tool_calls or ()
        ]
        message = AIMessage(said.content or "", tool_calls=calls, usage_metadata=_usage(reply.usage))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async with self._client() as client:
            stream = await client.chat.completions.create(**self._request(messages, **kwargs), stream=True)
            async for piece in stream:
                chunk = ChatGenerationChunk(message=_chunk(piece))
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    def _client(self) -> AsyncOpenAI:
        return AsyncOpenAI(api_key="none", base_url=self.url)

    def _request(self, messages: list[BaseMessage], **kwargs: Any) -> dict[str, Any]:
        said = convert_to_openai_messages(messages)
        tools = {"tools": kwargs["tools"]} if kwargs.get("tools") else {}
        return {"model": "local", "messages": said, **tools}


def _chunk(piece: Any) -> AIMessageChunk:
    if not piece.choices:
        return AIMessageChunk(content="", usage_metadata=_usage(piece.usage))
    delta = piece.choices[0].delta
    calls = [
        tool_call_chunk(name=one.function.name, args=one.function.arguments, id=one.id, index=one.index)
        for one in delta.tool_calls or ()
    ]
    return AIMessageChunk(content=delta.content or "", tool_call_chunks=calls)


def _usage(usage: Any) -> Any:
    return {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def agent(kind: str, url: str) -> Any:
    return made(kind, url, [StepwellMiddleware()])


def made(kind: str, url: str, ours: list[AgentMiddleware[Any, Any, Any]]) -> Any:
    model, words = Model(url=url), "Be short."
    if kind == "reporter":
        wanted = ToolStrategy(Report)
        return create_agent(model, [], system_prompt=words, name=kind, response_format=wanted, middleware=ours)
    review = HumanInTheLoopMiddleware({"pay": True})
    tools = [tool(pay), tool(weather)]
    return create_agent(model, tools, system_prompt=words, name=kind, middleware=[review, *ours])
