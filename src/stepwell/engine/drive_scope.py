"""What is the same for every handler call of a drive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec

from stepwell.codec.codec import Codec
from stepwell.engine.durability import Durability
from stepwell.errors import PrivateMissing
from stepwell.graph.graph import Graph
from stepwell.model.event import WorkflowEvent
from stepwell.model.payload import Pack
from stepwell.storage.archive import Archive


class Private(Mapping[str, Any]):
    """What `run(private={...})` was given: readable, never written anywhere."""

    def __init__(self, run_id: str, values: Mapping[str, Any]) -> None:
        self._run_id, self._values = run_id, values

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            raise PrivateMissing(
                f"run {self._run_id!r} was not given the private value {key!r}; private values are never stored: "
                f"pass run(..., private={{{key!r}: ...}}) at every start and every resume",
                run_id=self._run_id,
            )
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:  # a secret must not end up in a log
        return f"<private values {sorted(self._values)}>"


class DriveScope(msgspec.Struct, frozen=True):
    """What is the same for every handler call of a drive."""

    graph: Graph
    run_id: str
    epoch: int
    pack: Pack
    private: Private
    streaming: bool
    emit: Callable[[WorkflowEvent], None]
    archive_for: Callable[[str, Codec], Archive | None]  # of a workflow inside this one
    durability: Durability
    settle: Callable[[], Awaitable[None]]  # what was committed so far is stored
    holds_lease: Callable[[], Awaitable[bool]]  # nobody else has claimed the run since
    codec: Codec
    recall_changed: bool  # the stored result of a step is taken even if it came of another call
    is_needed: bool = False  # the run around it still refers to where this run was before the drive
