"""A run as one who follows it sees it: each executor, what it does and since when. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepwell.cli.views.text import pluralise, printable, status_word

if TYPE_CHECKING:
    from stepwell.cli.views.events import TimedEvent
    from stepwell.model.event import WorkflowEvent

UNTOUCHED, NEXT, RUNNING, RETRYING, STOPPED = "-", "next", "running", "retrying", "stopped"
ASKING, FAILED, DONE = "asking", "failed", "done"
AT_WORK = (RUNNING, RETRYING)
LIVELY = (FAILED, RUNNING, RETRYING, STOPPED, ASKING, NEXT)  # what is worth a line if there is not room for all
CHATTER = frozenset({"checkpoint", "update", "withdrawn"})  # what is being said right now, bit by bit
_HIDDEN = CHATTER | {"started"}


@dataclass
class ExecutorView:
    """One executor."""

    state: str = UNTOUCHED
    calls: int = 0
    since: float = 0.0  # when it began what it does
    took: float | None = None  # seconds, if that is over
    asked_in: int | None = None  # the commit with its last question

    def stop(self, now: float) -> None:
        """What it did is over."""
        if self.state in AT_WORK:
            self.took = now - self.since


@dataclass(frozen=True)
class SceneRow:
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
    views: dict[str, ExecutorView] = field(init=False)

    def __post_init__(self) -> None:
        self.views = {name: ExecutorView() for name in self.executors}

    def apply(self, timed: TimedEvent, now: float) -> None:
        """Something was told."""
        event = timed.event
        if event.type not in _HIDDEN:
            self.last = timed.describe()
        if event.run_id and not event.path:
            self.run_id = event.run_id
        if event.executor_id is not None:
            self._apply_to(self._view_of(event.path, event.executor_id), event, now)
        elif event.path:
            return
        elif event.type in ("superstep_started", "superstep_completed") and event.iteration is not None:
            self.superstep = event.iteration
        elif event.type == "status" and event.state is not None:
            self.status = event.state.value

    def add(self, names: Iterable[str]) -> None:
        """These are in the graph, whether or not they are ever called."""
        for name in names:
            self.views.setdefault(name, ExecutorView())

    def expect(self, names: Iterable[str]) -> None:
        """These are to be called next, as far as it is known from the store alone."""
        for name in names:
            self.views.setdefault(name, ExecutorView()).state = NEXT

    def end(self, status: str, now: float) -> None:
        """It rests. Whoever was still at work then is called again when it goes on."""
        self.status, self.ended = status, now
        for view in self.views.values():
            if view.state in AT_WORK:
                view.state = STOPPED

    def heading(self, now: float) -> str:
        parts = [self.run_id, self.workflow, status_word(self.status), f"superstep {self.superstep}"]
        return printable("  ".join([*parts, format_seconds((self.ended or now) - self.began)]))

    def rows(self, now: float, room: int) -> Iterator[SceneRow]:
        """A row for each executor; those that do nothing are left out where there is not room for all."""
        views = list(self.views.items())  # at once: it is drawn from another thread than it is heard in
        shown = views if len(views) <= room else _foremost(views, max(room - 1, 1))
        for name, view in shown:
            calls = pluralise(view.calls, "call") if view.calls else ""
            yield SceneRow(printable(name), view.state, calls, self._time(view, now))
        if len(shown) < len(views):
            yield SceneRow(f"... and {pluralise(len(views) - len(shown), 'other')}", "", "", "")

    def _view_of(self, path: Sequence[str], executor: str) -> ExecutorView:
        """That of an executor; one inside another gets its place after it."""
        name, above = "/".join([*path, executor]), "/".join(path)
        if name not in self.views:
            names = list(self.views)
            inside = [
                at for at, entry in enumerate(names, 1) if path and (entry == above or entry.startswith(f"{above}/"))
            ]
            names.insert(inside[-1] if inside else len(names), name)
            self.views = {entry: self.views.get(entry) or ExecutorView() for entry in names}
        return self.views[name]

    def _apply_to(self, view: ExecutorView, event: WorkflowEvent, now: float) -> None:
        match event.type:
            case "executor_invoked":
                if view.state not in AT_WORK:
                    view.since, view.took = now, None
                view.state = RUNNING
            case "executor_retrying":
                view.state = RETRYING
            case "request_info":
                view.stop(now)
                view.state, view.asked_in = ASKING, event.commit
            case "executor_completed" | "executor_failed":
                view.stop(now)
                view.calls += 1
                asks = view.asked_in == event.commit  # in this very call, so that it is still open
                view.state = FAILED if event.type == "executor_failed" else ASKING if asks else DONE

    def _time(self, view: ExecutorView, now: float) -> str:
        if view.state in AT_WORK:
            return format_seconds(now - view.since)
        return "" if view.took is None else format_seconds(view.took)


def _foremost(views: list[tuple[str, ExecutorView]], room: int) -> list[tuple[str, ExecutorView]]:
    """As many as there is room for, in the order they have, those that do something before the others."""
    by_weight = sorted(
        views, key=lambda entry: LIVELY.index(entry[1].state) if entry[1].state in LIVELY else len(LIVELY)
    )
    chosen = {name for name, _ in by_weight[:room]}
    return [entry for entry in views if entry[0] in chosen]


def format_seconds(span: float) -> str:
    """A time as it passes: `3.2 s`, `4:05`."""
    span = max(span, 0.0)
    if span < 60:
        return f"{span:.1f} s"
    whole = int(span)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{whole // 60}:{whole % 60:02}"
