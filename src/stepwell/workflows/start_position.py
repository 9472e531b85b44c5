"""Where the arguments of a call say that a run begins or goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwell.engine.open_run import Continue, Fresh, Position, Rewind, Suspended
from stepwell.model.superstep import is_text
from stepwell.storage.ids import new_run_id
from stepwell.storage.limits import LONGEST
from stepwell.workflows.waiting_runs import Waiting


class _Omitted:
    def __repr__(self) -> str:
        return "<omitted>"


OMITTED: Any = _Omitted()


def position_of(
    message: Any, run_id: str | None, checkpoint_id: str | None, tags: Mapping[str, str] | None = None
) -> Position:
    """What the arguments mean. Raises ValueError for what is no id, no tag, or does not go together."""
    for name, id in (("run_id", run_id), ("checkpoint_id", checkpoint_id)):
        if id is not None and (not isinstance(id, str) or not id):
            raise ValueError(f"{name} is a non-empty string, not {id!r}")
        if id is not None and len(id) > LONGEST:
            raise ValueError(f"{name} has at most {LONGEST:,} characters, and was given with {len(id):,}")
        if id is not None and not is_text(id):
            raise ValueError(f"{name} {id!r} holds half a character and cannot be stored")
    checked_tags = None if tags is None else _check_tags(tags)
    if checkpoint_id is not None:
        if message is not OMITTED:
            raise ValueError("give a message to start a run, or checkpoint_id to go on from there, not both")
        return Rewind(checkpoint_id, run_id, tags=checked_tags)
    if message is OMITTED and run_id is not None:
        if checked_tags is not None:
            raise ValueError(f"tags belong to a run from its beginning on: leave them out to go on with run {run_id!r}")
        return Continue(run_id)
    return Fresh(None if message is OMITTED else message, run_id or new_run_id(), run_id is not None, tags=checked_tags)


def position_of_waiting(waiting: Waiting) -> Position:
    return (
        Continue(waiting.run_id)
        if waiting.at is None
        else Suspended(waiting.at, waiting.yielded, waiting.executors or {})
    )


def _check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(tags, Mapping):
        raise ValueError(f"tags is a mapping from names to texts, not a {type(tags).__name__}")
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise ValueError(f"a tag is a name and a text, not {name!r}: {value!r}")
        if len(name) > LONGEST or len(value) > LONGEST:
            raise ValueError(f"a tag has at most {LONGEST:,} characters: keep more than that in the state of the run")
        if not is_text(name) or not is_text(value):
            raise ValueError(f"the tag {name!r}: {value!r} holds half a character and cannot be stored")
    return dict(tags)
