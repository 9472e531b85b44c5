"""Read JSON with the line number of each value, and write it.

The standard parser reports no positions, so the text is parsed twice: once by `json` to check the
syntax, then by a regular expression that finds the tokens and may rely on that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from stepwell.declarative.files.source_lines import TOO_DEEP, LineTree, Problems, Token, build, decode

MAX_LENGTH = 2**20  # characters; longer documents are rejected without parsing
# Strings, brackets, and other scalars. Commas and colons say nothing that the order does not say.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]|[^][{},:"\s]+')


def read(source: str | bytes, problems: Problems) -> tuple[Any, LineTree]:
    """Parse the text. Raises StopReading after adding a problem if it is not JSON."""
    text = decode(source, MAX_LENGTH, problems)
    try:
        # `parse_int=len`: Python refuses integers with too many digits with an error that has no
        # line. They pass here, and `_tokenize` reports them with their line.
        json.loads(text, parse_int=len)
    except json.JSONDecodeError as error:
        problems.stop(error.lineno, f"not JSON: {error.msg} (column {error.colno})")
    except RecursionError:
        problems.stop(None, TOO_DEEP)
    return build(_tokenize(text), problems)


def write(data: Any) -> str:
    """Write data as indented JSON."""
    return json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _tokenize(text: str) -> Iterator[Token]:
    line, before = 1, 0
    for match in _TOKEN.finditer(text):
        line, before = line + text.count("\n", before, match.start()), match.start()
        word = match[0]
        if word in "[{":
            yield Token("list" if word == "[" else "mapping", line)
        elif word in "]}":
            yield Token("end", line)
        else:
            try:
                yield Token("scalar", line, json.loads(word))
            except ValueError:  # valid JSON that cannot be decoded: an integer with too many digits
                yield Token("scalar", line, flaw=f"the number {word[:20]}... has too many digits")
