"""The fields of a definition file: their keys and the shape of their values.

One table (`FIELDS`) drives the reader, the writer and the JSON schema, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, get_args

from stepwell.declarative.conditions.condition import Condition
from stepwell.declarative.definition import (
    FORMAT,
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
class FieldShape:
    """What a value in a file must be."""

    words: str  # for people
    schema: Mapping[str, Any]  # the same as a JSON schema
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value  # makes the value of the record from it
    blank: Any = None  # stands for a required value that could not be read
    of: type | None = None  # the class that it is read into, or each of its items: a record or Condition


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a record."""

    attribute: str
    shape: FieldShape
    description: str
    key: str = ""  # the key in a file, if it differs from the attribute

    @property
    def name(self) -> str:
        """The key in a file."""
        return self.key or self.attribute


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_name, value))


def _is_number(value: Any) -> bool:
    # In Python True is an int; in JSON it is not a number.
    return isinstance(value, int | float) and not isinstance(value, bool)


TEXT = FieldShape("a string", {"type": "string"}, lambda value: isinstance(value, str))
NAME = FieldShape("a non-empty string", {"type": "string", "minLength": 1}, _is_name, blank="")
NAMES = FieldShape("a list of names", {"type": "array", "items": NAME.schema}, _are_names, tuple)
ONE_OR_MORE = FieldShape(
    "a name or a non-empty list of names",
    {"anyOf": [NAME.schema, {**NAMES.schema, "minItems": 1}]},
    lambda value: _is_name(value) or (_are_names(value) and value != []),
    lambda value: (value,) if isinstance(value, str) else tuple(value),
    blank=(),
)
# JSON does not distinguish 3.0 from 3, and some writers produce the former.
COUNT = FieldShape(
    "an integer of at least 1",
    {"type": "integer", "minimum": 1},
    lambda value: _is_number(value) and value >= 1 and value == int(value),
    int,
    blank=FORMAT,  # the only required number
)
SECONDS = FieldShape(
    "a number above 0", {"type": "number", "exclusiveMinimum": 0}, lambda value: _is_number(value) and value > 0
)
DELAY = FieldShape(
    "a number of at least 0", {"type": "number", "minimum": 0}, lambda value: _is_number(value) and value >= 0
)
FLAG = FieldShape("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool))
DATA = FieldShape("a mapping", {"type": "object"}, lambda value: isinstance(value, dict))
CONDITION = replace(DATA, schema={"$ref": "#/$defs/condition"}, of=Condition)


def _choice(options: Iterable[str], convert: Callable[[str], Any] = str) -> FieldShape:
    names = list(map(str, options))
    return FieldShape(f"one of {', '.join(names)}", {"enum": names}, lambda value: value in names, convert)


def _record(of: type) -> FieldShape:
    return replace(DATA, schema={"$ref": f"#/$defs/{RECORD_NAMES[of]}"}, of=of)


def _records(of: type) -> FieldShape:
    schema = {"type": "array", "items": _record(of).schema}
    return FieldShape("a list of mappings", schema, lambda value: isinstance(value, list), blank=(), of=of)


# In the JSON schema.
RECORD_NAMES: Mapping[type, str] = {Node: "node", Edge: "edge", Retries: "retries", Approval: "approval"}

# The descriptions are part of the published JSON schema (docs/agent-workflow.schema.json).
FIELDS: Mapping[type, tuple[FieldSpec, ...]] = {
    Definition: (
        FieldSpec("version", COUNT, "the format of this file", key="format"),
        FieldSpec("name", NAME, "the name of the workflow"),
        FieldSpec("description", TEXT, "what the workflow is for"),
        FieldSpec("nodes", _records(Node), "the agents, and how each is used"),
        FieldSpec("edges", _records(Edge), "which nodes follow which, and when"),
        FieldSpec("max_iterations", COUNT, "how often one run may run the same node"),
        FieldSpec("timeout", SECONDS, "maximum duration of a run in seconds"),
        FieldSpec("conversation", _choice(get_args(Conversation)), "what agents remember of a session"),
        FieldSpec("checkpointing", FLAG, "whether runs are stored in the workflow store"),
        FieldSpec("retention", _choice(Retention, Retention), "which checkpoints of a run are kept"),
    ),
    Node: (
        FieldSpec("id", NAME, "the name of the node in this workflow"),
        FieldSpec("agent", NAME, "the name its agent is bound by; default: the id"),
        FieldSpec("config", DATA, "configuration for the agent factory, instead of an agent bound by name"),
        FieldSpec("input_key", NAME, "the key of the value that is its input"),
        FieldSpec("input_template", TEXT, "its input as text with {{keys}} of values, instead of input_key"),
        FieldSpec("context_keys", NAMES, "keys of further values to show it"),
        FieldSpec("instructions", TEXT, "text placed before its input"),
        FieldSpec("output_key", NAME, "the key of its output; default: the id"),
        FieldSpec("output_mode", _choice(get_args(OutputMode)), "how its answer becomes an output"),
        FieldSpec("output_types", NAMES, "type names: one for structured, several for union"),
        FieldSpec("default_target", NAME, "the target of a router that makes no choice"),
        FieldSpec("timeout", SECONDS, "maximum duration of one attempt in seconds"),
        FieldSpec("retry", _record(Retries), "how it is retried after a failure"),
        FieldSpec("on_error", _choice(get_args(ErrorMode)), "what happens when no attempts are left"),
        FieldSpec("fallback", NAME, "the node that runs instead, if on_error is fallback"),
        FieldSpec("concurrency", COUNT, "how many runs of one process may use it at once"),
        FieldSpec("approval", _record(Approval), "a person approves its output before other nodes use it"),
    ),
    Edge: (
        FieldSpec("sources", ONE_OR_MORE, "the source nodes", key="from"),
        FieldSpec("targets", ONE_OR_MORE, "the target nodes", key="to"),
        FieldSpec("condition", CONDITION, "the edge is taken if this is true", key="when"),
        FieldSpec("default", FLAG, "the edge is taken only if no other edge of the source is"),
        FieldSpec("type", NAME, "the edge is taken if the output of the source has this type"),
    ),
    Retries: (
        FieldSpec("attempts", COUNT, "maximum number of attempts"),
        FieldSpec("initial_delay", DELAY, "seconds before the second attempt"),
        FieldSpec("backoff", _choice(get_args(Backoff)), "how the delay grows"),
        FieldSpec("max_delay", DELAY, "maximum delay in seconds"),
        FieldSpec("errors", NAMES, "class names of the errors to retry; default: every Exception"),
    ),
    Approval: (
        FieldSpec("when", CONDITION, "approval is needed only if this is true; default: always"),
        FieldSpec("message", TEXT, "what the person reads"),
        FieldSpec("timeout", DELAY, "seconds until on_timeout applies"),
        FieldSpec("on_timeout", _choice(get_args(OnTimeout)), "what happens without a response in time"),
    ),
}


def get_defaults(record: type) -> Mapping[str, Any]:
    """Return the default values of a record by attribute; required attributes are left out."""
    values = {field.name: field.default for field in fields(record) if field.default is not MISSING}
    # The class has a default version, but a file must state its format.
    values.pop("version", None)
    return values


# Keys that people write, and the keys that they mean: those of the builder, of `RetryPolicy`, and plain words.
_MEANT: Mapping[type, Mapping[str, str]] = {
    Definition: {"agents": "nodes", "steps": "nodes", "routes": "edges", "version": "format", "id": "name"},
    Node: {
        "name": "id",
        "input": "input_key",
        "template": "input_template",
        "prompt": "instructions",
        "context": "context_keys",
        "type": "output_types",
        "model": "config",
        "default": "default_target",
        "retries": "retry",
        "attempts": "retry",
    },
    Edge: {
        **dict.fromkeys(("source", "sources"), "from"),
        **dict.fromkeys(("target", "targets"), "to"),
        **dict.fromkeys(("if", "condition"), "when"),
        "otherwise": "default",
    },
    Retries: {
        **dict.fromkeys(("max_attempts", "retries"), "attempts"),
        **dict.fromkeys(("delay", "initial_interval"), "initial_delay"),
        "max_interval": "max_delay",
        "retry_on": "errors",
    },
    Approval: {"if": "when", "condition": "when", "question": "message", "deadline": "timeout"},
}


def explain_unknown_key(of: type, key: str, value: Any) -> str | None:
    """Return what somebody means who writes this key in a record; None if nobody knows."""
    if of is Node and key == "output":
        if value in get_args(OutputMode):
            return f"write `output_mode: {value}`"
        if types := [value] if _is_name(value) else value if _are_names(value) and value else None:
            mode = "structured" if len(types) == 1 else "union"
            return f"write `output_types: [{', '.join(types)}]` and `output_mode: {mode}`"
        return "did you mean `output_types` or `output_mode`?"
    meant = _MEANT.get(of, {}).get(key)
    return None if meant is None else f"did you mean `{meant}`?"
