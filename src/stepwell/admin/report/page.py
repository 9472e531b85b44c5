"""Renders a run as one HTML page that works offline: no scripts, no fonts, nothing to fetch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from stepwell.admin.diffs.documents import document_of, plain_value
from stepwell.admin.report.markup import Tree, format_brief, plural
from stepwell.admin.report.timeline import CommitRow, Timeline, load_timeline
from stepwell.admin.transfer.redaction import LOCK
from stepwell.declarative.stored_diagram import diagram_of_run
from stepwell.model.commit import Commit, Done
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.request import Request
from stepwell.model.status_words import status_word
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.permissions import creating
from stepwell.viz.markup import escape, shorten
from stepwell.viz.svg import draw
from stepwell.viz.workflow_diagram import diagram_of

# Limits that bound the size of a page, whatever a run contains.
_ROWS = 200  # commits
_CHANGES = 30  # changes shown per commit
_VALUES, _NAMES = 4_000, 1_000  # values and keys per section
_CHARACTERS, _TEXT = 1_000_000, 5_000  # characters of long strings per section, and of one message or traceback
_DONE, _OUTPUTS, _OUTPUT = 20, 3, 300  # executors per commit, outputs per executor, characters per output
_DRAWN = 300  # executors: nobody can read a larger graph

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d0d7de;--back:#f6f8fa;--bad:#cf222e}
@media (prefers-color-scheme:dark){:root{
--ink:#e6edf3;--soft:#9aa4ae;--paper:#0d1117;--line:#30363d;--back:#161b22;--bad:#ff7b72}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
margin:0 auto;max-width:70rem;padding:1rem 1.5rem}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{margin-top:2.2rem;border-bottom:1px solid var(--line)}
.soft{color:var(--soft)}.bad{color:var(--bad)}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid var(--line)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem}dt{color:var(--soft)}dd{margin:0}
code,pre{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
pre{white-space:pre-wrap;background:var(--back);padding:.6rem}
ul{margin:.2rem 0;padding-left:1.2rem}summary{cursor:pointer}tr.chosen{background:var(--back)}
""".replace("\n", "")


async def report_run(storage: BuiltInStorage, run_id: str, *, number: int | None = None) -> str:
    """Return a run as one HTML page: summary, graph, open requests, commits and state.

    `number` selects the commit whose graph, requests and state are shown; by default the newest.
    Stored data is always shown as text, never interpreted. No classes of the program are needed.
    The size of the page is bounded: the middle of a long history and the end of large values are
    left out, with a note.

    Raises CheckpointMissing if there is no such run or commit, CheckpointCorrupt if a record is
    damaged.
    """
    timeline = await load_timeline(storage._store, run_id, number, rows=_ROWS, changes=_CHANGES)
    return "".join(_render_page(timeline))


async def report_to(
    path: str | os.PathLike[str], storage: BuiltInStorage, run_id: str, *, number: int | None = None
) -> None:
    """Write the page of `report_run` to a file. A new file is readable by its owner only."""
    page = await report_run(storage, run_id, number=number)

    def write_page() -> None:
        with open(path, "w", encoding="utf-8", newline="\n", opener=creating()) as file:
            file.write(page)

    await asyncio.to_thread(write_page)


def _render_page(timeline: Timeline) -> Iterator[str]:
    header = timeline.at.header
    name = escape(f"Run {header.run_id} of {header.workflow}")
    # A second line of defence: if anything ever gets past the escaping, the page still fetches and
    # runs nothing.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    yield (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><h1>{name}</h1>'
    )
    yield from _render_facts(timeline)
    yield from _render_graph(timeline)
    yield from _render_requests(timeline.at.requests.values())
    yield from _render_commits(timeline)
    yield from _render_state(timeline)
    yield "</body></html>\n"


