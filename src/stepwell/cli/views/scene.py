"""A run as one who follows it sees it: each executor, what it does and since when. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepwell.cli.views.text import counted, printable, status_word

if TYPE_CHECKING:
    from stepwell.cli.views.events import Heard
    from stepwell.model.event import WorkflowEvent

UNTOUCHED, NEXT, RUNNING, RETRYING, STOPPED = "-", "next", "running", "retrying", "stopped"
ASKING, FAILED, DONE = "asking", "failed", "done"
AT_WORK = (RUNNING, RETRYING)
LIVELY = (FAILED, RUNNING, RETRYING, STOPPED, ASKING, NEXT)  # what is worth a line if there is not room for all
_UNSAID = frozenset({"started", "checkpoint", "update", "withdrawn"})


@dataclass
class Seat:
    """One executor."""

    state: str = UNTOUCHED
    calls: int = 0
    since: float = 0.0  # when it began what it does
    took: float | None = None  # seconds, if that is over
    asked: int | None = None  # the commit with its last question

    def stop(self, now: float) -> None:
        """What it did is over."""
        if self.state in AT_WORK:
            self.took = now - self.since


@dataclass(frozen=True)
class Row:
    """One line of the picture."""

    name: str
    state: str
    calls: str
    time: str


@dataclass
class Scene:
    """What was heard so far. `began` and every `now` are seconds of one clock."""

    run_id: str
    workflow: str
    executors: Iterable[str]
    began: float
    status: str = "IN_PROGRESS"
    superstep: int = 0
    last: str = ""
    ended: float | None = None
    seats: dict[str, Seat] = field(init=False)

    def __post_init__(self) -> None:
        self.seats = {name: Seat() for name in self.executors}

    def hear(self, heard: Heard, now: float) -> None:
        """Something was told."""
        event = heard.event
        if event.type not in _UNSAID:
            self.last = heard.words()
        if event.run_id and not event.path:
            self.run_id = event.run_id
        if event.executor_id is not None:
            self._hear_of(self._seat(event.path, event.executor_id), event, now)
        elif event.path:
            return
        elif event.type in ("superstep_started", "superstep_completed") and event.iteration is not None:
            self.superstep = event.iteration
        elif event.type == "status" and event.state is not None:
            self.status = event.state.value

    def expect(self, names: Iterable[str]) -> None:
        """These are to be called next, as far as it is known from the store alone."""
        for name in names:
            self.seats.setdefault(name, Seat()).state = NEXT

    def end(self, status: str, now: float) -> None:
        """It rests. Whoever was still at work then is called again when it goes on."""
        self.status, self.ended = status, now
        for seat in self.seats.values():
            if seat.state in AT_WORK:
                seat.state = STOPPED

    def heading(self, now: float) -> str:
        known = [self.run_id, self.workflow, status_word(self.status), f"superstep {self.superstep}"]
        return printable("  ".join([*known, seconds((self.ended or now) - self.began)]))

    def rows(self, now: float, room: int) -> Iterator[Row]:
        """A row for each executor; those that do nothing are left out where there is not room for all."""
        seats = list(self.seats.items())  # at once: it is drawn from another thread than it is heard in
        shown = seats if len(seats) <= room else _foremost(seats, max(room - 1, 1))
        for name, seat in shown:
            calls = counted(seat.calls, "call") if seat.calls else ""
            yield Row(printable(name), seat.state, calls, self._time(seat, now))
        if len(shown) < len(seats):
            yield Row(f"... and {counted(len(seats) - len(shown), 'other')}", "", "", "")

    def _seat(self, path: Sequence[str], executor: str) -> Seat:
        """That of an executor; one inside another gets its place after it."""
        name, above = "/".join([*path, executor]), "/".join(path)
        if name not in self.seats:
            names = list(self.seats)
            inside = [at for at, one in enumerate(names, 1) if path and (one == above or one.startswith(f"{above}/"))]
            names.insert(inside[-1] if inside else len(names), name)
            self.seats = {one: self.seats.get(one) or Seat() for one in names}
        return self.seats[name]

    def _hear_of(self, seat: Seat, event: WorkflowEvent, now: float) -> None:
        match event.type:
            case "executor_invoked":
                if seat.state not in AT_WORK:
                    seat.since, seat.took = now, None
                seat.state = RUNNING
            case "executor_retrying":
                seat.state = RETRYING
            case "request_info":
                seat.stop(now)
                seat.state, seat.asked = ASKING, event.commit
            case "executor_completed" | "executor_failed":
                seat.stop(now)
                seat.calls += 1
                asks = seat.asked == event.commit  # in this very call, so that it is still open
                seat.state = FAILED if event.type == "executor_failed" else ASKING if asks else DONE

    def _time(self, seat: Seat, now: float) -> str:
        if seat.state in AT_WORK:
            return seconds(now - seat.since)
        return "" if seat.took is None else seconds(seat.took)


def _foremost(seats: list[tuple[str, Seat]], room: int) -> list[tuple[str, Seat]]:
    """As many as there is room for, in the order they have, those that do something before the others."""
    by_weight = sorted(seats, key=lambda one: LIVELY.index(one[1].state) if one[1].state in LIVELY else len(LIVELY))
    chosen = {name for name, _ in by_weight[:room]}
    return [one for one in seats if one[0] in chosen]


def seconds(span: float) -> str:
    """A time as it passes: `3.2 s`, `4:05`."""
    span = max(span, 0.0)
    if span < 60:
        return f"{span:.1f} s"
    whole = int(span)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{whole // 60}:{whole % 60:02}"
