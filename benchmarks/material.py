"""What the subjects are given to keep: the same text for all of them."""

import random
import string

KIB = 1024


def conversation(turns: int) -> list[dict[str, str]]:
    """Messages of 1 KiB, no two alike."""
    source = random.Random(7)
    return [{"role": "user", "content": _text(source, KIB - 32)} for _ in range(turns)]


def documents(kib: int) -> list[str]:
    """Texts of 1 KiB each, no two alike."""
    source = random.Random(11)
    return [_text(source, KIB) for _ in range(kib)]


def _text(source: random.Random, length: int) -> str:
    return "".join(source.choices(string.ascii_lowercase + " ", k=length))
