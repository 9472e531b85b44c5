"""What an examination of a store finds, and what can be found out from one checkpoint or one text alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from stepwell.errors import CodecError
from stepwell.model.superstep import Checkpoint

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it must be. An error: a run cannot go on, or what is read is not what was written."""

    severity: Severity
    what: str
    run_id: str | None = None
    number: int | None = None  # of a commit


@dataclass(slots=True)
class Examined:
    """What was looked at, and how long it took."""

    runs: int = 0
    records: int = 0
    bytes: int = 0
    memory: int = 0
    letters: int = 0
    questions: int = 0
    errors: int = 0
    warnings: int = 0
    seconds: float = 0.0
    formats: Counter[int] = field(default_factory=Counter)  # records by the format they are of
    statuses: Counter[str] = field(default_factory=Counter)  # runs by where they are

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


def remove_duplicates(findings: list[Finding]) -> list[Finding]:
    """Without those that say the same again of another commit."""
    return list({finding.what: finding for finding in reversed(findings)}.values())[::-1]


def find_unknown_executors(checkpoint: Checkpoint) -> Iterator[str]:
    """Executors a checkpoint names that its own graph does not have."""
    executors = set(checkpoint.header.signature.get("executors", ()))
    names = [
        *checkpoint.executors,
        *(r.executor for r in checkpoint.requests.values()),
        *(t for m in checkpoint.messages for t in m.takers),
    ]
    for name in dict.fromkeys(names):
        if name not in executors:
            yield f"its head names the executor {name!r}, which the graph it was stored with does not have"


def check_tags(tree: Any, what: str) -> None:
    """Raises CodecError if something is marked as a value of a class and does not say of which."""
    waiting = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if not isinstance(value.get("$", ""), str):
                raise CodecError(f"{what} holds a value of no class", path="$")
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
