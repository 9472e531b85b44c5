"""The commits of a run as cards: who did what, what was sent to whom, and what an agent said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from stepwell.admin.calls import HandlerCall
from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.overview.turns import read_turn
from stepwell.admin.phrases import format_utc, pluralise
from stepwell.admin.questions import sentence_for
from stepwell.admin.report.history import CommitRow
from stepwell.admin.report.markup import Tree, note_rest
from stepwell.admin.report.summary import headline_of
from stepwell.admin.tracebacks import shorten_traceback
from stepwell.declarative.conductor import CONDUCTOR
from stepwell.declarative.stored_run import input_of, is_internal
from stepwell.graph.edges import fan_in_of
from stepwell.model.commit import Commit, CommitKind, Done
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.message import RoutedMessage
from stepwell.model.payload import Payload
from stepwell.model.request import AnswerRecord, Request
from stepwell.model.status_words import status_word
from stepwell.viz.durations import format_seconds
from stepwell.viz.markup import escape, shorten

_CALLS, _PARTS = 20, 5  # handler calls per commit; messages, outputs and requests of each
_FRAMES = 60  # lines of a traceback
_NODES, _TEXT, _LINE = 200, 5_000, 300  # parts of a value; characters of a value or traceback, and of a line
_KINDS = {
    CommitKind.INPUT: "input",
    CommitKind.INTAKE: "answers and input applied",
    CommitKind.PARKED: "went to sleep",
    CommitKind.RETRIED: "is to be tried again",
    CommitKind.SAVED: "saved by hand",
}


def render_commits(first: Sequence[CommitRow], left_out: int, last: Sequence[CommitRow], chosen: int) -> Iterator[str]:
    """Yield the cards of commits, oldest first; `chosen` is the number of the one that the page shows."""
    yield "<h2>What happened</h2>"
    # What follows the gap has no time before it.
    for rows in (first, last):
        for before, row in zip([None, *rows], rows, strict=False):
            yield from _render_commit(row, None if before is None else before.commit, row.commit.number == chosen)
        if rows is first and left_out:
            yield f'<p class="soft">… {pluralise(left_out, "commit")} left out …</p>'


def _render_commit(row: CommitRow, before: Commit | None, is_chosen: bool) -> Iterator[str]:
    commit, parts = row.commit, "".join(_render_parts(row))
    if not parts and commit.kind is CommitKind.SUPERSTEP:  # of a conductor alone
        return
    later = "" if before is None else f"<div>+{_seconds_between(before, commit)}</div>"
    yield (
        f'<section class="commit{" chosen" if is_chosen else ""}"><aside><b>{commit.number}</b>{later}</aside>'
        f'<div class="card{" bad" if commit.failures else ""}">'
        f'<p class="soft small">{escape(_describe_kind(commit))} · {format_utc(commit.stamp.at)}</p>'
        f"{parts}</div></section>"
    )


def _render_parts(row: CommitRow) -> Iterator[str]:
    commit = row.commit
    for answer in commit.answers[:_CALLS]:
        yield from _render_answer(answer)
    yield note_rest(len(commit.answers) - _CALLS, "answers")
    messages = {message.id: message for message in commit.messages or ()}
    if commit.kind is CommitKind.INPUT:
        yield from (render_message(message) for message in messages.values())
    asked = {request.id: request for request in commit.asked}
    # The conductor of named agents decides what runs next; that is seen in what runs next.
    calls = [done for done in commit.done if done.executor != CONDUCTOR or done.outputs]
    for done in calls[:_CALLS]:
        yield from _render_call(done, commit, messages, asked)
    yield note_rest(len(calls) - _CALLS, "handler calls")
    # A handler that waits for the answer has not returned, and has no call here.
    returned = {id for done in commit.done for id in done.asked}
    awaited = [request for request in commit.asked if request.id not in returned]
    yield from (_render_question(request.executor, _question(request)) for request in awaited[:_CALLS])
    yield note_rest(len(awaited) - _CALLS, "questions")
    for failure in commit.failures[:_PARTS]:
        yield render_failure(failure)
    for sentence in (*commit.migrated[:_CALLS], *commit.warnings[:_PARTS]):
        yield f"<p>{escape(shorten(sentence, _LINE))}</p>"
    yield from _render_changes(row)


def _describe_kind(commit: Commit) -> str:
    word = status_word(commit.status, wake=commit.wake)
    kind = _KINDS.get(commit.kind, commit.kind.value)
    if commit.kind is CommitKind.SUPERSTEP:
        kind = f"superstep {commit.iteration}"
    elif commit.restored is not None:
        kind = f"moved back to commit {commit.restored}"
    by = f" by {commit.by}" if commit.by else ""
    reason = f": {shorten(commit.reason, _LINE)}" if commit.reason else ""
    return f"{kind}{by}{reason}" + ("" if word in ("running", commit.kind.value) else f" · {word}")


def _render_call(
    done: Done, commit: Commit, messages: Mapping[str, RoutedMessage], asked: Mapping[str, Request]
) -> Iterator[str]:
    facts = [format_seconds(done.time.seconds)] if done.time is not None else []
    facts += [f"attempt {done.attempts}"] if done.attempts > 1 else []
    yield '<div class="call">'
    # The conductor of named agents yields their outcome; an executor of that name is somebody's own.
    outputs = [plain_value(output.payload) for output in done.outputs]
    if not any(isinstance(output, dict) and output.get("$") == "stepwell:NodeOutcome" for output in outputs):
        yield f'<b>{escape(done.executor)}</b> <span class="soft small">{", ".join(facts)}</span>'
    yield from _render_turn(done, commit)
    sent = [messages[id] for id in done.sent if id in messages]
    yield from (render_message(message) for message in sent[:_PARTS])
    yield note_rest(len(sent) - _PARTS, "messages")
    for output in done.outputs[:_PARTS]:
        kind = "output" if output.kind == "output" else "intermediate output"
        yield f'<div class="sent output"><span class="soft small">{kind}</span> {_value(output.payload)}</div>'
    yield note_rest(len(done.outputs) - _PARTS, "outputs")
    for id in done.asked[:_PARTS]:
        yield _render_question("", _question(asked[id]) if id in asked else escape(id))
    yield "</div>"


def _render_turn(done: Done, commit: Commit) -> Iterator[str]:
    """Render a turn of an agent as a conversation: what it heard, the calls it made, what it said."""
    turn = read_turn(done, commit, {})
    if not (turn.heard or turn.calls or turn.said):
        return
    if not (turn.heard or turn.said):
        yield render_calls(turn.calls)
        return
    tree = Tree(_TEXT)
    yield '<div class="talk">'
    yield from (tree.message(message) for message in turn.heard[-_CALLS:])
    yield render_calls(turn.calls)
    yield from (tree.message(message) for message in turn.said[-_CALLS:])
    yield "</div>"


def render_calls(calls: Sequence[HandlerCall]) -> str:
    """Return the calls that a handler made as steps: of models and tools, and all others."""
    if not calls:
        return ""
    lines = [f'<div class="says">{escape(shorten(call.describe(), _LINE))}</div>' for call in calls[:_CALLS]]
    return f'<div class="steps">{"".join(lines)}{note_rest(len(calls) - _CALLS, "calls")}</div>'


def render_message(message: RoutedMessage) -> str:
    """Return a message with the executors that take it; nothing if it is only how named agents are conducted."""
    value = input_of(plain_value(message.payload))
    tag = value.get("$") if isinstance(value, dict) else None
    if is_internal(value):
        return ""
    if tag == "stepwell:NodeDone" and isinstance(value.get("v"), dict):
        outputs = Tree(_TEXT).html(value["v"].get("outputs"), _NODES)
        return f'<div class="sent output"><span class="soft small">output</span> {outputs}</div>'
    fan_ins = [join.target for key in message.joins if (join := fan_in_of(key)) is not None]
    executors = [taker for taker in message.takers if taker != CONDUCTOR]
    takers = ", ".join([*executors, *(f"{target} (fan-in)" for target in fan_ins)])
    to = f'<span class="soft small">→ {escape(shorten(takers, _LINE))}</span> ' if takers else ""
    return f'<div class="sent">{to}{Tree(_TEXT).html(value, _NODES)}</div>'


def _render_answer(answer: AnswerRecord) -> Iterator[str]:
    who = f"{answer.by} answered {answer.executor}" if answer.by else f"{answer.executor} got an answer"
    yield (
        f'<div class="sent answer" title="{escape(f"request {answer.request_id}")}">'
        f'<span class="soft small">{escape(who)}, {format_utc(answer.at)}</span> {_value(answer.value)}'
    )
    yield f"<p>“{escape(shorten(answer.comment, _LINE))}”</p></div>" if answer.comment else "</div>"


def render_failure(failure: WorkflowErrorDetails, *, is_open: bool = False) -> str:
    """Return an error with its traceback."""
    who = f"{failure.executor_id}: " if failure.executor_id else ""
    html = f'<p class="what">{escape(f"{who}{failure.error_type}: {shorten(failure.message, _TEXT)}")}</p>'
    if failure.traceback:
        lines, left_out = shorten_traceback(failure.traceback, most=_FRAMES)
        note = f" without {pluralise(left_out, 'line')} of frames that are not yours" if left_out else ""
        html += (
            f'<details{" open" if is_open else ""}><summary>Traceback<span class="soft">{note}</span></summary>'
            f"<pre>{escape(chr(10).join(lines)[-_TEXT:])}</pre></details>"
        )
    return html


def _render_changes(row: CommitRow) -> Iterator[str]:
    if row.changes is None:
        # Nothing comes before the input, so there it needs no note.
        if row.commit.number:
            yield '<p class="soft small">changes of the state unknown: the commit before it is not stored any more</p>'
        return
    count = len(row.changes) + row.more_changes
    if count:
        lines = "\n".join(shorten(line, _LINE) for line in row.changes)
        more = f"\n… and {row.more_changes:,} more" if row.more_changes else ""
        title = f"{pluralise(count, 'change')} of the state"
        yield f'<details><summary class="soft small">{title}</summary><pre>{escape(lines + more)}</pre></details>'


def _seconds_between(before: Commit, commit: Commit) -> str:
    times = [datetime.fromisoformat(each.stamp.at) for each in (before, commit)]
    return format_seconds(max((times[1] - times[0]).total_seconds(), 0.0))


def _render_question(asker: str, question: str) -> str:
    return (
        f'<div class="sent asked"><span class="soft small">{escape(f"{asker} asked".strip())}</span> {question}</div>'
    )


def _question(request: Request) -> str:
    stored = plain_value(request.payload)
    return _value(request.payload) if sentence_for(stored) is None else escape(headline_of(stored))


def _value(payload: Payload) -> str:
    return Tree(_TEXT).html(plain_value(payload), _NODES)
