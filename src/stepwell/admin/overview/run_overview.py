"""Reads what a person asks first about a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.live_workers import find_live_workers
from stepwell.admin.lookup import find_checkpoint, load_checkpoint
from stepwell.admin.overview.branches import BranchProgress, branches_of, following_of
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.declarative.stored_run import find_node, input_of, is_of_named_agents, without_conductor
from stepwell.errors import CheckpointCorrupt, CheckpointMissing
from stepwell.kernel.lifecycle import drop_undone
from stepwell.kernel.requests import open_requests
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind, Done
from stepwell.model.event import CheckpointInfo, WorkflowErrorDetails
from stepwell.model.request import AnswerRecord, Request
from stepwell.model.status_words import status_word
from stepwell.storage import clock
from stepwell.storage.answers import Response
from stepwell.storage.archive import StoredRun
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.run_list import RunInfo, run_info
from stepwell.storage.signals import is_of_epoch
from stepwell.storage.store_archive import StoreArchive
from stepwell.storage.stored_values import RunEntry
from stepwell.storage.wire.format import read_commit
from stepwell.storage.worker_registry import WorkerInfo

RECENT = 500  # commits that are read: an overview must not get slower as a run grows


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run at one of its checkpoints, with what led there. Values are in their stored form."""

    at: Checkpoint
    commit: Commit  # that led there
    run: RunInfo  # as it is now
    commits: tuple[Commit, ...]  # the recent ones that the checkpoint builds on, oldest first
    of_named_agents: bool  # then calls, branches, failures and requests have the names of nodes
    is_whole: bool  # whether those are all commits of the run, from its first
    has_input: bool  # of its own
    input: Any  # None if it is not stored any more: see `has_input`
    input_run: str | None  # of a fork: the run that it descends from, which got the input
    branches: tuple[BranchProgress, ...]  # of the superstep in progress; none of an older checkpoint
    requests: Mapping[str, Request]  # open ones, also those of the superstep in progress
    pending: Mapping[str, Response]  # responses that have arrived and are not applied yet, by request
    driven: Checkpoint  # of the run that must be driven to move this one: its outermost caller, or itself
    workers: tuple[WorkerInfo, ...]  # alive, with the workflow of that run

    @property
    def is_head(self) -> bool:
        """Whether the checkpoint is the newest of its run."""
        return self.at.number == self.run.number

    @property
    def standing(self) -> str:
        """How the run stands now or, at an older checkpoint, how it stood then."""
        return self.run.standing if self.is_head else status_word(self.at.status, wake=self.at.wake)

    @property
    def following(self) -> list[str]:
        """The executors that are called next, each once. The conductor of named agents is none of them."""
        if self.branches:
            return list(dict.fromkeys(branch.executor for branch in self.branches if branch.state != "finished"))
        return list(dict.fromkeys(filter(None, map(self.name_of, following_of(self.at)))))

    @property
    def calls(self) -> Iterator[tuple[Commit, Done]]:
        """The handler calls of recent commits, oldest first, each with its commit."""
        for commit in self.commits:
            for done in (without_conductor(commit) if self.of_named_agents else commit).done:
                yield commit, done

    @property
    def failures(self) -> tuple[WorkflowErrorDetails, ...]:
        """The errors of the commit that led here."""
        return (without_conductor(self.commit) if self.of_named_agents else self.commit).failures

    def name_of(self, executor: str) -> str | None:
        """Return the name by which people know an executor; None if it is the conductor of named agents."""
        return find_node(executor) if self.of_named_agents else executor

    @property
    def outputs(self) -> list[Any]:
        """What the run has yielded as its result, in recent commits."""
        outputs = [output for commit in self.commits for done in commit.done for output in done.outputs]
        return [plain_value(output.payload) for output in outputs if output.kind == "output"]

    @property
    def answers(self) -> list[AnswerRecord]:
        """The responses that were applied in recent commits, oldest first."""
        return [answer for commit in self.commits for answer in commit.answers]

    def question(self, request_id: str) -> Any:
        """Return what a request asked, in its stored form; None if that is not among the recent commits."""
        asked = [request for commit in self.commits for request in commit.asked if request.id == request_id]
        return plain_value(asked[-1].payload) if asked else None


async def load_overview(storage: BuiltInStorage, name: str, *, every_commit: bool = False) -> RunOverview:
    """Return what there is to say about a run, at the checkpoint that `find_checkpoint` finds.

    Reads the latest 500 commits up to it, unless `every_commit`. Raises NotFound or Ambiguous.
    """
    found, entry = await _find_with_entry(storage, name)
    at, commit = await load_checkpoint(storage._store, found)
    return await overview_at(storage, at, commit, every_commit=every_commit, entry=entry)


async def _find_with_entry(storage: BuiltInStorage, name: str) -> tuple[CheckpointInfo, RunEntry]:
    """Return the checkpoint that `name` means, and the entry of its run from the same time.

    Who asks for the newest checkpoint of a run that moves meanwhile has not asked for an older one.
    """
    found = await find_checkpoint(storage, name)
    while True:
        entry = await _read_entry(storage, found.run_id)
        meant = found if entry.number == found.number else await find_checkpoint(storage, name)
        if meant == found:
            return found, entry
        found = meant


