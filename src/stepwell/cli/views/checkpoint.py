"""Print a run at one checkpoint: what `stepwell show` shows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from stepwell.admin.calls import calls_of
from stepwell.admin.diffs.documents import document_of, plain_value
from stepwell.admin.lookup import NotFound, find_checkpoint, find_run
from stepwell.admin.overview.branches import BranchProgress, following_of
from stepwell.admin.overview.run_overview import RunOverview, load_overview
from stepwell.admin.overview.sentence import command_of, sentence_of
from stepwell.admin.questions import question_of
from stepwell.admin.values import main_part, to_data, to_line, to_lines
from stepwell.cli.type_names import BuiltInStorage, WorkflowErrorDetails
from stepwell.cli.views.output import print_document, print_lines
from stepwell.cli.views.requests import format_requests, pending_to_dict, request_to_dict
from stepwell.cli.views.text import format_age, format_moment, pluralise, printable
from stepwell.model.status_words import status_word
from stepwell.storage import clock
from stepwell.viz.durations import format_seconds

LATEST = 10  # handler calls, answers and outputs that are shown unless all are wanted
TRACEBACK = 30  # lines


async def find_inside(storage: BuiltInStorage, run: str, checkpoint: str) -> str:
    """Return the name of a checkpoint of this run. Raises NotFound if it belongs to another run."""
    run_id = (await find_run(storage, run)).run_id
    # A number counts from the start of the run, or from its end if it is negative.
    if checkpoint.lstrip("-").isdigit():
        return f"{run_id}@{checkpoint}"
    info = await find_checkpoint(storage, checkpoint)
    if info.run_id != run_id:
        raise NotFound(f"checkpoint {info.checkpoint_id!r} belongs to run {info.run_id!r}, not to run {run_id!r}")
    return info.checkpoint_id


async def print_checkpoint(
    storage: BuiltInStorage, name: str, *, full: bool, json: bool, command_line: Callable[..., str]
) -> None:
    """Print a run at a checkpoint, for a person or as JSON. `command_line` formats the command to type next."""
    overview = await load_overview(storage, name, every_commit=full)
    if json:
        print_document(**_to_dict(overview))
        return
    following = command_of(overview)
    command = command_line(following.name, *following.arguments, options=following.options)
    print_lines([printable(_sentence(overview)), f"next: {printable(command)}"])
    for section in _sections(overview, full):
        print_lines(["", *section])


def _sentence(overview: RunOverview) -> str:
    return sentence_of(overview, now=clock.now(), moment=format_moment)


def _sections(overview: RunOverview, full: bool) -> Iterator[list[str]]:
    """Yield the parts that follow the first sentence; those that would be empty are left out."""
    at, document = overview.at, document_of(overview.at)
    if overview.has_input:
        yield ["input", *_indent(to_lines(overview.input, full=full))]
    if overview.outputs:
        yield ["output", *_indent(_format_outputs(overview.outputs, full))]
    for failure in overview.commit.failures:
        yield [*_format_failure(failure, full)]
    if overview.requests:
        yield [*format_requests(overview.requests.values(), overview.pending, full=full)]
    if overview.answers:
        yield ["answers", *_indent(_format_answers(overview, full))]
    if overview.branches:
        yield [f"superstep {at.iteration + 1}", *_indent(_format_branches(overview.branches))]
    if calls := [*_format_calls(overview, full)]:
        yield ["calls", *_indent(calls)]
    yield [*_format_facts(overview), *_format_progress(_compute_progress(overview))]
    if lines := [*_format_state(document["state"], full)]:
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
            first, *more = to_lines(main_part(output), full=full)
            yield from [f"- {first}", *_indent(more)]


def _format_failure(failure: WorkflowErrorDetails, full: bool) -> Iterator[str]:
    where = f" in {failure.executor_id}" if failure.executor_id else ""
    yield printable(f"error{where}")
    yield f"  {printable(f'{failure.error_type}: {failure.message}')}"
    lines = (failure.traceback or "").rstrip().splitlines()
    # The end of a traceback is the line that raised.
    shown = lines if full else [*_without_own_frames(lines)][-TRACEBACK:]
    if len(shown) < len(lines):
        yield f"  ({pluralise(len(lines) - len(shown), 'line')} of the traceback left out; --full shows them)"
    yield from (f"  {printable(line)}" for line in shown)


def _without_own_frames(lines: Iterable[str]) -> Iterator[str]:
    """Leave out the frames of this package: people look for their own."""
    is_own = False
    for line in lines:
        if line.startswith('  File "'):
            is_own = f"{os.sep}stepwell{os.sep}" in line.partition('", line')[0]
        elif not line.startswith("    "):
            is_own = False
        if not is_own:
            yield line


def _format_answers(overview: RunOverview, full: bool) -> Iterator[str]:
    now = clock.now()
    for answer in overview.answers if full else overview.answers[-LATEST:]:
        by = f" by {answer.by}" if answer.by else ""
        value = to_line(plain_value(answer.value))
        yield f"{printable(answer.request_id)}: {value}{printable(by)}, {format_age(answer.at, now)}"
        if (asked := overview.question(answer.request_id)) is not None:
            yield f"  asked: {question_of(asked)}"
        if answer.comment:
            yield f"  comment: {printable(answer.comment)}"


def _format_branches(branches: Sequence[BranchProgress]) -> Iterator[str]:
    for branch in branches:
        facts: list[str] = [branch.state]
        facts += [format_seconds(branch.time.seconds)] if branch.time is not None else []
        facts += [f"attempt {branch.attempts}"] if branch.attempts > 1 else []
        facts += [f"until {format_moment(branch.due)}"] if branch.due else []
        if branch.failure is not None:
            facts.append(f"{branch.failure.error_type}: {to_line(branch.failure.message)}")
        yield printable(f"{branch.executor}: {', '.join(facts)}")
        yield from (f"  {printable(call.describe())}" for call in branch.calls)


def _format_calls(overview: RunOverview, full: bool) -> Iterator[str]:
    """Yield the handler calls that made steps, such as the turns of agents, with these steps."""
    made = [(commit.number, done) for commit in overview.commits for done in commit.done if calls_of(done.steps)]
    shown = made if full else made[-LATEST:]
    if len(shown) < len(made):
        yield f"... {pluralise(len(made) - len(shown), 'earlier handler call')}"
    for number, done in shown:
        took = "" if done.time is None else f", {format_seconds(done.time.seconds)}"
        yield printable(f"{done.executor} (commit {number}){took}")
        yield from (f"  {printable(call.describe())}" for call in calls_of(done.steps))


def _format_state(state: dict[str, Any], full: bool) -> Iterator[str]:
    agents = {key: value for key, value in state.items() if key.startswith("agents/")}
    own = {key: value for key, value in state.items() if key not in agents}
    if not full:  # what its executor keeps of a turn is shown as calls and requests already
        agents = {key: value for key, value in agents.items() if not key.endswith(("/turn", "/done", "/stand"))}
    # What an agent keeps of another library's messages is full of fields that are null.
    yield from to_lines(own, full=full) if own else ()
    yield from to_lines(agents, full=full, nulls=False) if agents else ()


def _to_dict(overview: RunOverview) -> dict[str, Any]:
    at, commit, header = overview.at, overview.commit, overview.at.header
    following = command_of(overview)
    document = to_data(document_of(at))
    run = overview.run if overview.is_head else None
    # How the run stands now is that of its newest checkpoint; an older one shows how it was then.
    document["status"] = status_word(at.status, wake=at.wake) if run is None else run.standing
    document["requests"] = {
        id: {
            **request_to_dict(request),
            "answer": pending_to_dict(overview.pending[id]) if id in overview.pending else None,
        }
        for id, request in overview.requests.items()
    }
    return {
        "run_id": header.run_id,
        "workflow": header.workflow,
        "sentence": _sentence(overview),
        "command": ["stepwell", following.name, *following.options, "--", *following.arguments],
        "number": at.number,
        "checkpoint_id": at.stamp.checkpoint_id,
        "at": at.stamp.at,
        "kind": commit.kind.value,
        "by": commit.by,
        "reason": commit.reason,
        "owner": None if run is None else run.owner,
        "until": None if run is None else run.until,
        "since": None if run is None else run.since,
        "tags": dict(header.tags),
        "priority": header.priority,
        "parent_run": header.parent_run,
        "parent_number": header.parent_number,
        "caller": header.caller,
        "input": to_data(overview.input),
        "outputs": [to_data(output) for output in overview.outputs],
        "failures": [f"{failure.error_type}: {failure.message}" for failure in commit.failures],
        "error": _error_to_dict(commit.failures[0]) if commit.failures else None,
        "answers": [_answer_to_dict(answer) for answer in overview.answers],
        "branches": [branch.to_dict() for branch in overview.branches],
        "calls": [
            {"executor": done.executor, "commit": each.number, **call.to_dict()}
            for each in overview.commits
            for done in each.done
            for call in calls_of(done.steps)
        ],
        "progress": _compute_progress(overview),
        **document,
    }


def _error_to_dict(failure: WorkflowErrorDetails) -> dict[str, Any]:
    return {
        "type": failure.error_type,
        "message": failure.message,
        "executor": failure.executor_id,
        "traceback": failure.traceback,
    }


def _answer_to_dict(answer: Any) -> dict[str, Any]:
    return {
        "request_id": answer.request_id,
        "executor": answer.executor,
        "value": to_data(plain_value(answer.value)),
        "by": answer.by,
        "comment": answer.comment,
        "at": answer.at,
    }


def _format_facts(overview: RunOverview) -> Iterator[str]:
    at, header = overview.at, overview.at.header
    who = f", by {overview.commit.by}" if overview.commit.by else ""
    run = overview.run if overview.is_head else None
    status = status_word(at.status, wake=at.wake) if run is None else run.standing
    since = f" since {format_moment(run.since)}" if run is not None and run.since else ""
    fields = {
        "run": f"{header.run_id}@{at.number}",
        "workflow": header.workflow,
        "status": f"{status}{since}",
        "driven by": run.owner if run is not None and status == "running" else "",
        "left by": run.owner if run is not None and status == "stalled" else "",
        "started": format_moment(overview.run.began_at),
        "committed": f"{format_moment(at.stamp.at)} ({overview.commit.kind.value}{who})",
        "checkpoint": at.stamp.checkpoint_id,
        "tags": " ".join(f"{name}={value}" for name, value in sorted(header.tags.items())),
        "priority": str(header.priority) if header.priority else "",
        "forked from": f"{header.parent_run}@{header.parent_number}" if header.parent_run else "",
        "called by": header.caller or "",
        "sleeps until": "" if at.wake is None else format_moment(at.wake),
    }
    yield from (f"{name:<12}  {printable(value)}" for name, value in fields.items() if value)


def _compute_progress(overview: RunOverview) -> dict[str, Any]:
    """Return how often each executor was called, which ones are next, and which were never called."""
    at, commits = overview.at, overview.commits
    called = Counter(delivery.executor for commit in commits for delivery in commit.done)
    following = following_of(at)
    asking = list(dict.fromkeys(request.executor for request in overview.requests.values()))
    executors = [str(id) for id in at.header.signature.get("executors", ())]
    return {
        "iteration": at.iteration,
        "called": dict(called),
        "next": following,
        "asking": asking,
        "not_called": [id for id in executors if id not in {*called, *following, *asking}],
        # The calls before a fork are in the history of its parent, which is not read here.
        "history_is_whole": overview.is_whole and at.header.parent_run is None,
        "counted_since": commits[0].number if commits else at.number,
    }


def _format_progress(progress: dict[str, Any]) -> Iterator[str]:
    is_whole = progress["history_is_whole"]
    scope = "" if is_whole else f" since commit {progress['counted_since']}, in the commits that are stored"
    for title, names, more in (
        ("called", [f"{id} ({pluralise(n, 'time')})" for id, n in progress["called"].items()], scope),
        ("next", progress["next"], ""),
        ("not called", progress["not_called"] if is_whole else [], ""),
    ):
        if names:
            yield f"{title:<12}  {printable(', '.join(names))}{more}"
