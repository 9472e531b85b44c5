"""Secrets that must never be printed: passwords in the address of a store, and its keys."""

from __future__ import annotations

import re
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST = 4  # replacing a shorter secret everywhere would reveal it: every `a` of the output would be missing

# Up to the last @, because a password may hold an @ that is not escaped.
# `a:b@5` is not an address but checkpoint 5 of run `a:b`, so a number after the @ does not match.
_BEFORE_AT = re.compile(r"(:/+)[^\s'\"]*@|(\w:)[^\s'\"/]+@(?!-?\d+(?:['\"\s]|$))")
_NAMED = re.compile(r"(?i)\b(password|sslpassword|passfile)=('(?:[^'\\]|\\.)*'|[^\s&'\"]*)")

# Global on purpose: an error may quote a secret anywhere, long after the option that held it was
# parsed.
_secrets: set[str] = set()


def hide_address(address: str) -> None:
    """Hide every part of this address that may be a secret in all later output."""
    secrets = [value.strip("'") for _, value in _NAMED.findall(address)]
    before, at, _ = re.sub(r"^\w+:/+", "", address).rpartition("@")
    if at:
        secrets.append(before.partition(":")[2])
    # A driver may quote only a piece of it: it splits a password that is not escaped at @, /, ? or
    # #.
    for secret in secrets:
        _secrets.update({secret, unquote(secret), *secret.split("@"), *re.split(r"[/?#]", secret)})


def hide(*secrets: str) -> None:
    """Hide these strings in all later output."""
    _secrets.update(secrets)


def without_secrets(text: str) -> str:
    """Return the text with every secret replaced by `***`."""
    text = _BEFORE_AT.sub(lambda match: f"{match[1] or match[2]}{HIDDEN}@", text)
    text = _NAMED.sub(rf"\1={HIDDEN}", text)
    # Longest first: a secret that is part of another must not break it up.
    for secret in sorted(_secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text
