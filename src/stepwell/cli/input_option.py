"""Parse `--input` (text, a file or stdin) into the message that the start executor accepts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec

import stepwell
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.errors import CodecError
from stepwell.graph.type_matching import describe, flatten
from stepwell.model.valid_text import is_text
from stepwell.storage.response_types import NotOfType, answer_as

if TYPE_CHECKING:
    from stepwell.codec.codec import Codec
    from stepwell.declarative.instance import AgentWorkflowInstance
    from stepwell.storage.built_in_storage import BuiltInStorage
    from stepwell.workflows.workflow import Workflow

_GIVE = "--input TEXT, --input @FILE, or --input @- for stdin"


def read_input(argument: str) -> str:
    """Return the argument itself, or what `@FILE` or `@-` (stdin) holds.

    `@@` stands for a leading @.
    """
    if not is_text(argument):
        raise CommandFailed("the input is not valid UTF-8", _GIVE, USAGE)
    if not argument.startswith("@"):
        return argument
    if argument.startswith("@@"):
        return argument[1:]
    name = argument[1:]
    try:
        body = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CommandFailed(f"cannot read the input from {name!r}: {reason}", _GIVE, USAGE) from None
    try:
        return body.decode("utf-8-sig")  # editors on Windows put a byte order mark first
    except UnicodeDecodeError as error:
        raise CommandFailed(f"the input in {name!r} is not valid UTF-8: {error}", code=USAGE) from None


async def make_message(
    runnable: Workflow | AgentWorkflowInstance, storage: BuiltInStorage, text: str | None, run_id: str
) -> Any:
    """Build the message that a run starts with.

    Raises CommandFailed if the input does not match.
    """
    if isinstance(runnable, stepwell.Workflow):
        return parse_message(text, runnable.input_types, runnable._definition.codec)
    # The retention stands in the definition of such a workflow, not in the program.
    storage.retention = runnable.definition.retention
    return await runnable.find_start_message(parse_any_message(text), run_id, storage)


def parse_message(text: str | None, types: Sequence[object], codec: Codec) -> Any:
    """Convert the input to one of the types that the start executor accepts.

    If only `str` is accepted, this is the text. Otherwise the text is read as JSON and converted to
    the first type it matches; if it matches none and `str` is accepted, too, it is the text. JSON
    in the stored form (`{"$": ..., "v": ...}`) names its class. Raises CommandFailed that says
    where the input does not match.
    """
    # A union stands for its members, in the order in which they are declared.
    members = [member for input_type in types for member in flatten(input_type)]
    wanted = " | ".join(dict.fromkeys(map(describe, members)))
    if text is None:
        if any(member in (NoneType, Any, object) for member in members):
            return None
        raise CommandFailed(f"the workflow needs an input of type {wanted}", _GIVE, USAGE)
    others = [member for member in members if member is not str]
    if not others:
        return text
    value, flaw = _decode(text, codec)
    try:
        return answer_as(value, others)
    except NotOfType as error:
        if str in members:
            return text
        problem = f"the input does not match {wanted}, the input type of the workflow: {flaw or error}"
        raise CommandFailed(problem, "", USAGE) from None


def parse_any_message(text: str | None) -> Any:
    """Convert the input of a workflow that accepts anything: parse JSON objects and lists."""
    if text is None or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _decode(text: str, codec: Codec) -> tuple[Any, str]:
    """Return the value of the input, and what is wrong with it as JSON."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return text, f"it is not JSON ({error})"
    except RecursionError:
        return text, "it is nested too deeply"
    if not isinstance(value, dict) or "$" not in value:
        return value, ""
    try:
        return codec.decode(text.encode()), ""
    except CodecError as error:
        return value, str(error)
