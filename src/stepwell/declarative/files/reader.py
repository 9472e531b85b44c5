"""Read a definition from data, JSON or YAML, and report every problem at once, with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from stepwell.declarative.conditions.condition import AllOf, AnyOf, Condition, FieldCondition, Not
from stepwell.declarative.conditions.operators import OPERATORS
from stepwell.declarative.definition import FORMAT, Definition
from stepwell.declarative.files import json_text, yaml_text
from stepwell.declarative.files.fields import (
    COUNT,
    FIELDS,
    ConditionShape,
    RecordListShape,
    RecordShape,
    Shape,
    SimpleShape,
    get_defaults,
)
from stepwell.declarative.files.source_lines import (
    LineTree,
    Problems,
    StopReading,
    Where,
    build,
    is_unreadable,
    tokenize_data,
)
from stepwell.declarative.validation import find_problems
from stepwell.errors import DefinitionError

SCHEMA_KEY = "$schema"  # editors find the schema by it; the reader ignores it
# A few lines of YAML can name millions of routes. These limits bound the time of all later checks.
LIMITS: Mapping[str, int] = {"nodes": 500, "routes": 2000, "conditions": 2000}
GROUPS: Mapping[str, tuple[str, Callable[[Any], Condition]]] = {
    "all_of": ("conditions", lambda inner: AllOf(tuple(inner))),
    "any_of": ("conditions", lambda inner: AnyOf(tuple(inner))),
    "not": ("condition", Not),
}
"""The kinds of conditions that contain others: the key of those, and the constructor."""


def from_data(data: Mapping[str, Any]) -> Definition:
    """Read a definition as written by `to_data`. Raises DefinitionError with every problem."""
    return _read_definition("", lambda problems: build(tokenize_data(data), problems))


def from_json(text: str | bytes, *, name: str = "") -> Definition:
    """Read a definition from JSON. Raises DefinitionError with every problem and its line.

    `name` is the name of the file, for the messages.
    """
    return _read_definition(name, lambda problems: json_text.read(text, problems))


def from_yaml(text: str | bytes, *, name: str = "") -> Definition:
    """Read a definition from YAML. Raises DefinitionError with every problem and its line.

    `name` is the name of the file, for the messages. Needs the package PyYAML. Unquoted words mean
    what they mean in JSON: `no` is a string. Nothing in the file is executed.
    """
    return _read_definition(name, lambda problems: yaml_text.read(text, problems))


def _read_definition(name: str, parse: Callable[[Problems], tuple[Any, LineTree]]) -> Definition:
    problems, definition = Problems(), None
    with suppress(StopReading):  # what stopped the reading is in `problems`
        definition = _DefinitionReader(*parse(problems), problems).read()
    if problems or definition is None:
        raise DefinitionError(problems.to_sentences(name))
    return definition


class _DefinitionReader:
    """Reads the records of a definition.

    A value that is wrong is reported and replaced by its default, so that the rest can be checked.
    """

    def __init__(self, data: Any, lines: LineTree, problems: Problems) -> None:
        self._data, self._lines, self._problems = data, lines, problems
        # Paths of the values that could not be read: problems that follow from them are not
        # reported.
        self._unread: set[Where] = set()
        self._conditions = 0

    def read(self) -> Definition | None:
        """Read the definition; None if there is nothing to read. Adds every problem."""
        if not self._is_mapping(self._data, ()) or self._reject_newer_format(self._data.get("format")):
            return None
        definition: Definition = self._read_record(Definition, self._data, ())
        self._check_limit("nodes", len(definition.nodes))
        self._check_limit("routes", sum(len(edge.sources) * len(edge.targets) for edge in definition.edges))
        for where, text in find_problems(definition):
            if not self._is_consequence(where):
                self._problems.add(self._lines.find(_to_file_path(where)), text)
        return definition

    def _reject_newer_format(self, format: Any) -> bool:
        """Add a problem if the format is newer than this version; return whether it is.

        Nothing else in such a document is read: it may mean anything.
        """
        newer = COUNT.accepts(format) and format > FORMAT
        if newer:
            self._report(
                ("format",),
                f"the definition has format {format}, but this version of Stepwell reads formats up to {FORMAT}: "
                f"upgrade Stepwell",
            )
        return newer

    def _check_limit(self, what: str, count: int) -> None:
        """Stop reading if there are more of these than the limit allows."""
        if count > LIMITS[what]:
            self._problems.stop(None, f"the definition has more than {LIMITS[what]} {what}")

    def _is_consequence(self, where: Where) -> bool:
        """Whether a problem may only follow from another: something it needs could not be read."""
        if any(where[: len(unread)] == unread for unread in self._unread):
            return True
        needed = _DEPENDS_ON.get(where[-1], frozenset())
        return any((unread[0], unread[2:]) in needed for unread in self._unread if unread)

    def _read_record(self, of: type, data: dict[str, Any], where: Where) -> Any:
        """Read a mapping into a record, and report unknown and missing keys."""
        specs = {spec.name: spec for spec in FIELDS[of]}
        values = {**_blank_values(of), **get_defaults(of)}
        for key, inner in data.items():
            if key in specs:
                spec = specs[key]
                value = self._read_value(spec.shape, inner, (*where, key))
                values[spec.attribute] = values[spec.attribute] if value is None else value
            elif (key, where) != (SCHEMA_KEY, ()):
                self._report_unknown_key(key, specs, where)
        for spec in specs.values():
            if spec.attribute not in get_defaults(of) and spec.name not in data:
                self._report((*where, spec.name), f"{_format_path(where)} has no `{spec.name}`: {spec.description}")
        return of(**values)

    def _report_unknown_key(self, key: str, known_keys: Mapping[str, Any], where: Where) -> None:
        instead = _suggest(key, known_keys)
        self._report((*where, key), f"{_format_path(where)} has an unknown key {key!r}: {instead}")

    def _read_value(self, shape: Shape, value: Any, where: Where) -> Any:
        """Read a value of that shape; None if it has another, after adding a problem."""
        match shape:
            case SimpleShape():
                readable = shape.accepts(value) and not is_unreadable(value)
                return shape.convert(value) if readable else self._reject(where, shape.words, value)
            case ConditionShape():
                return self._read_condition(value, where)
            case RecordShape(of=of):
                return self._read_record(of, value, where) if self._is_mapping(value, where) else None
            case RecordListShape(of=of):
                return tuple(self._read_records(of, value, where))

    def _read_records(self, of: type, items: Any, where: Where) -> Iterator[Any]:
        if not isinstance(items, list):
            self._reject(where, "a list of mappings", items)
            return
        for number, item in enumerate(items):
            # A blank record keeps the numbers of those after it, which problems refer to.
            readable = self._is_mapping(item, (*where, number))
            yield self._read_record(of, item, (*where, number)) if readable else of(**_blank_values(of))

    def _is_mapping(self, value: Any, where: Where) -> bool:
        if not isinstance(value, dict):
            self._reject(where, "a mapping", value)
        return isinstance(value, dict)

    def _read_condition(self, data: Any, where: Where) -> Condition | None:
        if not self._is_mapping(data, where):
            return None
        self._conditions += 1
        self._check_limit("conditions", self._conditions)
        kind = data.get("kind")
        if is_unreadable(kind):
            return self._reject((*where, "kind"), "a kind of condition", kind)  # type: ignore[no-any-return]
        if not isinstance(kind, str) or (kind not in OPERATORS and kind not in GROUPS):
            what = "has no `kind`" if kind is None else f"has the unknown kind {kind!r}"
            instead = _suggest(kind, [*OPERATORS, *GROUPS])
            self._report((*where, "kind"), f"the condition {_format_path(where)} {what}: {instead}")
            return None
        return self._read_group(kind, data, where) if kind in GROUPS else self._read_field_condition(kind, data, where)

    def _read_group(self, kind: str, data: dict[str, Any], where: Where) -> Condition | None:
        key, make = GROUPS[kind]
        if not self._has_keys(data, ("kind", key), where):
            return None
        if key == "condition":
            condition = self._read_condition(data[key], (*where, key))
            return None if condition is None else make(condition)
        items = data[key]
        if not isinstance(items, list) or not items:
            return self._reject((*where, key), "a non-empty list of conditions", items)  # type: ignore[no-any-return]
        conditions = [self._read_condition(item, (*where, key, number)) for number, item in enumerate(items)]
        return None if None in conditions else make(conditions)

    def _read_field_condition(self, kind: str, data: dict[str, Any], where: Where) -> Condition | None:
        keys = ("kind", "field") if OPERATORS[kind].operand == "nothing" else ("kind", "field", "value")
        if not self._has_keys(data, keys, where) or is_unreadable(data):
            return None
        try:
            return FieldCondition(kind, data["field"], data.get("value"))
        except DefinitionError as error:
            for problem in error.problems:
                self._report(where, problem)
            return None

    def _has_keys(self, data: dict[str, Any], keys: tuple[str, ...], where: Where) -> bool:
        """Return whether a condition has exactly these keys, after adding problems if not."""
        for key in (key for key in data if key not in keys):
            self._report_unknown_key(key, dict.fromkeys(keys), where)
        for key in (key for key in keys if key not in data):
            self._report(where, f"the condition {_format_path(where)} has no `{key}`")
        return data.keys() == set(keys)

    def _reject(self, where: Where, expected: str, value: Any) -> Any:
        """Report that a value is not what was expected, and return None."""
        self._unread.add(where)
        # The reason why it is unreadable has been reported.
        if not is_unreadable(value):
            self._report(where, f"{_format_path(where)} must be {expected}, not {_describe(value)}")

    def _report(self, where: Where, text: str) -> None:
        self._unread.add(where)
        self._problems.add(self._lines.find(where), text)


_IDS = frozenset({("nodes", ()), ("nodes", ("id",))})
_ROUTE_PARTS = _IDS | {("edges", ()), ("edges", ("from",)), ("edges", ("to",))}
# The keys of a file that a check of `validation` depends on, by the part that it reports.
_DEPENDS_ON: Mapping[str | int, frozenset[Any]] = {
    "from": _IDS,
    "to": _IDS,
    "type": _IDS | {("nodes", ("output_types",))},
    "fallback": _ROUTE_PARTS,
    "default_target": _ROUTE_PARTS,
    "output_mode": _ROUTE_PARTS,
}


def _blank_values(of: type) -> dict[str, Any]:
    """Return a placeholder for each required attribute, until it is read."""
    required = [spec for spec in FIELDS[of] if spec.attribute not in get_defaults(of)]
    return {spec.attribute: spec.shape.blank if isinstance(spec.shape, SimpleShape) else () for spec in required}


def _to_file_path(where: Where) -> Where:
    """Translate a path of `validation` into the keys of a file."""
    return (*where[:2], "when") if where[:1] == ("edges",) and where[2:] == ("condition",) else where


def _format_path(where: Where) -> str:
    """Format a path as `nodes[2].retry`; the root is "the definition"."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)
    return f"`{path.removeprefix('.')}`" if path else "the definition"


def _suggest(name: Any, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, 1) if isinstance(name, str) else []
    return f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = json_text.write(value).strip()
    return text if len(text) <= 60 else f"{text[:60]}..."
