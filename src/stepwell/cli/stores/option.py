"""Which store is meant, and opening it. Only a command that begins something makes one where there is none."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.project import said_in_project
from stepwell.cli.secrets import keep_secret
from stepwell.cli.settings import Settings
from stepwell.cli.stores.kinds import FORMS, Directory, Kind, Schema, SQLiteFile

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

VARIABLE = "STEPWELL_STORE"
SQLITE, POSTGRES = ("sqlite",), ("postgresql", "postgres")


@asynccontextmanager
async def opened(kind: Kind, *, make: bool = False, patient: bool = False) -> AsyncIterator[BuiltInStorage]:
    """A store, open. Raises CommandFailed if there is none, unless it is to be made when it is used."""
    storage = kind.storage(patient=patient)
    kind.check(make=make)
    try:
        yield storage
    finally:
        await storage.close()


def address_of(settings: Settings) -> str | None:
    """What was said of the store: by option, environment, or project; None if nothing was."""
    said = settings.store or os.environ.get(VARIABLE) or _of_project()
    if said is not None:
        keep_secret(said)
    return said


def _of_project() -> str | None:
    """`store` of the project. A path in it is relative to the file that says it."""
    said = said_in_project("store")
    if said is None:
        return None
    store, folder = said
    keep_secret(store)
    scheme, _, path = store.rpartition(":///")
    if scheme in SQLITE:
        return f"{scheme}:///{quote(str(folder / unquote(path)))}"
    return store if "://" in store else str(folder / store)


def meant(settings: Settings) -> Kind:
    """The store that is meant, whether or not it is there."""
    address = address_of(settings)
    if address is None:
        from stepwell.defaults import default_path

        return SQLiteFile(default_path(), f"name another with --store, or in ${VARIABLE}; {FORMS}")
    scheme, divider, rest = address.partition("://")
    if not divider:
        return Directory(Path(address))
    if scheme in SQLITE:
        return SQLiteFile(_path_of(rest))
    if scheme in POSTGRES:
        return _schema(address)
    raise CommandFailed("there is no kind of store for that address", FORMS, USAGE)


def _path_of(rest: str) -> Path:
    """`sqlite:///runs.db` is in the working directory, `sqlite:////var/runs.db` is not."""
    if not rest.startswith("/") or len(rest) == 1:
        raise CommandFailed("the address of a SQLite store has three strokes and a path: sqlite:///runs.db", code=USAGE)
    return Path(unquote(rest[1:]))


def _schema(address: str) -> Schema:
    if address.partition("://")[2].count("@") > 1:
        raise CommandFailed("the address of the store has more than one @", "write an @ in a password as %40", USAGE)
    return Schema(*_schema_apart(address))


def _schema_apart(address: str) -> tuple[str, str]:
    """The address as the driver takes it, and the schema: `?schema=NAME` is ours alone."""
    plain, _, query = address.partition("?")
    said = [part for part in query.split("&") if part]
    ours = [part for part in said if part.startswith("schema=")]
    rest = "&".join(part for part in said if part not in ours)
    return f"{plain}?{rest}" if rest else plain, unquote(ours[-1].partition("=")[2]) if ours else "stepwell"
