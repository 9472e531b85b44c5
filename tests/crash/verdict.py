"""What the ledger and the stores say of a storm: what was lost, what was done again though it was durable."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from stepwell import WorkflowRunState
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit

from .errands import ACTS
from .ledger import Line
from .storm import Storm


@dataclass
class Verdict:
    store: str
    seed: str
    kills: int = 0
    kills_in_a_drive: int = 0  # of somebody who drove at least one run
    pauses: int = 0
    restarts: int = 0
    runs: int = 0
    commits: int = 0
    executions: int = 0
    cut_off: int = 0  # executions again of what was not durable yet
    late: int = 0  # by somebody whose claim had been taken over, and did not know
    refused: int = 0  # writes of such
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)  # committed
    wrong: list[str] = field(default_factory=list)
    recoveries: list[float] = field(
        default_factory=list
    )  # seconds until it goes on: somebody drives a run, the server commits
    seconds: float = 0.0  # that the storm took

    def complaints(self) -> list[str]:
        named = {"lost": self.lost, "repeated": self.repeated, "committed twice": self.twice, "wrong": self.wrong}
        return [f"{name}: {one}" for name, found in named.items() for one in found]

    def figures(self) -> dict[str, Any]:
        """Numbers only: of what went wrong how often, of recoveries the median and the longest."""
        found = {name: len(one) if isinstance(one, list) else one for name, one in vars(self).items()}
        del found["recoveries"]
        return found | recovery(self.recoveries)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.figures().items())


def recovery(seconds: list[float]) -> dict[str, float | None]:
    return {
        "recovery_median": round(statistics.median(seconds), 4) if seconds else None,
        "recovery_max": round(max(seconds), 4) if seconds else None,
    }


def judged(storm: Storm) -> Verdict:
    """To be called when the storm is over."""
    seconds = round(storm.lines[-1].at - storm.lines[0].at, 1)
    verdict = Verdict(storm.place.kind, str(storm.seed), runs=storm.runs, seconds=seconds)
    book = read_into(verdict, storm.lines)
    for run_id in sorted(book.claimed):
        _Run(storm, run_id, book, verdict).compare()
    for number in range(storm.runs):
        if f"run-{number}" not in book.claimed:
            verdict.lost.append(f"run-{number} was never driven")
    return verdict


def read_into(verdict: Verdict, lines: list[Line]) -> _Book:
    """What the ledger alone says."""
    book = _Book(verdict)
    for line in lines:
        book.read(line)
    return book


class _Book:
    """The ledger, read once from the beginning to the end."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self.claimed: dict[str, int] = {}  # the highest claim on each run
        self._claims: dict[tuple[int, str], int] = {}  # the last one of each process
        self._durable: dict[tuple[str, str], Line] = {}  # by run and delivery or step
        self._settled: dict[str, int] = defaultdict(lambda: -1)  # up to which place, by run
        self.commits: dict[tuple[str, int], str] = {}  # the stamps of those that were acknowledged
        self.words: dict[tuple[str, str], list[Line]] = defaultdict(list)  # executions, by run and delivery or step
        self.by_word: dict[str, Line] = {}
        self.kept_by: dict[tuple[str, str], int] = {}
        self.answers: dict[str, list[str]] = defaultdict(list)  # tried, by run
        self.answered: dict[str, list[str]] = defaultdict(list)  # acknowledged
        self._restarted: float | None = None  # when the server went, if nothing was committed since
        self._killed: list[tuple[Line, set[str]]] = []  # kills, and the runs nobody has taken over since

    def read(self, line: Line) -> None:
        getattr(self, f"on_{line.what}", self.on_other)(line)

    def on_other(self, line: Line) -> None:
        """Nothing that anything is concluded from."""

    def on_claimed(self, line: Line) -> None:
        fence = line.more["fence"]
        self._claims[line.by, line.run] = fence
        self.claimed[line.run] = max(fence, self.claimed.get(line.run, 0))
        for killed, left in self._killed:
            if line.run in left:
                left.discard(line.run)
                self._verdict.recoveries.append(line.at - killed.at)
        self._killed = [(killed, left) for killed, left in self._killed if left]

    def on_ran(self, line: Line) -> None:
        key = line.run, line.more["key"]
        self._verdict.executions += 1
        is_late = self._claims[line.by, line.run] < self.claimed[line.run]
        if is_late:
            self._verdict.late += 1
        elif key in self._durable or _place(key[1]) <= self._settled[line.run]:
            since = self._durable.get(key, "its superstep was committed")
            self._verdict.repeated.append(f"{line}, after {since}")
        elif self.words[key]:
            self._verdict.cut_off += 1
        if any(other.more["idempotency"] != line.more["idempotency"] for other in self.words[key]):
            self._verdict.wrong.append(f"{line} has another idempotency key than before")
        self.words[key].append(line)
        self.by_word[line.more["word"]] = line

    def on_kept(self, line: Line) -> None:
        key = line.run, line.more["key"]
        self._durable.setdefault(key, line)
        if line.more["new"]:
            self.kept_by[key] = line.by

    def on_seen(self, line: Line) -> None:
        for key in line.more["keys"]:
            self._durable.setdefault((line.run, key), line)
        self._settled[line.run] = max(self._settled[line.run], line.more["place"] - 1)

    def on_committed(self, line: Line) -> None:
        number, settled = line.more["number"], line.more["settled"]
        if (line.run, number) in self.commits:
            self._verdict.twice.append(f"{line}, acknowledged before")
        self.commits[line.run, number] = line.more["stamp"]
        if self._restarted is not None:
            self._verdict.recoveries.append(line.at - self._restarted)
            self._restarted = None
        if settled is not None:
            self._settled[line.run] = max(self._settled[line.run], settled)

    def on_refused(self, line: Line) -> None:
        self._verdict.refused += 1

    def on_failed(self, line: Line) -> None:
        self._verdict.wrong.append(f"{line}: no handler fails in a storm")

    def on_answers(self, line: Line) -> None:
        self.answers[line.run].append(line.more["word"])

    def on_answered(self, line: Line) -> None:
        self.answered[line.run].append(line.more["word"])

    def on_killed(self, line: Line) -> None:
        self._verdict.kills += 1
        self._verdict.kills_in_a_drive += bool(line.more["held"])
        self._killed.append((line, set(line.more["held"])))

    def on_stopped(self, line: Line) -> None:
        self._verdict.pauses += 1

    def on_restart(self, line: Line) -> None:
        self._verdict.restarts += 1
        self._restarted = line.at


