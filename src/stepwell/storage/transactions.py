"""What a store may do beyond its port: let somebody write to its database, and remember what that came to with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Transaction(Protocol[T]):
    """Something done in the database of a store, once."""

    def do(self, work: Callable[[Any], T]) -> T | None:
        """Call `work` with a connection inside a transaction; what it gives is remembered and committed with it.

        None if that was done, and is durable. If something is remembered under that key already, this is what is
        given; `work` is not called then, or all it did is undone. If it raises, all it did is undone. Raises
        CommitConflict, and undoes it, if the run was claimed by somebody else. Called from a thread; may block.
        """

    def give_up(self) -> None:
        """Nobody waits for it any more: it is undone, unless it is too late. From any thread; does not block."""


class Transacting(Protocol):
    """A store that can."""

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> Transaction[bytes]:
        """One whose result is remembered as `remember` would."""


class Translated(Generic[T]):
    """A transaction whose result is stored in other words."""

    def __init__(self, inner: Transaction[bytes], write: Callable[[T], bytes], read: Callable[[bytes], T]) -> None:
        self._inner, self._write, self._read = inner, write, read

    def do(self, work: Callable[[Any], T]) -> T | None:
        result = self._inner.do(lambda connection: self._write(work(connection)))
        return None if result is None else self._read(result)

    def give_up(self) -> None:
        self._inner.give_up()
