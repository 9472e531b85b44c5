"""What people read of stored values: as lines of text, on one line, or as plain JSON data. Pure.

A stored value is a JSON tree in which everything that JSON cannot express is an object with a tag:
`{"$": "shop:Order", "v": {"id": 7}}`. Nobody should have to read that. `open_value` takes one level
of it apart, and is what every view of a value is made from, whatever it is drawn with. No class of
the program is needed. A tag that is not understood, in damaged data for example, is shown as it is.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from stepwell.model.visible_text import visible
from stepwell.viz.durations import format_seconds

TEXT, ITEMS = 200, 20  # longer strings and lists are cut
CUT = re.compile(r"\.\.\. (\(\d+ characters\)|\(shortened\)|and \d+ more)")  # stands where something was cut
BLOCK = 1000  # characters of a text of several lines

_OURS = "stepwell:"
_MESSAGE = f"{_OURS}Message"
# The part of a value of ours that people mean by it.
_MAIN_PARTS = {
    f"{_OURS}NodeOutcome": "output",
    f"{_OURS}NodeDone": "outputs",
    f"{_OURS}AgentExecutorResponse": "agent_response",
    f"{_OURS}AgentExecutorRequest": "messages",
}
_SEQUENCES = frozenset({"tuple", "set", "frozenset", "deque"})
_MAPPINGS = frozenset({"dict", "OrderedDict", "Counter", "defaultdict"})
_HIDDEN_FIELDS = ("parameters", "response_schema")  # JSON schemas of tools and forms, for programs


@dataclass(frozen=True, slots=True)
class Opened:
    """One level of a stored value.

    `content` is a JSON atom, a list, or a dict; the parts of the last two are stored values.
    """

    content: Any
    class_name: str = ""  # of a user's class or one of ours, without its module


def open_value(stored: Any) -> Opened:
    """Take one level of a stored value apart."""
    if not isinstance(stored, dict) or not isinstance(tag := stored.get("$"), str):
        return Opened(stored)
    value = stored.get("v")
    if ":" in tag:
        return Opened(_content_of_class(stored), tag.rpartition(":")[2])
    if tag in _SEQUENCES and isinstance(value, list):
        return Opened(value)
    if tag in _MAPPINGS and isinstance(value, list):
        return Opened(_open_pairs(value))
    try:
        return Opened(_STANDARD[tag](stored))
    except (KeyError, TypeError, ValueError, OverflowError):
        return Opened(stored)


def to_data(stored: Any) -> Any:
    """Return a stored value as plain JSON data: fields of a class as an object, a set as a list, bytes in base64."""
    if _is_binary(stored):
        return stored["v"]
    content = open_value(stored).content
    if isinstance(content, dict):
        return {name: to_data(part) for name, part in content.items()}
    return [to_data(part) for part in content] if isinstance(content, list) else content


def main_part(stored: Any) -> Any:
    """Return what people mean by a stored output or message: of an agent's response, its text."""
    tag = stored.get("$") if isinstance(stored, dict) else None
    fields = open_value(stored).content
    if not isinstance(tag, str) or not isinstance(fields, dict):
        return stored
    if tag in _MAIN_PARTS and fields.get("outcome", "succeeded") == "succeeded":
        return main_part(fields.get(_MAIN_PARTS[tag]))
    if tag == f"{_OURS}AgentResponse":
        messages = open_value(fields.get("messages")).content
        texts = [main_part(message) for message in messages] if isinstance(messages, list) else []
        joined = "\n".join(text for text in texts if isinstance(text, str) and text)
        return joined if joined or fields.get("value") is None else fields["value"]
    if tag == _MESSAGE and fields.get("text") and fields.get("data") is None:
        return fields["text"]
    return stored


def is_message(stored: Any) -> bool:
    """Return whether a stored value is a message of a conversation."""
    return isinstance(stored, dict) and stored.get("$") == _MESSAGE and isinstance(stored.get("v"), dict)


def to_line(stored: Any, *, longest: int | None = TEXT) -> str:
    """Format a stored value on one line: strings as they are, everything else as JSON, without tags.

    Longer ones are cut, and floats rounded to 6 places; `longest=None` leaves everything as it is.
    """
    content = open_value(main_part(stored)).content
    # An empty text is shown as "", which can be seen.
    if isinstance(content, str) and content:
        if longest is None or len(content) <= longest:
            return visible(content)
        return f"{visible(content[:longest])}... ({len(content)} characters)"
    text = ""
    # Piece by piece: of a large value only the beginning is encoded.
    for piece in _json_pieces(main_part(stored), is_exact=longest is None):
        text += piece
        if longest is not None and len(text) > longest:
            return f"{visible(text[:longest])}... (shortened)"
    return visible(text)


