"""The data that subjects store: the same text for all of them."""

import random
import string

KIB = 1024


def conversation(turns: int) -> list[dict[str, str]]:
    """Return messages of 1 KiB each, all different."""
    source = random.Random(7)
    return [{"role": "user", "content": _text(source, KIB - 32)} for _ in range(turns)]


def documents(kib: int) -> list[str]:
    """Return texts of 1 KiB each, all different."""
    source = random.Random(11)
    return [_text(source, KIB) for _ in range(kib)]


def _text(source: random.Random, length: int) -> str:
    return "".join(source.choices(string.ascii_lowercase + " ", k=length))


def step_result(number: int) -> str:
    """Return the result of a step: 500 bytes."""
    return f"{number:04}" * 125
