"""Which store is meant, and opening it. Only a command that begins something makes one where there is none."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.project import find_project_setting
from stepwell.cli.secrets import hide_address
from stepwell.cli.settings import Settings
from stepwell.cli.stores.locations import FORMS, StoreLocation
from stepwell.defaults import default_path

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

VARIABLE = "STEPWELL_STORE"
SQLITE, POSTGRES = ("sqlite",), ("postgresql", "postgres")


@asynccontextmanager
async def open_store(
    location: StoreLocation, *, make: bool = False, patient: bool = False
) -> AsyncIterator[BuiltInStorage]:
    """A store, open. Raises CommandFailed if there is none, unless it is to be made when it is used."""
    storage = location.open_storage(patient=patient)
    location.check(make=make)
    try:
        yield storage
    finally:
        await storage.close()


def find_address(settings: Settings) -> str | None:
    """What was said of the store: by option, environment, or project; None if nothing was."""
    address = settings.store or os.environ.get(VARIABLE) or _find_project_address()
    if address is not None:
        hide_address(address)
    return address


def _find_project_address() -> str | None:
    """`store` of the project. A path in it is relative to the file that says it."""
    setting = find_project_setting("store")
    if setting is None:
        return None
    store, folder = setting
    hide_address(store)
    scheme, _, path = store.rpartition(":///")
    if scheme in SQLITE:
        return f"{scheme}:///{quote(str(folder / unquote(path)))}"
    return store if "://" in store else str(folder / store)


def find_location(settings: Settings) -> StoreLocation:
    """The store that is meant, whether or not it is there."""
    address = find_address(settings)
    scheme, divider, rest = (address or "").partition("://")
    # Each kind of store is imported only if it is meant: 60 ms each.
    if address is None or scheme in SQLITE:
        from stepwell.cli.stores.sqlite_file import SQLiteFile  # lazy: 60 ms

        if address is not None:
            return SQLiteFile(_parse_path(rest))
        return SQLiteFile(default_path(), f"name another with --store, or in ${VARIABLE}; {FORMS}")
    if not divider:
        from stepwell.cli.stores.directory import Directory  # lazy: 60 ms

        return Directory(Path(address))
    if scheme in POSTGRES:
        from stepwell.cli.stores.postgres_schema import Schema  # lazy: 60 ms

        if rest.count("@") > 1:
            raise CommandFailed(
                "the address of the store has more than one @", "write an @ in a password as %40", USAGE
            )
        return Schema(*_split_schema(address))
    raise CommandFailed("there is no kind of store for that address", FORMS, USAGE)


def _parse_path(rest: str) -> Path:
    """`sqlite:///runs.db` is in the working directory, `sqlite:////var/runs.db` is not."""
    if not rest.startswith("/") or len(rest) == 1:
        raise CommandFailed("the address of a SQLite store has three strokes and a path: sqlite:///runs.db", code=USAGE)
    return Path(unquote(rest[1:]))


def _split_schema(address: str) -> tuple[str, str]:
    """The address as the driver takes it, and the schema: `?schema=NAME` is ours alone."""
    plain, _, query = address.partition("?")
    parameters = [part for part in query.split("&") if part]
    ours = [part for part in parameters if part.startswith("schema=")]
    rest = "&".join(part for part in parameters if part not in ours)
    return f"{plain}?{rest}" if rest else plain, unquote(ours[-1].partition("=")[2]) if ours else "stepwell"
