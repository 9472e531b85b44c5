"""The state of a live view: each executor, what it does, and since when.

Pure: it neither draws nor reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.admin.calls import summarise_calls
from stepwell.admin.phrases import pluralise
from stepwell.admin.run_events import TimedEvent
from stepwell.model.status_words import status_word
from stepwell.model.visible_text import visible

# The states of an executor
UNTOUCHED, NEXT, RUNNING, RETRYING, STOPPED = "-", "next", "running", "retrying", "stopped"
WAITING, FAILED, COMPLETED = "waiting", "failed", "completed"
FINISHED = "finished"  # its outcome is stored, and not committed yet: it is not called again
AT_WORK = (RUNNING, RETRYING)
BUSY = (FAILED, RUNNING, RETRYING, STOPPED, WAITING, NEXT)  # in the order in which they get one of few lines

CHATTER = frozenset({"checkpoint", "update", "withdrawn"})  # events that come too often for a line each
_HIDDEN = CHATTER | {"started"}


@dataclass
class ExecutorView:
    """One executor."""

    state: str = UNTOUCHED
    calls: int = 0
    since: float = 0.0  # when the current call began
    took: float | None = None  # seconds, once the call is over
    asked_in: int | None = None  # the commit of its last request
    doing: str = ""  # the call that an agent makes, or those that it has made

    def stop(self, now: float) -> None:
        """End the current call."""
        if self.state in AT_WORK:
            self.took = now - self.since


@dataclass
class Scene:
    """What the events so far say about a run. `began` and every `now` are seconds of one clock."""

    run_id: str
    workflow: str
    executors: Iterable[str]
    began: float
    status: str = "running"
    superstep: int = 0
    last: str = ""
    ended: float | None = None
    views: dict[str, ExecutorView] = field(init=False)

    def __post_init__(self) -> None:
        self.views = {name: ExecutorView() for name in self.executors}

    def apply(self, timed: TimedEvent, now: float) -> None:
        """Apply the next event."""
        event = timed.event
        if event.type not in _HIDDEN:
            self.last = timed.describe()
        if event.run_id and not event.path:
            self.run_id = event.run_id
        if event.executor_id is not None:
            if timed.executor_path:  # the conductor of named agents has no row
                self._apply_to(self._view_of(timed.executor_path), timed, now)
        elif event.path:  # of a sub-workflow: neither its superstep nor its status is that of this run
            return
        elif event.type in ("superstep_started", "superstep_completed") and event.iteration is not None:
            self.superstep = event.iteration
        elif event.type == "status" and event.state is not None:
            self.status = status_word(event.state)

    def add(self, names: Iterable[str]) -> None:
        """Add executors of the graph, whether or not they are ever called."""
        for name in names:
            self.views.setdefault(name, ExecutorView())

    def expect(self, names: Iterable[str]) -> None:
        """Mark the executors that are called next.

        A reader of the store sees no event when they start.
        """
        for name in names:
            self.views.setdefault(name, ExecutorView()).state = NEXT

    def end(self, status: str, now: float) -> None:
        """End the view. Executors still at work are stopped: they are called again on resume."""
        self.status, self.ended = status, now
        for view in self.views.values():
            if view.state in AT_WORK:
                view.state = STOPPED

    def heading(self, now: float) -> str:
        parts = [self.run_id, self.workflow, self.status, f"superstep {self.superstep}"]
        return visible("  ".join([*parts, format_seconds((self.ended or now) - self.began)]))

    def rows(self, now: float, room: int) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield name, state, calls, time and what it does of each executor; without room, idle ones are left out."""
        views = list(self.views.items())  # a copy: the view is drawn in a thread while events are applied
        shown = views if len(views) <= room else _busiest(views, max(room - 1, 1))
        for name, view in shown:
            calls = pluralise(view.calls, "call") if view.calls else ""
            took = now - view.since if view.state in AT_WORK else view.took
            time = "" if took is None else format_seconds(took)
            yield visible(name), view.state, calls, time, visible(view.doing)
        if len(shown) < len(views):
            yield f"... and {pluralise(len(views) - len(shown), 'other')}", "", "", "", ""

    def _view_of(self, path: Sequence[str]) -> ExecutorView:
        """Return the view of an executor, which is the last of the path.

        One inside a sub-workflow is inserted after its parent.
        """
        name, parent = "/".join(path), "/".join(path[:-1])
        if name not in self.views:
            names = list(self.views)
            inside = [
                at
                for at, entry in enumerate(names, 1)
                if parent and (entry == parent or entry.startswith(f"{parent}/"))
            ]
            names.insert(inside[-1] if inside else len(names), name)
            # A new dict, because the order is its order, and the drawing thread may be reading the
            # old one.
            self.views = {entry: self.views.get(entry) or ExecutorView() for entry in names}
        return self.views[name]

    def _apply_to(self, view: ExecutorView, timed: TimedEvent, now: float) -> None:
        event = timed.event
        match event.type:
            case "executor_invoked":
                if view.state not in AT_WORK:
                    view.since, view.took = now, None
                view.state, view.doing = RUNNING, ""
            case "executor_returned" | "executor_bypassed":
                view.stop(now)
                view.state, view.doing = FINISHED, summarise_calls(timed.steps)
            case "update":
                view.doing = _describe_update(event.data)
            case "executor_retrying":
                view.state = RETRYING
            case "request_info":
                view.stop(now)
                view.state, view.asked_in = WAITING, event.commit
            case "executor_completed" | "executor_failed":
                view.stop(now)
                view.calls += 1
                view.doing = summarise_calls(timed.steps)
                # A reader of the store sees no start: the commit says how long it took.
                view.took = event.time.seconds if event.time is not None else view.took
                # A request of this very call is still open; the call that asked earlier ones was
                # answered.
                asked = view.asked_in == event.commit
                view.state = FAILED if event.type == "executor_failed" else WAITING if asked else COMPLETED


def _describe_update(update: Any) -> str:
    """Return what an agent does, of the data of an `update` event."""
    match getattr(update, "kind", None):
        case "tool_called":
            return f"tool {update.tool}"
        case "text":
            return f"model {update.call}"
    return ""


def _busiest(views: list[tuple[str, ExecutorView]], room: int) -> list[tuple[str, ExecutorView]]:
    """Choose as many views as there is room for, busy ones first, and keep their order."""
    by_weight = sorted(views, key=lambda entry: BUSY.index(entry[1].state) if entry[1].state in BUSY else len(BUSY))
    chosen = {name for name, _ in by_weight[:room]}
    return [entry for entry in views if entry[0] in chosen]


def format_seconds(span: float) -> str:
    """Format a duration as it passes: `3.2 s`, `4:05`."""
    if span < 60:
        return f"{max(span, 0.0):.1f} s"
    minutes, seconds = divmod(int(span), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}" if minutes >= 60 else f"{minutes}:{seconds:02}"
