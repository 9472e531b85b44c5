"""Workflows of named agents whose runs are kept in golden stores. They must stay as they are for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwell import Message
from stepwell.agents import Calls, Fails, ScriptedAgent
from stepwell.declarative import AgentWorkflow, AgentWorkflowInstance, Approval, Retries, contains, less


@dataclass
class GoldenReview:
    score: int
    note: str = ""


def agents(made: list[str], *, broken: bool = False) -> dict[str, Any]:
    """The agents; `made` is what they really did. If they are broken, nothing can be published."""

    def says(name: str, text: Any) -> ScriptedAgent:
        def script(messages: list[Message]) -> Any:
            made.append(name)
            return text(messages[-1].text) if callable(text) else text

        return ScriptedAgent(name, script)

    def score(heard: str) -> str:
        return f'{{"score": {heard.count("better") * 4}, "note": "make it better"}}'

    return {
        "desk": says("desk", Calls(("handoff_to_draft", {}))),
        "draft": says("draft", lambda heard: f"text {'better ' * heard.count('better')}".strip()),
        "review": says("review", score),
        "lawyer": says("lawyer", "fine"),
        "search": says("search", Fails(OSError("gone"), times=10_000)),
        "cache": says("cache", "found"),
        "publish": says("publish", Fails(OSError("no paper")) if broken else lambda heard: f"out: {heard}"),
        "other": says("other", "not this way"),
    }


def build_golden(storage: Any, made: list[str], *, broken: bool = False) -> AgentWorkflowInstance:
    """A router, a loop with a dead path in it, a stand-in beside it, and a person who looks at every review."""
    return (
        AgentWorkflow.create()
        .with_name("golden-by-name")
        .with_checkpointing()
        .with_workflow_store(storage)
        .with_conversation("per-agent")
        .with_agents(agents(made, broken=broken))
        .add_router("desk", default="other")
        .add_agent("other")
        .add_agent("draft", output_key="text")
        .add_agent("lawyer", input_key="text")
        .add_agent("review", output=GoldenReview, input_key="text", approval=Approval(message="Is that so?"))
        .add_agent("search", fallback="cache", retry=Retries(2, initial_delay=0), output_key="source")
        .add_agent("cache")
        .add_agent("publish", input_template="{{text}} ({{review.score}}, {{source}})")
        .from_("desk")
        .to("draft", "other")
        .from_("draft")
        .to("review")
        .from_("draft")
        .to("lawyer", when=contains("text", "law"))
        .from_("review")
        .to("draft", when=less("score", 8))
        .from_("review", "lawyer", "search")
        .to("publish")
        .build()
    )
