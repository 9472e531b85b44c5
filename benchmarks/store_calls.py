"""Counts the calls of a SQLite store.

The rule: a call is a call of a public coroutine method of any class in `stepwell.stores`, except the storages, which
users call. What such a method calls in turn does not count. A call is a write if it changed the database, else a read.
"""

import inspect
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any

PACKAGE = "stepwell.stores."


class StoreCalls:
    """Counts from now on. Create it when the store has been used, so that its classes are loaded."""

    def __init__(self, file: Path) -> None:
        self.reads: list[str] = []
        self.writes: list[str] = []
        self._database = sqlite3.connect(file)
        self._inside = ContextVar("inside", default=False)
        for cls in _store_classes():
            for name, method in list(vars(cls).items()):
                if inspect.iscoroutinefunction(method) and not name.startswith("_"):
                    setattr(cls, name, self._counted(f"{cls.__name__}.{name}", method))

    def _counted(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(method)
        async def counted(*args: Any, **kwargs: Any) -> Any:
            if self._inside.get():
                return await method(*args, **kwargs)
            inside, before = self._inside.set(True), self._version()
            try:
                return await method(*args, **kwargs)
            finally:
                self._inside.reset(inside)
                (self.reads if self._version() == before else self.writes).append(name)

        return counted

    def _version(self) -> int:
        """Return a number that changes with every commit of another connection."""
        return int(self._database.execute("PRAGMA data_version").fetchone()[0])


def _store_classes() -> set[type]:
    modules = [module for name, module in sys.modules.items() if name.startswith(PACKAGE)]
    classes = {thing for module in modules for thing in vars(module).values() if inspect.isclass(thing)}
    return {
        cls for cls in classes if cls.__module__.startswith(PACKAGE) and not cls.__name__.endswith("CheckpointStorage")
    }
