"""Many runs, a few processes that drive them, and somebody who kills these again and again."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.storage.store_archive import StoreArchive
from stepwell.testing.store_rules.samples import logged
from tests.support.postgres_server import Server

from .crew import Orders
from .ledger import Line
from .nursery import WAIT, Child, Nursery
from .places import Place

LEASE = 1.0  # seconds
OPEN = 8  # runs at a time
CREW = ("drive", "drive", "answer")
WORKERS = ("work", "work", "work", "serve")


class Storm:
    def __init__(
        self,
        place: Place,
        seed: object,
        nursery: Nursery,
        *,
        manner: str = "as it is",
        crew: tuple[str, ...] = CREW,
    ) -> None:
        self.place, self.seed, self._manner = place, seed, manner
        self.lines: list[Line] = []
        self.runs = 0
        self._chance = random.Random(f"{seed}")
        self._ledger = place.ledger
        self._storage = place.open()
        self._nursery = nursery
        self._runner = asyncio.Runner()
        self._open: list[str] = []
        self._held: dict[int, set[str]] = defaultdict(set)  # what each process drives
        self._asleep: list[tuple[float, Child]] = []  # those that were stopped, and until when
        self._is_closing = False
        self._order()
        self._crew = [self._bear(what) for what in crew]

    def kill(self) -> None:
        """Kill somebody in the middle of something, look at what is stored, and let another take the place."""
        victim = self._victim()
        victim.kill()
        self._watch()
        self._ledger.write("killed", victim=victim.pid, held=sorted(self._held[victim.pid]))
        self._look(self._held.pop(victim.pid, set()))
        self._crew[self._crew.index(victim)] = self._bear(victim.name)

    def pause(self) -> None:
        """Let somebody stand still for longer than a lease: it comes back and does not know."""
        victim = self._victim()
        victim.stop()
        self._ledger.write("stopped", victim=victim.pid, held=sorted(self._held[victim.pid]))
        self._asleep.append((time.monotonic() + 1.3 * LEASE, victim))

    def work(self, lines: int) -> None:
        """Let them work until so much more is written down."""
        enough = len(self.lines) + lines
        self._until(lambda: len(self.lines) >= enough, f"{lines} more lines")

    def end(self) -> None:
        """Let all runs come to their end, and everybody go home."""
        self._is_closing = True
        self._order()
        self._until(lambda: not self._open, "the end of all runs")
        while self._asleep:
            self._wake()
            time.sleep(0.01)
        for child in self._crew:
            code = child.wait()
            assert code == 0, f"{child} ended with {code}:\n{child.words()}\n{self._where()}"
        self._watch()

    def restart(self, server: Server, how: str, *, away: float = 0.0) -> None:
        """The server goes and comes back after so many seconds, while everybody works on it."""
        server.stop(how)
        self._ledger.write("restart", how=how)
        time.sleep(away)
        server.start()

    def close(self) -> None:
        for _, child in self._asleep:
            child.go_on()
        for child in self._crew:
            child.kill()
        self._runner.run(self._storage.close())
        self._runner.close()

    def ask(self, question: Any) -> Any:
        """What comes of a coroutine."""
        return self._runner.run(question)

    def archive(self) -> StoreArchive:
        return StoreArchive(self._storage._store, DEFAULT_CODEC)

    def _bear(self, what: str) -> Child:
        seed = str(self._chance.random())
        given = (what, str(self.place), seed, str(LEASE), self._manner)
        return self._nursery.bear("tests.crash.crew", *given, name=what)

    def _victim(self) -> Child:
        at_work = self._chance.random() < 0.8  # the others may be about to begin, or wait
        who = self._busy if at_work else self._awake
        while True:  # all may have been put to sleep
            self._until(lambda: bool(who()), "somebody who drives a run" if at_work else "somebody who is awake")
            time.sleep(self._chance.uniform(0, 0.006))
            self._watch()
            if victims := who() or self._awake():
                return self._chance.choice(victims)

    def _awake(self) -> list[Child]:
        asleep = {child.pid for _, child in self._asleep}
        return [child for child in self._crew if child.pid not in asleep]

    def _busy(self) -> list[Child]:
        return [child for child in self._awake() if self._held[child.pid]]

    def _look(self, runs: set[str]) -> None:
        """Write down what is stored of runs that somebody was killed over: that, too, must not be done again."""
        for run_id in sorted(runs):
            at = self.ask(self.archive().head(run_id))
            if at is not None:
                keys = self.ask(logged(self._storage._store, run_id, at.place))
                self._ledger.write("seen", run_id, place=at.place, keys=sorted(keys))

    def _until(self, fact: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT
        self._watch()
        while not fact():
            assert time.monotonic() < deadline, f"{what} never came\n{self._where()}"
            self._check_crew()
            self._wake()
            time.sleep(0.001)
            self._watch()

    def _wake(self) -> None:
        for due, child in list(self._asleep):
            if time.monotonic() >= due:
                self._ledger.write("continued", victim=child.pid)
                child.go_on()
                self._asleep.remove((due, child))

    def _watch(self) -> None:
        """Take in what was written down, and see to it that there is enough to do."""
        news = self._ledger.news()
        self.lines += news
        for line in news:
            if line.what == "claimed":
                self._held[line.by].add(line.run)
            elif line.what == "released":
                self._held[line.by].discard(line.run)
            elif line.what == "ended" and line.run in self._open:
                self._open.remove(line.run)
                self._order()

    def _order(self) -> None:
        while len(self._open) < OPEN and not self._is_closing:
            self._open.append(f"run-{self.runs}")
            self.runs += 1
        Orders(self._open, self._is_closing).write(self.place.path)

    def _check_crew(self) -> None:
        for child in self._crew:
            how = f"{child} ended by itself with {child.code()}"
            assert not child.has_failed(), f"{how}:\n{child.words()}\n{self._where()}"

    def _where(self) -> str:
        last = "\n".join(str(line) for line in self.lines[-20:])
        return f"{self.place.kind}, seed {self.seed}; the ledger is {self._ledger.path}; its last lines:\n{last}"


@contextmanager
def storm(
    place: Place, seed: object, nursery: Nursery, *, manner: str = "as it is", crew: tuple[str, ...] = CREW
) -> Iterator[Storm]:
    made = Storm(place, seed, nursery, manner=manner, crew=crew)
    try:
        yield made
    finally:
        made.close()


def rage(storm: Storm, kills: int, *, pauses: int = 0) -> None:
    """So many kills and pauses, at moments that only the seed knows; then calm."""
    chance = random.Random(f"{storm.seed} rages")
    acts = [storm.kill] * kills + [storm.pause] * pauses
    chance.shuffle(acts)
    for act in acts:
        storm.work(chance.randint(1, 24))
        act()
    storm.end()
