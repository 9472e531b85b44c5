"""What must never be printed: the secrets of the address of a store, and its keys."""

from __future__ import annotations

import re
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST = 4  # hiding every `a` of a text would tell that the secret is `a`

# up to the last @: a password may hold one that is not escaped. `a:b@5` alone is a run and a number
_BEFORE_AT = re.compile(r"(:/+)[^\s'\"]*@|(\w:)[^\s'\"/]+@(?!-?\d+(?:['\"\s]|$))")
_NAMED = re.compile(r"(?i)\b(password|sslpassword|passfile)=('(?:[^'\\]|\\.)*'|[^\s&'\"]*)")

_secrets: set[str] = set()


def hide_address(address: str) -> None:
    """From now on no part of this address that may be a secret is printed, wherever it turns up."""
    secrets = [value.strip("'") for _, value in _NAMED.findall(address)]
    before, at, _ = re.sub(r"^\w+:/+", "", address).rpartition("@")
    if at:
        secrets.append(before.partition(":")[2])
    for secret in secrets:
        _secrets.update({secret, unquote(secret), *secret.split("@"), *re.split(r"[/?#]", secret)})


def hide(*secrets: str) -> None:
    """From now on these are not printed, wherever they turn up."""
    _secrets.update(secrets)


def without_secrets(text: str) -> str:
    """The text, with every secret in it hidden."""
    text = _BEFORE_AT.sub(lambda match: f"{match[1] or match[2]}{HIDDEN}@", text)
    text = _NAMED.sub(rf"\1={HIDDEN}", text)
    for secret in sorted(_secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text
