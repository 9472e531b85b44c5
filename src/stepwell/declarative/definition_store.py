"""Definitions in the directory of a JSON workflow store.

The newest definition of a workflow is `definition.json` in a folder named after the workflow. Every
version is also kept beside it under a digest of its content.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from stepwell.storage.durable_files import safe_name, write_whole

FOLDER = "definitions"


def save_definition(root: Path, name: str, text: str) -> Path:
    """Make `text` the newest definition of `name`, and return its path. Older versions stay."""
    newest = _folder(root, name) / "definition.json"
    if newest.exists() and newest.read_text("utf-8") == text:
        return newest
    # The version goes first: after a crash between the two writes, `definition.json` still holds a
    # complete older definition, and saving again completes the work.
    write_whole(_folder(root, name) / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json", text.encode())
    write_whole(newest, text.encode())
    return newest


def load_definition(root: Path, name: str) -> str:
    """Return the newest definition of that name as JSON text.

    Raises FileNotFoundError, which lists the names that exist.
    """
    try:
        return (_folder(root, name) / "definition.json").read_text("utf-8")
    except FileNotFoundError:
        names = ", ".join(map(repr, list_definitions(root))) or "none"
        raise FileNotFoundError(f"no definition is called {name!r} in {root}; there are {names}") from None


def list_definitions(root: Path) -> list[str]:
    """List the names of the workflows that have a stored definition."""
    # Folder names are not reversible (see `safe_name`), so each name is read from its definition.
    paths = sorted((root / FOLDER).glob("*/definition.json"))
    return [json.loads(path.read_text("utf-8"))["name"] for path in paths]


def _folder(root: Path, name: str) -> Path:
    return root / FOLDER / safe_name(name)
