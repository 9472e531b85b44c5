"""Answers with a structure: an agent that decides for a team is asked for its decision in a format of its client."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from agent_framework import Agent, AgentResponse
from pydantic import BaseModel, ConfigDict, create_model


def response_options(agent: Agent[Any], answer_type: Any) -> dict[str, Any] | None:
    """Return the options that ask for an answer of this dataclass; None if nothing, or the agent itself, asks for one.

    A client that knows no formats ignores them, and the agent has its instructions.
    """
    if answer_type is None or agent.default_options.get("response_format") is not None:
        return None
    return {"response_format": _model_of(answer_type)}


def value_of(response: AgentResponse[Any], answer_type: Any) -> Any:
    """Return the value of an answer: plain data if a dataclass was asked for, and None if it is not one."""
    if answer_type is None:
        return response.value
    try:
        value = response.value
    except ValueError:
        # The team reads the text instead, and explains to the agent what is wrong with it.
        return None
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _model_of(answer_type: Any) -> type[BaseModel]:
    """Return a dataclass as a model of pydantic, which the library's clients accept."""
    hints = get_type_hints(answer_type)
    parts: dict[str, Any] = {
        field.name: (hints[field.name], ... if field.default is MISSING else field.default)
        for field in fields(answer_type)
    }
    model: type[BaseModel] = create_model(answer_type.__name__, __config__=ConfigDict(extra="forbid"), **parts)
    return model
