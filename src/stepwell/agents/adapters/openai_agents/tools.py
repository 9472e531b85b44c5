"""Tool wrappers for the OpenAI Agents SDK that make each call a tool call of the turn.

Agents used as tools are wrapped too: what they do inside is made of steps of its own.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from agents import Agent as SDKAgent
from agents import (
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    LocalShellTool,
    Model,
    RunContextWrapper,
    ShellTool,
    Tool,
    ToolOriginType,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
)
from agents.tool import get_function_tool_origin, invoke_function_tool
from agents.tool_context import ToolContext
from pydantic_core import to_jsonable_python

from stepwell.agents.adapters.openai_agents.models import (
    PLACE,
    Invoker,
    StepModel,
    Steps,
    TurnAborted,
    arguments_of,
    at_place,
    id_in,
)
from stepwell.agents.messages import ToolCall, Usage
from stepwell.agents.turn import RunTool
from stepwell.errors import DefinitionError, StepwellError


def check_tool(tool: Tool) -> None:
    """Raise DefinitionError for a tool that acts on this machine and cannot be called through a turn."""
    hosted = isinstance(tool, ShellTool) and tool.executor is None
    if isinstance(tool, ApplyPatchTool | ComputerTool | CustomTool | LocalShellTool | ShellTool) and not hosted:
        raise DefinitionError(
            f"the tool {tool.name!r} is a {type(tool).__name__}, whose calls would be repeated when a turn is taken "
            f"again; give the agent a function_tool that does the same"
        )


def wrap_tool(tool: Tool, steps: Steps) -> Tool:
    """Return a copy of the tool that is called through the turn, which also requests its approvals."""
    check_tool(tool)
    if not isinstance(tool, FunctionTool):
        return tool  # hosted: the service that runs the model runs it
    wrapped = copy.copy(tool)
    origin = get_function_tool_origin(tool)
    is_agent = origin is not None and origin.type is ToolOriginType.AGENT_AS_TOOL
    wrapped.on_invoke_tool = _InvokeAgent(tool, steps) if is_agent else _Invoke(tool, steps)
    # The timeout applies inside the step (see _run): a timeout around it would leave no stored result,
    # and the call would be made again.
    wrapped.timeout_seconds = None
    if tool.needs_approval is True:
        wrapped.needs_approval = False
    return wrapped


class _Invoke(Invoker):
    """Calls a function tool through the turn."""

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        _, part = PLACE.get() or (None, "")
        id = id_in(part, context.tool_call_id)
        call = self.steps.calls.get(id) or ToolCall(id, self.tool.name, arguments_of(arguments), self.always_asks)
        decision = self.steps.decisions.get(context.tool_call_id)
        if decision is not None and decision.decision == "answer":
            return decision.result
        requested = call.arguments
        if decision is not None and decision.arguments is not None:
            call = replace(call, arguments=decision.arguments)

        async def run(approved: dict[str, Any]) -> Any:
            # Unchanged arguments are passed on as the model's own text, which may not be valid JSON.
            return await self._run(context, arguments if approved == requested else json.dumps(approved))

        try:
            result = await self._once(call, run)
        except StepwellError as error:
            raise TurnAborted(error) from error
        self.steps.add_usage(part, Usage(tool_calls=1))
        return result

    async def _once(self, call: ToolCall, run: RunTool) -> Any:
        return await self.steps.turn.tool(call, run)

    async def _run(self, context: ToolContext[Any], arguments: str) -> Any:
        with at_place(None):
            value = await invoke_function_tool(function_tool=self.tool, context=context, arguments=arguments)
        return _data(value, self.tool)


class _Paused(Exception):
    """An agent used as a tool waits for an approval: the call has no result yet."""


class _InvokeAgent(_Invoke):
    """Calls an agent used as a tool; its model calls and tool calls are steps of their own."""

    async def _once(self, call: ToolCall, run: RunTool) -> Any:
        """Call the agent once.

        If it finishes without waiting, its result is stored as one step, with its usage. If the SDK has
        to wait for an approval inside, the call is made again each time, recalls its steps, and gets to
        the same point.
        """
        steps, was_called = self.steps, False

        async def invoke(arguments: dict[str, Any]) -> Any:
            nonlocal was_called
            was_called = True
            with at_place(steps, call.id):
                value = await run(arguments)
            # The SDK returns None for a nested run that was interrupted. Raising keeps the step from
            # being stored: it has no result yet.
            if value is None:
                steps.paused[call.id] = arguments
                raise _Paused
            await steps.usage_within(call.id)
            return value

        try:
            if call.id in steps.paused:
                result = await invoke(steps.paused[call.id])
                steps.turn.usage += Usage(tool_calls=1)
                return result
            result = await steps.turn.tool(call, invoke)
        except _Paused:
            return None
        # A recalled call has made none of its steps, so their usage is added here.
        if not was_called:
            usage = await steps.usage_within(call.id)
            steps.add_usage(call.id, usage)
            steps.turn.usage += usage
        return result

    async def _run(self, context: ToolContext[Any], arguments: str) -> Any:
        # The SDK has no public access to the agent behind the tool.
        agent: SDKAgent[Any] = self.tool._agent_instance
        _patch_tools(agent)
        context = _with_model(context, agent, self.steps)
        value = await invoke_function_tool(function_tool=self.tool, context=context, arguments=arguments)
        return _data(value, self.tool)


def _with_model(context: ToolContext[Any], agent: SDKAgent[Any], steps: Steps) -> ToolContext[Any]:
    """Return the context with settings that make the agent's own model call through the turn."""
    # A model in the settings of a run applies to all its agents, so this is not possible if the agent
    # can hand over to others.
    config = context.run_config
    if config is None or config.model is not None or agent.handoffs or not isinstance(agent.model, Model):
        return context
    clone = copy.copy(context)
    clone.run_config = replace(config, model=StepModel(agent.model, steps))
    return clone


def _patch_tools(agent: SDKAgent[Any]) -> None:
    """Make the tools of an agent used as a tool be called through the turn, if one is under way."""
    # The agent is captured by a closure of the SDK, where a copy cannot take its place, so this agent
    # itself is changed. Outside turns the patch has no effect.
    if "get_all_tools" not in vars(agent):
        agent.get_all_tools = partial(_tools_in_turn, agent.get_all_tools)  # type: ignore[method-assign]


async def _tools_in_turn(plain: Callable[..., Any], context: RunContextWrapper[Any]) -> list[Tool]:
    tools: list[Tool] = await plain(context)
    place = PLACE.get()
    return tools if place is None else [wrap_tool(tool, place[0]) for tool in tools]


def _data(value: Any, tool: FunctionTool) -> Any:
    """Return a tool's result as data that the SDK treats the same; other objects become text, as in the SDK."""
    if tool.output_json_schema is not None:
        return to_jsonable_python(value)
    if isinstance(value, ToolOutputText | ToolOutputImage | ToolOutputFileContent):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, list):
        return [_data(item, tool) for item in value]
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value
