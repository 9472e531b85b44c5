"""Agents of the OpenAI Agents SDK: each turn runs copies of the agents that call models and tools through it.

The SDK has no hook for this in a run, so every agent that can be handed over to is copied; the
originals are not changed. Approvals that a tool always needs are requested by the turn. Where a
function decides, the SDK itself stops, and is resumed in the same turn with people's decisions.
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

from stepwell.agents.adapters.openai_agents.models import PLACE, StepModel, StepProvider, Steps, TurnAborted, at_place
from stepwell.agents.adapters.openai_agents.tools import check_tool, wrap_tool
from stepwell.agents.messages import Answer, Message, as_heard
from stepwell.agents.requests import ToolApprovalRequest, ToolApprovalResponse, denial
from stepwell.agents.turn import Interrupted, Turn, handoff_answer

# In a history: the items after this marker replace those before it, as after a handoff with an input
# filter. The value is stored.
REWRITTEN = {"stepwell": "what was said before was rewritten to this"}


class OpenAIAgent:
    """An agent of the OpenAI Agents SDK, with the options its runs are given.

    `max_turns` limits the model calls in one turn. If the agent hands over to another agent of the
    SDK, that agent takes the next turn.
    """

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
            check_tool(tool)
        self.agent, self.context, self.max_turns = agent, context, max_turns
        self.run_config = run_config
        self.name, self.description = name or agent.name, agent.handoff_description

    async def take_turn(self, turn: Turn) -> Answer:
        # Without the items that later ones have replaced.
        since = max((n for n, item in enumerate(turn.history, 1) if item == REWRITTEN), default=0)
        before, steps = turn.history[since:], Steps(turn)
        team = _AgentCopies(self.agent, steps)
        new = [{"role": role, "content": text} for role, text in map(as_heard, turn.messages)]
        try:
            async with self._config(steps) as config:
                with at_place(steps):
                    result = await self._run(team.agent(turn.state), [*before, *new], config, steps)
        except Interrupted:
            if turn.handoff is None:
                raise
            history = _new_items(before, [*steps.last_input, *_handoff_items(turn)])
            return handoff_answer(turn, history, team.current)
        except TurnAborted as aborted:
            raise aborted.error from None
        history, output = _new_items(before, result.to_input_list()), result.final_output
        if isinstance(output, str):
            return Answer([Message("assistant", output)], history, result.last_agent.name)
        return Answer([Message("assistant", to_json(output).decode())], history, result.last_agent.name, output)

    @asynccontextmanager
    async def _config(self, steps: Steps) -> AsyncIterator[RunConfig]:
        """Provide the settings of a run. The default model provider is closed afterwards, as the SDK does."""
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
        # Each round of approvals may lead to calls that need further ones.
        while result.interruptions:
            state = result.to_state()
            for item, reply in await _approvals(result.interruptions, steps):
                if reply.decision == "deny":
                    state.reject(item, rejection_message=denial(reply.reason))
                    continue
                # The SDK knows only yes and no: edited arguments and results are applied by the tool's
                # wrapper.
                steps.decisions[item.call_id or ""] = reply
                state.approve(item)
            result = await run(state)
        return result

    def __repr__(self) -> str:
        return f"<OpenAIAgent {self.name!r}>"


ADAPTED = (SDKAgent, OpenAIAgent)


class _AgentCopies:
    """Copies of the first agent and of all agents that can be handed over to from it."""

    def __init__(self, first: SDKAgent[Any], steps: Steps) -> None:
        self._steps = steps
        self._copies: dict[int, SDKAgent[Any]] = {}
        self.current = first.name  # the agent whose model was called last
        self._first = self._copy(first)

    def agent(self, name: str | None) -> SDKAgent[Any]:
        """Return the agent of that name, or the first one if there is none.

        There is none in the first turn, and if a changed program no longer has the agent.
        """
        return next((agent for agent in self._copies.values() if agent.name == name), self._first)

    def _copy(self, agent: SDKAgent[Any]) -> SDKAgent[Any]:
        if id(agent) in self._copies:
            return self._copies[id(agent)]
        # Registered before its handoffs are copied: agents may hand over to each other in a circle.
        clone = self._copies[id(agent)] = agent.clone(handoffs=[])
        if isinstance(agent.model, Model):
            clone.model = StepModel(agent.model, self._steps)
        clone.get_all_tools = partial(self._tools, agent.name, clone.get_all_tools)  # type: ignore[method-assign]
        clone.handoffs = [
            self._handoff(handoff) if isinstance(handoff, Handoff) else self._copy(handoff)
            for handoff in agent.handoffs
        ]
        return clone

    async def _tools(self, name: str, plain: Callable[..., Any], context: RunContextWrapper[Any]) -> list[Tool]:
        """Return the tools the agent of that name may call; the SDK asks before each call of its model."""
        # Outside the turn, a tool runs the agent for its own purposes.
        if PLACE.get() is None:
            return cast(list[Tool], await plain(context))
        self.current = name
        offered = [_make_handoff_tool(name, description) for name, description in self._steps.turn.handoffs.items()]
        return [*(wrap_tool(tool, self._steps) for tool in await plain(context)), *offered]

    def _handoff(self, handoff: Handoff[Any, Any]) -> Handoff[Any, Any]:
        clone = copy.copy(handoff)

        async def invoke(context: RunContextWrapper[Any], arguments: str) -> SDKAgent[Any]:
            return self._copy(await handoff.on_invoke_handoff(context, arguments))

        clone.on_invoke_handoff = invoke
        if handoff._agent_ref is not None and isinstance(target := handoff._agent_ref(), SDKAgent):
            # So that `agent` finds it by name in a later turn; the SDK has no public access to it.
            self._copy(target)
        return clone


def _make_handoff_tool(name: str, description: str) -> FunctionTool:
    """Make a handoff tool for the model; it is never run, because calling it ends the turn."""

    async def never(context: Any, arguments: str) -> str:
        raise AssertionError(f"the tool {name!r} ends the turn")

    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return FunctionTool(name, description, schema, never)


def _new_items(before: list[Any], now: list[Any]) -> list[Any]:
    """Return what to append to the history so that its current items are `now`."""
    return now[len(before) :] if now[: len(before)] == before else [REWRITTEN, *now]


def _handoff_items(turn: Turn) -> list[Any]:
    """Return the model's last reply, with a result for each of its calls."""
    # The API rejects a conversation in which a call has no result.
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
    """Return people's decisions about calls that the SDK holds back."""
    # Calls of tools in the turn's rules were approved before the SDK saw them.
    rules = steps.turn.rules.approve
    decided = [(item, ToolApprovalResponse("approve")) for item in items if item.name in rules]
    # The SDK lists calls in the order in which they reached approval; places need a stable order.
    wanted = sorted((item for item in items if item.name not in rules), key=lambda item: item.call_id or "")
    if not wanted:
        return decided
    replies = await steps.turn.approvals([_approval_request(item, steps) for item in wanted])
    return [*decided, *zip(wanted, replies, strict=True)]


def _approval_request(item: ToolApprovalItem, steps: Steps) -> ToolApprovalRequest:
    """Make the approval request for a call that the SDK holds back."""
    id = item.call_id or ""
    arguments = json.loads(item.arguments or "{}")
    # The id of a call inside an agent used as a tool has the part of the turn in front.
    call = next((call for call in steps.calls.values() if f"/{call.id}".endswith(f"/{id}")), None)
    about = (call.description, call.parameters) if call is not None else (None, {})
    return ToolApprovalRequest(steps.turn.executor_id, item.name or "", arguments, id, *about)