def to_lines(stored: Any, *, full: bool = False, nulls: bool = True) -> Iterator[str]:
    """Yield a stored value as lines, nested values indented, each class beside the name of its value.

    Large values are cut unless `full`. Without `nulls`, members that are null are left out. That is
    always so for fields of our own classes, and for what they hold of another library's reply.
    """
    stored = main_part(stored)
    content = _visible_content(stored, nulls=nulls)
    if (usage := describe_usage(stored)) is not None:
        yield usage
    elif isinstance(content, str) and "\n" in content:
        yield from _format_block(content, full)
    elif not isinstance(content, (dict, list)) or not content:
        yield to_line(content, longest=None if full else TEXT)
    else:
        items = list(content.items()) if isinstance(content, dict) else [("-", item) for item in content]
        for name, item in items if full else items[:ITEMS]:
            is_reply = name == "data" and _is_ours(stored)
            label = name if isinstance(content, list) else f"{visible(name)}:"
            yield from _format_item(label, item, full, nulls and not is_reply)
        if not full and len(items) > ITEMS:
            yield f"... and {len(items) - ITEMS} more"


def _format_item(name: str, stored: Any, full: bool, nulls: bool) -> Iterator[str]:
    # The class of a value stands beside its name: `order: (Order)`.
    kind = open_value(main_part(stored)).class_name
    if (message := _open_message(stored)) is not None:
        speaker, stored = message
        name, kind = f"{name} {visible(speaker)}:", ""
    lines = list(to_lines(stored, full=full, nulls=nulls))
    is_nested = len(lines) > 1 or isinstance(_visible_content(main_part(stored), nulls=nulls) or 0, (dict, list))
    if describe_usage(stored) is not None:
        is_nested, kind = False, ""
    suffix = f" ({visible(kind)})" if kind else ""
    if not is_nested:
        yield f"{name} {lines[0]}{suffix}"
        return
    yield f"{name}{suffix}"
    yield from (f"  {line}" for line in lines)


def describe_tokens(heard: int, said: int) -> str:
    """Return how many tokens a model read and wrote: `66 tokens in, 18 out`; nothing if there are none."""
    return f"{heard:,} token{'' if heard == 1 else 's'} in, {said:,} out" if heard or said else ""


def describe_usage(stored: Any) -> str | None:
    """Return what an agent consumed on one line; None for any other value."""
    if not isinstance(stored, dict) or stored.get("$") != f"{_OURS}Usage" or not isinstance(stored.get("v"), dict):
        return None
    fields = {name: open_value(part).content for name, part in stored["v"].items()}
    number = {name: value for name, value in fields.items() if isinstance(value, (int, float))}
    counts = (("calls", "model call"), ("tool_calls", "tool call"))
    facts = [f"{number[name]} {noun}{'' if number[name] == 1 else 's'}" for name, noun in counts if number.get(name)]
    facts.append(describe_tokens(int(number.get("input_tokens", 0)), int(number.get("output_tokens", 0))))
    facts += [f"cost {_round(float(number['cost']))}"] if number.get("cost") else []
    facts += [format_seconds(number["seconds"])] if number.get("seconds") else []
    return ", ".join(filter(None, facts)) or "nothing"


def _format_block(text: str, full: bool) -> Iterator[str]:
    """Yield a text of several lines, each behind a bar, so that it cannot be taken for names and values."""
    shown = text if full else text[:BLOCK]
    for line in shown.split("\n"):
        yield f"| {visible(line)}".rstrip()
    if len(shown) < len(text):
        yield f"... ({len(text)} characters)"


def _open_message(stored: Any) -> tuple[str, Any] | None:
    """Return who speaks and what, if the value is a message of a conversation."""
    if not is_message(stored):
        return None
    fields = stored["v"]
    author = fields.get("author_name")
    speaker = f"{fields.get('role')} ({author})" if author else f"{fields.get('role')}"
    if fields.get("data") is None:
        return speaker, fields.get("text", "")
    return speaker, {name: fields[name] for name in ("text", "data") if fields.get(name)}


