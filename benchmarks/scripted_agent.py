"""An agent of pydantic-ai whose model calls a tool a number of times, and then answers: the same for every engine."""

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

TEXT = "A sentence of the model, as long as such sentences are, with a reason for what it does next. " * 4


def make_agent(durability: Any, look_up: Callable[..., Any]) -> Agent[None, str]:
    """Return the agent. Its input is the number of requests to the model."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        requests, wanted = len(messages) // 2 + 1, int(messages[0].parts[0].content)  # type: ignore[union-attr, arg-type]
        if requests >= wanted:
            return ModelResponse([TextPart("done")])
        return ModelResponse([TextPart(TEXT), ToolCallPart("look_up", {"number": requests}, f"call-{requests}")])

    tools = FunctionToolset[None]([look_up], id="tools")
    return Agent(FunctionModel(reply), name="bench", toolsets=[tools], capabilities=[durability])


def look_up_text(number: int) -> str:
    return f"{number:06} " * 30