async def _read_entry(storage: BuiltInStorage, run_id: str) -> RunEntry:
    entry = await storage._store.run(run_id)
    if entry is None:
        raise CheckpointMissing(f"run {run_id!r} was deleted meanwhile")
    return entry


async def overview_at(
    storage: BuiltInStorage,
    at: Checkpoint,
    commit: Commit,
    *,
    every_commit: bool = False,
    entry: RunEntry | None = None,
) -> RunOverview:
    """Return what there is to say about a run at a checkpoint, which `commit` led to.

    `entry` is that of the run, if it has been read.
    """
    store, archive = storage._store, StoreArchive(storage._store, DEFAULT_CODEC)
    entry = entry or await _read_entry(storage, at.run_id)
    run = run_info(entry)
    # An older checkpoint has no superstep log, and its requests may be answered by now.
    stored = await archive.look(at.run_id) if run.number == at.number else StoredRun()
    is_now = stored.head is not None and stored.head.number == at.number
    after = -1 if every_commit else max(at.number - RECENT, -1)
    records = await store.history(at.run_id, after=after, upto=at.number)
    commits = [read_commit(record, DEFAULT_CODEC)[0] for record in records]
    first = commits[0] if commits and commits[0].number == 0 else await _read_first(storage, at.run_id)
    inherited = None if _has_input(first) else await _read_inherited_input(storage, run)
    failed = frozenset(failure.executor_id for failure in commit.failures)
    branches = branches_of(at, stored.log, is_driven=run.standing == "running", failed=failed, now=clock.now())
    driven = await _find_driven(archive, entry, at)
    overview = RunOverview(
        at,
        commit,
        run,
        of_named_agents=is_of_named_agents(at),
        commits=tuple(drop_undone(commits)),
        # Pruned commits leave gaps in the numbers.
        is_whole=[each.number for each in commits] == list(range(at.number + 1)),
        has_input=_has_input(first),
        input=_input_in(first) if inherited is None else inherited[1],
        input_run=None if inherited is None else inherited[0],
        branches=branches if is_now else (),
        requests=open_requests(at, stored.log) if is_now else at.requests,
        pending=_find_pending(stored, at.header.epoch) if is_now else {},
        driven=driven,
        workers=await find_live_workers(storage, driven.header.workflow),
    )
    return _with_node_names(overview) if overview.of_named_agents else overview


def _with_node_names(overview: RunOverview) -> RunOverview:
    """Return the overview of a run of named agents with nodes instead of the executors that make them up."""
    names = {id: find_node(request.executor) or request.executor for id, request in overview.requests.items()}
    return dataclasses.replace(
        overview,
        branches=tuple(
            branch.rename(node) for branch in overview.branches if (node := find_node(branch.executor)) is not None
        ),
        requests={id: replace(request, executor=names[id]) for id, request in overview.requests.items()},
    )


async def _find_driven(archive: StoreArchive, entry: RunEntry, at: Checkpoint) -> Checkpoint:
    """Return the newest checkpoint of the outermost caller of a run; `at`, if it has no caller that is stored."""
    outermost = entry
    while (caller := outermost.metadata.caller) and (above := await archive.store.run(caller)) is not None:
        outermost = above
    return at if outermost is entry else await archive.head(outermost.run_id) or at


async def _read_inherited_input(storage: BuiltInStorage, run: RunInfo) -> tuple[str, Any] | None:
    """Return the run whose input a fork descends from, and that input in its stored form; None if it is not stored."""
    seen = {run.run_id}
    while (parent := run.parent) is not None and parent.run_id not in seen:
        try:
            first, entry = await _read_first(storage, parent.run_id), await storage._store.run(parent.run_id)
        except CheckpointCorrupt:
            return None  # the fork itself is whole
        if entry is None:
            return None
        if _has_input(first):
            return parent.run_id, _input_in(first)
        seen.add(parent.run_id)
        run = run_info(entry)
    return None


def _has_input(first: Commit | None) -> bool:
    return first is not None and first.kind is CommitKind.INPUT and bool(first.messages)


def _input_in(first: Commit | None) -> Any:
    messages = first.messages if first is not None and _has_input(first) else None
    return input_of(plain_value(messages[0].payload)) if messages else None


async def _read_first(storage: BuiltInStorage, run_id: str) -> Commit | None:
    records = await storage._store.history(run_id, upto=0)
    return read_commit(records[0], DEFAULT_CODEC)[0] if records else None


def _find_pending(stored: StoredRun, epoch: int) -> dict[str, Response]:
    # A response of an earlier epoch was given before the run was moved back, and will not be applied.
    pending: dict[str, Response] = {}
    for key, signal in stored.signals.items():
        if isinstance(signal, Response) and is_of_epoch(key, epoch):
            pending.setdefault(signal.request_id, signal)
    return pending
