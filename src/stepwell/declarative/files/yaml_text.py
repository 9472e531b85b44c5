"""Read and write YAML as a more convenient notation for JSON. The only module that uses PyYAML.

Unquoted words mean what they mean in JSON, and everything else is a string: `no` and `12:30` are
strings. Only the events of the parser are used, so tags never construct objects; aliases are
rejected, so a small file cannot expand into a large one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from stepwell.declarative.files.source_lines import LineTree, Problems, Token, build, decode
from stepwell.errors import DefinitionError

MAX_LENGTH = 2**18  # characters; longer documents are rejected without parsing, because the parser is slow

_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", re.ASCII)
# Characters that PyYAML writes as line breaks or drops; they survive only as escapes in quotes.
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")
_TAG = "tag:yaml.org,2002:"


def read(source: str | bytes, problems: Problems) -> tuple[Any, LineTree]:
    """Parse the text. Raises StopReading after adding a problem if it is not YAML."""
    text = decode(source, MAX_LENGTH, problems)
    yaml = _import_yaml()
    try:
        return build(_tokenize(yaml, text, problems), problems)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        problems.stop(mark.line + 1, f"not YAML: {problem} (column {mark.column + 1})")
    except yaml.reader.ReaderError as error:
        problems.stop(text.count("\n", 0, error.position) + 1, f"not YAML: {error.reason}: {chr(error.character)!a}")


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


def _import_yaml() -> Any:
    try:
        # An optional dependency: a program that only uses JSON does not need it.
        import yaml  # type: ignore[import-untyped]  # lazy: it may not be installed
    except ImportError as missing:
        raise DefinitionError(
            "YAML definitions need the package `PyYAML`: pip install stepwell[declarative]; JSON needs no package"
        ) from missing
    return yaml


def _tokenize(yaml: Any, text: str, problems: Problems) -> Iterator[Token]:
    documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    problems.add(line, "a second document starts here: only one is allowed")
                    return  # the first one is still read, so that all of its problems are reported
            case yaml.AliasEvent():
                flaw = f"*{event.anchor} is an alias, which is not supported: write it out"
                yield Token("scalar", line, flaw=flaw)
            case yaml.ScalarEvent():
                yield _read_scalar(event, line)
            case yaml.SequenceStartEvent():
                yield Token("list", line, flaw=_find_tag_flaw(event, "seq"))
            case yaml.MappingStartEvent():
                yield Token("mapping", line, flaw=_find_tag_flaw(event, "map"))
            case yaml.CollectionEndEvent():
                yield Token("end", line)


def _read_scalar(event: Any, line: int) -> Token:
    tag = None if event.tag in (None, "!") else event.tag
    # Quoted, or tagged as a string: taken as it is.
    if tag == _TAG + "str" or (tag is None and not event.implicit[0]):
        return Token("scalar", line, event.value)
    try:
        value = _parse_plain(event.value)
    except ValueError:
        return Token("scalar", line, flaw=f"the number {event.value[:20]}... has too many digits")
    # A tag such as !!int must agree with what the value is; it never converts.
    names = {bool: "bool", int: "int", float: "float", type(None): "null"}
    return Token("scalar", line, value, _find_tag_flaw(event, names.get(type(value), "str")))


def _find_tag_flaw(event: Any, kind: str) -> str:
    if event.tag in (None, "!", _TAG + kind):
        return ""
    return f"the tag {event.tag!r} is not supported here: only plain data is"


def _parse_plain(text: str) -> Any:
    """Parse an unquoted word: a constant, a number, or else a string."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    return json.loads(text) if _NUMBER.fullmatch(text) else text
