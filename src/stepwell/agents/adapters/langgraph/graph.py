"""Compiled graphs of LangGraph with `messages` in their state, such as those that LangChain's `create_agent` makes.

An agent that lists `StepwellMiddleware` (langchain.py) makes each call of its model and its tools a step. Of any other
graph each superstep is one step. Either way a turn has a checkpointer of its own, and what the graph knows at its end
is kept by the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import StateSnapshot
from pydantic_core import to_json

from stepwell.agents.adapters.langgraph.graph_state import TurnSaver, answer_with_state, restore
from stepwell.agents.adapters.langgraph.interrupts import answer_interrupts
from stepwell.agents.agent import Agent
from stepwell.agents.messages import Message, Usage
from stepwell.agents.replies import Answer, ModelReply
from stepwell.agents.turn import Interrupted, Turn
from stepwell.errors import DefinitionError, RunError

Graph = CompiledStateGraph[Any, Any, Any, Any]
MARK = "stepwell"
"""The part of its state by which a graph is known to have the middleware."""


class Course:
    """How a turn goes: what the middleware must know of it, and what it found out."""

    def __init__(self, turn: Turn, tools: Mapping[str, BaseTool]) -> None:
        self.turn = turn
        self.tools = dict(tools)
        self.speaking = False  # whether what a model says right now is what the agent says
        self.handoff_messages: list[BaseMessage] = []  # what had been said when it was handed over
        self.failed_tools: dict[str, str] = {}  # tools that failed, by the id of the call


COURSE: ContextVar[Course | None] = ContextVar("stepwell_langchain_turn", default=None)


def adapt(agent: Any) -> Agent | None:
    """The agent, if it is a compiled graph."""
    return LangChainAgent(agent) if isinstance(agent, CompiledStateGraph) else None


class LangChainAgent:
    """A compiled graph, as `create_agent` makes it; `context` is what its runtime is given."""

    def __init__(self, agent: Graph, *, name: str | None = None, context: Any = None) -> None:
        if "messages" not in agent.channels:
            raise DefinitionError(
                f"the graph {agent.name!r} has no `messages` in its state, so it cannot be an agent: call it in an "
                f"executor, or wrap it in an async function"
            )
        self.agent, self.context = agent, context
        self.name = name or (agent.name if agent.name != "LangGraph" else None)  # what it is called if nobody says
        self.description: str | None = None
        self._in_steps = MARK in agent.channels
        nodes = [node.bound for node in agent.nodes.values() if isinstance(node.bound, ToolNode)]
        self._tools = {name: tool for node in nodes for name, tool in node.tools_by_name.items()}

    async def take_turn(self, turn: Turn) -> Answer:
        saver, course = TurnSaver(), Course(turn, self._tools)
        graph = self.agent.copy(update={"checkpointer": saver})
        config: RunnableConfig = {"configurable": {"thread_id": f"{turn.run_id}/{turn.executor_id}"}}
        await restore(saver, config, turn)
        graph_input = {"messages": [_message(message) for message in turn.messages]}
        token = COURSE.set(course if self._in_steps else None)
        try:
            snapshot = await (self._call_by_call if self._in_steps else self._by_supersteps)(
                graph, graph_input, config, course
            )
        except Interrupted:
            if turn.handoff is None:
                raise
            text = turn.last_reply.text if turn.last_reply is not None else ""
            answer = Answer([Message("assistant", text)] if text else [], handoff=turn.handoff)
            return await answer_with_state(answer, course.handoff_messages, saver, config, graph.channels, turn)
        finally:
            COURSE.reset(token)
        messages, value = snapshot.values["messages"], snapshot.values.get("structured_response")
        text = _last_text(messages) or ("" if value is None else to_json(value).decode())
        answer = Answer([Message("assistant", text)], value=value)
        return await answer_with_state(answer, messages, saver, config, graph.channels, turn)

    async def _call_by_call(
        self, graph: Graph, graph_input: Any, config: RunnableConfig, course: Course
    ) -> StateSnapshot:
        while True:
            await self._run(graph, graph_input, config, course)
            snapshot = await graph.aget_state(config)
            if not snapshot.next:
                return snapshot
            graph_input = await answer_interrupts(snapshot, course.turn, course.tools) if snapshot.interrupts else None

    async def _by_supersteps(
        self, graph: Graph, graph_input: Any, config: RunnableConfig, course: Course
    ) -> StateSnapshot:
        _refuse_what_needs_steps(course.turn)
        course.speaking = True
        saver = _saver(graph)
        while True:
            recorded = await course.turn.model(self._superstep(graph, graph_input, config, course))
            saver.load(recorded.data)
            snapshot = await graph.aget_state(config)
            if not snapshot.next:
                return snapshot
            graph_input = await answer_interrupts(snapshot, course.turn, course.tools) if snapshot.interrupts else None

    def _superstep(
        self, graph: Graph, graph_input: Any, config: RunnableConfig, course: Course
    ) -> Callable[[], Awaitable[ModelReply]]:
        async def call() -> ModelReply:
            before = await graph.aget_state(config)
            await self._run(graph, graph_input, config, course, interrupt_after="*")
            after = await graph.aget_state(config)
            known_ids = {message.id for message in before.values.get("messages", ())}
            new = [message for message in after.values.get("messages", ()) if message.id not in known_ids]
            results = sum(isinstance(message, ToolMessage) for message in new)
            return ModelReply(_saver(graph).data, text_in(new), (), usage_of(new) + Usage(tool_calls=results))

        return call

    async def _run(
        self, graph: Graph, graph_input: Any, config: RunnableConfig, course: Course, **options: Any
    ) -> None:
        run_config: RunnableConfig = {**config, "callbacks": [_Pieces(course)]}
        # models speak in pieces only if somebody wants to see their messages
        modes: Any = ["messages", "values"] if course.turn.streaming else ["values"]
        async for _ in graph.astream(
            graph_input, run_config, stream_mode=modes, context=self.context, durability="sync", **options
        ):
            pass

    def __repr__(self) -> str:
        return f"<LangChainAgent {self.name!r}>"


def _saver(graph: Graph) -> TurnSaver:
    assert isinstance(graph.checkpointer, TurnSaver)
    return graph.checkpointer


class _Pieces(AsyncCallbackHandler):
    """Tells what a model says, as it says it."""

    raise_error = True

    def __init__(self, course: Course) -> None:
        self._course = course

    async def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        if self._course.speaking:
            self._course.turn.delta(text_in([chunk.message]) if chunk is not None else token)


def text_in(messages: Sequence[BaseMessage]) -> str:
    """What models say in these messages."""
    return "".join(str(message.text) for message in messages if isinstance(message, AIMessage))


def usage_of(messages: Sequence[BaseMessage]) -> Usage:
    """What models used up to say this."""
    usages: list[Any] = [message.usage_metadata or {} for message in messages if isinstance(message, AIMessage)]
    read, written = (sum(usage.get(key, 0) for usage in usages) for key in ("input_tokens", "output_tokens"))
    return Usage(read, written, calls=len(usages))


def results_for(reply: Sequence[BaseMessage], result: str) -> list[BaseMessage]:
    """This result for each tool call in a reply."""
    calls = [call for message in reply if isinstance(message, AIMessage) for call in message.tool_calls]
    return [ToolMessage(result, name=call["name"], tool_call_id=call["id"] or "") for call in calls]


def _message(message: Message) -> BaseMessage:
    """A message for this agent. What another agent said is said by a user here, with the name of that agent first."""
    if message.role == "system":
        return SystemMessage(message.text, id=message.id)
    if message.role == "user" or message.author_name is None:
        return HumanMessage(message.text, id=message.id)
    return HumanMessage(f"{message.author_name}: {message.text}", id=message.id)


def _last_text(messages: Sequence[BaseMessage]) -> str:
    return next((text_in([message]) for message in reversed(messages) if isinstance(message, AIMessage)), "")


def _refuse_what_needs_steps(turn: Turn) -> None:
    settings = {"handoffs": turn.handoffs, "approve": turn.rules.approve, "unsafe": turn.rules.unsafe}
    if unsupported := [word for word, value in settings.items() if value]:
        raise RunError(
            f"the agent {turn.executor_id!r} in run {turn.run_id!r} has {' and '.join(unsupported)}, but its calls "
            f"cannot be seen: list StepwellMiddleware() last in create_agent(middleware=[...])",
            run_id=turn.run_id,
        )
    turn.warn(
        f"the calls that the agent {turn.executor_id!r} makes cannot be seen one by one: each superstep of its graph "
        f"is one step, and is done again as a whole; list StepwellMiddleware() last in create_agent(middleware=[...])"
    )
