"""Why an exported run that is whole is not imported."""

from __future__ import annotations

from typing import Literal

from stepwell.errors import RunError

Reason = Literal["redacted", "there", "busy", "large"]
"""Private values are missing; another run of that name is there; it is under way; it needs more memory than it may."""


class ImportRefused(RunError):
    """A file that is whole is not imported, and nothing was written. `reason` is one word for why, `what` says it
    without what to do about it."""

    def __init__(self, what: str, advice: str, *, run_id: str, reason: Reason) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what}{advice}", run_id=run_id)


def too_large(what: str, max_memory: int, run_id: str) -> ImportRefused:
    """The error for something in a file that takes more memory than it may."""
    return ImportRefused(
        f"{what} needs more memory to be read than the limit of {max_memory / 2**20:,.0f} MiB",
        ": if you trust where it comes from, raise max_memory",
        run_id=run_id,
        reason="large",
    )
