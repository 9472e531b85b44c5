"""The kit of the OpenAI Agents SDK, with its own model for chat completions."""

from __future__ import annotations

from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Tool, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from .deeds import Report, pay, weather


def agent(kind: str, url: str) -> Any:
    set_tracing_disabled(True)  # it would be sent away
    model = OpenAIChatCompletionsModel("local", AsyncOpenAI(base_url=url, api_key="none"))
    if kind == "reporter":
        return Agent(name=kind, instructions="Be short.", model=model, output_type=Report)
    tools: list[Tool] = [function_tool(pay, needs_approval=True), function_tool(weather)]
    return Agent(name=kind, instructions="Be short.", model=model, tools=tools)