def _render_facts(timeline: Timeline) -> Iterator[str]:
    checkpoint, head, header = timeline.at, timeline.run_copy.at, timeline.at.header
    if LOCK in checkpoint.executors:
        yield "<p><b>Private values were removed from this run when it was exported: it cannot be resumed.</b></p>"
    parent = "" if header.parent_run is None else f" (commit {header.parent_number} of run {header.parent_run})"
    entries, signals = len(timeline.run_copy.superstep_log), len(timeline.run_copy.signals)
    facts = [
        ("Status", timeline.run.standing + (f" since {timeline.run.since}" if timeline.run.since else "")),
        ("Left by" if timeline.run.standing == "stalled" else "Driven by", timeline.run.owner),
        ("Started", timeline.first[0].commit.stamp.at),
        ("Last commit", f"{head.stamp.at} (number {head.number}, after {plural(head.iteration, 'superstep')})"),
        ("Shown here", f"commit {checkpoint.number}, checkpoint {checkpoint.stamp.checkpoint_id}"),
        ("Sleeps until", head.wake),
        *((f"Tag {key}", value) for key, value in header.tags.items()),
        ("Forked from", None if header.parent_id is None else f"checkpoint {header.parent_id}{parent}"),
        ("Sub-workflow of", f"run {header.caller}" if header.caller else None),
        ("Restored", plural(header.epoch, "time") if header.epoch else None),
        *(
            ("Sub-workflow run", f"{c.run_id}, executor {c.executor}, waiting at its commit {c.number}")
            for c in checkpoint.children.values()
        ),
        (
            "Superstep log",
            f"{entries:,} {'entry' if entries == 1 else 'entries'} not committed yet" if entries else None,
        ),
        ("Signals", f"{plural(signals, 'signal')} not applied yet" if signals else None),
    ]
    yield "<dl>"
    for key, value in facts:
        if value is not None:
            yield f"<dt>{escape(key)}</dt><dd>{escape(shorten(value, _OUTPUT))}</dd>"
    yield "</dl>"


def _render_graph(timeline: Timeline) -> Iterator[str]:
    diagram = diagram_of_run(timeline.at) or diagram_of(timeline.at.header.signature)
    yield "<h2>Graph</h2>"
    if len(diagram.nodes) > _DRAWN:
        yield f"<p>It has {len(diagram.nodes):,} executors: too many to draw.</p>"
        return
    title = f"Workflow {timeline.at.header.workflow} at commit {timeline.at.number}"
    yield f'<div class="scroll">{draw(diagram, progress=timeline.progress, title=title)}</div>'


def _render_requests(requests: Iterable[Request]) -> Iterator[str]:
    open_requests = list(requests)
    if not open_requests:
        return
    yield f"<h2>Open requests</h2><p>{plural(len(open_requests), 'request')} waiting for a response.</p>"
    for request in open_requests[:_DONE]:
        until = f", until {request.deadline}" if request.deadline else ""
        yield (
            f"<h3>{escape(request.id)}</h3><p>Asked by <b>{escape(request.executor)}</b> at {escape(request.at)}"
            f"{escape(until)}; expects <code>{escape(shorten(request.response_type, _OUTPUT))}</code>.</p>"
            f"<div>{Tree(_TEXT).html(plain_value(request.payload), _ROWS)}</div>"
        )
    yield _rest(len(open_requests) - _DONE, "requests")


def _render_commits(timeline: Timeline) -> Iterator[str]:
    yield '<h2>Commits</h2><div class="scroll"><table><thead><tr>'
    yield "".join(f'<th scope="col">{name}</th>' for name in ("No.", "When", "What", "Superstep", "What was done"))
    yield "</tr></thead><tbody>"
    yield from _render_rows(timeline.first, timeline.at.number)
    if timeline.left_out:
        yield f'<tr><td colspan="5" class="soft">… {plural(timeline.left_out, "commit")} left out …</td></tr>'
    # The first of these may follow a commit that is not shown, so "later" would mislead there.
    yield from _render_rows(timeline.last, timeline.at.number)
    yield "</tbody></table></div>"


def _render_rows(rows: Sequence[CommitRow], chosen: int) -> Iterator[str]:
    for before, row in zip([None, *rows], rows, strict=False):
        yield from _render_row(row, None if before is None else before.commit.stamp.at, chosen)


