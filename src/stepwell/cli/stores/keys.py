"""Keys of an encrypted store, from the environment or a file.

Never from the command line: other users of the machine see the arguments of a process.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

import stepwell
from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed
from stepwell.cli.secrets import hide
from stepwell.cli.stores.locations import find_project_setting
from stepwell.error_ids import ErrorId

VARIABLE, FILE, IN_PROJECT = "STEPWELL_KEYS", "STEPWELL_KEYS_FILE", "keys_file"
SIZES = (16, 24, 32)  # bytes
_FORM = "write keys as NAME=KEY, the key in base64, the one to seal with first; # starts a comment"


def load_seal() -> stepwell.Seal | None:
    """Load the keys that the store is opened with; None if none are set."""
    text, where = _find_keys()
    keys = parse_keys(text, where)
    if not keys:
        return None
    try:
        return stepwell.Seal(keys, current=next(iter(keys)))
    except ImportError as missing:
        raise CommandFailed(ErrorId.NOT_INSTALLED, str(missing), code=USAGE) from None


def parse_keys(text: str, where: str) -> dict[str, bytes]:
    """Parse the keys in a string, in order. Errors never quote any part of a key."""
    keys: dict[str, bytes] = {}
    # Keys may be separated by lines, spaces or commas, as suits an environment variable or a file.
    lines = (line.partition("#")[0] for line in text.splitlines())
    for number, word in enumerate((word for line in lines for word in line.replace(",", " ").split()), 1):
        name, key = _read_key(word, f"key {number} in {where}")
        if name in keys:
            raise CommandFailed(ErrorId.WRONG_KEYS, f"two keys in {where} have the name {name!r}", _FORM, USAGE)
        keys[name] = key
    return keys


def _read_key(word: str, what: str) -> tuple[str, bytes]:
    # Somebody may have written a key where the name belongs: hide everything, and quote nothing.
    name, _, text = word.partition("=")
    hide(word, text)
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:  # its message may quote the key
        raise CommandFailed(ErrorId.WRONG_KEYS, f"{what} is not valid base64", _FORM, USAGE) from None
    if not name or len(key) not in SIZES:
        raise CommandFailed(ErrorId.WRONG_KEYS, f"{what} has no name, or is not 16, 24 or 32 bytes long", _FORM, USAGE)
    return name, key


def _find_keys() -> tuple[str, str]:
    """Return the string with the keys and where it comes from.

    The environment takes precedence over the project.
    """
    # A variable that is set and empty means "no keys": it switches off the file of the project.
    if VARIABLE in os.environ:
        return os.environ[VARIABLE], f"${VARIABLE}"
    if path := os.environ.get(FILE):
        return _read_file(Path(path), f"${FILE}")
    setting = find_project_setting(IN_PROJECT)
    return ("", "") if setting is None else _read_file(setting[1] / setting[0], f"{IN_PROJECT} in [tool.stepwell]")


def _read_file(path: Path, source: str) -> tuple[str, str]:
    try:
        return path.read_text(), str(path)
    except FileNotFoundError:
        raise CommandFailed(
            ErrorId.WRONG_KEYS, f"the key file {path} does not exist ({source})", code=NOT_FOUND
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise CommandFailed(
            ErrorId.WRONG_KEYS, f"cannot read the key file {path} ({source}): {why}", code=USAGE
        ) from None
