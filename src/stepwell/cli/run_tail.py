"""Show the latest events of a run, and follow it while another process drives it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from time import monotonic

from stepwell.admin.live_workers import describe_workers, find_live_workers
from stepwell.admin.lookup import require_head
from stepwell.admin.overview.run_overview import RECENT
from stepwell.admin.run_events import only_of_nodes
from stepwell.admin.run_history import events_of, follow_commits, leads_named_agents, read_commits, read_latest
from stepwell.cli.type_names import BuiltInStorage, RoutedMessage, RunInfo
from stepwell.cli.views.events import Follower, NodesOnly
from stepwell.cli.views.follow import JsonLines, Lines, draw_on
from stepwell.cli.views.live_view_state import Scene
from stepwell.cli.views.output import print_note
from stepwell.cli.views.text import format_moment
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.declarative.stored_run import find_node, is_of_named_agents
from stepwell.model.status_words import status_word
from stepwell.storage.store_archive import StoreArchive

SILENCE = 15.0  # seconds without a commit after which it is checked that somebody drives the run


async def show_latest(storage: BuiltInStorage, run: RunInfo, count: int, *, json: bool) -> None:
    """Print the latest events of a run."""
    follower = await _for_people(storage, run, _make_plain(json), json)
    for event in await read_latest(storage, run.run_id, run.number, count):
        follower.show(event)


async def follow_run(storage: BuiltInStorage, run: RunInfo, count: int, *, wait: bool, json: bool) -> str:
    """Print the latest events of a run and new ones until it stops; return its final status.

    With `wait`, a run that waits for a response has not stopped.
    """
    printed_first = await read_latest(storage, run.run_id, run.number, count)
    follower, upcoming = await _make_follower(storage, run, len(printed_first), json)
    follower = await _for_people(storage, run, follower, json)
    with follower:
        for event in printed_first:
            follower.show(event)
        follower.expect(upcoming)
        await _note_standing(storage, run, follower)
        word, latest = str(run.standing), monotonic()
        async for commit in follow_commits(storage, run.run_id, run.number):
            if commit is not None:
                word, latest = status_word(commit.status, wake=commit.wake), monotonic()
                for event in events_of(run.run_id, commit):
                    follower.show(event)
                follower.expect(_find_takers(commit.messages or ()))
            # Checked only when no commit is left to read: a stored status may be superseded already.
            elif word in ("completed", "failed", "cancelled") or (word == "waiting" and not wait):
                follower.end(word)
                break
            elif monotonic() - latest > SILENCE and word != "waiting":
                now = await storage.get_run(run.run_id)
                latest = monotonic()
                if now is not None and await _note_standing(storage, now, follower):
                    latest = math.inf  # the note is printed once
    return word


async def _note_standing(storage: BuiltInStorage, run: RunInfo, follower: Follower) -> bool:
    """Say why no commit is to be expected, if nobody drives the run; return whether that is so."""
    if run.standing not in ("queued", "stalled", "sleeping"):
        return False
    workers = await find_live_workers(storage, run.workflow_name)
    moves = (
        f"{describe_workers(workers)} takes it" if workers else f"`stepwell show {run.run_id}` says how to resume it"
    )
    match run.standing:
        case "queued":
            why = f"no process drives it; {moves}"
        case "stalled":
            why = f"{run.owner} stopped driving it; {moves}"
        case _:
            why = f"until {format_moment(run.until or '')}"
    # A live view has the word in its heading, and no room for a note.
    if not follower.redraws:
        print_note(f"run {run.run_id!r} is {run.standing}: {why}")
    return True


async def _for_people(storage: BuiltInStorage, run: RunInfo, follower: Follower, json: bool) -> Follower:
    return NodesOnly(follower) if not json and await leads_named_agents(storage, run.run_id) else follower


def _make_plain(json: bool) -> Follower:
    # To stdout, unlike with `run --follow`: here the events are the data of the command.
    return JsonLines() if json else Lines(sys.stdout)


async def _make_follower(storage: BuiltInStorage, run: RunInfo, printed: int, json: bool) -> tuple[Follower, list[str]]:
    """Return a follower that will be shown as many of the latest events, and the executors that are called next."""
    scene = Scene(run.run_id, run.workflow_name, (), monotonic(), run.standing, run.iteration_count)
    picture = None if json else draw_on(sys.stdout, scene, lines=True)
    # Only a picture shows the graph, so only a picture needs the checkpoint, which may be large.
    if picture is None:
        return _make_plain(json), []
    at = require_head(await StoreArchive(storage._store, DEFAULT_CODEC).head(run.run_id), run.run_id)
    executors = [str(id) for id in at.header.signature.get("executors", ())]
    scene.add(id for id in executors if not is_of_named_agents(at) or find_node(id) == id)
    # What the events that are printed do not tell: which executors were called before, and how often.
    commits = await read_commits(storage, run.run_id, run.number - RECENT, run.number)
    events = [event for commit in commits for event in events_of(run.run_id, commit)]
    for event in events[: len(events) - printed]:
        if (of_nodes := only_of_nodes(event) if is_of_named_agents(at) else event) is not None:
            scene.apply(of_nodes, scene.began)
    scene.status = run.standing
    return picture, _find_takers(at.messages)


def _find_takers(messages: Sequence[RoutedMessage]) -> list[str]:
    return [taker for message in messages for taker in message.takers]
