"""The keyword arguments of `Workflow.run` and its like, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from stepwell.engine.durability.deferred_archive import Durability
from stepwell.engine.opening.drive_options import OnChangedStep
from stepwell.workflows.storage_options import StorageLike


class RunOptions(TypedDict, total=False):
    """Where a run starts or resumes, and how it is driven."""

    run_id: str | None
    checkpoint_id: str | None
    checkpoint_storage: StorageLike | None
    responses: Mapping[str, Any] | None
    private: Mapping[str, Any] | None
    function_invocation_kwargs: Mapping[str, Any] | None
    client_kwargs: Mapping[str, Any] | None
    durability: Durability
    tags: Mapping[str, str] | None
    by: str | None
    on_changed_step: OnChangedStep
    include_status_events: bool


class StreamOptions(RunOptions, total=False):
    """The options of a run, and which of its events a stream shows."""

    nested: bool
    replay: bool
