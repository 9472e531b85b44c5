"""What a store owes after a power failure: everything that it had acknowledged, and nothing that it was never given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import RequestFilter
from stepwell.testing.store_rules.samples import logged, signals_of

from .recording import Call
from .story import RUN


@dataclass
class Owed:
    """What was asked of a store, and what it had acknowledged, at one moment of a recording."""

    begun: dict[int, dict[str, Any]] = field(default_factory=dict)  # commits, by number
    done: int = -1  # the last commit that was acknowledged
    memory: dict[tuple[int, str], Any] = field(default_factory=dict)
    remembered: set[tuple[int, str]] = field(default_factory=set)
    signals: dict[str, Any] = field(default_factory=dict)
    posted: set[str] = field(default_factory=set)
    stepped: set[str] = field(default_factory=set)  # the steps whose results handlers had been given

    def see(self, mark: dict[str, Any]) -> None:
        if mark["happened"] == "stepped":
            self.stepped.add(mark["name"])
        if mark["happened"] in ("begun", "done"):
            getattr(self, "_" + mark["what"], lambda mark, done: None)(mark, mark["happened"] == "done")

    def _append(self, mark: dict[str, Any], done: bool) -> None:
        self.begun[mark["number"]] = mark
        self.done = max(self.done, mark["number"]) if done else self.done

    def _write_log(self, mark: dict[str, Any], done: bool) -> None:
        self.memory[mark["place"], mark["key"]] = json.loads(mark["body"])
        if done:
            self.remembered.add((mark["place"], mark["key"]))

    def _send(self, mark: dict[str, Any], done: bool) -> None:
        self.signals[mark["key"]] = json.loads(mark["body"])
        if done:
            self.posted.add(mark["key"])

    def open_after(self, head: int) -> set[str]:
        """The questions that are open when that commit is the newest."""
        found: set[str] = set()
        for number in range(head + 1):
            found = found - set(self.begun[number]["closed"]) | set(self.begun[number]["asked"])
        return found

    def consumed_by(self, head: int) -> set[str]:
        return {key for number in range(head + 1) for key in self.begun[number]["consumed"]}

    def handled_by(self, head: int) -> set[str]:
        """The deliveries whose outcomes are in the commits up to that one."""
        bodies = [json.loads(self.begun[number]["body"]) for number in range(head + 1)]
        return {one["delivery"] for body in bodies for one in body.get("done", ())}

    def kept_after(self, head: int) -> list[int]:
        """The commits that are there when that one is the newest. Outputs are never let go."""
        below = max((self.begun[number]["drop_below"] or 0 for number in range(head + 1)), default=0)
        return [number for number in range(head + 1) if number >= below or self.begun[number]["outputs"]]

    def body_after(self, head: int, number: int) -> Any:
        """What a commit says when that one is the newest: all of it, or the outputs alone."""
        reduced = [self.begun[one]["reduced"].get(str(number)) for one in range(number + 1, head + 1)]
        return json.loads(next(filter(None, reduced), self.begun[number]["body"]))

    def settled_by(self, head: int) -> int:
        """The last place whose memory is of no use any more."""
        return max((self.begun[number]["settled"] or -1 for number in range(head + 1)), default=-1)


def owed_at(calls: Sequence[Call], at: int) -> Owed:
    owed = Owed()
    for call in calls[:at]:
        if call.what == "mark":
            owed.see(call.mark)
    return owed


@dataclass(frozen=True)
class Found:
    """What is in a store."""

    head: int
    durable: set[str]  # the deliveries whose outcomes are there
    kept: frozenset[Any]  # all of it, to be compared


async def look(storage: BuiltInStorage, owed: Owed) -> Found:
    """What is there. Raises AssertionError if something is missing that is owed, or there is what never was."""
    store = storage._store
    records = await store.history(RUN)
    numbers = [record.entry.number for record in records]
    head = numbers[-1] if numbers else -1
    assert owed.done <= head, f"commit {owed.done} was acknowledged, and the last one there is {head}"
    assert head in owed.begun or head == -1, f"commit {head} is there, and nobody had begun to write it"
    kept = owed.kept_after(head)
    assert numbers == kept, f"the commits {numbers} are there, and should be {kept}"
    for record in records:
        told = owed.body_after(head, record.entry.number)
        assert json.loads(record.body) == told, f"commit {record.entry.number} is not what was written"
    open_now = {question.request_id for question in await store.requests(RequestFilter(run_id=RUN))}
    assert open_now == owed.open_after(head), f"other questions are open than after commit {head}: {open_now}"
    memory = await _memory(storage, owed, head)
    mail = await _mail(storage, owed, head)
    entries = [record.entry for record in records]
    listed = [entry.checkpoint_id for entry in entries if not entry.latest_only or entry is entries[-1]]
    assert [one.checkpoint_id for one in await storage.list_checkpoints(run_id=RUN)] == listed
    outcomes = {key for _, key in memory if "/" not in key}
    return Found(head, owed.handled_by(head) | outcomes, frozenset({head, *memory, *mail}))


async def _memory(storage: BuiltInStorage, owed: Owed, head: int) -> set[tuple[int, str]]:
    settled, found = owed.settled_by(head), set[tuple[int, str]]()
    for place in sorted({place for place, _ in owed.memory if place > settled}):
        for key, body in (await logged(storage._store, RUN, place)).items():
            assert owed.memory.get((place, key)) == json.loads(body), f"what is remembered as {key} never was so"
            found.add((place, key))
    missing = {(place, key) for place, key in owed.remembered if place > settled} - found
    assert not missing, f"acknowledged as remembered, and forgotten: {sorted(missing)}"
    return found


async def _mail(storage: BuiltInStorage, owed: Owed, head: int) -> set[str]:
    consumed, found = owed.consumed_by(head), dict(await signals_of(storage._store, RUN))
    for key, body in found.items():
        assert owed.signals.get(key) == json.loads(body), f"the mail {key} never was so"
    again, missing = set(found) & consumed, owed.posted - consumed - set(found)
    assert not again, f"consumed, and there again: {sorted(again)}"
    assert not missing, f"acknowledged as posted, and lost: {sorted(missing)}"
    for key in owed.posted:
        assert not await storage._store.send(RUN, key, b'{"second":true}'), (
            f"a second {key} was taken after the first one"
        )
    return set(found)
