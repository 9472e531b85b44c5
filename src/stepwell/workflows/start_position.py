"""Translates the arguments of `run` into a position: where a run starts or is resumed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, get_args

from stepwell.engine.durability.deferred_archive import LEVELS
from stepwell.engine.opening.drive_options import OnChangedStep
from stepwell.engine.opening.open_run import FromCheckpoint, Position, ResumeRun, StartRun
from stepwell.model.agent_arguments import CLIENT_ARGUMENTS, TOOL_ARGUMENTS, by_executor
from stepwell.model.valid_text import is_text
from stepwell.storage.ids import new_run_id
from stepwell.storage.limits import LONGEST, check_tag


class _Omitted:
    def __repr__(self) -> str:
        return "<omitted>"


OMITTED: Any = _Omitted()


def position_of(
    message: Any, run_id: str | None, checkpoint_id: str | None, tags: Mapping[str, str] | None = None
) -> Position:
    """Return the position that the arguments mean. Raises ValueError for an invalid id or tag, or a contradiction."""
    for name, id in (("run_id", run_id), ("checkpoint_id", checkpoint_id)):
        if id is not None and (not isinstance(id, str) or not id):
            raise ValueError(f"{name} must be a non-empty string, not {id!r}")
        if id is not None and len(id) > LONGEST:
            raise ValueError(f"{name} has {len(id):,} characters; at most {LONGEST:,} are allowed")
        if id is not None and not is_text(id):
            raise ValueError(f"{name} {id!r} is not valid Unicode and cannot be stored")
    checked_tags = None if tags is None else _check_tags(tags)
    if checkpoint_id is not None:
        if message is not OMITTED:
            raise ValueError("pass a message to start a run, or checkpoint_id to continue from there, not both")
        return FromCheckpoint(checkpoint_id, run_id, tags=checked_tags)
    if message is OMITTED and run_id is not None:
        if checked_tags is not None:
            raise ValueError(f"tags are set when a run starts: leave them out to resume run {run_id!r}")
        return ResumeRun(run_id)
    return StartRun(
        None if message is OMITTED else message, run_id or new_run_id(), run_id is not None, tags=checked_tags
    )


def check_run_options(message: Any, responses: Any, durability: str, on_changed_step: str) -> None:
    """Raise ValueError or TypeError for options of `run` that contradict each other or are unknown."""
    if responses is not None and message is not OMITTED:
        raise ValueError("pass a message to start a run, or responses to resume a waiting one, not both")
    if durability not in LEVELS:
        raise ValueError(f"durability must be one of {', '.join(LEVELS)}, not {durability!r}")
    if on_changed_step not in get_args(OnChangedStep):
        raise ValueError(f"on_changed_step must be 'refuse' or 'recall', not {on_changed_step!r}")
    if responses is not None and not isinstance(responses, Mapping):
        raise TypeError(f"responses must be a mapping of request ids to answers, not a {type(responses).__name__}")


def _check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(tags, Mapping):
        raise ValueError(f"tags must be a mapping from names to strings, not a {type(tags).__name__}")
    for name, value in tags.items():
        check_tag(name, value)
    return dict(tags)


def agent_arguments(
    for_tools: Mapping[str, Any] | None, for_clients: Mapping[str, Any] | None, executor_ids: Collection[str]
) -> dict[str, Any]:
    """Return the arguments of a call that agents pass on to their tools and model clients, as private values."""
    given = {TOOL_ARGUMENTS: for_tools, CLIENT_ARGUMENTS: for_clients}
    return {name: by_executor(values, executor_ids) for name, values in given.items() if values is not None}
