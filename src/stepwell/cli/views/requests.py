"""The open questions of a run, in words and as data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from stepwell.cli.views.text import counted, moment, printable, tree

if TYPE_CHECKING:
    from stepwell.model.request import Request


def questions(asked: Iterable[Request], *, full: bool = False) -> Iterator[str]:
    """A line with how many there are, and then each with what it asks; nothing if there are none."""
    asked = list(asked)
    if asked:
        yield counted(len(asked), "open question")
    for one in asked:
        wanted = f"asked by {one.executor} at {moment(one.at)} UTC, wants {one.response_type}"
        until = f", until {moment(one.deadline)} UTC" if one.deadline else ""
        yield f"  {printable(one.id)}: {printable(wanted)}{until}"
        yield from (f"    {line}" for line in tree(_question(one), full=full))


def question_told(one: Request) -> dict[str, Any]:
    """For a program."""
    return {
        "request_id": one.id,
        "executor": one.executor,
        "request_type": one.request_type,
        "response_type": one.response_type,
        "response_schema": msgspec.json.decode(one.schema),
        "asked_at": one.at,
        "deadline": one.deadline,
        "question": _question(one),
    }


def _question(one: Request) -> Any:
    from stepwell.storage.json_text import json_of

    return msgspec.json.decode(json_of(one.payload))
