"""The kit of Agent Framework, with its own client for OpenAI."""

from __future__ import annotations

from typing import Any

from agent_framework import Agent, tool
from agent_framework_openai import OpenAIChatCompletionClient

from .deeds import Report, pay, weather


def agent(kind: str, url: str) -> Any:
    client = OpenAIChatCompletionClient(model="local", api_key="none", base_url=url)
    if kind == "reporter":
        return Agent(client, "Be short.", name=kind, default_options={"response_format": Report})
    tools = [tool(pay, approval_mode="always_require"), tool(weather)]
    return Agent(client, "Be short.", name=kind, tools=tools)
