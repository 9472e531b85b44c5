"""Errors that a server reports, as those of the library that they are."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from stepwell.cli.failures import FAILED, NOT_FOUND, USAGE, CommandFailed
from stepwell.error_ids import ErrorId
from stepwell.errors import StepwellError

TOKEN = "STEPWELL_TOKEN"
# Where the classes are that are not in `errors`.
_HOMES = {
    "NotFound": "stepwell.admin.lookup",
    "Ambiguous": "stepwell.admin.lookup",
    "NotForked": "stepwell.admin.diffs.checkpoints",
    "EditRefused": "stepwell.admin.state_edits",
}
_OF_COMMANDS = "SW5"  # ids of the ways in which a command fails
_CODES = {404: NOT_FOUND, 409: NOT_FOUND, 410: NOT_FOUND, 422: USAGE}


class WrongValue(CommandFailed, ValueError):
    """A value that the library refuses with a plain ValueError, on a server."""


def make_error(status: int, body: bytes) -> Exception:
    """Return what a server refused a request with.

    An error of the library is one here, too: it is reported as if the command had met it in a store.
    """
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
        name, id, detail = str(problem["type"]), str(problem["code"]), str(problem["detail"])
    except (msgspec.DecodeError, KeyError):
        return CommandFailed(ErrorId.NO_SERVER, f"the server answers with {status}", "is this a server of Stepwell?")
    hint = str(problem.get("hint") or "")
    if status == 401:
        hint = f"pass the address that `stepwell serve` prints, or set ${TOKEN}"
    if id == ErrorId.WRONG_USAGE:
        return WrongValue(id, detail, hint, USAGE)
    if id.startswith(_OF_COMMANDS):
        return CommandFailed(id, detail, hint, USAGE if status == 422 else FAILED)
    kind = getattr(import_module(_HOMES.get(name, "stepwell.errors")), name, None)
    if not (isinstance(kind, type) and issubclass(kind, StepwellError)):
        return CommandFailed(id, detail, hint, _CODES.get(status, FAILED))
    # Not by its constructor: what that takes differs from class to class, and the sentence is here already.
    error = kind.__new__(kind, detail)
    error.__dict__.update({name: problem.get(name) for name in ("run_id", "request_id", "candidates")})
    return error
