"""Checks of the arguments that a worker is made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepwell.declarative.instance import AgentWorkflowInstance
from stepwell.model.valid_text import is_text
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.store_archive import StoreArchive
from stepwell.worker.slices import Served, workflow_of
from stepwell.workflows.workflow import Workflow


def find_problems(storage: BuiltInStorage, workflows: Sequence[Served]) -> Iterator[str]:
    if not isinstance(storage, BuiltInStorage):
        yield f"a worker needs a built-in storage, not an instance of {type(storage).__name__}"
        return
    if not workflows:
        yield "a worker needs at least one workflow"
    names = list[str]()
    for served in workflows:
        if not isinstance(served, Workflow | AgentWorkflowInstance):
            yield f"a worker drives workflows, not an instance of {type(served).__name__}"
            continue
        workflow = workflow_of(served)
        names.append(workflow.name)
        if not isinstance(workflow._archive_on(storage), StoreArchive):
            yield f"{type(storage).__name__} overrides methods of the storage, so its runs have no leases"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two workflows are named {name!r}: a worker finds runs by the name of their workflow"


def find_bad_settings(
    name: str | None, *, slots: int, grace: float, slice: float, most_takeovers: int
) -> Iterator[str]:
    if not isinstance(slots, int) or slots < 1:
        yield f"slots must be a whole number, at least 1, not {slots!r}"
    if not isinstance(most_takeovers, int) or most_takeovers < 1:
        yield f"most_takeovers must be a whole number, at least 1, not {most_takeovers!r}"
    for setting, seconds in (("grace", grace), ("slice", slice)):
        if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
            yield f"{setting} must be a number of seconds, 0 or more, not {seconds!r}"
    if name is not None and (not is_text(name) or not name):
        yield f"the name of a worker must be a text, not {name!r}"
