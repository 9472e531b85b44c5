"""Read a definition from data, JSON or YAML, and report every problem at once, with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from stepwell.declarative.conditions.condition import Condition, ConditionGroup, FieldCondition
from stepwell.declarative.conditions.operators import OPERATORS, shorten
from stepwell.declarative.definition import FORMAT, Definition
from stepwell.declarative.files import json_text, yaml_text
from stepwell.declarative.files.fields import CONDITION, COUNT, FIELDS, FieldShape, explain_unknown_key, get_defaults
from stepwell.declarative.files.source_lines import (
    LineTree,
    Problems,
    StopReading,
    build,
    is_unreadable,
    tokenize_data,
)
from stepwell.declarative.validation import Where, find_problems
from stepwell.errors import DefinitionError

SCHEMA_KEY = "$schema"  # editors find the schema by it; the reader ignores it
# A few lines of YAML can name millions of routes. These limits bound the time of all later checks.
LIMITS: Mapping[str, int] = {"nodes": 500, "routes": 2000, "conditions": 2000}
GROUPS: Mapping[str, str] = {"all_of": "conditions", "any_of": "conditions", "not": "condition"}
"""The kinds of conditions that contain others, and the key of those."""


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
        if not self._is_mapping(self._data, ()):
            return None
        format = self._data.get("format")
        if COUNT.accepts(format) and format > FORMAT:
            # Nothing else in such a document is read: it may mean anything.
            self._report(
                ("format",),
                f"the definition has format {format}, but this version of Stepwell reads formats up to {FORMAT}: "
                f"upgrade Stepwell",
            )
            return None
        definition: Definition = self._read_record(Definition, self._data, ())
        self._check_limit("nodes", len(definition.nodes))
        self._check_limit("routes", sum(len(edge.sources) * len(edge.targets) for edge in definition.edges))
        for where, text in find_problems(definition):
            if not self._is_consequence(where):
                # `validation` names the attribute, which has another key in a file.
                path = (*where[:2], "when") if where[:1] == ("edges",) and where[2:] == ("condition",) else where
                self._problems.add(self._lines.find(path), text)
        return definition

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
        values, defaults = _blank_values(of), get_defaults(of)
        for key, inner in data.items():
            if key in specs:
                value = self._read_value(specs[key].shape, inner, (*where, key))
                if value is not None:
                    values[specs[key].attribute] = value
            elif (key, where) != (SCHEMA_KEY, ()):
                hint = None if is_unreadable(inner) else explain_unknown_key(of, key, inner)
                self._report_unknown_key(key, specs, where, hint)
        for spec in specs.values():
            if spec.attribute not in defaults and spec.name not in data:
                self._report((*where, spec.name), f"{_format_path(where)} has no `{spec.name}`: {spec.description}")
        return of(**values)

    def _report_unknown_key(self, key: str, known: Iterable[str], where: Where, hint: str | None = None) -> None:
        self._report((*where, key), f"{_format_path(where)} has an unknown key {key!r}: {hint or _suggest(key, known)}")

    def _read_value(self, shape: FieldShape, value: Any, where: Where) -> Any:
        """Read a value of that shape; None if it has another, after adding a problem."""
        if not shape.accepts(value) or (shape.of is None and is_unreadable(value)):
            return self._reject(where, shape.words, value)
        if shape.of is None:
            return shape.convert(value)
        if isinstance(value, list):
            return tuple(self._read_item(shape.of, item, (*where, number)) for number, item in enumerate(value))
        return self._read_condition(value, where) if shape is CONDITION else self._read_record(shape.of, value, where)

    def _read_item(self, of: type, item: Any, where: Where) -> Any:
        # A blank record keeps the numbers of those after it, which problems refer to.
        return self._read_record(of, item, where) if self._is_mapping(item, where) else of(**_blank_values(of))

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
        takes_value = kind in OPERATORS and OPERATORS[kind].operand != "nothing"
        keys = (GROUPS[kind],) if kind in GROUPS else ("field", "value") if takes_value else ("field",)
        if not self._has_keys(data, ("kind", *keys), where):
            return None
        if kind in GROUPS:
            return self._read_group(kind, data[GROUPS[kind]], (*where, GROUPS[kind]))
        try:
            return None if is_unreadable(data) else FieldCondition(kind, data["field"], data.get("value"))
        except DefinitionError as error:
            for problem in error.problems:
                self._report(where, problem)
            return None

    def _read_group(self, kind: Any, data: Any, where: Where) -> Condition | None:
        if kind == "not":
            conditions = [self._read_condition(data, where)]
        elif isinstance(data, list) and data:
            conditions = [self._read_condition(item, (*where, number)) for number, item in enumerate(data)]
        else:
            return self._reject(where, "a non-empty list of conditions", data)  # type: ignore[no-any-return]
        readable = tuple(condition for condition in conditions if condition is not None)
        return ConditionGroup(kind, readable) if len(readable) == len(conditions) else None

    def _has_keys(self, data: dict[str, Any], keys: tuple[str, ...], where: Where) -> bool:
        """Return whether a condition has exactly these keys, after adding problems if not."""
        for key in (key for key in data if key not in keys):
            self._report_unknown_key(key, keys, where)
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
    """Return the attributes of a record of which nothing was read: defaults, and placeholders for required ones."""
    return {spec.attribute: spec.shape.blank for spec in FIELDS[of]} | dict(get_defaults(of))


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
    return shorten(json_text.write(value).strip(), 60)
