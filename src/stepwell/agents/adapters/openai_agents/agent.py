"""Agents of the OpenAI Agents SDK: each turn has copies of the agents, whose models and tools are called through it.

The SDK has no place for this in a run, so each agent that can be handed over to is copied; the originals are left as
they are. What needs approval by declaration is asked about by the turn; where a function decides, the SDK stops, and
goes on in the same turn with what people said.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

from agents import Agent as SDKAgent
from agents import (
    FunctionTool,
    Handoff,
    Model,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunResult,
    Tool,
    ToolApprovalItem,
)
from agents.run import DEFAULT_MAX_TURNS
from pydantic_core import to_json

from stepwell.agents.adapters.openai_agents.models import StepModel, StepProvider
from stepwell.agents.adapters.openai_agents.steps import PLACE, Steps, TurnAborted
from stepwell.agents.adapters.openai_agents.tools import check, wrap_tool
from stepwell.agents.agent import Agent
from stepwell.agents.messages import Message
from stepwell.agents.replies import Answer
from stepwell.agents.requests import ToolApprovalRequest, ToolApprovalResponse
from stepwell.agents.turn import Interrupted, Turn, denial

REWRITTEN = {"stepwell": "what was said before was rewritten to this"}
"""Stands in the history where the SDK replaced the conversation, as filters of handoffs do."""


def adapt(agent: Any) -> Agent | None:
    """The agent, if it is one of the OpenAI Agents SDK."""
    return OpenAIAgent(agent) if isinstance(agent, SDKAgent) else None


class OpenAIAgent:
    """An agent of the OpenAI Agents SDK, with what its runs are given: a context, settings, how often its model may be
    called in one turn. If it hands over to another agent of the SDK, that one takes the next turn."""

    def __init__(
        self,
        agent: SDKAgent[Any],
        *,
        context: Any = None,
        run_config: RunConfig | None = None,
        max_turns: int = DEFAULT_MAX_TURNS,
        name: str | None = None,
    ) -> None:
        for tool in agent.tools:
            check(tool)
        self.agent, self.context, self.max_turns = agent, context, max_turns
        self.run_config = run_config
        self.name, self.description = name or agent.name, agent.handoff_description

    async def take_turn(self, turn: Turn) -> Answer:
        past = _past(turn.history)
        steps = Steps(turn)
        team = _Team(self.agent, steps)
        input_items = [*past, *(_item(message) for message in turn.messages)]
        try:
            async with self._config(steps) as config:
                with steps.within(""):
                    result = await self._run(team.agent(turn.state), input_items, config, steps)
        except Interrupted:
            if turn.handoff is None:
                raise
            text = turn.last_reply.text if turn.last_reply is not None else ""
            history = _news(past, [*steps.last_input, *_handoff_items(turn)])
            return Answer([Message("assistant", text)] if text else [], history, team.current, handoff=turn.handoff)
        except TurnAborted as aborted:
            raise aborted.error from None
        history, output = _news(past, result.to_input_list()), result.final_output
        if isinstance(output, str):
            return Answer([Message("assistant", output)], history, result.last_agent.name)
        return Answer([Message("assistant", to_json(output).decode())], history, result.last_agent.name, output)

    @asynccontextmanager
    async def _config(self, steps: Steps) -> AsyncIterator[RunConfig]:
        """The settings of a run. Where none were given, the models are let go of afterwards, as the SDK does it."""
        base = self.run_config or RunConfig()
        config = replace(base, model_provider=StepProvider(base.model_provider, steps))
        if isinstance(base.model, Model):
            config.model = StepModel(base.model, steps)
        try:
            yield config
        finally:
            if self.run_config is None:
                await base.model_provider.aclose()

    async def _run(self, agent: SDKAgent[Any], input_items: list[Any], config: RunConfig, steps: Steps) -> RunResult:
        run = partial(Runner.run, agent, max_turns=self.max_turns, run_config=config)
        result = await run(input_items, context=self.context)
        while result.interruptions:
            state = result.to_state()
            for item, reply in await _approvals(result.interruptions, steps):
                _decide(item, reply, state, steps)
            result = await run(state)
        return result

    def __repr__(self) -> str:
        return f"<OpenAIAgent {self.name!r}>"


class _Team:
    """The copies of all agents that can take part: the first one, and those that are handed over to."""

    def __init__(self, first: SDKAgent[Any], steps: Steps) -> None:
        self._steps = steps
        self._copies: dict[int, SDKAgent[Any]] = {}
        self.current = first.name  # whose model is called
        self._first = self._copy(first)

    def agent(self, name: str | None) -> SDKAgent[Any]:
        """The one of that name; the first one if there is none, at first or because the program has changed."""
        return next((agent for agent in self._copies.values() if agent.name == name), self._first)

    def _copy(self, agent: SDKAgent[Any]) -> SDKAgent[Any]:
        if id(agent) in self._copies:
            return self._copies[id(agent)]
        twin = self._copies[id(agent)] = agent.clone(handoffs=[])
        if isinstance(agent.model, Model):
            twin.model = StepModel(agent.model, self._steps)
        twin.get_all_tools = partial(self._tools, agent.name, twin.get_all_tools)  # type: ignore[method-assign]
        twin.handoffs = [
            self._handoff(handoff) if isinstance(handoff, Handoff) else self._copy(handoff)
            for handoff in agent.handoffs
        ]
        return twin

    async def _tools(self, name: str, plain: Callable[..., Any], context: RunContextWrapper[Any]) -> list[Tool]:
        """What the agent of that name may call now: the SDK asks for it before each call of its model."""
        if PLACE.get() is None:  # a tool runs the agent for itself
            return cast(list[Tool], await plain(context))
        self.current = name
        offered = [_offer(name, description) for name, description in self._steps.turn.handoffs.items()]
        return [*(wrap_tool(tool, self._steps) for tool in await plain(context)), *offered]

    def _handoff(self, handoff: Handoff[Any, Any]) -> Handoff[Any, Any]:
        twin = copy.copy(handoff)

        async def invoke(context: RunContextWrapper[Any], arguments: str) -> SDKAgent[Any]:
            return self._copy(await handoff.on_invoke_handoff(context, arguments))

        twin.on_invoke_handoff = invoke
        if handoff._agent_ref is not None and isinstance(target := handoff._agent_ref(), SDKAgent):
            self._copy(target)  # so that it is known by name; the SDK says nowhere else which agent it is
        return twin


def _offer(name: str, description: str) -> FunctionTool:
    """A tool for handing over: calling it ends the turn, so it is never run."""

    async def never(context: Any, arguments: str) -> str:
        raise AssertionError(f"the tool {name!r} ends the turn")

    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return FunctionTool(name, description, schema, never)


def _item(message: Message) -> dict[str, str]:
    """A message for this agent. What another agent said is said by a user here, with the name of that agent first."""
    if message.role in ("user", "system"):
        return {"role": message.role, "content": message.text}
    by = f"{message.author_name}: " if message.author_name else ""
    return {"role": "user", "content": by + message.text}


def _past(history: Sequence[Any]) -> list[Any]:
    """The items of the conversation as it is now."""
    since = max((n for n, item in enumerate(history, 1) if item == REWRITTEN), default=0)
    return list(history[since:])


def _news(past: list[Any], now: list[Any]) -> list[Any]:
    """What is to be added to the history so that the conversation is this."""
    return now[len(past) :] if now[: len(past)] == past else [REWRITTEN, *now]


def _handoff_items(turn: Turn) -> list[Any]:
    """The last reply of the model, with results for its calls: the next request would be refused without them."""
    if turn.last_reply is None:
        return []
    results = [
        {
            "type": "function_call_output",
            "call_id": call.id,
            "output": f"Handed over to {call.name}." if call.name == turn.handoff else "Not called.",
        }
        for call in turn.last_reply.calls
    ]
    return [*turn.last_reply.data["output"], *results]


async def _approvals(
    items: Sequence[ToolApprovalItem], steps: Steps
) -> list[tuple[ToolApprovalItem, ToolApprovalResponse]]:
    """What people say about calls that the SDK holds back; those in the rules of the turn were asked about before."""
    rules = steps.turn.rules.approve
    decided = [(item, ToolApprovalResponse("approve")) for item in items if item.name in rules]
    wanted = sorted((item for item in items if item.name not in rules), key=lambda item: item.call_id or "")
    if not wanted:
        return decided
    replies = await steps.turn.approvals([_approval_request(item, steps) for item in wanted])
    return [*decided, *zip(wanted, replies, strict=True)]


def _approval_request(item: ToolApprovalItem, steps: Steps) -> ToolApprovalRequest:
    """What is asked about a call that the SDK holds back."""
    id = item.call_id or ""
    arguments = json.loads(item.arguments or "{}")
    call = next((call for call in steps.calls.values() if f"/{call.id}".endswith(f"/{id}")), None)
    about = (call.description, call.parameters) if call is not None else (None, {})
    return ToolApprovalRequest(steps.turn.executor_id, item.name or "", arguments, id, *about)


def _decide(item: ToolApprovalItem, reply: ToolApprovalResponse, state: Any, steps: Steps) -> None:
    if reply.decision == "deny":
        state.reject(item, rejection_message=denial(reply.reason))
    else:
        steps.decisions[item.call_id or ""] = reply  # other arguments or a result: the SDK knows neither
        state.approve(item)
