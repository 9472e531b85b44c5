"""`--input`: text, a file or stdin, made into what the start executor takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.errors import CodecError
from stepwell.graph.type_matching import describe, flatten
from stepwell.model.superstep import is_text
from stepwell.storage.response_types import NotOfType, answer_as
from stepwell.workflows.workflow import Workflow

if TYPE_CHECKING:
    from stepwell.codec.codec import Codec
    from stepwell.declarative.instance import AgentWorkflowInstance
    from stepwell.storage.built_in_storage import BuiltInStorage

_GIVE = "--input TEXT, --input @FILE, or --input @- for stdin"


def read_input(argument: str) -> str:
    """The text itself, that of the file after an @, or stdin for `@-`; two @ stand for one that begins a text."""
    if not is_text(argument):
        raise CommandFailed("the input is no text in UTF-8", _GIVE, USAGE)
    if not argument.startswith("@"):
        return argument
    if argument.startswith("@@"):
        return argument[1:]
    name = argument[1:]
    try:
        body = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CommandFailed(f"the input cannot be read from {name!r}: {reason}", _GIVE, USAGE) from None
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandFailed(f"the input in {name!r} is no text in UTF-8: {error}", code=USAGE) from None


async def make_message(
    runnable: Workflow | AgentWorkflowInstance, storage: BuiltInStorage, text: str | None, run_id: str
) -> Any:
    """What the run begins with."""
    if isinstance(runnable, Workflow):
        return parse_message(text, runnable.input_types, runnable.definition.codec)
    storage.retention = runnable.definition.retention
    return await runnable.beginning(parse_any_message(text), run_id, storage)


def parse_message(text: str | None, types: Sequence[object], codec: Codec) -> Any:
    """What an executor that takes these types is to be given. Raises CommandFailed, saying where it does not fit.

    For one that takes nothing but texts, the text. Otherwise JSON, made into the first type that it fits; the text
    itself if it fits none and a text is taken, too. The form in which values are stored names its class.
    """
    members = [member for input_type in types for member in flatten(input_type)]
    wanted = " | ".join(dict.fromkeys(map(describe, members)))
    if text is None:
        if any(member in (NoneType, Any, object) for member in members):
            return None
        raise CommandFailed(f"the workflow begins with {wanted}, and no input was given", _GIVE, USAGE)
    others = [member for member in members if member is not str]
    if not others:
        return text
    value, flaw = _decode(text, codec)
    try:
        return answer_as(value, others)
    except NotOfType as error:
        if str in members:
            return text
        problem = f"the input is not what the workflow begins with, {wanted}: {flaw or error}"
        raise CommandFailed(problem, "", USAGE) from None


def parse_any_message(text: str | None) -> Any:
    """For a workflow that takes anything: objects and lists of JSON as what they are, everything else as the text."""
    if text is None or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _decode(text: str, codec: Codec) -> tuple[Any, str]:
    """The value that a text says, and what is wrong with it as JSON: then it stands for itself."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return text, f"it is no JSON ({error})"
    except RecursionError:
        return text, "it is nested too deeply"
    if not isinstance(value, dict) or "$" not in value:
        return value, ""
    try:
        return codec.decode(text.encode()), ""
    except CodecError as error:
        return value, str(error)
