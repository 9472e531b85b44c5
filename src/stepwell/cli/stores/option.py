"""Find the store that a command works on."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.project import find_project_setting
from stepwell.cli.secrets import hide_address
from stepwell.cli.settings import Settings
from stepwell.cli.stores.locations import FORMS, StoreLocation
from stepwell.defaults import default_path

VARIABLE = "STEPWELL_STORE"
SQLITE, POSTGRES = ("sqlite",), ("postgresql", "postgres")


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


def find_location() -> StoreLocation:
    """Return the store that is meant, whether or not it exists.

    The option --store comes first, then the environment, the project, and the default.
    """
    address = Settings.current().store or os.environ.get(VARIABLE) or _find_project_address()
    if address is not None:
        hide_address(address)
    scheme, divider, rest = (address or "").partition("://")
    if address is None or scheme in SQLITE:
        from stepwell.cli.stores.sqlite_file import SQLiteFile  # lazy: 30 ms, and a command needs one kind

        if address is not None:
            return SQLiteFile(_parse_path(rest))
        return SQLiteFile(default_path(), f"name another with --store or ${VARIABLE}; {FORMS}")
    if not divider:
        from stepwell.cli.stores.directory import Directory  # lazy: 60 ms, and a command needs one kind

        return Directory(Path(address))
    if scheme in POSTGRES:
        from stepwell.cli.stores.postgres_schema import Schema  # lazy: 25 ms, and a command needs one kind

        # The driver would cut the password at the first @ and print the rest of it as a host name.
        if rest.count("@") > 1:
            hint = "write an @ in a password as %40"
            raise CommandFailed("the address of the store has more than one @", hint, USAGE)
        return Schema(*_split_schema(address))
    # The address is not quoted: it may hold a password in a form that we do not recognise.
    raise CommandFailed("the address of the store has an unknown scheme", FORMS, USAGE)


def _parse_path(rest: str) -> Path:
    """Return the path of `sqlite:///runs.db` (relative) or `sqlite:////var/runs.db` (absolute)."""
    if not rest.startswith("/") or len(rest) == 1:
        problem = "the address of a SQLite store has three slashes and a path: sqlite:///runs.db"
        raise CommandFailed(problem, code=USAGE)
    return Path(unquote(rest[1:]))


def _split_schema(address: str) -> tuple[str, str]:
    """Split off `?schema=NAME`, our own parameter, from an address for the driver."""
    plain, _, query = address.partition("?")
    parameters = [part for part in query.split("&") if part]
    # libpq refuses parameters that it does not know.
    ours = [part for part in parameters if part.startswith("schema=")]
    rest = "&".join(part for part in parameters if part not in ours)
    return f"{plain}?{rest}" if rest else plain, unquote(ours[-1].partition("=")[2]) if ours else "stepwell"
