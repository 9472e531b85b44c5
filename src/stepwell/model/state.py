"""Shared state: every delivery reads the last commit and collects writes of its own, which are folded
into one set of writes when the superstep is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stepwell.errors import RunError, StateConflict
from stepwell.model.message import Outcome
from stepwell.model.payload import ChunkedList, Pack, Payload, PayloadList
from stepwell.model.state_writes import Appended, Assigned, Deleted, Edited, Write
from stepwell.model.valid_text import is_text

Reducer = Callable[[Any, Any], Any]
"""Combines two values of one key: (the value so far, the value written) → the value to keep."""


# Items of a chunk of appended ones. The last chunk is decoded at each reading, the others at most twice.
_CHUNK = 64


def grow(value: Payload | None, items: tuple[Payload, ...]) -> ChunkedList:
    """Return the list `value`, extended by `items`; a missing one counts as empty.

    It costs what is appended: the list itself is neither decoded nor encoded again.
    """
    chunks = value.chunks if isinstance(value, ChunkedList) else () if value is None else (value,)
    if chunks and isinstance(last := chunks[-1], PayloadList) and len(last.payloads) < _CHUNK:
        chunks, items = chunks[:-1], last.payloads + items
    return ChunkedList((*chunks, PayloadList(items)))


class StateView(msgspec.Struct, eq=False):
    """The state as one executor sees it in one superstep: committed values, with its own writes on top."""

    _committed: Mapping[str, Payload]
    _pack: Pack
    # the writes of this executor's earlier deliveries in the superstep
    _earlier: Mapping[str, Write]
    # of one attempt at a delivery: those of a failed attempt vanish with its view
    writes: dict[str, Write] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of the value, or the default."""
        payload = self._find(key)
        return default if payload is None else payload.open()

    def length(self, key: str) -> int:
        """Return the length of a list, without decoding the items that were appended to it."""
        payload = self._find(key)
        if isinstance(payload, ChunkedList):
            return sum(len(c.payloads if isinstance(c, PayloadList) else c.open()) for c in payload.chunks)
        return 0 if payload is None else len(payload.open())

    def keys(self) -> list[str]:
        candidates = dict.fromkeys([*self._committed, *self._earlier, *self.writes])
        return [key for key in candidates if self._find(key) is not None]

    def set(self, key: str, value: object) -> None:
        _check_key(key)
        self.writes[key] = Assigned(self._pack(value, f"$.state.{key}", self._find(key)))

    def delete(self, key: str) -> None:
        _check_key(key)
        if self._find(key) is None:
            raise KeyError(f"state[{key!r}] does not exist and cannot be deleted")
        self.writes[key] = Deleted()

    def append(self, key: str, items: Iterable[object]) -> None:
        _check_key(key)
        current = self._find(key)
        if (
            current is not None
            and not isinstance(current, ChunkedList)
            and not isinstance(value := current.open(), list)
        ):
            raise TypeError(f"state[{key!r}] is a {type(value).__name__}; only a list can be appended to")
        new = Appended(tuple(self._pack(item, f"$.state.{key}[+{n}]") for n, item in enumerate(items)))
        self.writes[key] = _combine(self.writes.get(key), new)

    def _find(self, key: str) -> Payload | None:
        before, write = self._earlier.get(key), self.writes.get(key)
        if before is None and write is None:
            return self._committed.get(key)
        return _resolve(before if write is None else _combine(before, write), self._committed.get(key))


def _check_key(key: str) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a state key must be a string, not {key!r}")
    if not key.isascii() and not is_text(key):
        raise ValueError(f"the state key {key!r} is not valid Unicode and cannot be stored")


def add_writes(earlier: dict[str, Write], writes: Mapping[str, Write]) -> None:
    """Add the writes of a delivery to those of the same executor before it."""
    for key, write in writes.items():
        earlier[key] = _combine(earlier.get(key), write)


