"""Agents of Agent Framework: two middlewares, added to each run, make calls of the model and of tools steps.

The agent itself is not changed: a copy of it, with our history among its context providers, takes
the turn.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_framework import Agent as FrameworkAgent
from agent_framework import (
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionMiddleware,
    FunctionTool,
    HistoryProvider,
    MiddlewareFailure,
    MiddlewareTermination,
    ResponseStream,
    SupportsAgentRun,
)
from agent_framework import Message as FrameworkMessage
from agent_framework.exceptions import UserInputRequiredException

from stepwell.agents.adapters.agent_framework.response_format import response_options, value_of
from stepwell.agents.adapters.agent_framework.tool_results import tool_data, tool_result
from stepwell.agents.messages import Answer, Message, ModelReply, ToolCall, Usage, as_heard
from stepwell.agents.turn import Interrupted, Turn, handoff_answer
from stepwell.errors import DefinitionError, RunError
from stepwell.model.agent_arguments import CLIENT_ARGUMENTS, TOOL_ARGUMENTS, arguments_of

# Tools and middlewares raise these to control the library; they are not results of a tool.
_CONTROL_ERRORS = (MiddlewareFailure, MiddlewareTermination, UserInputRequiredException)


class AgentFrameworkAgent:
    """An agent of Agent Framework as an agent of a workflow."""

    def __init__(self, agent: FrameworkAgent[Any], *, name: str | None = None) -> None:
        # A client without these layers would ignore our middlewares, and its calls would be repeated
        # after a crash: refuse it here, not in the middle of a run.
        for layer in (ChatMiddlewareLayer, FunctionInvocationLayer):
            if not isinstance(agent.client, layer):
                raise DefinitionError(
                    f"the client of the agent {agent.name!r}, a {type(agent.client).__name__}, does not call "
                    f"middleware, so its calls cannot be stored: derive it from {layer.__name__} too"
                )
        self.agent = agent
        self.name, self.description = name or agent.name, agent.description

    async def take_turn(self, turn: Turn) -> Answer:
        session = _session(turn)
        history = _History(turn, session)
        # A copy, because runs that take turns at the same time share the agent.
        agent = copy.copy(self.agent)
        agent.context_providers = [*self.agent.context_providers]
        # If the agent loads its history itself, ours would send every message to the model twice.
        if not any(
            provider.load_messages for provider in self.agent.context_providers if isinstance(provider, HistoryProvider)
        ):
            agent.context_providers.append(history)
        messages = [FrameworkMessage(role, [text]) for role, text in map(as_heard, turn.messages)]
        offered = [FunctionTool(name=name, description=text) for name, text in turn.handoffs.items()]
        calls = _Calls(turn)
        try:
            stream = agent.run(
                messages,
                stream=True,
                session=session,
                tools=offered,
                middleware=[_ModelSteps(calls), _ToolSteps(calls)],
                options=response_options(agent, turn.rules.answer_type),
                function_invocation_kwargs=arguments_of(turn.executor_id, turn.private, TOOL_ARGUMENTS),
                client_kwargs=arguments_of(turn.executor_id, turn.private, CLIENT_ARGUMENTS),
            )
            response = await stream.get_final_response()
        except MiddlewareFailure as failure:
            raise calls.failure or failure from None
        except Interrupted:
            if turn.handoff is None:
                raise
            return await _finish_handoff(agent, session, history, messages, calls)
        if response.user_input_requests:
            kinds = sorted({request.type for request in response.user_input_requests})
            raise RunError(
                f"{turn.executor_id!r} in run {turn.run_id!r} ended its turn with a request of its library "
                f"({', '.join(kinds)}) that is not supported: only calls of the agent's own tools can be asked about",
                run_id=turn.run_id,
            )
        text = response.messages[-1].text if response.messages else ""
        return Answer(
            [Message("assistant", text)], history.new, _state(session), value_of(response, turn.rules.answer_type)
        )

    def __repr__(self) -> str:
        return f"<AgentFrameworkAgent {self.name!r}>"


class RunnableAgent:
    """Any other agent with that library's `run`: its whole turn is one model call, which is not repeated."""

    def __init__(self, agent: SupportsAgentRun) -> None:
        self.agent = agent
        self.name, self.description = agent.name or agent.id, agent.description

    async def take_turn(self, turn: Turn) -> Answer:
        session = _session(turn)
        messages = [FrameworkMessage(role, [text]) for role, text in map(as_heard, turn.messages)]
        kinds = (TOOL_ARGUMENTS, CLIENT_ARGUMENTS)
        given = {kind: arguments_of(turn.executor_id, turn.private, kind) for kind in kinds}
        options: dict[str, Any] = {kind: arguments for kind, arguments in given.items() if arguments}

        async def call() -> ModelReply:
            response: Any
            if turn.streaming:
                stream = self.agent.run(messages, stream=True, session=session, **options)
                async for update in stream:
                    turn.delta(update.text)
                response = await stream.get_final_response()
            else:
                response = await self.agent.run(messages, session=session, **options)
            spoken = [Message("assistant", message.text, message.author_name) for message in response.messages]
            return ModelReply([spoken, _state(session)], response.text)

        spoken, state = (await turn.model(call)).data
        return Answer(spoken, state=state)


