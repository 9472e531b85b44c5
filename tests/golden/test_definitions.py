"""Definition files of every released format are read for ever, and mean what they meant."""

from dataclasses import asdict
from pathlib import Path

from stepwell import LatestOnly
from stepwell.declarative.conditions.condition import (
    all_of,
    any_of,
    at_least,
    at_most,
    contains,
    contains_all,
    contains_any,
    empty,
    ends_with,
    equals,
    exists,
    greater,
    less,
    matches,
    not_,
    not_empty,
    not_equals,
    not_exists,
    starts_with,
)
from stepwell.declarative.conditions.operators import OPERATORS
from stepwell.declarative.definition import Approval, Definition, Edge, Node, Retries
from stepwell.declarative.files.reader import from_json, from_yaml

FORMAT_1 = (Path(__file__).parent / "definitions" / "format1.json").read_text()

SUPPORT = Definition(
    "support",
    (
        Node("triage", "router", instructions="Choose who answers.", output_mode="handoff", default_target="answer"),
        Node(
            "answer",
            config={"model": "small", "tools": ["search", {"name": "mail", "send": False}], "temperature": 0.2},
            input_template="{{triage}}: {{question}}",
            context_keys=("customer",),
            output_key="reply",
            timeout=30,
            retry=Retries(4, 0.5, "jittered", 20.0, ("TimeoutError", "RateLimited")),
            on_error="fallback",
            fallback="apology",
            concurrency=8,
        ),
        Node("classify", input_key="question", output_mode="union", output_types=("Bug", "Wish")),
        Node(
            "review",
            input_key="reply",
            output_mode="structured",
            output_types=("Verdict",),
            on_error="isolate",
            approval=Approval(
                less("review.score", 0.5) | not_exists("review.score"), "Is this good enough?", 3600.0, "deny"
            ),
        ),
        Node("publish", approval=Approval()),
        Node("apology"),
        Node("file", on_error="skip"),
    ),
    (
        Edge(("triage",), ("answer", "classify")),
        Edge(("answer",), ("review",), not_empty("reply")),
        Edge(("classify",), ("file",), type="Bug"),
        Edge(
            ("review",),
            ("publish",),
            all_of(
                greater("review.score", 0.8),
                at_most("review.risk", 3),
                not_equals("review.verdict", "no"),
                equals("review.final", True),
                exists("reply"),
                any_of(
                    contains("reply", "thanks"),
                    starts_with("reply", "Dear"),
                    ends_with("reply", "."),
                    matches("reply", r"^\d{4}-\d{2}"),
                ),
                not_(empty("review.notes")),
                contains_any("review.tags", ["good", 1, None]),
                contains_all("review.tags", ["checked"]),
                at_least("review.level", "B"),
            ),
        ),
        Edge(("review",), ("answer",), default=True),
    ),
    max_iterations=5,
    timeout=86400.0,
    conversation="per-agent",
    checkpointing=True,
    retention=LatestOnly,
    description="Answers questions.\nKindly.",
)


def test_format_1_is_read() -> None:
    assert from_json(FORMAT_1) == SUPPORT
    assert from_yaml(FORMAT_1) == SUPPORT


def test_the_file_has_every_kind_of_condition() -> None:
    assert [kind for kind in (*OPERATORS, "all_of", "any_of", "not") if f'"kind": "{kind}"' not in FORMAT_1] == []


def test_what_a_file_of_format_1_does_not_say_is_what_it_was_when_that_was_released() -> None:
    node, edge = '{"id": "a", "retry": {}, "approval": {}}', '{"from": "a", "to": "a"}'
    short = f'{{"format": 1, "name": "x", "nodes": [{node}], "edges": [{edge}]}}'
    assert asdict(from_json(short)) == {
        "name": "x",
        "nodes": (
            {
                "id": "a",
                "agent": None,
                "config": None,
                "input_key": None,
                "input_template": None,
                "context_keys": (),
                "instructions": None,
                "output_key": None,
                "output_mode": "text",
                "output_types": (),
                "default_target": None,
                "timeout": None,
                "retry": {
                    "attempts": 3,
                    "initial_delay": 1.0,
                    "backoff": "exponential",
                    "max_delay": 60.0,
                    "errors": (),
                },
                "on_error": "stop",
                "fallback": None,
                "concurrency": None,
                "approval": {"when": None, "message": "", "timeout": None, "on_timeout": "suspend"},
            },
        ),
        "edges": ({"sources": ("a",), "targets": ("a",), "condition": None, "default": False, "type": None},),
        "max_iterations": 10,
        "timeout": None,
        "conversation": "none",
        "checkpointing": False,
        "retention": "full-history",
        "description": None,
        "version": 1,
    }
