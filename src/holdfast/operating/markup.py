"""Stored text in a page or a picture: whatever it says, it is shown, and never obeyed."""

from __future__ import annotations

import re
from html import escape

_UNSAID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML has no way to say
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")  # turn the text around them, and so hide what it says


def escaped(text: object) -> str:
    """Text for HTML and XML, also inside the quotes of an attribute."""
    said = _UNSAID.sub("\ufffd", str(text))
    return escape(_TURNING.sub("\ufffd", said), quote=True)


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