def apply_writes(before: Mapping[str, Payload], writes: Mapping[str, Write | Edited]) -> dict[str, Payload]:
    """Return the state after committed writes."""
    state = dict(before)
    for key, write in writes.items():
        if isinstance(write, Assigned):
            state[key] = write.value
            continue
        value = write.edit.apply_to(state.get(key)) if isinstance(write, Edited) else _resolve(write, state.get(key))
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


def fold_writes(
    run_id: str,
    committed: Mapping[str, Payload],
    outcomes: Sequence[Outcome],
    reducers: Mapping[str, Reducer],
    pack: Pack,
) -> Mapping[str, Write]:
    """Combine the writes of all outcomes, in plan order.

    Raises StateConflict if one executor's write would overwrite another's. Appending overwrites
    nothing, so several executors may append to one key.
    """
    if len(outcomes) == 1 and not reducers:
        return outcomes[0].writes
    joined: dict[str, Write] = {}
    authors: dict[str, list[str]] = {}  # by key, each executor once
    for outcome in outcomes:
        for key, write in outcome.writes.items():
            reducer, before = reducers.get(key), joined.get(key)
            others = [author for author in authors.setdefault(key, []) if author != outcome.executor]
            if before is not None and not _may_join(before, write, reducer, alone=not others):
                raise _conflict(run_id, key, [*others, outcome.executor], reducer)
            if len(others) == len(authors[key]):
                authors[key].append(outcome.executor)
            if reducer is not None and isinstance(write, Assigned):
                write = _reduce(run_id, key, reducer, _resolve(before, committed.get(key)), write, pack)
            joined[key] = write if before is None else _combine(before, write)
    return joined


def _may_join(before: Write, write: Write, reducer: Reducer | None, *, alone: bool) -> bool:
    """Return whether two writes can be combined without losing either. `alone`: one executor made both."""
    match before, write:
        case Appended(), Appended():
            return True
        case Assigned(), Assigned():
            return alone or reducer is not None
        case Assigned(value=reduced), Appended() if reducer is not None:
            # what the reducer made of the assigned list may not be a list any more
            return alone and isinstance(reduced.open(), list)
    return alone


def _conflict(run_id: str, key: str, writers: list[str], reducer: Reducer | None) -> StateConflict:
    names = " and ".join(repr(writer) for writer in dict.fromkeys(writers))
    remedy = (
        f"declare a reducer, WorkflowBuilder(reducers={{{key!r}: ...}}), and run it again"
        if reducer is None
        else "let all of them set it, or all of them append: its reducer combines only values that were set"
    )
    return StateConflict(
        f"state[{key!r}] was written by {names} in one superstep of run {run_id!r}; give each its own key, or {remedy}",
        run_id=run_id,
    )


def _combine(before: Write | None, write: Write) -> Write:
    """Return the one write that has the effect of two, made one after the other."""
    if not isinstance(write, Appended) or before is None:
        return write
    match before:
        case Appended(items=items):
            return Appended(items + write.items)
        case Assigned(value=value):
            return Assigned(grow(value, write.items))
        case Deleted():
            return Assigned(grow(None, write.items))


def _resolve(write: Write | None, committed: Payload | None) -> Payload | None:
    """Return the value after a write; None if there is none."""
    match write:
        case Assigned(value=value):
            return value
        case Deleted():
            return None
        case Appended(items=items):
            return grow(committed, items)
        case None:
            return committed


def _reduce(run_id: str, key: str, reducer: Reducer, current: Payload | None, write: Assigned, pack: Pack) -> Assigned:
    # nothing to combine with: the first value of a key is kept as it is
    if current is None:
        return write
    try:
        return Assigned(pack(reducer(current.open(), write.value.open()), f"$.state.{key}", current))
    except Exception as error:
        name = getattr(reducer, "__name__", repr(reducer))
        raise RunError(
            f"the reducer {name!r} of state[{key!r}] failed in run {run_id!r}: {type(error).__name__}: {error}",
            run_id=run_id,
        ) from error
