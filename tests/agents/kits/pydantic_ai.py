"""The kit of pydantic-ai, with its own model for OpenAI."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from .deeds import Report, pay, weather


def agent(kind: str, url: str) -> Any:
    model = OpenAIChatModel("local", provider=OpenAIProvider(base_url=url, api_key="none"))
    if kind == "reporter":
        return Agent(model, name=kind, instructions="Be short.", output_type=Report)
    return Agent(model, name=kind, instructions="Be short.", tools=[Tool(pay, requires_approval=True), weather])