class _Run:
    """What is stored of a run, beside what was written down of it."""

    def __init__(self, storm: Storm, run_id: str, book: _Book, verdict: Verdict) -> None:
        self._run_id, self._book, self._verdict = run_id, book, verdict
        archive = storm.archive()
        self._head: Checkpoint | None = storm.ask(archive.head(run_id))
        self._commits: list[Commit] = storm.ask(archive.commits(run_id))
        self._mail: list[Any] = storm.ask(archive.pending_signals(run_id))

    def compare(self) -> None:
        self._verdict.commits += len(self._commits)
        self._acknowledged()
        done = Counter(done.delivery for commit in self._commits for done in commit.done)
        for delivery, times in done.items():
            if times > 1:
                self._verdict.twice.append(f"delivery {delivery} of {self._run_id} is part of {times} commits")
        if self._head is None or self._head.status is not WorkflowRunState.IDLE or self._mail:
            where = self._head and self._head.status.value
            self._verdict.lost.append(f"{self._run_id} did not end: {where}, {len(self._mail)} letters unread")
        elif self._head.header.caller is None:
            self._check_outputs()

    def _acknowledged(self) -> None:
        """Every commit that was acknowledged is there, and it is that very one."""
        stored = {commit.number: commit.stamp.at for commit in self._commits}
        if sorted(stored) != list(range(len(self._commits))):
            self._verdict.lost.append(f"{self._run_id} has the commits {sorted(stored)}")
        for (run_id, number), stamp in self._book.commits.items():
            if run_id == self._run_id and stored.get(number) != stamp:
                there = stored.get(number, "nothing")
                self._verdict.lost.append(f"commit {number} of {run_id}, acknowledged at {stamp}: {there} is there")

    def _check_outputs(self) -> None:
        outputs = [o.payload.open() for commit in self._commits for done in commit.done for o in done.outputs]
        if len(outputs) != 1:
            self._verdict.twice.append(f"{self._run_id} has {len(outputs)} outputs")
            return
        acts = [act.split() for act in outputs[0].trail]
        if tuple(name for name, _ in acts) != ACTS:
            self._verdict.lost.append(f"{self._run_id} came to {outputs[0].trail}")
        for name, word in acts:
            if name == "answer":
                self._check_answer(word)
            else:
                self._check_act(name, word)

    def _check_answer(self, word: str) -> None:
        """The answer that was acknowledged is the one that was taken; one that nobody gave is never taken."""
        given, acknowledged = self._book.answers[self._run_id], self._book.answered[self._run_id]
        if word not in given or acknowledged not in ([], [word]):
            words = f"{given} were given, {acknowledged} acknowledged"
            self._verdict.lost.append(f"an answer to {self._run_id}: {word} was taken, {words}")

    def _check_act(self, name: str, word: str) -> None:
        """What the output is made of was really done, and is what was remembered of it, if anything was."""
        line = self._book.by_word.get(word)
        if line is None or line.more["name"] != name:
            self._verdict.wrong.append(f"{name} {word} in the output of {self._run_id} was never done")
            return
        keeper = self._book.kept_by.get((line.run, line.more["key"]))
        if keeper not in (None, line.by):
            self._verdict.lost.append(f"{name} of {self._run_id} as process {keeper} remembered it: it is now {line}")


def _place(key: str) -> int:
    """The commit that a delivery or a step is named after."""
    return int(key.partition(".")[0])
