"""Whether a string can be stored at all."""

from __future__ import annotations


def is_text(name: str) -> bool:
    """Return False for a string with a lone surrogate, which no file system and no database accepts."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