def _wrap(agent: Any) -> AgentFrameworkAgent | RunnableAgent:
    return AgentFrameworkAgent(agent) if isinstance(agent, FrameworkAgent) else RunnableAgent(agent)


ADAPTED = (SupportsAgentRun, _wrap)


@dataclass(slots=True)
class _Round:
    """A reply of the model, and the results of the tool calls in it."""

    reply: ChatResponse[Any]
    calls: dict[str, ToolCall]
    results: dict[str, Any]


class _Calls:
    """The calls made in a turn so far."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.rounds: list[_Round] = []
        self._replaced: list[tuple[FunctionTool, FunctionTool]] = []  # (copy, original)
        # Why the turn must end. The library would pass the error to the model and continue.
        self.failure: BaseException | None = None

    def tools_in(self, tools: list[Any]) -> dict[str, FunctionTool]:
        """Return the original tools of the run, by name.

        In the list itself, which belongs to the run, tools at which the library would stop are replaced
        by copies at which it does not: the turn asks instead.
        """
        originals: dict[str, FunctionTool] = {}
        for at, tool in enumerate(tools):
            if isinstance(tool, FunctionTool):
                original = next((original for copied, original in self._replaced if copied is tool), tool)
                originals[tool.name] = original
                if original is tool and (tool.declaration_only or tool.approval_mode == "always_require"):
                    tools[at] = copied = copy.copy(tool)
                    copied.approval_mode, copied.func = "never_require", tool.func or _external_tool
                    self._replaced.append((copied, tool))
        return originals

    def messages(self, missing: str) -> list[FrameworkMessage]:
        """Return the messages between the model and its tools; `missing` is the result of calls that have none."""
        messages: list[FrameworkMessage] = []
        for round in self.rounds:
            messages += round.reply.messages
            results = [Content.from_function_result(id, result=round.results.get(id, missing)) for id in round.calls]
            messages += [FrameworkMessage("tool", results)] if results else []
        return messages


class _ModelSteps(ChatMiddleware):
    """Makes each model call a step, and returns the stored reply to the library."""

    def __init__(self, calls: _Calls) -> None:
        self._calls, self._turn = calls, calls.turn

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        if self._calls.failure is not None:
            raise self._calls.failure
        options: Mapping[str, Any] = context.options or {}
        tools = self._calls.tools_in(options.get("tools") or [])

        async def call() -> ModelReply:
            await call_next()
            reply = await self._read_reply(context.result)
            used: Mapping[str, Any] = reply.usage_details or {}
            usage = Usage(used.get("input_token_count") or 0, used.get("output_token_count") or 0, calls=1)
            return ModelReply(reply.to_dict(), reply.text, _tool_calls(reply, tools), usage)

        try:
            recorded = await self._turn.model(call, within="")
        except Interrupted:
            # The reply that asks for a handoff belongs to the history, like any other.
            if self._turn.handoff is not None and self._turn.last_reply is not None:
                self._begin_round(self._turn.last_reply)
            raise
        reply = self._begin_round(recorded)
        await self._ask_for_results(recorded.calls, tools)
        context.result = _as_stream(reply, options.get("response_format")) if context.stream else reply

    def _begin_round(self, recorded: ModelReply) -> ChatResponse[Any]:
        reply: ChatResponse[Any] = ChatResponse.from_dict(recorded.data)
        place = f"{len(self._turn.history)}.{len(self._calls.rounds)}"
        for content in _calls_in(reply):
            # The library generates these ids at random; ours are the same each time the turn is taken.
            if content.id is None or content.id.startswith("af-call-"):
                content.id = f"{place}/{content.call_id}"
        self._calls.rounds.append(_Round(reply, {call.id: call for call in recorded.calls}, {}))
        return reply

    async def _ask_for_results(self, calls: Sequence[ToolCall], tools: Mapping[str, FunctionTool]) -> None:
        """Request the results of declaration-only tools, which are carried out outside the run."""
        for call in calls:
            if call.name in tools and tools[call.name].declaration_only:
                data = {"tool": call.name, "arguments": call.arguments, "tool_call_id": call.id}
                answer = await self._turn.ask(f"tool {call.name}", data, Any, within="")
                self._calls.rounds[-1].results[call.id] = tool_result(answer)

    async def _read_reply(self, result: Any) -> ChatResponse[Any]:
        if isinstance(result, ChatResponse):
            return result
        async with result as stream:
            async for update in stream:
                self._turn.delta(update.text)
            reply: ChatResponse[Any] = await stream.get_final_response()
        return reply


class _ToolFailed(Exception):
    """A tool failed; the library reports it to the model."""


class _ToolSteps(FunctionMiddleware):
    """Makes each tool call a step, and returns the stored result to the library."""

    def __init__(self, calls: _Calls) -> None:
        self._calls, self._turn = calls, calls.turn

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        round = self._calls.rounds[-1]
        call = round.calls[context.metadata["call_id"]]
        if call.id in round.results:
            context.result = round.results[call.id]
            return

        async def run(arguments: dict[str, Any]) -> Any:
            if arguments is not call.arguments:  # edited by a person
                context.arguments = arguments
            try:
                await call_next()
            except _CONTROL_ERRORS:
                raise
            except Exception as error:
                raise _ToolFailed(str(error)) from error
            return tool_data(context.result)

        try:
            recorded = await self._turn.tool(call, run, errors=(_ToolFailed,), as_error=_ToolFailed)
        except _ToolFailed as failure:
            round.results[call.id] = f"Error: {failure}"
            raise
        except _CONTROL_ERRORS:
            raise
        except Exception as error:
            # An error of Stepwell, not of the tool. The library would report it to the model and
            # continue, so it is kept here and raised at the end of the turn.
            self._calls.failure = error
            raise MiddlewareFailure(str(error)) from error
        context.result = round.results[call.id] = tool_result(recorded)


class _History(HistoryProvider):
    """The messages of earlier turns, kept by the run, and the new ones of this turn."""

    def __init__(self, turn: Turn, session: AgentSession) -> None:
        # A service that keeps the conversation itself must not be sent it again.
        super().__init__("stepwell", load_messages=session.service_session_id is None)
        self._stored = turn.history
        self.new: list[Any] = []

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[FrameworkMessage]:
        return [FrameworkMessage.from_dict(data) for data in self._stored]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[FrameworkMessage],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.new += [message.to_dict() for message in messages]


async def _finish_handoff(
    agent: FrameworkAgent[Any],
    session: AgentSession,
    history: _History,
    messages: list[FrameworkMessage],
    calls: _Calls,
) -> Answer:
    """End a turn with a handoff, and save its messages as the library would have done.

    The library does not see the end of such a turn, because Interrupted went through it.
    """
    spoken = [*messages, *calls.messages("The conversation was handed over.")]
    for provider in agent.context_providers:
        if isinstance(provider, HistoryProvider):
            await provider.save_messages(session.session_id, spoken, state=session.state.get(provider.source_id))
    # The service's own conversation waits for results that never come, so it is abandoned; from now
    # on the service is sent our history.
    session.service_session_id = None
    return handoff_answer(calls.turn, history.new, _state(session))


def _session(turn: Turn) -> AgentSession:
    if turn.state is not None:
        return AgentSession.from_dict(turn.state)
    return AgentSession(session_id=f"{turn.run_id}/{turn.executor_id}")


def _state(session: AgentSession) -> Any:
    data = session.to_dict()
    # Most providers keep an empty dict; without them most agents have no state to store at all.
    data["state"] = {key: value for key, value in data["state"].items() if value}
    return data if data["state"] or session.service_session_id else None


def _external_tool(**arguments: Any) -> None:
    """Stand in for the missing function of a declaration-only tool; never called."""


def _calls_in(reply: ChatResponse[Any]) -> list[Content]:
    """List the tool calls that the library has to make; some services make calls themselves."""
    contents = [content for message in reply.messages for content in message.contents]
    return [
        content
        for content in contents
        if content.type == "function_call" and not (content.informational_only or content.hosted)
    ]


def _tool_calls(reply: ChatResponse[Any], tools: Mapping[str, FunctionTool]) -> list[ToolCall]:
    calls = []
    for content in _calls_in(reply):
        tool, about = tools.get(content.name or ""), tuple[Any, ...]()
        if tool is not None:
            about = tool.approval_mode == "always_require", tool.description, tool.parameters()
        arguments = dict(content.parse_arguments() or {})
        calls.append(ToolCall(content.call_id or "", content.name or "", arguments, *about))
    return calls


def _as_stream(reply: ChatResponse[Any], output_format: Any) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
    async def updates() -> AsyncIterator[ChatResponseUpdate]:
        for update in reply.to_updates():
            yield update

    def finalize(updates: Sequence[ChatResponseUpdate]) -> ChatResponse[Any]:
        return ChatResponse.from_updates(updates, output_format_type=output_format)

    return ResponseStream(updates(), finalizer=finalize)