def _visible_content(stored: Any, *, nulls: bool) -> Any:
    content = open_value(stored).content
    if not isinstance(content, dict):
        return content
    if _is_ours(stored):
        return {
            name: part
            for name, part in content.items()
            if name not in _HIDDEN_FIELDS and open_value(part).content not in (None, "", [], {})
        }
    return content if nulls else {name: part for name, part in content.items() if part is not None}


def _is_ours(stored: Any) -> bool:
    return isinstance(stored, dict) and str(stored.get("$")).startswith(_OURS)


def _is_binary(stored: Any) -> bool:
    """Return whether a stored value is bytes in base64: of Python, of numpy, or a pickle."""
    if not isinstance(stored, dict) or not isinstance(stored.get("v"), str):
        return False
    return stored.get("$") in ("bytes", "bytearray") or "dtype" in stored or stored.get("by") == "pickle"


def _json_pieces(stored: Any, *, is_exact: bool) -> Iterator[str]:
    content = _visible_content(stored, nulls=True)
    if isinstance(content, dict):
        for n, (name, part) in enumerate(content.items()):
            yield f"{',' if n else '{'}{_encode(name)}:"
            yield from _json_pieces(part, is_exact=is_exact)
        yield "}" if content else "{}"
    elif isinstance(content, list):
        for n, part in enumerate(content):
            yield "," if n else "["
            yield from _json_pieces(part, is_exact=is_exact)
        yield "]" if content else "[]"
    else:
        yield _encode(content if is_exact else _round(content))


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _round(value: Any) -> Any:
    """Return a float without the digits that only arithmetic put there: 0.051 for 0.051000000000000004."""
    return round(value, 6) or value if isinstance(value, float) else value


def _content_of_class(stored: dict[str, Any]) -> Any:
    value = stored.get("v")
    if stored.get("by") == "pickle":
        return "a pickle"
    # Extra fields of a pydantic model stand beside the declared ones.
    if isinstance(value, dict) and isinstance(extra := open_value(stored.get("extra")).content, dict):
        return {**value, **extra}
    return value if isinstance(value, (dict, list, str, int, float)) else stored


def _open_pairs(pairs: list[Any]) -> Any:
    """Return a dict with strings as keys; the pairs as they are, if two keys have the same text."""
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return pairs
    named = {to_line(key, longest=None): value for key, value in pairs}
    return named if len(named) == len(pairs) else pairs


def _describe_bytes(stored: dict[str, Any]) -> str:
    size = len(b64decode(stored["v"], validate=True))
    shape = "" if "dtype" not in stored else f" of {to_line(stored['dtype'])}, shape {stored.get('shape', [])}"
    return f"{size:,} bytes{shape}"


def _read_moment(stored: dict[str, Any]) -> str:
    text: str = stored["v"]
    # As RFC 9557 writes a named time zone: 2026-11-16T10:00:00[Europe/Berlin].
    return f"{text}[{open_value(stored['tz']).content}]" if "tz" in stored else text


def _read_offset(stored: dict[str, Any]) -> str:
    minutes = int(timedelta(*stored["v"]).total_seconds()) // 60
    offset = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    return f"{stored['name']} {offset}" if "name" in stored else offset


def _read_complex(stored: dict[str, Any]) -> str:
    return str(complex(*[float(open_value(part).content) for part in stored["v"]]))


def _read_text(stored: dict[str, Any]) -> str:
    text = open_value(stored["v"]).content
    if not isinstance(text, str):
        raise TypeError("not a text")
    return text


_STANDARD: dict[str, Callable[[dict[str, Any]], Any]] = {
    **dict.fromkeys(("int", "float", "Decimal", "UUID", "date", "ZoneInfo"), _read_text),
    **dict.fromkeys(("Path", "PurePosixPath", "PureWindowsPath"), _read_text),
    **dict.fromkeys(("datetime", "time"), _read_moment),
    **dict.fromkeys(("bytes", "bytearray", "numpy.ndarray", "numpy.generic"), _describe_bytes),
    "timedelta": lambda stored: str(timedelta(*stored["v"])),
    "timezone": _read_offset,
    "range": lambda stored: str(range(*stored["v"])),
    "complex": _read_complex,
    # A string that is not valid Unicode is stored as bytes.
    "str": lambda stored: b64decode(stored["v"], validate=True).decode("utf-8", "backslashreplace"),
    # A value that was left out of an exported run.
    "removed": lambda stored: "[removed]",
}