def _render_row(row: CommitRow, before: str | None, chosen: int) -> Iterator[str]:
    commit = row.commit
    look = ' class="chosen"' if commit.number == chosen else ""
    later = "" if before is None else _later(before, commit.stamp.at)
    kind = commit.kind.value if commit.restored is None else f"{commit.kind.value} to {commit.restored}"
    status = status_word(commit.status, wake=commit.wake)
    yield (
        f'<tr{look}><th scope="row">{commit.number}</th>'
        f'<td>{escape(commit.stamp.at)}<br><span class="soft">{later}</span></td>'
        f'<td>{escape(kind)}<br><span class="soft">{escape(status)}</span></td>'
        f"<td>{commit.iteration}</td><td>"
    )
    for done in commit.done[:_DONE]:
        yield from _render_delivery(done)
    yield _rest(len(commit.done) - _DONE, "executors")
    for failure in commit.failures[:_OUTPUTS]:
        yield _render_failure(failure)
    for sentence in commit.migrated[:_DONE]:
        yield f"<div>{escape(shorten(sentence, _OUTPUT))}</div>"
    for warning in commit.warnings[:_OUTPUTS]:
        yield f"<div>warning: {escape(shorten(warning, _OUTPUT))}</div>"
    yield from _render_changes(row, commit)
    yield "</td></tr>"


def _render_delivery(done: Done) -> Iterator[str]:
    again = f", attempt {done.attempts}" if done.attempts > 1 else ""
    parts = [f"sent {plural(len(done.sent), 'message')}"] if done.sent else []
    parts += [f"asked {shorten(', '.join(done.asked), _OUTPUT)}"] if done.asked else []
    yield f"<div><b>{escape(done.executor)}</b>{again}{escape(': ' + ', '.join(parts) if parts else '')}</div>"
    for output in done.outputs[:_OUTPUTS]:
        brief = format_brief(plain_value(output.payload), _OUTPUT)
        yield f"<div>{escape(output.kind)}: <code>{escape(brief)}</code></div>"
    yield _rest(len(done.outputs) - _OUTPUTS, "outputs")


def _render_failure(failure: WorkflowErrorDetails) -> str:
    who = f"{failure.executor_id}: " if failure.executor_id else ""
    text = f"failed: {who}{failure.error_type}: {shorten(failure.message, _TEXT)}"
    html = f'<div class="bad">{escape(text)}</div>'
    if failure.traceback:
        # The end of a traceback is the line that raised.
        html += f"<details><summary>Traceback</summary><pre>{escape(failure.traceback[-_TEXT:])}</pre></details>"
    return html


def _render_changes(row: CommitRow, commit: Commit) -> Iterator[str]:
    if row.changes is None:
        # Nothing comes before the input, so there it needs no note.
        if commit.number:
            yield '<div class="soft">changes unknown: the commit before it is not stored any more</div>'
        return
    count = len(row.changes) + row.more_changes
    if count:
        lines = "\n".join(shorten(line, _OUTPUT) for line in row.changes) + (
            f"\n… and {row.more_changes:,} more" if row.more_changes else ""
        )
        yield f"<details><summary>{plural(count, 'change')}</summary><pre>{escape(lines)}</pre></details>"


def _render_state(timeline: Timeline) -> Iterator[str]:
    document = document_of(timeline.at)
    # The mark of a redacted run looks like an executor; the top of the page explains it.
    document["executors"].pop(LOCK, None)
    yield f"<h2>State at commit {timeline.at.number}</h2>"
    titles = {
        "state": "State",
        "executors": "State of executors",
        "messages": "Messages in flight",
        "held": "Held by fan-ins",
    }
    for key, title in titles.items():
        yield f"<h3>{title}</h3>" + (_render_values(document[key]) if document[key] else '<p class="soft">nothing</p>')


def _render_values(values: Any) -> str:
    """Render a mapping or list as one tree per value.

    Together they share the limits of a section.
    """
    pairs = list(values.items()) if isinstance(values, dict) else list(enumerate(values))
    tree, most = Tree(_CHARACTERS), max(_VALUES // max(len(pairs), 1), _DONE)
    rows = [
        f"<li><b>{escape(shorten(str(key), _OUTPUT))}</b>: {tree.html(value, most)}</li>"
        for key, value in pairs[:_NAMES]
    ]
    return f"<ul>{''.join(rows)}</ul>{_rest(len(pairs) - _NAMES, 'values')}"


def _later(before: str, at: str) -> str:
    seconds = (datetime.fromisoformat(at) - datetime.fromisoformat(before)).total_seconds()
    return f"{seconds:.3f} s later" if abs(seconds) < 60 else f"{timedelta(seconds=round(seconds))} later"


def _rest(number: int, what: str) -> str:
    return f'<div class="soft">… {number:,} more {what} left out</div>' if number > 0 else ""
