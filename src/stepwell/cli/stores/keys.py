"""The keys of a sealed store: from the environment or a file, never from the command line, where others see them."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

import stepwell
from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed
from stepwell.cli.project import find_project_setting
from stepwell.cli.secrets import hide

if TYPE_CHECKING:
    from stepwell.storage.encryption import Seal

VARIABLE, FILE, IN_PROJECT = "STEPWELL_KEYS", "STEPWELL_KEYS_FILE", "keys_file"
SIZES = (16, 24, 32)  # bytes
_FORM = "keys are written NAME=KEY, the key in base64, the one to seal with first; # begins a comment"


def load_seal() -> Seal | None:
    """What the store is opened with; None if no keys are given."""
    text, where = _find_keys()
    keys = parse_keys(text, where)
    if not keys:
        return None
    try:
        return stepwell.Seal(keys, current=next(iter(keys)))
    except ImportError as missing:
        raise CommandFailed(str(missing), code=USAGE) from None


def parse_keys(text: str, where: str) -> dict[str, bytes]:
    """The keys that a text names, in its order. No part of them is in an error."""
    keys: dict[str, bytes] = {}
    lines = (line.partition("#")[0] for line in text.splitlines())
    for number, word in enumerate((word for line in lines for word in line.replace(",", " ").split()), 1):
        name, key = _read_key(word, f"key {number} in {where}")
        if name in keys:
            raise CommandFailed(f"two keys in {where} are called {name!r}", _FORM, USAGE)
        keys[name] = key
    return keys


def _read_key(word: str, what: str) -> tuple[str, bytes]:
    """A key and its name. What is written otherwise may be a key where a name should be: none of it is said."""
    hide(word)
    name, _, text = word.partition("=")
    hide(text)
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:  # its words would show what it is about
        raise CommandFailed(f"{what} is not written in base64", _FORM, USAGE) from None
    if not name or len(key) not in SIZES:
        raise CommandFailed(f"{what} has no name, or is not of 16, 24 or 32 bytes", _FORM, USAGE)
    return name, key


def _find_keys() -> tuple[str, str]:
    """The text that names the keys, and where it is from: the environment goes before the project."""
    if VARIABLE in os.environ:
        return os.environ[VARIABLE], f"${VARIABLE}"
    if path := os.environ.get(FILE):
        return _read_file(Path(path), f"${FILE}")
    setting = find_project_setting(IN_PROJECT)
    return ("", "") if setting is None else _read_file(setting[1] / setting[0], f"{IN_PROJECT} in [tool.stepwell]")


def _read_file(path: Path, named_by: str) -> tuple[str, str]:
    try:
        return path.read_text(), str(path)
    except FileNotFoundError:
        raise CommandFailed(f"{path}, which {named_by} names, is not there", code=NOT_FOUND) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CommandFailed(f"{path}, which {named_by} names, cannot be read: {why}", code=USAGE) from None
