"""Who calls, and what they may do.

An authenticator turns a connection into an `Identity`, or into None if it does not know the caller.
`Tokens` is the one that is used unless a program has its own.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from hmac import compare_digest

from starlette.requests import HTTPConnection

from stepwell.errors import DefinitionError, StepwellError

COOKIE = "stepwell_token"
_LEAST = 16  # characters of a token


class Role(Enum):
    """What a caller may do. Each role may do what those before it may."""

    SEE = "see"
    RESPOND = "respond"  # answer requests
    OPERATE = "operate"  # start, cancel, retry, fork, move back and delete runs

    def includes(self, other: Role) -> bool:
        roles = list(Role)
        return roles.index(self) >= roles.index(other)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls. `name` is stored as `by` with everything they do."""

    name: str
    role: Role


Authenticator = Callable[[HTTPConnection], Identity | Awaitable[Identity | None] | None]


class Unauthorized(StepwellError):
    """Nobody knows who calls."""


class Forbidden(StepwellError):
    """The caller is known, and may not do this."""


class Tokens:
    """Knows callers by a secret token: in `Authorization: Bearer`, or in the cookie that a page gets for it."""

    def __init__(self, identities: Mapping[str, Identity]) -> None:
        short = [identity.name for token, identity in identities.items() if len(token) < _LEAST]
        if short or not identities:
            problem = f"the token of {short[0]!r} is too short" if short else "there is no token"
            raise DefinitionError(f"{problem}: a token has at least {_LEAST} characters that nobody can guess")
        # Compared by their hashes, which all have one length.
        self._identities = {_digest(token): identity for token, identity in identities.items()}

    def __call__(self, connection: HTTPConnection) -> Identity | None:
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = connection.cookies.get(COOKIE, "")
        return self.find(token.strip())

    def find(self, token: str) -> Identity | None:
        """Return who has this token."""
        digest, match = _digest(token), None
        for known, identity in self._identities.items():
            if compare_digest(known, digest):
                match = identity
        return match


@dataclass(frozen=True, slots=True)
class Anyone:
    """Lets everybody in who reaches the server, which must be on this machine: others are refused."""

    role: Role = Role.OPERATE
    name: str = "anyone"

    def __call__(self, connection: HTTPConnection) -> Identity | None:
        return Identity(self.name, self.role)


async def identify(authenticator: Authenticator, connection: HTTPConnection) -> Identity | None:
    """Return who calls; None if the authenticator does not know."""
    identity = authenticator(connection)
    return await identity if inspect.isawaitable(identity) else identity


def require(connection: HTTPConnection, role: Role) -> Identity:
    """Return who calls, whom the gate has identified. Raises Unauthorized or Forbidden."""
    identity: Identity | None = connection.scope.get("stepwell.identity")
    if identity is None:
        raise Unauthorized("this server does not know you; send the header `Authorization: Bearer TOKEN`")
    if not identity.role.includes(role):
        raise Forbidden(f"{identity.name!r} may {identity.role.value}, and this needs the role {role.value!r}")
    return identity


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
