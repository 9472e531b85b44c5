"""The error for an exported run that is intact and still not imported."""

from __future__ import annotations

from typing import Literal

from stepwell.errors import RunError

Reason = Literal["redacted", "there", "busy", "large"]
"""Private values were removed; another run has its id.

It is in progress; it needs more memory than the limit.
"""


class ImportRefused(RunError):
    """An intact file is not imported, and nothing was written.

    `reason` is the cause in one word; `what` is the message without its advice.
    """

    def __init__(self, what: str, advice: str, *, run_id: str, reason: Reason) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what}{advice}", run_id=run_id)


def too_large_error(what: str, max_memory: int, run_id: str) -> ImportRefused:
    """Return the error for a part of a file that needs more memory than the limit."""
    return ImportRefused(
        f"{what} needs more memory than the limit of {max_memory / 2**20:,.0f} MiB",
        "; if you trust its source, raise max_memory",
        run_id=run_id,
        reason="large",
    )
