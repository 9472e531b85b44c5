"""Calls of models and tools by agents, as steps of the handler or function that runs the agent.

A turn of an agent that is cut off is taken again from its beginning, and what its model and its tools have
done is recalled. Two middlewares do that. They are the innermost ones of an agent, so that those of a program
see what they always see, and they let calls pass that are not made in a stored run of this package.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from agent_framework import Agent as FrameworkAgent
from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Executor,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionMiddleware,
    MiddlewareFailure,
    MiddlewareTermination,
    ResponseStream,
)
from agent_framework.exceptions import UserInputRequiredException

from stepwell.agents.adapters.agent_framework.tool_results import tool_data, tool_result
from stepwell.compat.agent_framework.stored_calls import StoredCalls, find_calls

OptionsT = TypeVar("OptionsT")

# Tools and middlewares raise these to control the library; they are not results of a tool.
_CONTROL_ERRORS = (MiddlewareFailure, MiddlewareTermination, UserInputRequiredException)


class Agent(FrameworkAgent[OptionsT]):
    """An agent whose calls of its model and its tools are steps, wherever a stored run of this package runs it."""

    # `inspect.signature` shows the parameters of the framework's class.
    __signature__ = inspect.signature(FrameworkAgent)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _add_steps_to(self)


def add_steps(executor: Executor) -> None:
    """Make calls of the agents that an executor holds, itself or in a manager, steps of its handlers."""
    for agent in _agents_in(executor):
        _add_steps_to(agent)


def _add_steps_to(agent: FrameworkAgent[Any]) -> None:
    layers = (ChatMiddlewareLayer, FunctionInvocationLayer)
    # Other clients call no middleware; a turn of such an agent is repeated as a whole.
    if all(isinstance(agent.client, layer) for layer in layers) and _MODEL_STEPS not in (agent.middleware or ()):
        agent.middleware = [*(agent.middleware or ()), _MODEL_STEPS, _TOOL_STEPS]


def _agents_in(executor: Executor) -> Iterator[FrameworkAgent[Any]]:
    for held in list(vars(executor).values()):
        for agent in (held, getattr(held, "_agent", None)):
            if isinstance(agent, FrameworkAgent):
                yield agent


class _ModelSteps(ChatMiddleware):
    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        calls = find_calls()
        if calls is None:
            await call_next()
        elif context.stream:
            context.result = _ModelStream(calls, context, call_next).open()
        else:
            context.result = await _ask_model(calls, context, call_next)


async def _ask_model(
    calls: StoredCalls, context: ChatContext, call_next: Callable[[], Awaitable[None]]
) -> ChatResponse[Any]:
    replies: list[ChatResponse[Any]] = []

    async def ask() -> Any:
        await call_next()
        assert isinstance(context.result, ChatResponse)
        replies.append(context.result)
        return context.result.to_dict()

    recorded = await calls.step("model", ask)
    return replies[0] if replies else _reply(recorded, context)


class _ModelStream:
    """The reply of a model, piece by piece as it arrives; one that is recalled arrives at once."""

    def __init__(self, calls: StoredCalls, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        self._calls, self._context, self._call_next = calls, context, call_next
        # Ends with None.
        self._pieces: asyncio.Queue[ChatResponseUpdate | None] = asyncio.Queue()
        self._reply: ChatResponse[Any] | None = None

    def open(self) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        return ResponseStream(self._read(), finalizer=self._finish)

    async def _ask(self) -> Any:
        await self._call_next()
        inner: Any = self._context.result
        async for piece in inner:
            self._pieces.put_nowait(piece)
        self._reply = await inner.get_final_response()
        return self._reply.to_dict()

    async def _record(self) -> Any:
        try:
            return await self._calls.step("model", self._ask)
        finally:
            self._pieces.put_nowait(None)

    async def _read(self) -> AsyncIterator[ChatResponseUpdate]:
        recording = asyncio.create_task(self._record())
        try:
            while (piece := await self._pieces.get()) is not None:
                yield piece
            recorded = await recording
        finally:
            recording.cancel()
        if self._reply is None:
            self._reply = _reply(recorded, self._context)
            for piece in self._reply.to_updates():
                yield piece

    def _finish(self, pieces: Sequence[ChatResponseUpdate]) -> ChatResponse[Any]:
        assert self._reply is not None
        return self._reply


def _reply(recorded: Any, context: ChatContext) -> ChatResponse[Any]:
    reply: ChatResponse[Any] = ChatResponse.from_dict(recorded)
    # The class that the answer is parsed as is part of the question, not of the answer.
    reply._response_format = (context.options or {}).get("response_format")
    return reply


class _ToolFailed(Exception):
    """A tool failed; the library reports it to the model."""


class _ToolSteps(FunctionMiddleware):
    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        calls = find_calls()
        if calls is None:
            await call_next()
            return
        results: list[Any] = []

        async def call() -> Any:
            try:
                await call_next()
            except _CONTROL_ERRORS:
                raise
            except Exception as error:
                raise _ToolFailed(str(error)) from error
            results.append(context.result)
            return tool_data(context.result)

        try:
            recorded = await calls.step(f"tool {context.function.name}", call, remember=_ToolFailed)
        except _ToolFailed as failure:
            raise failure.__cause__ or failure from None
        context.result = results[0] if results else tool_result(recorded)


_MODEL_STEPS, _TOOL_STEPS = _ModelSteps(), _ToolSteps()
