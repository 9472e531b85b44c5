"""Find the store that is meant, and run the work of a command on it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.secrets import hide_address
from stepwell.cli.settings import Settings
from stepwell.cli.stores.locations import FORMS, StoreLocation, find_project_setting
from stepwell.cli.type_names import BuiltInStorage
from stepwell.defaults import default_path
from stepwell.error_ids import ErrorId

T = TypeVar("T")
VARIABLE = "STEPWELL_STORE"
SUFFIXES = (".db", ".sqlite", ".sqlite3")
SQLITE, POSTGRES = ("sqlite",), ("postgresql", "postgres")


def run_on_store(
    work: Callable[[BuiltInStorage], Awaitable[T]],
    *,
    make: bool = False,
    waits_for_nothing_else: bool = False,
    patient: bool = False,
) -> T:
    """Do the work on the store, and return its result. Raises CommandFailed if there is none.

    `make` allows to create the store. `patient` is for work that takes long: a server may be away
    for a while. `waits_for_nothing_else` promises that the work awaits nothing but its store; then
    a store that can do without an event loop is used without one, which saves loading asyncio.
    """
    location = find_location()

    async def work_on_store() -> T:
        # Opened before it is checked: that only builds the object, and reports a bad address or
        # missing keys first.
        storage = location.open_storage(patient=patient)
        location.check(make=make)
        try:
            return await work(storage)
        finally:
            await storage.close()

    if waits_for_nothing_else and not location.needs_loop:
        return _run_without_loop(work_on_store())
    import asyncio  # lazy: 15 ms, and `list` on SQLite does without it

    return asyncio.run(work_on_store())


def _run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    # One `send` runs a coroutine to its end, unless it awaits something that is not ready.
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("the work awaits something other than its store")


def find_location() -> StoreLocation:
    """Return the store that is meant, whether or not it exists.

    The option --store comes first, then the environment, the project, and the default.
    """
    if Settings.current().server is not None:
        raise CommandFailed(
            ErrorId.WRONG_USAGE, "this command works on a store, and not with --server", "pass --store", USAGE
        )
    address = Settings.current().store or os.environ.get(VARIABLE) or _find_project_address()
    if address is not None:
        hide_address(address)
    scheme, divider, rest = (address or "").partition("://")
    if address is None or scheme in SQLITE or (not divider and _is_sqlite(Path(address))):
        from stepwell.cli.stores.sqlite_file import SQLiteFile  # lazy: 30 ms, and a command needs one kind

        if address is None:
            return SQLiteFile(default_path(), f"name another with --store or ${VARIABLE}; {FORMS}")
        return SQLiteFile(_parse_path(rest) if scheme in SQLITE else Path(address))
    if not divider and address.startswith(("host=", "dbname=", "user=")):
        problem = "the address of a PostgreSQL store is a URL: postgresql://USER@HOST/DATABASE"
        raise CommandFailed(ErrorId.NOT_A_STORE, problem, code=USAGE)
    if not divider:
        from stepwell.cli.stores.directory import Directory  # lazy: 60 ms, and a command needs one kind

        return Directory(Path(address))
    if scheme in POSTGRES:
        from stepwell.cli.stores.postgres_schema import Schema  # lazy: 25 ms, and a command needs one kind

        # The driver would cut the password at the first @ and print the rest of it as a host name.
        if rest.count("@") > 1:
            hint = "write an @ in a password as %40"
            raise CommandFailed(ErrorId.NOT_A_STORE, "the address of the store has more than one @", hint, USAGE)
        return Schema(*_split_schema(address))
    # The address is not quoted: it may hold a password in a form that we do not recognise.
    raise CommandFailed(ErrorId.NOT_A_STORE, "the address of the store has an unknown scheme", FORMS, USAGE)


def _is_sqlite(path: Path) -> bool:
    """Return whether a path means a SQLite file: it is a file, or is named like one and not a directory."""
    # `is_file` raises ValueError for a name with a NUL; `check` refuses it later.
    with suppress(ValueError):
        return path.is_file() or (path.suffix in SUFFIXES and not path.is_dir())
    return False


def _find_project_address() -> str | None:
    """Return `store` of the project.

    A path in it is relative to pyproject.toml, not to the working directory.
    """
    setting = find_project_setting("store")
    if setting is None:
        return None
    store, folder = setting
    hide_address(store)
    scheme, _, path = store.rpartition(":///")
    if scheme in SQLITE:
        return f"{scheme}:///{quote(str(folder / unquote(path)))}"
    return store if "://" in store else str(folder / store)


def _parse_path(rest: str) -> Path:
    """Return the path of `sqlite:///runs.db` (relative) or `sqlite:////var/runs.db` (absolute)."""
    if not rest.startswith("/") or len(rest) == 1:
        problem = "the address of a SQLite store has three slashes and a path: sqlite:///runs.db"
        raise CommandFailed(ErrorId.NOT_A_STORE, problem, code=USAGE)
    return Path(unquote(rest[1:]))


def _split_schema(address: str) -> tuple[str, str]:
    """Split off `?schema=NAME`, our own parameter, from an address for the driver."""
    plain, _, query = address.partition("?")
    parameters = [part for part in query.split("&") if part]
    # libpq refuses parameters that it does not know.
    ours = [part for part in parameters if part.startswith("schema=")]
    rest = "&".join(part for part in parameters if part not in ours)
    return f"{plain}?{rest}" if rest else plain, unquote(ours[-1].partition("=")[2]) if ours else "stepwell"
