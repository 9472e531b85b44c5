"""Definitions in a directory: the newest under the name of its workflow, older ones beside it by what is in them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from stepwell.declarative.files.durable_files import safe_name, write_whole

FOLDER = "definitions"


def save_definition(root: Path, name: str, text: str) -> Path:
    """Keep the text of a definition. One that says something else under the same name stays, beside it."""
    newest = _folder(root, name) / "definition.json"
    if newest.exists() and newest.read_text("utf-8") == text:
        return newest
    write_whole(_folder(root, name) / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json", text.encode())
    write_whole(newest, text.encode())
    return newest


def load_definition(root: Path, name: str) -> str:
    """The newest definition of that name. Raises FileNotFoundError, saying what there is."""
    try:
        return (_folder(root, name) / "definition.json").read_text("utf-8")
    except FileNotFoundError:
        names = ", ".join(map(repr, list_definitions(root))) or "none"
        raise FileNotFoundError(f"no definition is called {name!r} in {root}; there are {names}") from None


def list_definitions(root: Path) -> list[str]:
    """The names of the workflows whose definitions are kept."""
    paths = sorted((root / FOLDER).glob("*/definition.json"))
    return [json.loads(path.read_text("utf-8"))["name"] for path in paths]


def _folder(root: Path, name: str) -> Path:
    return root / FOLDER / safe_name(name)
