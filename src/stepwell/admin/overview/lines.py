"""A run at one checkpoint, as lines for people: what `stepwell show` shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.admin.diffs.documents import document_of, plain_value
from stepwell.admin.overview.branches import BranchProgress
from stepwell.admin.overview.next_command import SuggestedCommand, command_of
from stepwell.admin.overview.request_lines import format_requests
from stepwell.admin.overview.run_document import compute_progress
from stepwell.admin.overview.run_overview import RunOverview
from stepwell.admin.overview.sentence import sentence_of
from stepwell.admin.overview.set_timers import timers_of
from stepwell.admin.overview.turns import drop_turn_state, turns_of
from stepwell.admin.phrases import FormatMoment, format_age, pluralise
from stepwell.admin.questions import question_of
from stepwell.admin.tracebacks import shorten_traceback
from stepwell.admin.values import to_line, to_lines
from stepwell.declarative.stored_run import values_of
from stepwell.model.commit import CommitKind
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.visible_text import visible
from stepwell.storage import clock
from stepwell.viz.durations import format_seconds

LATEST = 10  # handler calls, answers and outputs that are shown unless all are wanted
TRACEBACK = 30  # lines
_KINDS = {CommitKind.PARKED: "parked: no process waits for it"}


@dataclass(frozen=True, slots=True)
class OverviewLines:
    """A run at a checkpoint as people read it."""

    sentence: str
    command: SuggestedCommand | None  # None: there is nothing to do
    explanation: list[str]  # of the words of the command that stand for something else
    sections: list[list[str]]


def format_overview(overview: RunOverview, *, full: bool, moment: FormatMoment) -> OverviewLines:
    """Return a run as lines; `full` shortens nothing."""
    command = command_of(overview)
    return OverviewLines(
        visible(sentence_of(overview, now=clock.now(), moment=moment)),
        command,
        [] if command is None else [*map(visible, command.explain(overview))],
        [*_sections(overview, full, moment)],
    )


def _sections(overview: RunOverview, full: bool, moment: FormatMoment) -> Iterator[list[str]]:
    """Yield the parts that follow the first sentence; those that would be empty are left out."""
    at, document = overview.at, document_of(overview.at)
    if overview.has_input:
        yield ["input", *_indent(to_lines(overview.input, full=full))]
    elif at.header.parent_run:
        yield ["input", visible(f"  that of run {at.header.parent_run}, which this one was forked from")]
    if overview.outputs:
        yield ["output", *_indent(_format_outputs(overview.outputs, full))]
    for failure in overview.failures:
        yield [*_format_failure(failure, full)]
    if overview.requests:
        yield [*format_requests(overview.requests.values(), overview.pending, moment=moment, full=full)]
    if timers := timers_of(at):
        yield ["timers", *_indent(visible(f"{words}, due {moment(due)}") for words, due in timers)]
    if overview.answers:
        yield ["answers", *_indent(_format_answers(overview, full))]
    if overview.branches:
        title = f"superstep {at.iteration + 1} (calls that are committed together)"
        yield [title, *_indent(_format_branches(overview.branches, moment))]
    if calls := [*_format_calls(overview, full)]:
        yield ["calls", *_indent(calls)]
    yield [*_format_facts(overview, moment), *_format_progress(overview)]
    if lines := [*_format_state(overview, full)]:
        yield ["state", *_indent(lines)]
    # Most executors keep no state of their own.
    if kept := {id: state for id, state in document["executors"].items() if state != {}}:
        yield ["executors", *_indent(to_lines(kept, full=full))]


def _indent(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _format_outputs(outputs: Sequence[Any], full: bool) -> Iterator[str]:
    shown = outputs if full else outputs[-LATEST:]
    if len(shown) < len(outputs):
        yield f"... {len(outputs) - len(shown)} earlier ones"
    for output in shown:
        if len(outputs) == 1:
            yield from to_lines(output, full=full)
        else:
            first, *more = to_lines(output, full=full)
            yield from [f"- {first}", *_indent(more)]


def _format_failure(failure: WorkflowErrorDetails, full: bool) -> Iterator[str]:
    where = f" in {failure.executor_id}" if failure.executor_id else ""
    yield visible(f"error{where}")
    yield f"  {visible(f'{failure.error_type}: {failure.message}')}"
    traceback = failure.traceback or ""
    shown, left_out = (traceback.rstrip().splitlines(), 0) if full else shorten_traceback(traceback, most=TRACEBACK)
    if left_out:
        yield f"  ({pluralise(left_out, 'line')} of the traceback left out; --full shows them)"
    yield from (f"  {visible(line)}" for line in shown)


def _format_answers(overview: RunOverview, full: bool) -> Iterator[str]:
    now = clock.now()
    for answer in overview.answers if full else overview.answers[-LATEST:]:
        by = f" by {answer.by}" if answer.by else ""
        value = to_line(plain_value(answer.value))
        yield f"{visible(answer.request_id)}: {value}{visible(by)}, {format_age(answer.at, now)}"
        if (asked := overview.question(answer.request_id)) is not None:
            yield f"  asked: {question_of(asked)}"
        if answer.comment:
            yield f"  comment: {visible(answer.comment)}"


def _format_branches(branches: Sequence[BranchProgress], moment: FormatMoment) -> Iterator[str]:
    now = clock.now()
    for branch in branches:
        failure = branch.failure
        why = "" if failure is None else f", {failure.error_type}: {to_line(failure.message)}"
        yield visible(f"{branch.executor}: {branch.describe(now=now, moment=moment)}{why}")
        yield from (f"  {visible(call.describe())}" for call in branch.calls)


def _format_calls(overview: RunOverview, full: bool) -> Iterator[str]:
    """Yield the handler calls that made steps, such as the turns of agents, with these steps and what was asked."""
    turns = [turn for turn in turns_of(overview) if turn.calls]
    shown = turns if full else turns[-LATEST:]
    if len(shown) < len(turns):
        yield f"... {pluralise(len(turns) - len(shown), 'earlier handler call')}"
    for turn in shown:
        facts = [format_seconds(turn.time.seconds)] if turn.time is not None else []
        facts += [f"attempt {turn.attempts}"] if turn.attempts > 1 else []
        yield visible(", ".join([f"{turn.executor} (commit {turn.commit})", *facts]))
        yield from (f"  {visible(call.describe())}" for call in turn.calls)
        yield from (f"  {visible(question.describe())}" for question in turn.asked)


def _format_state(overview: RunOverview, full: bool) -> Iterator[str]:
    stored = overview.at.state if full else drop_turn_state(overview.at.state)
    state = {key: plain_value(value) for key, value in stored.items()}
    agents = {key: value for key, value in state.items() if key.startswith("agents/")}
    own = {key: value for key, value in state.items() if key not in agents}
    if overview.of_named_agents and not full:
        own = values_of(own)
    # What an agent keeps of another library's messages is full of fields that are null.
    yield from to_lines(own, full=full) if own else ()
    yield from to_lines(agents, full=full, nulls=False) if agents else ()


def _format_facts(overview: RunOverview, moment: FormatMoment) -> Iterator[str]:
    at, header = overview.at, overview.at.header
    who = f", by {overview.commit.by}" if overview.commit.by else ""
    run = overview.run if overview.is_head else None
    status = overview.standing
    kind = _KINDS.get(overview.commit.kind, overview.commit.kind.value)
    since = f" since {moment(run.since)}" if run is not None and run.since else ""
    fields = {
        "run": f"{header.run_id}@{at.number}",
        "workflow": header.workflow,
        "status": f"{status}{since}",
        "driven by": run.owner if run is not None and status == "running" else "",
        "left by": run.owner if run is not None and status == "stalled" else "",
        "started": moment(overview.run.began_at),
        "committed": f"{moment(at.stamp.at)} ({kind}{who})",
        "checkpoint": at.stamp.checkpoint_id,
        "tags": " ".join(f"{name}={value}" for name, value in sorted(header.tags.items())),
        "priority": str(header.priority) if header.priority else "",
        "forked from": f"{header.parent_run}@{header.parent_number}" if header.parent_run else "",
        "called by": header.caller or "",
        "sleeps until": "" if at.wake is None else moment(at.wake),
    }
    yield from (f"{name:<12}  {visible(value)}" for name, value in fields.items() if value)


def _format_progress(overview: RunOverview) -> Iterator[str]:
    progress = compute_progress(overview)
    is_whole = progress["history_is_whole"]
    scope = "" if is_whole else f" since commit {progress['counted_since']}, in the commits that are stored"
    if overview.is_whole and overview.at.header.parent_run:
        scope = " since the fork"
    for title, names, more in (
        ("called", [f"{id} ({pluralise(n, 'time')})" for id, n in progress["called"].items()], scope),
        ("next", [] if overview.branches else progress["next"], ""),
        ("not called", progress["not_called"] if is_whole else [], ""),
    ):
        if names:
            yield f"{title:<12}  {visible(', '.join(names))}{more}"
