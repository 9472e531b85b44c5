"""What the command line needs to know of a store before it is opened, for every kind of store.

`sqlite_file`, `directory` and `postgres_schema` are the kinds; `session` chooses one of them by the
address. The address and the keys may stand in `[tool.stepwell]` of the nearest pyproject.toml.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import msgspec

from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed
from stepwell.cli.type_names import BuiltInStorage
from stepwell.error_ids import ErrorId

FORMS = "a store is a SQLite file such as runs.db, postgresql://host/database, or a directory"


class Format(msgspec.Struct, frozen=True):
    """The format of a store, and the one that this Stepwell writes."""

    stored: int
    supported: int


class StoreLocation(ABC):
    """A store that was named and is not open yet. Only `upgrade` changes it."""

    reads_older = False  # whether a store of an older format can be read without upgrading it
    needs_loop = True  # whether the storage only works inside an event loop

    @abstractmethod
    def check(self, *, make: bool) -> None:
        """Raise CommandFailed if there is no store; with `make`, if none can be created."""

    @abstractmethod
    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        """Return the storage; it connects at its first use.

        `patient` allows a server to be away for longer.
        """

    @abstractmethod
    def read_format(self) -> Format | None:
        """Return the format, 0 if there is no store yet; None if it cannot be read."""

    @abstractmethod
    def count_records(self) -> int:
        """Return the number of commits, for a store of any format."""

    async def upgrade(self) -> None:
        """Upgrade the store to our format, or create it. Raises what opening it raises."""
        # Opening upgrades it.
        async with self.open_storage() as storage:
            await storage._store.runs(limit=1)


def check_name(path: Path) -> None:
    # Without this check, the file system functions raise ValueError in many different places.
    if "\0" in str(path):
        raise CommandFailed(ErrorId.NOT_A_STORE, f"{str(path)!r} is not a file name: it contains a NUL", FORMS, USAGE)


def missing_store(what: str, hint: str) -> CommandFailed:
    return CommandFailed(ErrorId.NO_STORE, f"there is no store: {what}", hint, NOT_FOUND)


def find_project_setting(name: str) -> tuple[str, Path] | None:
    """Return a setting and the directory of the file it stands in; None if it is not set.

    Only the nearest pyproject.toml counts, in the working directory or above, even if it lacks the
    setting.
    """
    folder = Path.cwd()
    for parent in (folder, *folder.parents):
        project = parent / "pyproject.toml"
        if project.is_file():
            setting = _read_setting(project, name)
            return None if setting is None else (setting, parent)
    return None


def _read_setting(project: Path, name: str) -> str | None:
    import tomllib  # lazy: 1 ms, and few stores are used inside a project

    try:
        value: object = tomllib.loads(project.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(
            ErrorId.WRONG_SETTING, f"{project} is not valid TOML: {error}", "fix the file", USAGE
        ) from None
    for part in ("tool", "stepwell", name):  # other tools own this file, too: `tool` may be anything
        value = value.get(part) if isinstance(value, dict) else None
    if value is not None and not isinstance(value, str):
        raise CommandFailed(
            ErrorId.WRONG_SETTING, f"{name} in [tool.stepwell] of {project} is not a string", code=USAGE
        )
    return value
