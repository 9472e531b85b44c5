"""Shared state: everyone reads the last commit, everyone writes on a page of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .errors import RunError, StateConflict
from .model import Appended, Assigned, Deleted, Outcome, Write
from .parcel import Pack, Parcel

Reducer = Callable[[Any, Any], Any]
"""How two writes of one key become one: (what is there, what was written) → what is kept."""


class Grown:
    """A list and what was appended to it since, each item a parcel of its own."""

    __slots__ = ("base", "items")

    def __init__(self, base: Parcel | None, items: tuple[Parcel, ...]) -> None:
        self.base, self.items = base, items

    def open(self) -> list[Any]:
        return [*(self.base.open() if self.base is not None else ()), *(item.open() for item in self.items)]


def grow(value: Parcel | None, items: tuple[Parcel, ...]) -> Parcel:
    """The list behind `value`, longer by `items`."""
    if isinstance(value, Grown):
        return Grown(value.base, value.items + items)
    return Grown(value, items)


class StateView:
    """What one executor sees in one superstep: committed values beneath, its own writes on top."""

    def __init__(self, committed: Mapping[str, Parcel], pack: Pack) -> None:
        self._committed, self._pack = committed, pack
        self._writes: dict[str, Write] = {}  # of earlier deliveries in this superstep and this one
        self._page: dict[str, Write] = {}  # of this delivery only

    def get(self, key: str, default: Any = None) -> Any:
        parcel = self._seen(key)
        return default if parcel is None else parcel.open()

    def keys(self) -> list[str]:
        known = dict.fromkeys([*self._committed, *self._writes])
        return [key for key in known if self._seen(key) is not None]

    def set(self, key: str, value: object) -> None:
        self._write(key, Assigned(self._pack(value, f"$.state.{key}")))

    def delete(self, key: str) -> None:
        if self._seen(key) is None:
            raise KeyError(f"state[{key!r}] is not there to be deleted")
        self._write(key, Deleted())

    def append(self, key: str, items: Iterable[object]) -> None:
        there = self._seen(key)
        if there is not None and not isinstance(there, Grown) and not isinstance(found := there.open(), list):
            raise TypeError(f"state[{key!r}] is a {type(found).__name__}; only a list can be appended to")
        new = Appended(tuple(self._pack(item, f"$.state.{key}[+{n}]") for n, item in enumerate(items)))
        self._page[key] = _after(self._page.get(key), new)
        self._writes[key] = _after(self._writes.get(key), new)

    def take_page(self) -> dict[str, Write]:
        """The writes since the last call: those of one delivery."""
        page, self._page = self._page, {}
        return page

    def recall(self, writes: Mapping[str, Write]) -> None:
        """Show the writes of an earlier delivery that was not run again."""
        for key, write in writes.items():
            self._writes[key] = _after(self._writes.get(key), write)

    def _write(self, key: str, write: Write) -> None:
        self._page[key] = self._writes[key] = write

    def _seen(self, key: str) -> Parcel | None:
        match self._writes.get(key):
            case Assigned(value=value):
                return value
            case Deleted():
                return None
            case Appended(items=items):
                return grow(self._committed.get(key), items)
        return self._committed.get(key)


def apply_write(state: dict[str, Parcel], key: str, write: Write) -> None:
    match write:
        case Assigned(value=value):
            state[key] = value
        case Deleted():
            state.pop(key, None)
        case Appended(items=items):
            state[key] = grow(state.get(key), items)


def fold(
    run_id: str,
    committed: Mapping[str, Parcel],
    outcomes: Iterable[Outcome],
    reducers: Mapping[str, Reducer],
    pack: Pack,
) -> dict[str, Write]:
    """Join all pages in plan order, or refuse them all: nobody's write is lost to somebody else's.

    Appending is not overwriting, so several executors may append to one key.
    """
    joined: dict[str, Write] = {}
    author: dict[str, str] = {}
    for outcome in outcomes:
        for key, write in outcome.writes.items():
            if key in reducers and isinstance(write, Assigned):
                there = _value(joined.get(key), committed.get(key))
                write = write if there is None else Assigned(_reduce(run_id, key, reducers[key], there, write, pack))
                joined[key] = write
                continue
            first = author.setdefault(key, outcome.executor)
            both_append = isinstance(write, Appended) and isinstance(joined.get(key, write), Appended)
            if first != outcome.executor and not both_append:
                raise StateConflict(
                    f"state[{key!r}] was written by {first!r} and {outcome.executor!r} in one superstep of run "
                    f"{run_id!r}; give each its own key, or declare how to join them: "
                    f"WorkflowBuilder(reducers={{{key!r}: ...}}), then resume",
                    run_id=run_id,
                )
            joined[key] = _after(joined.get(key), write)
    return joined


def _after(before: Write | None, write: Write) -> Write:
    """What two writes of one executor, one after the other, come to."""
    if not isinstance(write, Appended) or before is None:
        return write
    match before:
        case Appended(items=items):
            return Appended(items + write.items)
        case Assigned(value=value):
            return Assigned(grow(value, write.items))
        case Deleted():
            return Assigned(grow(None, write.items))


def _value(write: Write | None, committed: Parcel | None) -> Parcel | None:
    match write:
        case Assigned(value=value):
            return value
        case Deleted():
            return None
        case Appended(items=items):
            return grow(committed, items)
        case None:
            return committed


def _reduce(run_id: str, key: str, reducer: Reducer, there: Parcel, write: Assigned, pack: Pack) -> Parcel:
    try:
        return pack(reducer(there.open(), write.value.open()), f"$.state.{key}")
    except Exception as error:
        name = getattr(reducer, "__name__", repr(reducer))
        raise RunError(
            f"the reducer {name!r} of state[{key!r}] failed in run {run_id!r}: {type(error).__name__}: {error}",
            run_id=run_id,
        ) from error
