"""Which runs hold a text: in their newest state, in what they ask and have on its way, and in their outputs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from stepwell.admin.diffs.documents import document_of
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointMissing
from stepwell.kernel.lifecycle import drop_undone
from stepwell.storage.archive import StoreArchive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.json_text import json_of
from stepwell.storage.port import fold_case
from stepwell.storage.run_list import RunInfo
from stepwell.storage.wire.format import read_commit

_PAGE = 100
_TAG = {"$", "v"}  # of a value that says its class


@dataclass(frozen=True, slots=True)
class Holding:
    """A run that holds a text, and where: `state.order.customer`, `outputs[0]`."""

    run: RunInfo
    where: str


async def search(storage: BuiltInStorage, text: str, /, **filters: Any) -> AsyncIterator[Holding]:
    """The runs that hold a text in a value or in the name of one, those that began last first; A to Z are as a to z.

    `filters` is what `list_runs` takes, but for `limit`. Of each run that it gives, the newest checkpoint and the
    commits with outputs are read, whatever is found in them: narrow it down. What is found is told at once, so whoever
    has enough stops asking.
    """
    after: RunInfo | None = filters.pop("after", None)
    while page := await storage.list_runs(**filters, after=after, limit=_PAGE):
        for run in page:
            where = await find_text(storage, run.run_id, text)
            if where is not None:
                yield Holding(run, where)
        after = page[-1]


async def find_text(storage: BuiltInStorage, run_id: str, wanted: str) -> str | None:
    """The first place of a run that holds a text; None if none does, or the run has gone meanwhile."""
    try:
        parts = [part async for part in _parts(storage, run_id)]
    except CheckpointMissing:
        return None
    folded = fold_case(wanted)
    return next((where for part in parts for where, text in _texts("", part) if folded in fold_case(text)), None)


async def _parts(storage: BuiltInStorage, run_id: str) -> AsyncIterator[dict[str, Any]]:
    head = await StoreArchive(storage.store, DEFAULT_CODEC).head(run_id)
    if head is None:
        return
    document = document_of(head)
    yield {name: document[name] for name in ("state", "executors", "requests", "messages", "held")}
    records = await storage.store.history(run_id, upto=head.number, outputs_only=True)
    commits = drop_undone([read_commit(record, DEFAULT_CODEC)[0] for record in records])
    payloads = [output.payload for commit in commits for done in commit.done for output in done.outputs]
    yield {"outputs": [msgspec.json.decode(json_of(payload)) for payload in payloads]}


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text in a value, with its place; numbers and the like as JSON says them."""
    if isinstance(value, dict):
        if set(value) == _TAG:
            yield from _texts(path, value["v"])
            return
        for name, inner in value.items():
            below = f"{path}.{name}" if path else str(name)
            if path:  # the first names are ours
                yield below, str(name)
            yield from _texts(below, inner)
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            yield from _texts(f"{path}[{n}]", inner)
    else:
        yield path, value if isinstance(value, str) else msgspec.json.encode(value).decode()
