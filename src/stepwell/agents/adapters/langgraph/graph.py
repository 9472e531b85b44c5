"""Compiled LangGraph graphs with `messages` in their state, such as those of LangChain's `create_agent`.

In an agent that lists `StepwellMiddleware` (langchain.py), each model call and tool call is a step.
In any other graph, each superstep of the graph is one step. Either way a turn has its own
checkpointer, and the run keeps the state of the graph at the end of the turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
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
from stepwell.agents.messages import Answer, Message, ModelReply, Usage, as_heard
from stepwell.agents.turn import Interrupted, Turn, handoff_answer
from stepwell.errors import DefinitionError, RunError

Graph = CompiledStateGraph[Any, Any, Any, Any]
MARK = "stepwell"
"""The state key that shows that a graph has the middleware."""


@dataclass(slots=True)
class ActiveTurn:
    """The turn under way, shared by the graph and the middleware inside it."""

    turn: Turn
    tools: dict[str, BaseTool]
    # False while a tool runs: text of a model inside a tool is not text of the agent.
    streams_text: bool = False
    handoff_messages: list[BaseMessage] = field(default_factory=list)  # the messages up to a handoff
    failed_tools: dict[str, str] = field(default_factory=dict)  # names of tools that failed, by call id


# LangChain calls middlewares and tools without any argument of ours, hence a context variable.
ACTIVE_TURN: ContextVar[ActiveTurn | None] = ContextVar("stepwell_langchain_turn", default=None)


class LangChainAgent:
    """A compiled graph, such as one made by `create_agent`; `context` is passed to its runtime."""

    def __init__(self, agent: Graph, *, name: str | None = None, context: Any = None) -> None:
        if "messages" not in agent.channels:
            raise DefinitionError(
                f"the graph {agent.name!r} cannot be an agent, because its state has no `messages`: call it in an "
                f"executor, or wrap it in an async function"
            )
        self.agent, self.context = agent, context
        # "LangGraph" is the library's default, not a name that tells agents apart.
        self.name = name or (agent.name if agent.name != "LangGraph" else None)
        self.description: str | None = None
        self._has_middleware = MARK in agent.channels
        nodes = [node.bound for node in agent.nodes.values() if isinstance(node.bound, ToolNode)]
        self._tools = {name: tool for node in nodes for name, tool in node.tools_by_name.items()}

    async def take_turn(self, turn: Turn) -> Answer:
        saver, active = TurnSaver(), ActiveTurn(turn, dict(self._tools))
        graph = self.agent.copy(update={"checkpointer": saver})
        config: RunnableConfig = {"configurable": {"thread_id": f"{turn.run_id}/{turn.executor_id}"}}
        await restore(saver, config, turn)
        token = ACTIVE_TURN.set(active if self._has_middleware else None)
        try:
            snapshot = await self._run_to_end(graph, saver, config, active)
        except Interrupted:
            if turn.handoff is None:
                raise
            answer, messages = handoff_answer(turn), active.handoff_messages
            return await answer_with_state(answer, messages, saver, config, graph.channels, turn)
        finally:
            ACTIVE_TURN.reset(token)
        messages, value = snapshot.values["messages"], snapshot.values.get("structured_response")
        said = next((text_in([message]) for message in reversed(messages) if isinstance(message, AIMessage)), "")
        text = said or ("" if value is None else to_json(value).decode())
        answer = Answer([Message("assistant", text)], value=value)
        return await answer_with_state(answer, messages, saver, config, graph.channels, turn)

    async def _run_to_end(
        self, graph: Graph, saver: TurnSaver, config: RunnableConfig, active: ActiveTurn
    ) -> StateSnapshot:
        """Run a graph to its end. With the middleware its calls are steps, else each of its supersteps is."""
        graph_input: Any = {"messages": [_message(message) for message in active.turn.messages]}

        async def superstep() -> ModelReply:
            before = await graph.aget_state(config)
            await self._run(graph, graph_input, config, active, interrupt_after="*")
            after = await graph.aget_state(config)
            known_ids = {message.id for message in before.values.get("messages", ())}
            new = [message for message in after.values.get("messages", ()) if message.id not in known_ids]
            results = sum(isinstance(message, ToolMessage) for message in new)
            return ModelReply(saver.data, text_in(new), (), usage_of(new) + Usage(tool_calls=results))

        if not self._has_middleware:
            _refuse_what_needs_steps(active.turn)
            active.streams_text = True
        while True:
            if self._has_middleware:
                await self._run(graph, graph_input, config, active)
            else:
                # If the superstep is recalled, the graph has not run: give it the checkpoint it would have.
                saver.load((await active.turn.model(superstep)).data)
            snapshot = await graph.aget_state(config)
            if not snapshot.next:
                return snapshot
            graph_input = await answer_interrupts(snapshot, active.turn, active.tools) if snapshot.interrupts else None

    async def _run(
        self, graph: Graph, graph_input: Any, config: RunnableConfig, active: ActiveTurn, **options: Any
    ) -> None:
        run_config: RunnableConfig = {**config, "callbacks": [_TextDeltas(active)]}
        # Models stream tokens only if the graph is asked for "messages".
        modes: Any = ["messages", "values"] if active.turn.streaming else ["values"]
        async for _ in graph.astream(
            graph_input, run_config, stream_mode=modes, context=self.context, durability="sync", **options
        ):
            pass

    def __repr__(self) -> str:
        return f"<LangChainAgent {self.name!r}>"


ADAPTED = (CompiledStateGraph, LangChainAgent)


class _TextDeltas(AsyncCallbackHandler):
    """Emits the text of a model while it arrives."""

    # Otherwise LangChain would log our errors and continue.
    raise_error = True

    def __init__(self, active: ActiveTurn) -> None:
        self._active = active

    async def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        if self._active.streams_text:
            self._active.turn.delta(text_in([chunk.message]) if chunk is not None else token)


def text_in(messages: Sequence[BaseMessage]) -> str:
    """Return the text of the models' messages among these."""
    return "".join(str(message.text) for message in messages if isinstance(message, AIMessage))


def usage_of(messages: Sequence[BaseMessage]) -> Usage:
    """Add up the usage that models report in these messages."""
    usages: list[Any] = [message.usage_metadata or {} for message in messages if isinstance(message, AIMessage)]
    input_tokens, output_tokens = (
        sum(usage.get(key, 0) for usage in usages) for key in ("input_tokens", "output_tokens")
    )
    return Usage(input_tokens, output_tokens, calls=len(usages))


def _message(message: Message) -> BaseMessage:
    role, text = as_heard(message)
    return (SystemMessage if role == "system" else HumanMessage)(text, id=message.id)


def _refuse_what_needs_steps(turn: Turn) -> None:
    settings = {"handoffs": turn.handoffs, "approve": turn.rules.approve, "unsafe": turn.rules.unsafe}
    if unsupported := [option for option, value in settings.items() if value]:
        raise RunError(
            f"the agent {turn.executor_id!r} in run {turn.run_id!r} uses {' and '.join(unsupported)}, which needs "
            f"access to its calls: list StepwellMiddleware() last in create_agent(middleware=[...])",
            run_id=turn.run_id,
        )
    turn.warn(
        f"the calls of the agent {turn.executor_id!r} are not stored one by one: each superstep of its graph is one "
        f"step and is repeated as a whole; list StepwellMiddleware() last in create_agent(middleware=[...])"
    )
