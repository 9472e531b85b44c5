"""Tools of the OpenAI Agents SDK that are called through a turn, and agents that are used as tools."""

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

from stepwell.agents.adapters.openai_agents.models import StepModel, arguments_of
from stepwell.agents.adapters.openai_agents.steps import PLACE, Invoker, Steps, TurnAborted, id_in, outside
from stepwell.agents.messages import Usage
from stepwell.agents.replies import ToolCall
from stepwell.agents.turn import RunTool
from stepwell.errors import DefinitionError, StepwellError


def check(tool: Tool) -> None:
    """Raise DefinitionError for a tool that acts on this machine and cannot be called through a turn."""
    hosted = isinstance(tool, ShellTool) and tool.executor is None
    if isinstance(tool, ApplyPatchTool | ComputerTool | CustomTool | LocalShellTool | ShellTool) and not hosted:
        raise DefinitionError(
            f"the tool {tool.name!r} is a {type(tool).__name__}, whose calls would be made again when a turn is taken "
            f"again; give the agent a function_tool that does the same"
        )


def wrap_tool(tool: Tool, steps: Steps) -> Tool:
    """The tool, called through the turn, which also asks about it if it always needs approval."""
    check(tool)
    if not isinstance(tool, FunctionTool):
        return tool  # it is run by whoever runs the model
    wrapped = copy.copy(tool)
    origin = get_function_tool_origin(tool)
    is_agent = origin is not None and origin.type is ToolOriginType.AGENT_AS_TOOL
    wrapped.on_invoke_tool = _InvokeAgent(tool, steps) if is_agent else _Invoke(tool, steps)
    wrapped.timeout_seconds = None  # it is kept inside the step, so that a call that took too long is not made again
    if tool.needs_approval is True:
        wrapped.needs_approval = False
    return wrapped


class _Invoke(Invoker):
    """How the copy of a tool is called."""

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        _, part = PLACE.get() or (None, "")
        id = id_in(part, context.tool_call_id)
        call = self.steps.calls.get(id) or ToolCall(id, self.tool.name, arguments_of(arguments), self.always_asks)
        decision = self.steps.decisions.get(context.tool_call_id)
        if decision is not None and decision.decision == "answer":
            return decision.result
        wanted = call.arguments
        if decision is not None and decision.arguments is not None:
            call = replace(call, arguments=decision.arguments)

        async def run(now: dict[str, Any]) -> Any:
            return await self._run(context, arguments if now == wanted else json.dumps(now))

        try:
            result = await self._once(call, run)
        except StepwellError as error:
            raise TurnAborted(error) from error
        self.steps.count(part, Usage(tool_calls=1))
        return result

    async def _once(self, call: ToolCall, run: RunTool) -> Any:
        return await self.steps.turn.tool(call, run)

    async def _run(self, context: ToolContext[Any], arguments: str) -> Any:
        with outside():
            value = await invoke_function_tool(function_tool=self.tool, context=context, arguments=arguments)
        return _data(value, self.tool)


class _Paused(Exception):
    """An agent that is used as a tool waits for an approval: the call has no result yet."""


class _InvokeAgent(_Invoke):
    """How an agent that is used as a tool is called. What it does are steps of their own."""

    async def _once(self, call: ToolCall, run: RunTool) -> Any:
        """If it came to its end in one go, all of it is recalled as one, with what was used up. If the SDK had to wait
        in the middle, it is made again each time, and waits at the same place."""
        steps, went = self.steps, False

        async def go(now: dict[str, Any]) -> Any:
            nonlocal went
            went = True
            with steps.within(call.id):
                value = await run(now)
            if value is None:
                steps.paused[call.id] = now
                raise _Paused
            await steps.usage_in(call.id)
            return value

        try:
            if call.id in steps.paused:
                result = await go(steps.paused[call.id])
                steps.turn.usage += Usage(tool_calls=1)
                return result
            result = await steps.turn.tool(call, go)
        except _Paused:
            return None
        if not went:
            usage = await steps.usage_in(call.id)
            steps.count(call.id, usage)
            steps.turn.usage += usage
        return result

    async def _run(self, context: ToolContext[Any], arguments: str) -> Any:
        agent: SDKAgent[Any] = self.tool._agent_instance  # the SDK has no public way to it, nor to its tools
        _watch_tools(agent)
        context = _with_model(context, agent, self.steps)
        value = await invoke_function_tool(function_tool=self.tool, context=context, arguments=arguments)
        return _data(value, self.tool)


def _with_model(context: ToolContext[Any], agent: SDKAgent[Any], steps: Steps) -> ToolContext[Any]:
    """What an agent used as a tool is called with, so that the model it brings is called through the turn.

    A model in the settings of a run holds for everybody, so not if the agent can hand over to others.
    """
    config = context.run_config
    if config is None or config.model is not None or agent.handoffs or not isinstance(agent.model, Model):
        return context
    twin = copy.copy(context)
    twin.run_config = replace(config, model=StepModel(agent.model, steps))
    return twin


def _watch_tools(agent: SDKAgent[Any]) -> None:
    """Let the tools of an agent used as a tool be called through the turn, if there is one: otherwise nothing changes.

    The agent is inside a function that the SDK made, where no copy can be put in its place.
    """
    if "get_all_tools" not in vars(agent):
        agent.get_all_tools = partial(_tools_here, agent.get_all_tools)  # type: ignore[method-assign]


async def _tools_here(plain: Callable[..., Any], context: RunContextWrapper[Any]) -> list[Tool]:
    tools: list[Tool] = await plain(context)
    place = PLACE.get()
    return tools if place is None else [wrap_tool(tool, place[0]) for tool in tools]


def _data(value: Any, tool: FunctionTool) -> Any:
    """What a tool gave, as data that the SDK makes the same of; of what it does not know it makes text."""
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
