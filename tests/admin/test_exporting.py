"""A run moves from store to store as a file, and goes on exactly where it was."""

from __future__ import annotations

import asyncio
import gc
import gzip
import itertools
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from stepwell import (
    CheckpointCorrupt,
    CheckpointMissing,
    DefinitionError,
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    LatestOnly,
    NewerFormat,
    PostgresCheckpointStorage,
    RunBusy,
    RunError,
    Seal,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
)
from stepwell.admin.doctor.examination import Finding, examine
from stepwell.admin.transfer.exporter import export_run, export_to
from stepwell.admin.transfer.importer import ImportRefused, import_from, import_run
from stepwell.storage.filters import ALL_RUNS, CheckpointFilter
from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.lease import this_process
from stepwell.testing import Crash, CrashingStore
from stepwell.testing.store_rules.samples import logged
from tests.support.nesting import IDLE, WAITING, Asker, Book, Ok
from tests.support.postgres_server import dsn, fresh_schema

KEY = {"k": b"0" * 32}


@pytest.fixture(params=["full", "latest"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Any]]:
    """One of each kind, and one of the first again; of runs that keep everything, or only their latest."""
    kept: dict[str, Any] = {"retention": LatestOnly} if request.param == "latest" else {}
    with fresh_schema() as schema:
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(one)
                for one in (
                    SQLiteCheckpointStorage(tmp_path / "a.db", **kept),
                    FileCheckpointStorage(tmp_path / "files", **kept),
                    PostgresCheckpointStorage(dsn(), schema=schema, **kept),
                    InMemoryCheckpointStorage(**kept),
                    SQLiteCheckpointStorage(tmp_path / "b.db", **kept),
                )
            ]


async def moved(stores: list[Any], run_id: str, tmp_path: Path) -> Any:
    """The run, exported from each store into the next; where it is in the end. Every file says the same."""
    texts = []
    for source, target in itertools.pairwise(stores):
        await export_to(tmp_path / "run.stepwell", source, run_id)
        texts.append(gzip.decompress((tmp_path / "run.stepwell").read_bytes()))
        await import_from(tmp_path / "run.stepwell", target)
    assert texts == [texts[0]] * len(texts)
    return stores[-1]


@contextmanager
def dying(storage: Any, at: int) -> Any:
    """The storage, until its process dies at the n-th durable write."""
    whole = storage._store.inner
    storage._store.inner = CrashingStore(whole, at)
    try:
        yield
    finally:
        storage._store.inner = whole


