"""Read and write YAML as a more convenient notation for JSON. The only module that uses PyYAML.

Unquoted words mean what they mean in JSON, and everything else is a string: `no` and `12:30` are
strings. Only the events of the parser are used, so tags never construct objects; aliases are
rejected, so a small file cannot expand into a large one.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from stepwell.declarative.files.source_lines import (
    MAX_DEPTH,
    TOO_DEEP,
    Marked,
    Problems,
    TooDeep,
    mark_scalar,
    reject_long_text,
)
from stepwell.errors import DefinitionError

MAX_LENGTH = 2**18  # characters; longer documents are rejected without parsing, because the parser is slow

_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(?P<broken>\.[0-9]+)?(?P<scaled>[eE][-+]?[0-9]+)?", re.ASCII)
# Characters that PyYAML writes as line breaks or drops; they survive only as escapes in quotes.
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")
_TAG = "tag:yaml.org,2002:"


def read(text: str, problems: Problems) -> Marked | None:
    """Parse the text; return None after adding a problem if it is not YAML."""
    if reject_long_text(text, MAX_LENGTH, problems):
        return None
    yaml = _import_yaml()
    try:
        return _YamlParser(yaml, problems).read(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        problems.add(mark.line + 1, f"not YAML: {problem} (column {mark.column + 1})")
    except yaml.reader.ReaderError as error:
        problems.add(text.count("\n", 0, error.position) + 1, f"not YAML: {error.reason}: {chr(error.character)!a}")
    except TooDeep as error:
        problems.add(error.args[0], TOO_DEEP)
    return None


def write(data: Any) -> str:
    """Write data as YAML."""
    yaml = _import_yaml()
    # A class of its own, because representers and resolvers are registered on the class. PyYAML
    # knows fewer number formats than JSON: without the resolver, the string "1e5" would not be
    # quoted.
    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda self, value: True})
    dumper.add_representer(str, _represent_text)
    dumper.add_implicit_resolver(_TAG + "float", re.compile(f"^(?:{_NUMBER.pattern})$", re.ASCII), list("-0123456789"))
    return str(yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110))


def _represent_text(dumper: Any, text: str) -> Any:
    """Write several lines as a block, and strings with unusual line breaks in double quotes."""
    style = '"' if _OTHER_BREAKS.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar(_TAG + "str", text, style=style)


def _import_yaml() -> ModuleType:
    try:
        # An optional dependency: a program that only uses JSON does not need it.
        import yaml  # type: ignore[import-untyped]  # lazy: it may not be installed
    except ImportError as missing:
        raise DefinitionError(
            "YAML definitions need the package `PyYAML`: pip install stepwell[declarative]; JSON needs no package"
        ) from missing
    package: ModuleType = yaml
    return package


class _YamlParser:
    """Builds values with line numbers from the events of the parser."""

    def __init__(self, yaml: ModuleType, problems: Problems) -> None:
        self._yaml, self._problems = yaml, problems

    def read(self, text: str) -> Marked | None:
        self._events = self._yaml.parse(text, Loader=self._yaml.SafeLoader)
        next(self._events)  # start of the stream
        if isinstance(next(self._events), self._yaml.StreamEndEvent):
            self._problems.add(1, "the text is empty")
            return None
        value = self._value(next(self._events), 0)
        next(self._events)  # end of the document
        more = next(self._events)
        if not isinstance(more, self._yaml.StreamEndEvent):
            self._problems.add(more.start_mark.line + 1, "a second document starts here: only one is allowed")
        return value

    def _value(self, event: Any, depth: int) -> Marked:
        line = event.start_mark.line + 1
        if isinstance(event, self._yaml.AliasEvent):
            return self._problems.add_unreadable(
                line, f"*{event.anchor} is an alias, which is not supported: write it out"
            )
        if isinstance(event, self._yaml.ScalarEvent):
            return self._scalar(event, line)
        if depth >= MAX_DEPTH:
            raise TooDeep(line)
        if isinstance(event, self._yaml.SequenceStartEvent):
            return self._check_tag(event, "seq", self._list(line, depth))
        return self._check_tag(event, "map", self._mapping(line, depth))

    def _list(self, line: int, depth: int) -> Marked:
        items = []
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return Marked(items, line)

    def _mapping(self, line: int, depth: int) -> Marked:
        items, lines = dict[str, Marked](), dict[str, int | None]()
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            key_line, key = event.start_mark.line + 1, self._value(event, depth + 1)
            value = self._value(next(self._events), depth + 1)
            if not isinstance(key.value, str):
                if not key.is_unreadable():
                    self._problems.add(key_line, f"the key {key.plain()!r} is not a string: put it in quotes")
            elif key.value in items:
                problem = f"duplicate key {key.value!r}, first on line {lines[key.value]}"
                self._problems.add(key_line, problem)
            else:
                items[key.value], lines[key.value] = value, key_line
        return Marked(items, line, lines)

    def _scalar(self, event: Any, line: int) -> Marked:
        text = event.value
        tag = None if event.tag in (None, "!") else event.tag
        # Quoted, or tagged as a string: taken as it is.
        if tag == _TAG + "str" or (tag is None and not event.implicit[0]):
            return mark_scalar(text, line, self._problems)
        try:
            value = _parse_plain(text)
        except ValueError:
            return self._problems.add_unreadable(line, f"the number {text[:20]}... has too many digits")
        # A tag such as !!int must agree with what the value is; it never converts.
        kinds: dict[str, type | tuple[type, ...]] = {"bool": bool, "int": int, "float": float, "null": type(None)}
        kind = kinds.get(str(tag).removeprefix(_TAG), ()) if tag is not None else object
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            return self._refuse_tag(event, line)
        return mark_scalar(value, line, self._problems)

    def _check_tag(self, event: Any, kind: str, value: Marked) -> Marked:
        if event.tag in (None, "!", _TAG + kind):
            return value
        return self._refuse_tag(event, value.line)

    def _refuse_tag(self, event: Any, line: int | None) -> Marked:
        return self._problems.add_unreadable(line, f"the tag {event.tag!r} is not supported here: only plain data is")


def _parse_plain(text: str) -> Any:
    """Parse an unquoted word: a constant, a number, or else a string."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    number = _NUMBER.fullmatch(text)
    if number is None:
        return text
    return float(text) if number["broken"] or number["scaled"] else int(text)
