"""What type checkers see of `stepwell.server`. `__init__.py` lists the same names for Python."""

from stepwell.server.application import app, running
from stepwell.server.identity import Anyone, Identity, Role, Tokens
from stepwell.server.services import ServerLimits

__all__ = [
    "Anyone",
    "Identity",
    "Role",
    "ServerLimits",
    "Tokens",
    "app",
    "running",
]