class Worker(Executor):
    def __init__(self, id: str, book: Book, *, stuck: bool = False) -> None:
        super().__init__(id)
        self.book, self.stuck = book, stuck

    @handler
    async def work(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.step("pay", self.paid)
        if self.stuck:
            await asyncio.Event().wait()
        self.book.note(f"{self.id} worked")
        await ctx.yield_output(f"{self.id} {text}")

    async def paid(self) -> str:
        self.book.note(f"{self.id} paid")
        return "receipt"


def build_work(storage: Any, book: Book, *, stuck: bool = False) -> Workflow:
    @executor(id="begin")
    async def begin(text: str, ctx: WorkflowContext[str, str]) -> None:
        book.note("began")
        ctx.set_state("token", {"secret": text})
        await ctx.yield_output("begun")
        await ctx.send_message(text)

    left, right = Worker("left", book), Worker("right", book, stuck=stuck)
    builder = WorkflowBuilder(name="work", start_executor=begin, checkpoint_storage=storage)
    return builder.add_fan_out_edges(begin, [left, right]).build()


async def killed(storage: Any, running: Any, run_id: str) -> None:
    """The run is gone in the middle of a superstep: one worker is done, the other has only paid."""
    place = 0 if run_id == "fork" else 1
    task = asyncio.ensure_future(running)
    while len(await logged(storage._store, run_id, place)) < 3:  # noqa: ASYNC110 - a store has no event for that
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def killed_at_work(storage: Any, book: Book) -> None:
    await killed(storage, build_work(storage, book, stuck=True).run("x", run_id="r"), "r")


@pytest.mark.process
async def test_a_run_that_was_killed_in_a_superstep_goes_on_with_what_was_finished_and_noted(
    stores: list[Any], tmp_path: Path
) -> None:
    book = Book()
    await killed_at_work(stores[0], book)
    before = book.times()
    assert before == {"began": 1, "left paid": 1, "left worked": 1, "right paid": 1}
    there = await moved(stores, "r", tmp_path)
    result = await build_work(there, book).run(run_id="r")
    assert result.get_outputs() == ["begun", "left x", "right x"]
    assert book.times() == {**before, "right worked": 1}


@pytest.mark.process
async def test_a_run_that_waits_for_an_answer_is_listed_with_its_question_and_answered(
    stores: list[Any], tmp_path: Path
) -> None:
    def build(storage: Any) -> Workflow:
        asker = Asker(Book(), request_id="q", deadline=timedelta(days=30))
        return WorkflowBuilder(name="asking", start_executor=asker, checkpoint_storage=storage).build()

    assert (await build(stores[0]).run("x", run_id="r", tags={"who": "ada"})).get_final_state() == WAITING
    there = await moved(stores, "r", tmp_path)
    assert await there.pending_requests() == await stores[0].pending_requests()
    assert await there.ready_runs(by=(await there.pending_requests())[0].deadline) != []
    [here], [was] = await there.list_runs(tags={"who": "ada"}), await stores[0].list_runs()
    # what is imported began with its oldest commit, which is not its first if it keeps only its latest
    assert replace(here, began_at=was.began_at) == was
    result = await build(there).run(run_id="r", responses={"q": Ok(True)})
    assert result.get_outputs() == ["saw x", "x: True"]


@pytest.mark.process
async def test_mail_that_was_not_taken_in_goes_along(stores: list[Any], tmp_path: Path) -> None:
    def build(storage: Any) -> Workflow:
        return WorkflowBuilder(
            name="asking", start_executor=Asker(Book(), request_id="q"), checkpoint_storage=storage
        ).build()

    await build(stores[0]).run("x", run_id="r")
    with dying(stores[0], at=2), pytest.raises(Crash):  # the answer is posted, and never taken in
        await build(stores[0]).run(run_id="r", responses={"q": Ok(True)})
    assert len(await stores[0]._store.pending_signals("r")) == 1
    there = await moved(stores, "r", tmp_path)
    assert (await build(there).run(run_id="r")).get_outputs() == ["saw x", "x: True"]


@pytest.mark.process
async def test_a_run_that_is_parked_sleeps_on(stores: list[Any], tmp_path: Path, later: Any) -> None:
    def build(storage: Any) -> Workflow:
        @executor(id="sleeper")
        async def sleeper(text: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.sleep(timedelta(hours=1))
            await ctx.yield_output(f"{text} at last")

        return WorkflowBuilder(name="sleeping", start_executor=sleeper, checkpoint_storage=storage).build()

    await build(stores[0]).run("x", run_id="r")
    there = await moved(stores, "r", tmp_path)
    assert await there.ready_runs() == []
    later(minutes=61)
    assert [due.run_id for due in await there.ready_runs()] == ["r"]
    assert (await build(there).run(run_id="r")).get_outputs() == ["x at last"]


def build_nested(storage: Any, book: Book) -> Workflow:
    inner = WorkflowBuilder(name="inner", start_executor=Asker(book, request_id="q")).build()
    middle = WorkflowBuilder(
        name="middle", start_executor=WorkflowExecutor(inner, "inner", allow_direct_output=True)
    ).build()
    outer = WorkflowExecutor(middle, "outer", allow_direct_output=True)
    return WorkflowBuilder(name="nested", start_executor=outer, checkpoint_storage=storage).build()


@pytest.mark.process
async def test_the_runs_inside_that_wait_go_along(stores: list[Any], tmp_path: Path) -> None:
    book = Book()
    await build_nested(stores[0], book).run("x", run_id="r")
    there = await moved(stores, "r", tmp_path)
    assert len(await there._store.runs(ALL_RUNS)) == 3
    result = await build_nested(there, book).run(run_id="r", responses={"q": Ok(True)})
    assert result.get_outputs() == ["saw x", "x: True"]
    assert book.times() == {"ask x": 1, "said x True": 1}


@pytest.mark.process
async def test_a_run_inside_that_no_checkpoint_names_yet_goes_along(stores: list[Any], tmp_path: Path) -> None:
    book = Book()
    with dying(stores[0], at=5), pytest.raises(Crash):  # what the innermost did is committed, and nothing around it
        await build_nested(stores[0], book).run("x", run_id="r")
    runs = {run.workflow: run.number for run in await stores[0]._store.runs(ALL_RUNS)}
    assert runs == {"nested": 0, "middle": 0, "inner": 1}
    there = await moved(stores, "r", tmp_path)
    await build_nested(there, book).run(run_id="r")
    result = await build_nested(there, book).run(run_id="r", responses={"q": Ok(True)})
    assert result.get_outputs() == ["saw x", "x: True"]
    assert book.times() == {"ask x": 1, "said x True": 1}


async def test_a_fork_takes_along_where_it_comes_from(tmp_path: Path) -> None:
    a, b, book = InMemoryCheckpointStorage(), SQLiteCheckpointStorage(tmp_path / "b.db"), Book()
    await build_work(a, book).run("x", run_id="first")
    second = (await a.list_checkpoint_ids(run_id="first"))[1]
    await killed(a, build_work(a, book, stuck=True).run(checkpoint_id=second, run_id="fork"), "fork")
    done = await import_run(b, await export_run(a, "fork"))
    assert done.runs == ("first", "fork")
    assert (await build_work(b, book).run(run_id="fork")).get_outputs() == ["begun", "left x", "right x"]
    assert (await import_run(b, await export_run(a, "first"))).runs == ()  # it is there, and the same
    await b.close()


async def test_one_that_is_there_is_left_alone_if_it_is_the_same_and_refused_if_not(storage: Any) -> None:
    a, book = InMemoryCheckpointStorage(), Book()
    await killed_at_work(a, book)
    data = await export_run(a, "r")
    assert (await import_run(storage, data)).records == 2
    assert (await import_run(storage, data)).runs == ()
    await build_work(storage, book).run(run_id="r")
    with pytest.raises(
        RunError, match="run 'r' already exists in this store, with other content than in the exported run"
    ):
        await import_run(storage, data)
    await build_work(a, Book()).run(run_id="r")  # the same, as far as anybody can see, at another time
    with pytest.raises(RunError, match="already exists"):
        await import_run(storage, await export_run(a, "r"))
    await storage.close()


async def test_a_run_at_rest_gets_another_name(storage: Any) -> None:
    book = Book()
    await build_nested(storage, book).run("x", run_id="r")
    data = await export_run(storage, "r")
    assert (await import_run(storage, data, run_id="copy")).run_id == "copy"
    ids = [*await storage.list_checkpoint_ids(run_id="r"), *await storage.list_checkpoint_ids(run_id="copy")]
    assert len(set(ids)) == len(ids) == 4
    for name, answer in (("copy", False), ("r", True)):  # neither disturbs the other
        result = await build_nested(storage, book).run(run_id=name, responses={"q": Ok(answer)})
        assert result.get_outputs() == ["saw x", f"x: {answer}"]
    assert (await storage.load(ids[3])).previous_checkpoint_id == ids[2]
    with pytest.raises(RunError, match="run 'copy' already exists in this store"):
        await import_run(storage, data, run_id="copy")
    await storage.close()


async def test_a_run_with_something_under_way_keeps_its_name() -> None:
    storage = InMemoryCheckpointStorage()
    await killed_at_work(storage, Book())
    with pytest.raises(RunError, match=r"has a superstep in progress.*import it under its own id, and fork it"):
        await import_run(storage, await export_run(storage, "r"), run_id="copy")
    kept = InMemoryCheckpointStorage(retention=LatestOnly)
    await build_nested(kept, Book()).run("x", run_id="r")
    with pytest.raises(RunError, match="sub-workflow runs that keep only their latest"):
        await import_run(kept, await export_run(kept, "r"), run_id="copy")


async def test_an_import_that_is_cut_short_anywhere_is_not_resumed_and_is_made_good(tmp_path: Path) -> None:
    a, book = InMemoryCheckpointStorage(), Book()
    await build_nested(a, book).run("x", run_id="r")
    data = await export_run(a, "r")
    for at in itertools.count(1):
        b = SQLiteCheckpointStorage(tmp_path / f"{at}.db")
        with dying(b, at):
            try:
                await import_run(b, data)
                break
            except Crash:
                pass
        if await b._store.run("r") is not None:
            with pytest.raises(CheckpointCorrupt, match="this run is only partly here: import it again"):
                await build_nested(b, book).run(run_id="r")
            with pytest.raises(CheckpointCorrupt, match="is incomplete"):
                await export_run(b, "r")
            found = [one.what async for one in examine(b) if isinstance(one, Finding) and one.run_id == "r"]
            assert found == ["run 'r' is incomplete: its import was interrupted; import it again, or delete it"]
        await import_run(b, data)
        result = await build_nested(b, Book()).run(run_id="r", responses={"q": Ok(True)})
        assert result.get_outputs() == ["saw x", "x: True"]
        await b.close()
    assert at > 6


async def test_two_imports_of_one_run_are_not_in_each_others_way() -> None:
    a, book = InMemoryCheckpointStorage(), Book()
    await build_nested(a, book).run("x", run_id="r")
    data = await export_run(a, "r")

    half = InMemoryCheckpointStorage()
    with dying(half, 3), pytest.raises(Crash):
        await import_run(half, data)
    (run,) = await half._store.runs(ALL_RUNS)
    other = this_process("another import")
    await half._store.acquire(run.run_id, other, seconds=60)
    with pytest.raises(RunBusy):  # what somebody writes is not taken away under their hands
        await import_run(half, data)
    await half._store.release(run.run_id, other)
    assert await half._store.run(run.run_id) == run
    await import_run(half, data)

    late = InMemoryCheckpointStorage()
    inner: Any = cast(VerifiedStore, late._store).inner
    looked = inner.acquire

    async def acquire(run_id: str, *known: Any, **options: Any) -> int:
        """Between the look and the claim another import came, and the run has gone on."""
        inner.acquire = looked
        await import_run(late, data)
        await build_nested(late, book).run(run_id="r", responses={"q": Ok(True)})
        fence: int = await looked(run_id, *known, **options)
        return fence

    inner.acquire = acquire
    with pytest.raises(ImportRefused, match="was created in this store during the import; import it again"):
        await import_run(late, data)
    assert (await late.list_runs())[0].status is IDLE


async def test_a_sealed_run_is_written_open_only_if_that_is_asked_for(tmp_path: Path) -> None:
    sealed = SQLiteCheckpointStorage(tmp_path / "a.db", seal=Seal(KEY, "k"))
    await killed_at_work(sealed, Book())
    with pytest.raises(DefinitionError, match=r"this storage is sealed.*unsealed=True"):
        await export_run(sealed, "r")
    data = await export_run(sealed, "r", unsealed=True)
    other = SQLiteCheckpointStorage(tmp_path / "b.db", seal=Seal(KEY, "k"))
    await import_run(other, data)
    assert (await other._store.inner.read("r"))[-1].body.startswith(b'{"sealed":')  # type: ignore[attr-defined]
    assert (await build_work(other, Book()).run(run_id="r")).get_final_state() == IDLE
    await sealed.close()
    await other.close()


async def test_private_values_are_removed_and_the_run_can_only_be_looked_at(storage: Any) -> None:
    a, book = InMemoryCheckpointStorage(), Book()
    await killed_at_work(a, book)
    data = await export_run(a, "r", without=["state.token.secret", "messages", "outputs", "steps"])
    text = gzip.decompress(data).decode()
    assert not [word for word in ('"x"', "left x", "receipt") if word in text]
    assert json.loads(text.splitlines()[0])["redacted"] == ["state.token.secret", "messages", "outputs", "steps"]
    with pytest.raises(RunError, match=r"without state.token.secret, .*cannot be resumed; to import it for inspection"):
        await import_run(storage, data)
    assert (await import_run(storage, data, inspect_only=True)).redacted[1] == "messages"
    head = await storage.get_latest(run_id="r")
    assert head.to_dict()["state"] == {"token": {"secret": {"$": "removed"}}}
    for how in ({"run_id": "r"}, {"checkpoint_id": head.checkpoint_id, "run_id": "fork"}):
        with pytest.raises(CheckpointCorrupt, match="it can be looked at, and not resumed"):
            await build_work(storage, book).run(**how)
    with pytest.raises(ValueError, match=r"'state.tokn' matches nothing in run 'r'"):
        await export_run(a, "r", without=["state.tokn"])
    with pytest.raises(ValueError, match=r"'stat.token' cannot be removed"):
        await export_run(a, "r", without=["stat.token"])
    await storage.close()


async def test_an_export_that_is_refused_half_way_leaves_nothing_that_still_wants_to_write(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    await killed_at_work(storage, Book())
    left: list[object] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "unraisablehook", lambda unraisable: left.append(unraisable.exc_value))
        with pytest.raises(ValueError, match=r"'state.tokn' matches nothing in run 'r'"):
            await export_to(tmp_path / "run.stepwell", storage, "r", without=["state.tokn"])
        gc.collect()
    assert left == []
    assert list(tmp_path.iterdir()) == []


async def test_what_is_no_whole_file_of_ours_is_refused() -> None:
    storage, there = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    await killed_at_work(storage, Book())
    data = await export_run(storage, "r")
    for end in range(0, len(data), 7):
        with pytest.raises(CheckpointCorrupt, match="exported run"):
            await import_run(there, data[:end])
    for n in range(10, len(data), 5):
        try:
            await import_run(there, data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :])
        except (CheckpointCorrupt, NewerFormat):  # what is damaged may say that it is newer
            assert await there.list_runs() == []
    lines = gzip.decompress(data).splitlines(keepends=True)
    for n in range(len(lines)):  # a line that is gone, or there twice, or changed
        for changed in (lines[:n] + lines[n + 1 :], [*lines[:n], lines[n], *lines[n:]]):
            with pytest.raises(CheckpointCorrupt):
                await import_run(there, gzip.compress(b"".join(changed)))
    newer = lines[0].replace(b'"version":1', b'"version":2')
    with pytest.raises(NewerFormat, match=r"has version 2, .* use a newer Stepwell"):
        await import_run(there, gzip.compress(b"".join([newer, *lines[1:]])))
    with pytest.raises(CheckpointCorrupt, match="not an exported run"):
        await import_run(there, gzip.compress(b'{"hello":1}\n'))
    assert await there.list_runs() == []


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (b'"workflow":"work","status"', b'"workflow":"walk","status"', "belongs to two workflows"),
        (b'"outputs":true', b'"outputs":false', "does not match its content"),
    ],
)
async def test_a_file_that_contradicts_itself_is_refused_before_anything_is_written(
    before: bytes, after: bytes, why: str
) -> None:
    """Also if whoever edited it has made its sum fit."""
    storage, there = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    await killed_at_work(storage, Book())
    *lines, _ = gzip.decompress(await export_run(storage, "r")).splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if before in line)
    lines[last] = lines[last].replace(before, after)
    end = {"line": "end", "lines": len(lines), "sum": sha256(b"".join(lines)).hexdigest()}
    with pytest.raises(CheckpointCorrupt, match=why):
        await import_run(there, gzip.compress(b"".join([*lines, json.dumps(end).encode() + b"\n"])))
    assert await there.list_runs() == []


