"""The results of an examination, and the checks that need only one checkpoint or document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from stepwell.errors import CodecError
from stepwell.model.checkpoint import Checkpoint

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem in a store.

    An error means that a run cannot continue, or that data is not what was written.
    """

    severity: Severity
    what: str  # the problem, in a sentence
    run_id: str | None = None
    number: int | None = None  # of a commit


@dataclass(slots=True)
class Examined:
    """How much was examined, and how long it took."""

    runs: int = 0
    records: int = 0
    bytes: int = 0
    log_entries: int = 0  # of superstep logs
    signals: int = 0
    requests: int = 0
    errors: int = 0
    warnings: int = 0
    seconds: float = 0.0
    formats: Counter[int] = field(default_factory=Counter)  # records by format
    statuses: Counter[str] = field(default_factory=Counter)  # runs by how they stand: see `RunInfo.standing`

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


def remove_duplicates(findings: list[Finding]) -> list[Finding]:
    """Return the findings without those that repeat an earlier one for another commit."""
    # Reversed twice: a dict keeps the last value of a key, and the first finding is the one to
    # keep.
    return list({finding.what: finding for finding in reversed(findings)}.values())[::-1]


def find_unknown_executors(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield a sentence for each executor in a checkpoint that is not in its own graph."""
    executors = set(checkpoint.header.signature.get("executors", ()))
    names = [
        *checkpoint.executors,
        *(r.executor for r in checkpoint.requests.values()),
        *(t for m in checkpoint.messages for t in m.takers),
        *checkpoint.timers,
    ]
    for name in dict.fromkeys(names):
        if name not in executors:
            yield f"the head of the run refers to executor {name!r}, which is not in the graph stored with it"


def check_tags(tree: Any, subject: str) -> None:
    """Raise CodecError, naming `subject`, if a tagged value in `tree` does not name its class."""
    # A stack instead of recursion: a damaged record may be nested deeper than Python recurses.
    stack = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if not isinstance(value.get("$", ""), str):
                raise CodecError(f"{subject} contains a tagged value without a class name", path="$")
            stack += value.values()
        elif isinstance(value, list):
            stack += value
