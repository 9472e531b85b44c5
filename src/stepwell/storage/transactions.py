"""Steps that write to the user's own tables, in the transaction that logs their result.

Only a store on a database that users share has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Transaction(Protocol[T]):
    """One piece of work in the database of a store, done once."""

    def do(self, work: Callable[[Any], T]) -> T | None:
        """Call `work` with a connection inside a transaction, and commit its result with it.

        Returns None if the work was done; it is durable then. If the log has an entry under that
        key already, returns that entry; `work` is not called, or is rolled back. If `work` raises,
        it is rolled back. Raises CommitConflict, and rolls back, if another process has acquired
        the run. Called from a thread; may block.
        """

    def give_up(self) -> None:
        """Roll back, unless it is too late: nobody waits any longer.

        From any thread; does not block.
        """


class Translated(Generic[T]):
    """A transaction whose result is encoded and decoded on the way."""

    def __init__(self, inner: Transaction[bytes], write: Callable[[T], bytes], read: Callable[[bytes], T]) -> None:
        self._inner, self._write, self._read = inner, write, read

    def do(self, work: Callable[[Any], T]) -> T | None:
        result = self._inner.do(lambda connection: self._write(work(connection)))
        return None if result is None else self._read(result)

    def give_up(self) -> None:
        self._inner.give_up()
