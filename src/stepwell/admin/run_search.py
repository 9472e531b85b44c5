"""Searches runs for a string in their newest state, requests, messages and outputs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from stepwell.admin.diffs.documents import document_of, plain_value
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointMissing
from stepwell.kernel.lifecycle import drop_undone
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import fold_case
from stepwell.storage.run_list import RunInfo
from stepwell.storage.store_archive import StoreArchive
from stepwell.storage.wire.format import read_commit

_PAGE = 100
_TAG = {"$", "v"}  # the keys of a value stored with its class


@dataclass(frozen=True, slots=True)
class Holding:
    """A run that contains a string, and the path to it: `state.order.customer`, `outputs[0]`."""

    run: RunInfo
    where: str


async def search(storage: BuiltInStorage, text: str, /, **filters: Any) -> AsyncIterator[Holding]:
    """Yield the runs that contain a string in a value or a key, newest first.

    ASCII letters match in either case.

    `filters` are the arguments of `list_runs`, except `limit`. For every run they select, the
    newest checkpoint and the commits with outputs are read, so filters make a search faster.
    Matches are yielded as they are found: stop iterating to stop the search.
    """
    after: RunInfo | None = filters.pop("after", None)
    while page := await storage.list_runs(**filters, after=after, limit=_PAGE):
        for run in page:
            if (where := await _find_text(storage, run.run_id, text)) is not None:
                yield Holding(run, where)
        after = page[-1]


async def _find_text(storage: BuiltInStorage, run_id: str, wanted: str) -> str | None:
    """Return the path of the first value of a run that contains a string.

    None if there is none, or no such run.
    """
    try:
        parts = [part async for part in _parts(storage, run_id)]
    except CheckpointMissing:
        return None
    folded = fold_case(wanted)
    return next((where for part in parts for where, text in _strings("", part) if folded in fold_case(text)), None)


async def _parts(storage: BuiltInStorage, run_id: str) -> AsyncIterator[dict[str, Any]]:
    head = await StoreArchive(storage._store, DEFAULT_CODEC).head(run_id)
    if head is None:
        return
    document = document_of(head)
    # Not `children` and `wake`: they hold ids and times of the engine, nothing of the user's.
    yield {name: document[name] for name in ("state", "executors", "requests", "messages", "held")}
    records = await storage._store.history(run_id, upto=head.number, outputs_only=True)
    # Outputs from before a restore are no longer part of the run's result.
    commits = drop_undone([read_commit(record, DEFAULT_CODEC)[0] for record in records])
    yield {"outputs": [plain_value(output.payload) for c in commits for done in c.done for output in done.outputs]}


def _strings(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield every string in a value with its path; numbers, booleans and null as JSON writes them."""
    if isinstance(value, dict) and set(value) == _TAG:
        yield from _strings(path, value["v"])
    elif isinstance(value, dict):
        for name, inner in value.items():
            below = f"{path}.{name}" if path else str(name)
            # The outermost keys are ours (state, requests, ...): a search for "state" would match
            # every run.
            if path:
                yield below, str(name)
            yield from _strings(below, inner)
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            yield from _strings(f"{path}[{n}]", inner)
    else:
        yield path, value if isinstance(value, str) else msgspec.json.encode(value).decode()
