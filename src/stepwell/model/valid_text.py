"""Whether a string can be stored at all."""

from __future__ import annotations


def is_text(name: str) -> bool:
    """Return False for a string with a lone surrogate, which no file system and no database accepts."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_words(what: str, value: object) -> None:
    """Raise ValueError unless a value is None or a non-empty string that can be stored."""
    if value is not None and (not isinstance(value, str) or not value or not is_text(value)):
        raise ValueError(f"{what} must be a non-empty string of valid Unicode, not {value!r}")
