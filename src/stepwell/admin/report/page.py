"""Renders a run as one HTML page that works offline: no scripts, no fonts, nothing to fetch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stepwell.admin.diffs.documents import document_of, plain_value
from stepwell.admin.overview.branches import BranchProgress
from stepwell.admin.overview.run_graph import DRAWN, run_diagram, run_progress
from stepwell.admin.overview.run_overview import overview_at
from stepwell.admin.overview.sentence import sentence_of
from stepwell.admin.overview.timeline import Timeline, timeline_of
from stepwell.admin.overview.turns import drop_turn_state
from stepwell.admin.phrases import format_utc
from stepwell.admin.questions import sentence_for
from stepwell.admin.report.commit_cards import render_calls, render_commits, render_failure, render_message
from stepwell.admin.report.history import History, load_history
from stepwell.admin.report.markup import Tree, note_rest
from stepwell.admin.report.style import STYLE
from stepwell.admin.report.summary import facts_of, headline_of, times_of
from stepwell.admin.transfer.redaction import LOCK
from stepwell.declarative.stored_run import input_of, is_of_named_agents, values_of
from stepwell.model.message import RoutedMessage
from stepwell.model.request import Request
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.permissions import creating
from stepwell.viz.durations import format_seconds
from stepwell.viz.markup import escape, shorten
from stepwell.viz.svg import draw

# Limits that bound the size of a page, whatever a run contains.
_ROWS, _CHANGES = 200, 30  # commits, and changes of the state in each
_VALUES, _NAMES = 4_000, 1_000  # values and keys per section
_CHARACTERS, _TEXT = 1_000_000, 20_000  # characters of long strings per section, and of an input or output
_REQUESTS, _BRANCHES, _MESSAGES = 20, 50, 20
_LINE, _SENTENCE = 300, 1_000  # characters
_TIMED = 1_000  # commits in the timeline
_NAMED_WAIT = 1.0  # seconds: shorter waits are drawn, and not listed


async def report_run(storage: BuiltInStorage, run_id: str, *, number: int | None = None) -> str:
    """Return a run as one HTML page: what became of it, input and output, graph, times, requests, commits, state.

    `number` selects the commit whose graph, requests and state are shown; by default the newest.
    Stored data is always shown as text, never interpreted. No classes of the program are needed.
    The size of the page is bounded: the middle of a long history and the end of large values are
    left out, with a note.

    Raises CheckpointMissing if there is no such run or commit, CheckpointCorrupt if a record is
    damaged.
    """
    history = await load_history(storage._store, run_id, number, rows=_ROWS, changes=_CHANGES)
    overview = await overview_at(storage, history.run_copy.at, history.latest)
    sentence = sentence_of(overview, now=clock.now())
    is_head = history.at.number == history.run_copy.at.number
    return "".join(_render_page(history, sentence, overview.branches if is_head else ()))


async def report_to(
    path: str | os.PathLike[str], storage: BuiltInStorage, run_id: str, *, number: int | None = None
) -> None:
    """Write the page of `report_run` to a file. A new file is readable by its owner only."""
    page = await report_run(storage, run_id, number=number)

    def write_page() -> None:
        with open(path, "w", encoding="utf-8", newline="\n", opener=creating()) as file:
            file.write(page)

    await asyncio.to_thread(write_page)


def _render_page(history: History, sentence: str, branches: Sequence[BranchProgress]) -> Iterator[str]:
    header, standing = history.at.header, history.run.standing
    timeline = timeline_of(history.at, history.commits[-_TIMED:])
    # A second line of defence: if anything ever gets past the escaping, the page still fetches and
    # runs nothing.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    yield (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(f'Run {header.run_id} of {header.workflow}')}</title>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><main>'
        f"<header><h1><span>{escape(header.workflow)} /</span> {escape(header.run_id)}</h1>"
        f'<span class="pill {standing}">{standing}</span></header>'
        f'<p class="lead">{escape(shorten(sentence, _SENTENCE))}</p>'
        f'<p class="soft">{escape(" · ".join(times_of(history, timeline)))}</p>'
    )
    if LOCK in history.at.executors:
        yield "<p><b>Private values were removed from this run when it was exported: it cannot be resumed.</b></p>"
    yield from _render_error(history)
    yield from _render_input_and_output(history)
    yield from _render_requests(history.at.requests.values())
    yield from _render_branches(branches)
    yield from _render_graph(history, branches)
    if timeline is not None:
        yield from _render_timeline(timeline, len(history.commits) - _TIMED)
    yield from render_commits(history.first, history.left_out, history.last, history.at.number)
    yield from _render_state(history)
    yield from _render_messages(history.at.messages)
    yield "<h2>About the run</h2>" + "".join(_render_facts(history))
    yield "</main></body></html>\n"


def _render_error(history: History) -> Iterator[str]:
    failures = history.latest.failures
    if failures:
        yield '<div class="card bad">'
        yield from (render_failure(failure, is_open=True) for failure in failures[:3])
        yield f"{note_rest(len(failures) - 3, 'errors')}</div>"


def _render_input_and_output(history: History) -> Iterator[str]:
    tree = Tree(_TEXT)
    inputs = [input_of(plain_value(message.payload)) for message in history.inputs]
    if not inputs and not history.outputs:
        return
    yield '<div class="two">'
    if inputs:
        yield "<section><h2>Input</h2>"
        yield from (f'<div class="card">{tree.html(value, _VALUES, is_open=True)}</div>' for value in inputs)
        yield "</section>"
    if history.outputs:
        yield "<section><h2>Output</h2>"
        yield note_rest(history.outputs_left_out, "earlier outputs")
        for output in history.outputs:
            kind = "" if output.output.kind == "output" else " (intermediate)"
            value = tree.html(plain_value(output.output.payload), _VALUES, is_open=True)
            who = f'<p class="soft small">{escape(output.executor)}{kind}</p>'
            yield f'<div class="card">{who if kind or len(history.outputs) > 1 else ""}{value}</div>'
        yield "</section>"
    yield "</div>"


def _render_facts(history: History) -> Iterator[str]:
    yield '<dl class="facts">'
    for key, value in facts_of(history):
        yield f"<dt>{escape(key)}</dt><dd>{escape(shorten(value, _LINE))}</dd>"
    yield "</dl>"


def _render_graph(history: History, branches: Sequence[BranchProgress]) -> Iterator[str]:
    diagram = run_diagram(history.at)
    yield "<h2>Graph</h2>"
    if len(diagram.nodes) > DRAWN:
        yield f"<p>It has {len(diagram.nodes):,} executors: too many to draw.</p>"
        return
    progress = run_progress(history.at, history.shown, branches)
    title = f"Workflow {history.at.header.workflow} at commit {history.at.number}"
    picture = draw(diagram, progress=progress, title=title)
    width = picture.partition('width="')[2].partition('"')[0]
    # On a narrow screen it shrinks, but not so far that nobody can read it.
    yield f'<div class="graph" style="--wide:{width}px">{picture}</div>'


def _render_timeline(timeline: Timeline, left_out: int) -> Iterator[str]:
    rows: dict[str, list[str]] = {}
    gaps = "".join(
        f'<i class="gap" style="left:{wait.left:.2%};width:{wait.width:.2%}" title="{escape(wait.words)}"></i>'
        for wait in timeline.waits
    )
    for bar in timeline.bars:
        rows.setdefault(bar.executor, []).append(
            f'<i class="{bar.kind}" style="left:{min(bar.left, 0.995):.2%};width:{bar.width:.2%}" '
            f'title="{escape(bar.words)}"></i>'
        )
    yield f"<h2>Timeline</h2>{note_rest(left_out, 'earlier commits')}"
    yield '<div class="card"><div class="times">'
    for executor, bars in rows.items():
        yield f'<b>{escape(shorten(executor, 60)) or "the run"}</b><div class="track">{gaps}{"".join(bars)}</div>'
    length = format_seconds((timeline.end - timeline.start).total_seconds())
    yield f'<div class="axis"><span>{format_utc(timeline.start.isoformat())}</span><span>+{length}</span></div></div>'
    waits = "".join(f"<li>{escape(wait.words)}</li>" for wait in timeline.waits if wait.seconds >= _NAMED_WAIT)
    yield f'<ul class="soft small">{waits}</ul></div>' if waits else "</div>"


def _render_branches(branches: Sequence[BranchProgress]) -> Iterator[str]:
    """Render the handler calls of the superstep in progress."""
    # Above stands already which one failed, and why.
    if all(branch.state == "failed" and not branch.calls for branch in branches):
        return
    yield '<h2>In progress</h2><div class="card">'
    for branch in branches[:_BRANCHES]:
        words = escape(branch.describe(now=clock.now(), moment=format_utc))
        yield f'<div class="call"><b>{escape(branch.executor)}</b> <span class="soft">{words}</span>'
        yield render_calls(branch.calls)
        if branch.failure is not None:
            yield render_failure(branch.failure)
        yield "</div>"
    yield f"{note_rest(len(branches) - _BRANCHES, 'handler calls')}</div>"


def _render_requests(requests: Iterable[Request]) -> Iterator[str]:
    open_requests = list(requests)
    if not open_requests:
        return
    yield "<h2>Open requests</h2>"
    for request in open_requests[:_REQUESTS]:
        value = plain_value(request.payload)
        until = f", until {format_utc(request.deadline)}" if request.deadline else ""
        yield (
            f'<div class="card wait"><h3>{escape(headline_of(value))}</h3>'
            f'<p class="soft small">{escape(request.id)} · asked by {escape(request.executor)}, '
            f"{format_utc(request.at)}{until} · expects {escape(shorten(request.response_type, _LINE))}</p>"
        )
        # What reads as a sentence needs no fields below it, unless it was cut.
        has_more = isinstance(value, dict | list) and (sentence_for(value) is None or headline_of(value).endswith("…"))
        yield f"{Tree(_TEXT).html(value, _VALUES)}</div>" if has_more else "</div>"
    yield note_rest(len(open_requests) - _REQUESTS, "requests")


def _render_state(history: History) -> Iterator[str]:
    document = document_of(history.at)
    # The mark of a redacted run looks like an executor; the top of the page explains it.
    document["executors"].pop(LOCK, None)
    document["executors"] = {key: value for key, value in document["executors"].items() if value}
    if is_of_named_agents(history.at):
        # The rest is how they are conducted, and drawn in the graph.
        document = {"state": values_of(document["state"])}
    else:
        document["state"] = drop_turn_state(document["state"])
    titles = {
        "state": "State",
        "executors": "State of executors",
        "held": "Held by fan-ins",
    }
    for key, title in titles.items():
        if document.get(key):
            yield f"<h2>{title}</h2>{_render_values(document[key])}"


def _render_messages(messages: Sequence[RoutedMessage]) -> Iterator[str]:
    """Render the messages that no handler has got yet."""
    if shown := "".join(map(render_message, messages[:_MESSAGES])):
        rest = note_rest(len(messages) - _MESSAGES, "messages")
        yield f'<h2>Messages in flight</h2><div class="card">{shown}{rest}</div>'


def _render_values(values: Any) -> str:
    """Render a mapping or list as one tree per value.

    Together they share the limits of a section.
    """
    pairs = list(values.items()) if isinstance(values, dict) else list(enumerate(values))
    tree, most = Tree(_CHARACTERS), max(_VALUES // max(len(pairs), 1), 20)
    rows = [
        f"<dt>{escape(shorten(str(key), _LINE))}</dt><dd>{tree.html(value, most)}</dd>" for key, value in pairs[:_NAMES]
    ]
    return f'<div class="card"><dl class="fields">{"".join(rows)}</dl>{note_rest(len(pairs) - _NAMES, "values")}</div>'
