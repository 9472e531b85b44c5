"""The form of a definition as data: its keys, and what each may hold. Reading, writing and the schema follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_args

from stepwell.declarative.definition import (
    Approval,
    Backoff,
    Conversation,
    Definition,
    Edge,
    ErrorMode,
    Node,
    OnTimeout,
    OutputMode,
    Retries,
)
from stepwell.model.superstep import Retention


@dataclass(frozen=True, slots=True)
class Text:
    filled: bool = False  # not empty


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of names. Where one is enough, it may stand alone."""

    alone: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """`above` and `least` are bounds: the first is no more allowed, the second is."""

    above: float | None = None
    least: float | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    pass


@dataclass(frozen=True, slots=True)
class Choice:
    words: tuple[str, ...]
    convert: Callable[[str], Any] = str


@dataclass(frozen=True, slots=True)
class Data:
    """A mapping of whatever JSON can say."""


@dataclass(frozen=True, slots=True)
class ConditionShape:
    """A condition."""


@dataclass(frozen=True, slots=True)
class RecordShape:
    of: type


@dataclass(frozen=True, slots=True)
class RecordListShape:
    of: type


Shape = Text | Texts | Number | Flag | Choice | Data | ConditionShape | RecordShape | RecordListShape


@dataclass(frozen=True, slots=True)
class Part:
    """One key of a record."""

    attribute: str
    shape: Shape
    description: str
    key: str = ""  # if it is not the attribute

    @property
    def name(self) -> str:
        return self.key or self.attribute


SECONDS = Number(above=0)
NAME = Text(filled=True)

FORMS: Mapping[type, tuple[Part, ...]] = {
    Definition: (
        Part("version", Number(least=1, whole=True), "the format of this file", key="format"),
        Part("name", NAME, "the name of the workflow"),
        Part("description", Text(), "what it is for"),
        Part("nodes", RecordListShape(Node), "the agents, and how each is used"),
        Part("edges", RecordListShape(Edge), "who comes after whom, and when"),
        Part("max_iterations", Number(least=1, whole=True), "how often a loop may run a node"),
        Part("timeout", SECONDS, "seconds for a whole run"),
        Part("conversation", Choice(get_args(Conversation)), "what agents remember of a session"),
        Part("checkpointing", Flag(), "whether runs are kept in the workflow store"),
        Part("retention", Choice(tuple(Retention), Retention), "which checkpoints of a run are kept"),
    ),
    Node: (
        Part("id", NAME, "the name of the node in this workflow"),
        Part("agent", NAME, "the name that its agent is bound by; the id, if there is none"),
        Part("config", Data(), "what a factory makes the agent from, if it is not bound by name"),
        Part("input_key", NAME, "the value that it is given"),
        Part("input_template", Text(), "or a text with {{keys}} of values"),
        Part("context_keys", Texts(), "values that it is shown besides"),
        Part("instructions", Text(), "said to it before its input"),
        Part("output_key", NAME, "under which its output is found; the id, if there is none"),
        Part("output_mode", Choice(get_args(OutputMode)), "what its output is"),
        Part("output_types", Texts(), "names of types: one for structured, several for union"),
        Part("default_target", NAME, "where a router leads that chooses nobody"),
        Part("timeout", SECONDS, "seconds for one attempt"),
        Part("retry", RecordShape(Retries), "when it is tried again after it failed"),
        Part("on_error", Choice(get_args(ErrorMode)), "what happens when it has failed for good"),
        Part("fallback", NAME, "the node that runs instead, if on_error says so"),
        Part("concurrency", Number(least=1, whole=True), "how many runs of one process may be in it at once"),
        Part("approval", RecordShape(Approval), "a person looks at its output before anybody uses it"),
    ),
    Edge: (
        Part("sources", Texts(alone=True), "the nodes that it leads from", key="from"),
        Part("targets", Texts(alone=True), "the nodes that it leads to", key="to"),
        Part("condition", ConditionShape(), "it is taken if this is true of what the source gave", key="when"),
        Part("default", Flag(), "it is taken only if no other edge of the source is"),
        Part("type", NAME, "it is taken if the output of the source is of this type"),
    ),
    Retries: (
        Part("attempts", Number(least=1, whole=True), "how often it is tried in all"),
        Part("initial_delay", Number(least=0), "seconds before the second attempt"),
        Part("backoff", Choice(get_args(Backoff)), "how the delay grows"),
        Part("max_delay", Number(least=0), "seconds that a delay never exceeds"),
        Part("errors", Texts(), "names of the classes of errors that are worth it; every Exception, if none are named"),
    ),
    Approval: (
        Part("when", ConditionShape(), "asked of the outputs of the node; always, if there is none"),
        Part("message", Text(), "what the person is told"),
        Part("timeout", Number(least=0), "seconds until on_timeout happens"),
        Part("on_timeout", Choice(get_args(OnTimeout)), "what happens if nobody answers in time"),
    ),
}


def defaults(record: type) -> Mapping[str, Any]:
    """What the attributes are that are not said. Those that must be said are not in it."""
    values = {field.name: field.default for field in fields(record) if field.default is not MISSING}
    values.pop("version", None)  # a file must say its format
    return values