async def test_runs_that_are_not_there_or_work_for_others_are_refused(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(CheckpointMissing, match="run 'r' is not in this store"):
        await export_to(tmp_path / "x", storage, "r")
    await build_nested(storage, Book()).run("x", run_id="r")
    inside = next(run.run_id for run in await storage._store.runs(ALL_RUNS) if run.metadata.caller == "r")
    with pytest.raises(RunError, match="is a sub-workflow run of 'r': export that run"):
        await export_run(storage, inside)
    assert list(tmp_path.iterdir()) == []


async def test_runs_inside_that_are_gone_are_named() -> None:
    storage = InMemoryCheckpointStorage()
    await build_nested(storage, Book()).run("x", run_id="r")
    inside = next(run.run_id for run in await storage._store.runs(ALL_RUNS) if run.metadata.caller == "r")
    await storage._store.drop(inside)
    assert (await import_run(InMemoryCheckpointStorage(), await export_run(storage, "r"))).missing == (inside,)


async def test_outputs_that_outlived_their_checkpoints_go_along(storage: Any) -> None:
    """A run that keeps only its latest keeps the records with outputs, without what they are based on."""

    class Counting(Executor):
        def __init__(self) -> None:
            super().__init__("count")

        @handler
        async def count(self, number: int, ctx: WorkflowContext[int, str]) -> None:
            if number % 50 == 0:
                await ctx.yield_output(f"number {number}")
            if number < 150:
                await ctx.send_message(number + 1)

    a = InMemoryCheckpointStorage(retention=LatestOnly)
    counting = Counting()
    flow = (
        WorkflowBuilder(name="counting", start_executor=counting, checkpoint_storage=a, max_iterations=1000)
        .add_edge(counting, counting)
        .build()
    )
    outputs = (await flow.run(1, run_id="r")).get_outputs()
    entries = await a._store.checkpoints(CheckpointFilter(run_id="r"))
    assert len(entries) < 150
    assert not entries[0].is_snapshot
    await import_run(storage, await export_run(a, "r"))
    assert await storage._store.checkpoints(CheckpointFilter(run_id="r")) == entries
    assert (await flow.run(run_id="r", checkpoint_storage=storage)).get_outputs() == outputs
    await import_run(InMemoryCheckpointStorage(), await export_run(a, "r", without=["outputs"]), inspect_only=True)
    await storage.close()


async def test_a_run_that_is_exported_while_it_is_driven_is_one_that_was_left_there() -> None:
    a, book = InMemoryCheckpointStorage(), Book()
    taken: list[bytes] = []
    stream = build_nested(a, book).run("x", run_id="r", stream=True)
    async for _ in stream:
        taken.append(await export_run(a, "r"))
    stream = build_nested(a, book).run(run_id="r", responses={"q": Ok(True)}, stream=True)
    async for _ in stream:
        taken.append(await export_run(a, "r"))
    assert len(set(taken)) > 4
    for data in dict.fromkeys(taken):
        there = InMemoryCheckpointStorage()
        await import_run(there, data)
        result = await build_nested(there, Book()).run(run_id="r")
        if result.get_final_state() == WAITING:
            result = await build_nested(there, Book()).run(run_id="r", responses={"q": Ok(True)})
        assert result.get_outputs() == ["saw x", "x: True"]
