"""Which store is meant, and opening it. A command that reads makes no store where there is none."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from .failing import NOT_FOUND, USAGE, CommandFailed
from .keys import seal_of
from .project import said_in_project
from .secrets import keep_secret
from .settings import Settings

if TYPE_CHECKING:
    from ..durable.storage import BuiltInStorage

VARIABLE = "HOLDFAST_STORE"
SQLITE, POSTGRES = ("sqlite",), ("postgresql", "postgres")
PATIENCE = 5.0  # seconds; a person waits for the answer
_FORMS = "a store is sqlite:///runs.db, postgresql://host/database, or a directory"


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[BuiltInStorage]:
    """The store that is meant, open. Raises CommandFailed if there is none."""
    storage = _storage(address_of(settings))
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


def _storage(address: str | None) -> BuiltInStorage:
    if address is None:
        from ..defaults import default_path

        return _sqlite(default_path(), f"name another with --store, or in ${VARIABLE}; {_FORMS}")
    scheme, divider, rest = address.partition("://")
    if not divider:
        return _files(Path(address))
    if scheme in SQLITE:
        return _sqlite(_path_of(rest), _FORMS)
    if scheme in POSTGRES:
        return _postgres(address)
    raise CommandFailed("there is no kind of store for that address", _FORMS, USAGE)


def _path_of(rest: str) -> Path:
    """`sqlite:///runs.db` is in the working directory, `sqlite:////var/runs.db` is not."""
    if not rest.startswith("/") or len(rest) == 1:
        raise CommandFailed("the address of a SQLite store has three strokes and a path: sqlite:///runs.db", code=USAGE)
    return Path(unquote(rest[1:]))


def _missing(what: str, hint: str) -> CommandFailed:
    return CommandFailed(f"there is no store: {what}", hint, NOT_FOUND)


def _sqlite(path: Path, hint: str) -> BuiltInStorage:
    if path.is_dir():
        raise CommandFailed(f"{path} is a directory, and a SQLite store is a file", _FORMS, USAGE)
    if not path.is_file():
        raise _missing(f"{path} is not there", hint)
    if _is_empty(path):
        raise _missing(f"{path} is empty", hint)
    from ..stores.sqlite import SQLiteCheckpointStorage

    return SQLiteCheckpointStorage(path, seal=seal_of())


def _is_empty(path: Path) -> bool:
    """Whether nobody has made anything of the file yet. What is wrong with any other, the store says."""
    import sqlite3

    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return False
    try:
        made = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    except sqlite3.Error:
        return False
    finally:
        db.close()
    return bool(made == 0)


def _files(path: Path) -> BuiltInStorage:
    from ..stores.file import FileCheckpointStorage
    from ..stores.file_layout import MARK

    if path.is_file():
        raise CommandFailed(f"{path} is a file, not a directory of runs", f"a SQLite file is sqlite:///{path}", USAGE)
    if not path.is_dir():
        raise _missing(f"{path} is not there", _FORMS)
    if not (path / MARK).is_file():
        raise _missing(f"{path} is a directory without runs", _FORMS)
    return FileCheckpointStorage(path, seal=seal_of())


def _postgres(address: str) -> BuiltInStorage:
    if address.partition("://")[2].count("@") > 1:
        raise CommandFailed("the address of the store has more than one @", "write an @ in a password as %40", USAGE)
    dsn, schema = _schema_apart(address)
    from ..stores.postgres import PostgresCheckpointStorage

    try:
        storage = PostgresCheckpointStorage(dsn, schema=schema, patience=PATIENCE, seal=seal_of())
    except (ImportError, ValueError) as error:
        raise CommandFailed(str(error), code=USAGE) from None
    _check_schema(dsn, schema)
    return storage


def _schema_apart(address: str) -> tuple[str, str]:
    """The address as the driver takes it, and the schema: `?schema=NAME` is ours alone."""
    plain, _, query = address.partition("?")
    said = [part for part in query.split("&") if part]
    ours = [part for part in said if part.startswith("schema=")]
    rest = "&".join(part for part in said if part not in ours)
    return f"{plain}?{rest}" if rest else plain, unquote(ours[-1].partition("=")[2]) if ours else "holdfast"


def _check_schema(dsn: str, schema: str) -> None:
    import psycopg

    from ..stores.postgres_errors import first_line
    from ..stores.postgres_schema import quoted

    try:
        with psycopg.connect(dsn, autocommit=True, connect_timeout=int(PATIENCE), prepare_threshold=None) as db:
            found = db.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{quoted(schema)}.holdfast"]).fetchone()
    except psycopg.Error as error:
        advice = "check the address, the user and the password, and whether the server runs"
        raise CommandFailed(f"the PostgreSQL server cannot be used: {first_line(error)}", advice) from None
    if found != (True,):
        hint = "another schema is named with ?schema=NAME at the end of the address"
        raise _missing(f"the database has no schema {schema!r} of Holdfast", hint)
