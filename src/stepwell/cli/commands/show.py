"""`stepwell show`: a run at a checkpoint, whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.settings import as_json, everywhere
from stepwell.cli.stores.session import on_the_store
from stepwell.cli.views.output import document, lines
from stepwell.cli.views.requests import questions
from stepwell.cli.views.text import moment, printable, status_word, tree

if TYPE_CHECKING:
    from stepwell.model.superstep import Checkpoint, Commit
    from stepwell.storage.built_in_storage import BuiltInStorage

RECENT = 500  # commits in which calls are counted


@click.command("show")
@click.argument("run", metavar="RUN[@N]")
@click.argument("checkpoint", metavar="[CHECKPOINT]", required=False)
@click.option("--full", is_flag=True, help="Cut no value, however large, and count all calls.")
@as_json
@everywhere
def command(run: str, checkpoint: str | None, full: bool, json: bool) -> None:
    """Where RUN is and what it holds: its newest checkpoint, or number N of it.

    RUN is the id of a run or of a checkpoint, which may be shortened to 4 characters while it stays unique. RUN@0 is
    the input, RUN@-1 the last that is stored. CHECKPOINT, a number or an id, says the same apart. Values are always in
    full in JSON. Calls are counted in the newest commits, unless in --full: what it costs does not grow with the run.
    """

    async def work(storage: BuiltInStorage) -> None:
        from stepwell.admin.diffs.documents import document_of
        from stepwell.cli.views.progress import progress_of

        name = run if checkpoint is None else await _inside(storage, run, checkpoint)
        at, commit, commits = await _read(storage, name, None if full else RECENT)
        progress = progress_of(at, commits)
        held = document_of(at)
        if json:
            document(**_header(at, commit), progress=progress.told(), **held)
            return
        lines(_heading(at, commit))
        lines(["", *progress.words()])
        lines(_apart(questions(at.requests.values(), full=full)))
        lines(_titled("state", held["state"], full))
        lines(_titled("executors", {id: kept for id, kept in held["executors"].items() if kept != {}}, full))

    on_the_store(work)


async def _inside(storage: BuiltInStorage, run: str, checkpoint: str) -> str:
    """The name of a checkpoint of a run. Raises NotFound if it is one of another run."""
    from stepwell.admin.lookup import NotFound, find_checkpoint, find_run

    run_id = (await find_run(storage, run)).run_id
    if checkpoint.lstrip("-").isdigit():
        return f"{run_id}@{checkpoint}"
    found = await find_checkpoint(storage, checkpoint)
    if found.run_id != run_id:
        raise NotFound(f"checkpoint {found.checkpoint_id!r} is not one of run {run_id!r}, but of {found.run_id!r}")
    return found.checkpoint_id


async def _read(storage: BuiltInStorage, name: str, recent: int | None) -> tuple[Checkpoint, Commit, list[Commit]]:
    """The checkpoint, the commit that led to it, and the commits up to it that are kept: all, or the last so many."""
    from stepwell.admin.lookup import entry_of, find_checkpoint
    from stepwell.codec.codec import DEFAULT_CODEC
    from stepwell.storage.archive import StoreArchive
    from stepwell.storage.wire.format import read_commit

    entry = await entry_of(storage.store, await find_checkpoint(storage, name))
    at, commit = await StoreArchive(storage.store, DEFAULT_CODEC).at(entry)
    after = -1 if recent is None else max(entry.number - recent, -1)
    records = await storage.store.history(entry.run_id, after=after, upto=entry.number)
    return at, commit, [read_commit(one, DEFAULT_CODEC)[0] for one in records]


def _header(at: Checkpoint, commit: Commit) -> dict[str, Any]:
    header = at.header
    failed = [f"{one.error_type}: {one.message}" for one in commit.failures]
    return {
        "run_id": header.run_id,
        "workflow": header.workflow,
        "number": at.number,
        "checkpoint_id": at.stamp.checkpoint_id,
        "at": at.stamp.at,
        "kind": commit.kind.value,
        "tags": dict(header.tags),
        "parent_run": header.parent_run,
        "parent_number": header.parent_number,
        "caller": header.caller,
        "failures": failed,
    }


def _heading(at: Checkpoint, commit: Commit) -> Iterator[str]:
    told = _header(at, commit)
    known = {
        "run": f"{told['run_id']}@{at.number}",
        "workflow": told["workflow"],
        "status": status_word(at.status.value),
        "checkpoint": told["checkpoint_id"],
        "committed": f"{moment(told['at'])} UTC ({told['kind']})",
        "tags": " ".join(f"{name}={value}" for name, value in sorted(told["tags"].items())),
        "forked from": f"{told['parent_run']}@{told['parent_number']}" if told["parent_run"] else "",
        "works for": told["caller"] or "",
        "sleeps until": "" if at.wake is None else f"{moment(at.wake)} UTC",
    }
    yield from (f"{name:<12}  {printable(value)}" for name, value in known.items() if value)
    yield from (f"{'failed':<12}  {printable(one)}" for one in told["failures"])


def _apart(section: Iterable[str]) -> list[str]:
    """With an empty line before it, if there is anything in it."""
    inside = list(section)
    return ["", *inside] if inside else []


def _titled(title: str, held: dict[str, Any], full: bool) -> Iterator[str]:
    if held:
        yield from ["", title, *(f"  {line}" for line in tree(held, full=full))]
