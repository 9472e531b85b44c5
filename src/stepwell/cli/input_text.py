"""Read the text of an argument that may name a file or stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.error_ids import ErrorId
from stepwell.model.valid_text import is_text

PASS_RESPONSE = "pass the response with --response VALUE, --response @FILE or --response -"
GIVE_INPUT = "--input TEXT, --input @FILE, or --input @- for stdin"


def read_input(argument: str, hint: str = GIVE_INPUT) -> str:
    """Return the argument itself, or what `@FILE` or `@-` (stdin) holds.

    `@@` stands for a leading @.
    """
    if not is_text(argument):
        raise CommandFailed(ErrorId.WRONG_INPUT, "the input is not valid UTF-8", hint, USAGE)
    if not argument.startswith("@"):
        return argument
    if argument.startswith("@@"):
        return argument[1:]
    name = argument[1:]
    try:
        body = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CommandFailed(
            ErrorId.WRONG_INPUT, f"cannot read the input from {name!r}: {reason}", hint, USAGE
        ) from None
    try:
        return body.decode("utf-8-sig")  # editors on Windows put a byte order mark first
    except UnicodeDecodeError as error:
        raise CommandFailed(
            ErrorId.WRONG_INPUT, f"the input in {name!r} is not valid UTF-8: {error}", code=USAGE
        ) from None
