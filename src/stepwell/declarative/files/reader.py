"""A definition from data, JSON or YAML: everything that is wrong is said at once, with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from stepwell.declarative.conditions.condition import AllOf, AnyOf, Condition, FieldCondition, Not
from stepwell.declarative.conditions.operators import OPERATORS
from stepwell.declarative.definition import FORMAT, Definition
from stepwell.declarative.files import json_text, yaml_text
from stepwell.declarative.files.fields import (
    FORMS,
    Choice,
    ConditionShape,
    Data,
    Flag,
    Number,
    RecordListShape,
    RecordShape,
    Shape,
    Text,
    Texts,
    defaults,
)
from stepwell.declarative.files.source_lines import Enough, Marked, Problems, Where, decode, mark_data
from stepwell.declarative.validation import find_problems
from stepwell.errors import DefinitionError

SCHEMA_KEY = "$schema"  # by which editors find the schema; it says nothing about the workflow
MOST_OF = {"nodes": 500, "ways from node to node": 2000, "conditions": 2000}
GROUPS: Mapping[str, tuple[str, Callable[[Any], Condition]]] = {
    "all_of": ("conditions", lambda inner: AllOf(tuple(inner))),
    "any_of": ("conditions", lambda inner: AnyOf(tuple(inner))),
    "not": ("condition", Not),
}
"""The kinds of conditions that are made of others: under which key those are, and how it is made."""


def from_data(data: Mapping[str, Any]) -> Definition:
    """The definition that `to_data` gave. Raises DefinitionError with everything that is wrong."""
    return _read_definition("", lambda problems: mark_data(data, problems))


def from_json(text: str | bytes, *, name: str = "") -> Definition:
    """The definition in a JSON text. Raises DefinitionError with every problem; `name` is what it calls the text."""
    return _read_definition(name, lambda problems: json_text.read(decode(text, problems), problems))


def from_yaml(text: str | bytes, *, name: str = "") -> Definition:
    """The definition in a YAML text. Raises DefinitionError with every problem; `name` is what it calls the text.

    Needs the package PyYAML. Unquoted words mean what they mean in JSON: `no` is a text. Nothing in it is ever run.
    """
    return _read_definition(name, lambda problems: yaml_text.read(decode(text, problems), problems))


def _read_definition(name: str, mark: Callable[[Problems], Marked | None]) -> Definition:
    problems, definition = Problems(), None
    try:
        marked = mark(problems)
        definition = None if marked is None else _DefinitionReader(marked, problems).read()
    except Enough:
        pass  # they are all in `problems`
    if problems or definition is None:
        raise DefinitionError(problems.to_sentences(name))
    return definition


class _DefinitionReader:
    """Follows the form. What is wrong is noted, and the default takes its place so that the rest can be looked at."""

    def __init__(self, marked: Marked, problems: Problems) -> None:
        self._marked, self._problems = marked, problems
        self._unread: set[Where] = set()
        self._conditions = 0

    def read(self) -> Definition | None:
        if not isinstance(self._marked.value, dict):
            self._reject((), "is a mapping", self._marked)
            return None
        if self._is_newer(self._marked.value.get("format")):
            return None
        definition: Definition = self._read_record(Definition, self._marked, ())
        self._check_limit("nodes", len(definition.nodes))
        self._check_limit(
            "ways from node to node", sum(len(edge.sources) * len(edge.targets) for edge in definition.edges)
        )
        for where, text in find_problems(definition):
            if not self._is_consequence(where):
                self._problems.add(self._marked.line_at(_in_file_words(where)), text)
        return definition

    def _is_newer(self, format: Marked | None) -> bool:
        """Whether the text is of a format that is not known yet: then nothing else in it is looked at."""
        if format is None or not _fits(format.value, Number(above=FORMAT, whole=True)):
            return False
        self._problems.add(
            self._marked.line_at(("format",)),
            f"the definition has format {format.value}, and this version of Stepwell reads formats up to {FORMAT}: "
            f"update Stepwell",
        )
        return True

    def _check_limit(self, what: str, count: int) -> None:
        """Refuses what would take long to check, and goes no further: a few lines can say millions of ways."""
        if count > MOST_OF[what]:
            self._problems.add(
                None, f"the definition has more than {MOST_OF[what]} {what}, which is more than is taken"
            )
            raise Enough

    def _is_consequence(self, where: Where) -> bool:
        """Whether a problem may only follow from another one: what it is about could not be read."""
        if any(where[: len(unread)] == unread for unread in self._unread):
            return True
        needed = _NEEDS.get(where[-1], frozenset())
        return any((unread[0], unread[2:]) in needed for unread in self._unread if unread)

    def _read_record(self, of: type, marked: Marked, where: Where) -> Any:
        parts = {part.name: part for part in FORMS[of]}
        values = {**_blank_values(of), **defaults(of)}
        for key, inner in marked.value.items():
            if key in parts:
                part = parts[key]
                value = self._read_value(part.shape, inner, (*where, key))
                values[part.attribute] = values[part.attribute] if value is None else value
            elif (key, where) != (SCHEMA_KEY, ()):
                self._report_unknown_key(key, parts, marked, where)
        for part in parts.values():
            if part.attribute not in defaults(of) and part.name not in marked.value:
                self._problems.add(marked.line, f"{_format_path(where)} has no `{part.name}`: {part.description}")
                self._unread.add((*where, part.name))
        return of(**values)

    def _report_unknown_key(self, key: str, parts: Mapping[str, Any], marked: Marked, where: Where) -> None:
        near = get_close_matches(key, parts, 1)
        instead = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(parts)}"
        self._problems.add(marked.lines.get(key), f"{_format_path(where)} has an unknown key {key!r}: {instead}")

    def _read_value(self, shape: Shape, marked: Marked, where: Where) -> Any:
        """The value, or None if it is not of that shape, which has been said."""
        value = marked.value
        match shape:
            case Text(filled=filled):
                if isinstance(value, str) and (value or not filled):
                    return value
                return self._reject(where, "is a text that is not empty" if filled else "is a text", marked)
            case Texts(alone=alone):
                return self._read_texts(alone, marked, where)
            case Number():
                number = int(value) if shape.whole and isinstance(value, float) and value.is_integer() else value
                return number if _fits(number, shape) else self._reject(where, _describe_bounds(shape), marked)
            case Flag():
                return value if isinstance(value, bool) else self._reject(where, "is true or false", marked)
            case Choice(words=words, convert=convert):
                if isinstance(value, str) and value in words:
                    return convert(value)
                return self._reject(where, f"is one of {', '.join(words)}", marked)
            case Data():
                if isinstance(value, dict):
                    return None if marked.is_unreadable() else marked.plain()
                return self._reject(where, "is a mapping", marked)
            case ConditionShape():
                return self._read_condition(marked, where)
            case RecordShape(of=of):
                return self._read_record(of, marked, where) if self._is_mapping(marked, where) else None
            case RecordListShape(of=of):
                return tuple(self._read_records(of, marked, where))

    def _read_texts(self, alone: bool, marked: Marked, where: Where) -> tuple[str, ...] | None:
        value = marked.value
        if alone and isinstance(value, str) and value:
            return (value,)
        items = value if isinstance(value, list) else ()
        if items and all(isinstance(item.value, str) and item.value for item in items):
            return tuple(item.value for item in items)
        if isinstance(value, list) and not value and not alone:
            return ()
        wanted = "is a name, or a list of at least one" if alone else "is a list of names"
        return self._reject(where, wanted, marked)  # type: ignore[no-any-return]

    def _read_records(self, of: type, marked: Marked, where: Where) -> Iterator[Any]:
        if not isinstance(marked.value, list):
            self._reject(where, "is a list of mappings", marked)
            return
        for number, item in enumerate(marked.value):
            whole = self._is_mapping(item, (*where, number))
            yield self._read_record(of, item, (*where, number)) if whole else of(**_blank_values(of))

    def _is_mapping(self, marked: Marked, where: Where) -> bool:
        if not isinstance(marked.value, dict):
            self._reject(where, "is a mapping", marked)
        return isinstance(marked.value, dict)

    def _read_condition(self, marked: Marked, where: Where) -> Condition | None:
        if not self._is_mapping(marked, where):
            return None
        self._conditions += 1
        self._check_limit("conditions", self._conditions)
        kind = marked.value.get("kind", Marked(None)).value
        if not isinstance(kind, str) or (kind not in OPERATORS and kind not in GROUPS):
            near = get_close_matches(kind, [*OPERATORS, *GROUPS], 1) if isinstance(kind, str) else []
            instead = f"did you mean `{near[0]}`?" if near else f"there are {', '.join([*OPERATORS, *GROUPS])}"
            what = "has no `kind`" if kind is None else f"is of an unknown kind {kind!r}"
            self._report((*where, "kind"), f"{_format_path(where)}, a condition, {what}: {instead}")
            return None
        return (
            self._read_group(kind, marked, where) if kind in GROUPS else self._read_field_condition(kind, marked, where)
        )

    def _read_group(self, kind: str, marked: Marked, where: Where) -> Condition | None:
        key, make = GROUPS[kind]
        inner = self._read_keys(marked, ("kind", key), where)
        if inner is None:
            return None
        if key == "condition":
            condition = self._read_condition(inner[key], (*where, key))
            return None if condition is None else make(condition)
        items = inner[key].value
        if not isinstance(items, list) or not items:
            return self._reject((*where, key), "is a list of at least one condition", inner[key])  # type: ignore[no-any-return]
        conditions = [self._read_condition(item, (*where, key, number)) for number, item in enumerate(items)]
        return None if None in conditions else make(conditions)

    def _read_field_condition(self, kind: str, marked: Marked, where: Where) -> Condition | None:
        keys = ("kind", "field") if OPERATORS[kind].takes == "nothing" else ("kind", "field", "value")
        inner = self._read_keys(marked, keys, where)
        if inner is None or marked.is_unreadable():
            return None
        try:
            return FieldCondition(kind, inner["field"].plain(), inner["value"].plain() if "value" in inner else None)
        except DefinitionError as error:
            for problem in error.problems:
                self._report(where, problem)
            return None

    def _read_keys(self, marked: Marked, keys: tuple[str, ...], where: Where) -> Mapping[str, Marked] | None:
        """What is under these keys, if they are the ones there are."""
        parts = dict.fromkeys(keys)
        for key in (key for key in marked.value if key not in parts):
            self._report_unknown_key(key, parts, marked, where)
        for key in (key for key in keys if key not in marked.value):
            self._report(where, f"{_format_path(where)}, a condition, has no `{key}`")
        return marked.value if marked.value.keys() == parts.keys() else None

    def _reject(self, where: Where, what: str, marked: Marked) -> Any:
        if marked.is_unreadable():  # that has been said
            self._unread.add(where)
            return None
        self._report(where, f"{_format_path(where)} {what}, not {_describe(marked)}")
        return None

    def _report(self, where: Where, text: str) -> None:
        self._unread.add(where)
        self._problems.add(self._marked.line_at(where), text)


_IDS = frozenset({("nodes", ()), ("nodes", ("id",))})
_WAYS = _IDS | {("edges", ()), ("edges", ("from",)), ("edges", ("to",))}
_NEEDS: Mapping[str | int, frozenset[Any]] = {
    "from": _IDS,
    "to": _IDS,
    "type": _IDS | {("nodes", ("output_types",))},
    "fallback": _WAYS,
    "default_target": _WAYS,
    "output_mode": _WAYS,
}
"""What must have been read before a problem of this part can be trusted."""


def _blank_values(of: type) -> dict[str, Any]:
    """Something for each attribute that has no default, until it is read."""
    blanks: Mapping[type[Shape], Any] = {Text: "", Texts: (), Number: FORMAT, RecordListShape: ()}
    return {part.attribute: blanks[type(part.shape)] for part in FORMS[of] if part.attribute not in defaults(of)}


def _fits(value: Any, number: Number) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if number.whole else int | float):
        return False
    return (number.above is None or value > number.above) and (number.least is None or value >= number.least)


def _describe_bounds(number: Number) -> str:
    kind = "is a whole number" if number.whole else "is a number"
    if number.above is not None:
        return f"{kind} above {number.above:g}"
    return kind if number.least is None else f"{kind}, at least {number.least:g}"


def _in_file_words(where: Where) -> Where:
    """The same in the words of a file."""
    return (*where[:2], "when") if where[:1] == ("edges",) and where[2:] == ("condition",) else where


def _format_path(where: Where) -> str:
    """`nodes[2].retry`; the whole is the definition."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)
    return f"`{path.removeprefix('.')}`" if path else "the definition"


def _describe(marked: Marked) -> str:
    if isinstance(marked.value, dict):
        return "a mapping"
    if isinstance(marked.value, list):
        return "a list" if marked.value else "an empty list"
    text = json_text.write(marked.value).strip()
    return text if len(text) <= 60 else f"{text[:60]}..."
