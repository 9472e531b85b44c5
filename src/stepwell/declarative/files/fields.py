"""The fields of a definition file: their keys and the shape of their values.

One table (`FIELDS`) drives the reader, the writer and the JSON schema, so they cannot disagree.
"""

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
from stepwell.model.checkpoint import Retention


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    non_empty: bool = False


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of names."""

    single: bool = False  # a single name may be written without the list, and at least one is needed


@dataclass(frozen=True, slots=True)
class Number:
    """A number within bounds."""

    above: float | None = None  # exclusive
    at_least: float | None = None  # inclusive
    integer: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several strings; `convert` makes the value of the record from it."""

    options: tuple[str, ...]
    convert: Callable[[str], Any] = str


@dataclass(frozen=True, slots=True)
class Data:
    """A mapping of arbitrary JSON data."""


@dataclass(frozen=True, slots=True)
class ConditionShape:
    """A condition."""


@dataclass(frozen=True, slots=True)
class RecordShape:
    """A mapping with the fields of a record."""

    of: type


@dataclass(frozen=True, slots=True)
class RecordListShape:
    """A list of such mappings."""

    of: type


Shape = Text | Texts | Number | Flag | Choice | Data | ConditionShape | RecordShape | RecordListShape


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a record."""

    attribute: str
    shape: Shape
    description: str
    key: str = ""  # the key in a file, if it differs from the attribute

    @property
    def name(self) -> str:
        """The key in a file."""
        return self.key or self.attribute


SECONDS = Number(above=0)
NAME = Text(non_empty=True)

# The descriptions are part of the published JSON schema (docs/agent-workflow.schema.json).
FIELDS: Mapping[type, tuple[FieldSpec, ...]] = {
    Definition: (
        FieldSpec("version", Number(at_least=1, integer=True), "the format of this file", key="format"),
        FieldSpec("name", NAME, "the name of the workflow"),
        FieldSpec("description", Text(), "what the workflow is for"),
        FieldSpec("nodes", RecordListShape(Node), "the agents, and how each is used"),
        FieldSpec("edges", RecordListShape(Edge), "which nodes follow which, and when"),
        FieldSpec("max_iterations", Number(at_least=1, integer=True), "how often one run may run the same node"),
        FieldSpec("timeout", SECONDS, "maximum duration of a run in seconds"),
        FieldSpec("conversation", Choice(get_args(Conversation)), "what agents remember of a session"),
        FieldSpec("checkpointing", Flag(), "whether runs are stored in the workflow store"),
        FieldSpec("retention", Choice(tuple(Retention), Retention), "which checkpoints of a run are kept"),
    ),
    Node: (
        FieldSpec("id", NAME, "the name of the node in this workflow"),
        FieldSpec("agent", NAME, "the name its agent is bound by; default: the id"),
        FieldSpec("config", Data(), "configuration for the agent factory, instead of an agent bound by name"),
        FieldSpec("input_key", NAME, "the key of the value that is its input"),
        FieldSpec("input_template", Text(), "its input as text with {{keys}} of values, instead of input_key"),
        FieldSpec("context_keys", Texts(), "keys of further values to show it"),
        FieldSpec("instructions", Text(), "text placed before its input"),
        FieldSpec("output_key", NAME, "the key of its output; default: the id"),
        FieldSpec("output_mode", Choice(get_args(OutputMode)), "how its answer becomes an output"),
        FieldSpec("output_types", Texts(), "type names: one for structured, several for union"),
        FieldSpec("default_target", NAME, "the target of a router that makes no choice"),
        FieldSpec("timeout", SECONDS, "maximum duration of one attempt in seconds"),
        FieldSpec("retry", RecordShape(Retries), "how it is retried after a failure"),
        FieldSpec("on_error", Choice(get_args(ErrorMode)), "what happens when no attempts are left"),
        FieldSpec("fallback", NAME, "the node that runs instead, if on_error is fallback"),
        FieldSpec("concurrency", Number(at_least=1, integer=True), "how many runs of one process may use it at once"),
        FieldSpec("approval", RecordShape(Approval), "a person approves its output before other nodes use it"),
    ),
    Edge: (
        FieldSpec("sources", Texts(single=True), "the source nodes", key="from"),
        FieldSpec("targets", Texts(single=True), "the target nodes", key="to"),
        FieldSpec("condition", ConditionShape(), "the edge is taken if this is true", key="when"),
        FieldSpec("default", Flag(), "the edge is taken only if no other edge of the source is"),
        FieldSpec("type", NAME, "the edge is taken if the output of the source has this type"),
    ),
    Retries: (
        FieldSpec("attempts", Number(at_least=1, integer=True), "maximum number of attempts"),
        FieldSpec("initial_delay", Number(at_least=0), "seconds before the second attempt"),
        FieldSpec("backoff", Choice(get_args(Backoff)), "how the delay grows"),
        FieldSpec("max_delay", Number(at_least=0), "maximum delay in seconds"),
        FieldSpec("errors", Texts(), "class names of the errors to retry; default: every Exception"),
    ),
    Approval: (
        FieldSpec("when", ConditionShape(), "approval is needed only if this is true; default: always"),
        FieldSpec("message", Text(), "what the person reads"),
        FieldSpec("timeout", Number(at_least=0), "seconds until on_timeout applies"),
        FieldSpec("on_timeout", Choice(get_args(OnTimeout)), "what happens without a response in time"),
    ),
}


def get_defaults(record: type) -> Mapping[str, Any]:
    """Return the default values of a record by attribute; required attributes are left out."""
    values = {field.name: field.default for field in fields(record) if field.default is not MISSING}
    # The class has a default version, but a file must state its format.
    values.pop("version", None)
    return values
