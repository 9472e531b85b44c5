"""What is true of every store. Each rule is a sentence; each takes an empty store."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from holdfast.core.errors import CommitConflict, RunBusy
from holdfast.durable import clock
from holdfast.durable.ownership import Owner, process_start, this_process
from holdfast.durable.ports import Along, Entry, Record, Store

Rule = Callable[[Store], Awaitable[None]]
RULES: list[Rule] = []

ODD_IDS = [
    "",
    ".",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "NUL",
    ".new",
    ".lock",
    "memory",
    "-",
    "a~b",
]
ODD_IDS += [
    "Run",
    "run",
    "RUN",
    "é",
    "e\u0301",
    "日本語",
    "x" * 300,
    "x" * 299 + "y",
    "a b",
    "a_b",
    "%2e%2e",
    "\n",
    "a\0b",
]


def rule(function: Rule) -> Rule:
    RULES.append(function)
    return function


def record(run_id: str, number: int, *, workflow: str = "w", body: object = None, **changes: object) -> Record:
    entry = Entry(
        run_id=run_id,
        number=number,
        checkpoint_id=f"{run_id}-{number}",
        workflow=workflow,
        status="running",
        iteration=number,
        at="2026-01-01T00:00:00Z",
        frame=True,
        outputs=False,
    )
    return Record(replace(entry, **changes), json.dumps({"n": number} if body is None else body).encode())  # type: ignore[arg-type]


def meaning(found: Record | None) -> object:
    assert found is not None
    return found.entry, json.loads(found.body)


def meanings(found: list[Record]) -> list[object]:
    return [meaning(each) for each in found]


def numbers(found: list[Record]) -> list[int]:
    return [each.entry.number for each in found]


def places(found: list[Entry]) -> list[tuple[str, int]]:
    return [(entry.run_id, entry.number) for entry in found]


async def fill(store: Store, run_id: str, count: int, *, workflow: str = "w") -> None:
    for number in range(count):
        await store.append(record(run_id, number, workflow=workflow))


# -------------------------------------------------------------------- records


@rule
async def an_empty_store_knows_nothing(store: Store) -> None:
    assert await store.head("r") is None
    assert await store.chain("r", 0) == []
    assert await store.history("r") == []
    assert await store.locate("c") is None
    assert await store.entries() == []
    assert await store.newest() is None
    assert await store.recall("r", 0) == {}
    assert not await store.remove("r", 0)


@rule
async def what_was_appended_is_the_head(store: Store) -> None:
    first, second = record("r", 0), record("r", 1, status="done", outputs=True, frame=False)
    await store.append(first)
    assert meaning(await store.head("r")) == meaning(first)
    await store.append(second)
    assert meaning(await store.head("r")) == meaning(second)


@rule
async def a_body_comes_back_as_it_was_written(store: Store) -> None:
    body = '{"b":1.10,"a":-0.0,"big":123456789012345678901234567890,"e":1e400,"n":[null,[],{}],'
    body += '"u":"é\\u00e9日\\ud83d\\ude00"}'
    await store.append(Record(record("r", 0).entry, body.encode()))
    found = await store.head("r")
    assert found is not None
    assert found.body == body.encode()


@rule
async def a_large_body_comes_back(store: Store) -> None:
    large = record("r", 0, body=["x" * 1000] * 3000)
    await store.append(large)
    assert meaning(await store.head("r")) == meaning(large)


@rule
async def a_number_is_taken_once(store: Store) -> None:
    await fill(store, "r", 2)
    for number in (0, 1, 3):
        with pytest.raises(CommitConflict, match="'r'"):
            await store.append(record("r", number, body="other"))
    assert meanings(await store.history("r")) == meanings([record("r", 0), record("r", 1)])


@rule
async def a_new_run_begins_with_number_0(store: Store) -> None:
    with pytest.raises(CommitConflict):
        await store.append(record("r", 1))
    assert await store.head("r") is None


@rule
async def of_many_appends_of_one_number_exactly_one_wins(store: Store) -> None:
    outcomes = await asyncio.gather(
        *(store.append(record("r", 0, body=n, checkpoint_id=f"c{n}")) for n in range(20)), return_exceptions=True
    )
    winners = [n for n, outcome in enumerate(outcomes) if outcome is None]
    assert len(winners) == 1
    assert all(isinstance(outcome, CommitConflict) for outcome in outcomes if outcome is not None)
    assert meanings(await store.history("r")) == meanings(
        [record("r", 0, body=winners[0], checkpoint_id=f"c{winners[0]}")]
    )


@rule
async def a_run_belongs_to_one_workflow(store: Store) -> None:
    await store.append(record("r", 0, workflow="one"))
    with pytest.raises(CommitConflict, match="another id"):
        await store.append(record("r", 1, workflow="two"))
    with pytest.raises(CommitConflict, match="another id"):
        await store.put(record("r", 0, workflow="two"))
    assert places(await store.entries()) == [("r", 0)]
    assert await store.entries(workflow="two") == []


@rule
async def runs_and_workflows_of_odd_names_are_kept_apart(store: Store) -> None:
    for name in ODD_IDS:
        await store.append(record(name, 0, workflow=f"w{name}", body=name, checkpoint_id=f"c{name}"))
        await store.remember(name, 1, name, json.dumps(name).encode())
    for name in ODD_IDS:
        expected = record(name, 0, workflow=f"w{name}", body=name, checkpoint_id=f"c{name}")
        assert meaning(await store.head(name)) == meaning(expected)
        assert await store.locate(f"c{name}") == expected.entry
        assert await store.entries(workflow=f"w{name}") == [expected.entry]
        assert await store.recall(name, 1) == {name: json.dumps(name).encode()}
    assert [entry.run_id for entry in await store.entries()] == ODD_IDS


@rule
async def a_checkpoint_or_workflow_of_an_odd_name_is_found_or_not_found(store: Store) -> None:
    await store.append(record("r", 0))
    for name in ODD_IDS:
        assert await store.locate(name) is None
        assert await store.newest(workflow=name) is None
        assert await store.newest(run_id=name) is None
    for name in ODD_IDS:
        await store.append(record(f"run of {name}", 0, checkpoint_id=name, workflow=name))
        located = await store.locate(name)
        assert located is not None
        assert located.run_id == f"run of {name}"


# -------------------------------------------------------------------- reading back


@rule
async def a_chain_begins_with_the_last_frame(store: Store) -> None:
    for number, frame in enumerate([True, False, False, True, False]):
        await store.append(record("r", number, frame=frame))
    assert numbers(await store.chain("r", 0)) == [0]
    assert numbers(await store.chain("r", 2)) == [0, 1, 2]
    assert numbers(await store.chain("r", 3)) == [3]
    assert numbers(await store.chain("r", 4)) == [3, 4]
    assert await store.chain("r", 5) == []


@rule
async def what_the_next_record_is_based_on_goes_only_with_a_follower(store: Store) -> None:
    for number, frame in enumerate([True, False, False, False]):
        await store.append(record("r", number, frame=frame))
    with pytest.raises(CommitConflict, match="commit 2 is based on it"):
        await store.remove("r", 1)
    assert numbers(await store.chain("r", 3)) == [0, 1, 2, 3]
    assert await store.remove("r", 1, follower=record("r", 2, frame=True))
    assert numbers(await store.chain("r", 3)) == [2, 3]
    assert await store.remove("r", 3)


@rule
async def a_follower_does_not_bring_back_what_was_removed(store: Store) -> None:
    for number in range(3):
        await store.append(record("r", number, frame=True))
    assert await store.remove("r", 2)
    assert await store.remove("r", 1, follower=record("r", 2, frame=True))
    assert numbers(await store.history("r")) == [0]


@rule
async def history_is_oldest_first_and_may_end_early(store: Store) -> None:
    for number in range(5):
        await store.append(record("r", number, outputs=number in (1, 3)))
    assert numbers(await store.history("r")) == [0, 1, 2, 3, 4]
    assert numbers(await store.history("r", upto=2)) == [0, 1, 2]
    assert numbers(await store.history("r", outputs_only=True)) == [1, 3]
    assert numbers(await store.history("r", upto=2, outputs_only=True)) == [1]
    assert await store.history("r", upto=-1) == []


@rule
async def history_may_begin_late(store: Store) -> None:
    for number in range(5):
        await store.append(record("r", number, outputs=number in (1, 3)))
    assert numbers(await store.history("r", after=1)) == [2, 3, 4]
    assert numbers(await store.history("r", after=1, upto=3)) == [2, 3]
    assert numbers(await store.history("r", after=1, outputs_only=True)) == [3]
    assert numbers(await store.history("r", after=-1)) == [0, 1, 2, 3, 4]
    assert await store.history("r", after=4) == []
    assert await store.history("r", after=3, upto=1) == []
    assert await store.history("r", after=70) == []
    assert await store.history("nobody", after=0) == []
    await store.put(record("r", 9))
    await store.remove("r", 3)
    assert numbers(await store.history("r", after=2)) == [4, 9]


@rule
async def entries_come_in_the_order_of_commits(store: Store) -> None:
    for run_id, number in [("b", 0), ("a", 0), ("b", 1), ("c", 0), ("a", 1)]:
        await store.append(record(run_id, number, workflow="odd" if run_id == "c" else "w"))
    assert places(await store.entries()) == [("b", 0), ("a", 0), ("b", 1), ("c", 0), ("a", 1)]
    assert places(await store.entries(workflow="w")) == [("b", 0), ("a", 0), ("b", 1), ("a", 1)]
    assert places(await store.entries(run_id="b")) == [("b", 0), ("b", 1)]
    assert places(await store.entries(workflow="odd", run_id="c")) == [("c", 0)]
    assert await store.entries(workflow="odd", run_id="a") == []
    assert await store.entries(workflow="none") == []


@rule
async def the_newest_is_what_was_committed_last(store: Store) -> None:
    for run_id, number, workflow in [("a", 0, "v"), ("b", 0, "w"), ("a", 1, "v"), ("c", 0, "w")]:
        await store.append(record(run_id, number, workflow=workflow))
    assert await store.newest() == record("c", 0).entry
    assert await store.newest(workflow="v") == record("a", 1, workflow="v").entry
    assert await store.newest(run_id="b") == record("b", 0).entry
    assert await store.newest(run_id="b", workflow="w") == record("b", 0).entry
    assert await store.newest(run_id="b", workflow="v") is None
    assert await store.newest(workflow="none") is None


@rule
async def a_checkpoint_is_located_by_its_id(store: Store) -> None:
    await fill(store, "r", 3)
    assert await store.locate("r-1") == record("r", 1).entry
    assert await store.locate("r-") is None
    assert await store.locate("-1") is None


# -------------------------------------------------------------------- putting and removing


@rule
async def a_record_is_put_wherever_it_belongs(store: Store) -> None:
    await store.put(record("r", 5))
    await store.put(record("r", 2))
    assert numbers(await store.history("r")) == [2, 5]
    assert meaning(await store.head("r")) == meaning(record("r", 5))
    with pytest.raises(CommitConflict):
        await store.append(record("r", 3))
    await store.append(record("r", 6))
    assert numbers(await store.history("r")) == [2, 5, 6]


@rule
async def what_is_put_replaces_and_counts_as_committed_now(store: Store) -> None:
    await fill(store, "r", 3)
    await fill(store, "s", 1)
    again = record("r", 1, body="again", checkpoint_id="again")
    await store.put(again)
    assert places(await store.entries()) == [("r", 0), ("r", 2), ("s", 0), ("r", 1)]
    assert await store.newest() == again.entry
    assert await store.newest(run_id="r") == again.entry
    assert meaning(await store.head("r")) == meaning(record("r", 2))
    assert meanings(await store.history("r")) == meanings([record("r", 0), again, record("r", 2)])
    assert await store.locate("r-1") is None
    assert await store.locate("again") == again.entry
    await store.append(record("r", 3))
    assert await store.newest(run_id="r") == record("r", 3).entry


@rule
async def a_removed_record_is_gone(store: Store) -> None:
    await fill(store, "r", 3)
    assert await store.remove("r", 1)
    assert not await store.remove("r", 1)
    assert numbers(await store.history("r")) == [0, 2]
    assert await store.locate("r-1") is None
    assert await store.remove("r", 2)
    assert meaning(await store.head("r")) == meaning(record("r", 0))
    await store.append(record("r", 1))


@rule
async def a_follower_takes_the_place_of_the_record_after_without_becoming_the_newest(store: Store) -> None:
    await store.append(record("r", 0))
    await store.append(record("r", 1, frame=False))
    await fill(store, "s", 1)
    whole = record("r", 1, body="whole")
    assert await store.remove("r", 0, follower=whole)
    assert meanings(await store.chain("r", 1)) == meanings([whole])
    assert places(await store.entries()) == [("r", 1), ("s", 0)]
    assert await store.newest() == record("s", 0).entry


@rule
async def a_follower_of_nothing_is_not_stored(store: Store) -> None:
    await fill(store, "r", 1)
    assert not await store.remove("r", 7, follower=record("r", 8))
    assert numbers(await store.history("r")) == [0]


@rule
async def a_follower_that_is_refused_removes_nothing(store: Store) -> None:
    await fill(store, "r", 2)
    with pytest.raises(CommitConflict):
        await store.remove("r", 0, follower=record("r", 1, workflow="another"))
    assert meanings(await store.history("r")) == meanings([record("r", 0), record("r", 1)])


@rule
async def a_run_whose_last_record_goes_is_gone_with_its_memory(store: Store) -> None:
    await fill(store, "r", 1)
    await store.remember("r", 1, "k", b"1")
    assert await store.remove("r", 0)
    assert await store.recall("r", 1) == {}
    assert await store.entries() == []
    assert await store.newest(workflow="w") is None
    await store.append(record("r", 0, workflow="another"))
    assert meaning(await store.head("r")) == meaning(record("r", 0, workflow="another"))


# -------------------------------------------------------------------- memory


@rule
async def what_is_remembered_first_is_kept(store: Store) -> None:
    await fill(store, "r", 1)
    assert await store.remember("r", 1, "k", b'{"first":1}')
    assert not await store.remember("r", 1, "k", b"2")
    assert await store.remember("r", 1, "K/../k", b"3")
    assert await store.remember("r", 2, "k", b"4")
    assert await store.recall("r", 1) == {"k": b'{"first":1}', "K/../k": b"3"}
    assert await store.recall("r", 2) == {"k": b"4"}
    assert await store.recall("s", 1) == {}


@rule
async def a_run_without_records_has_a_memory_already(store: Store) -> None:
    await store.remember("r", 0, "k", b"1")
    assert await store.recall("r", 0) == {"k": b"1"}
    await fill(store, "r", 1)
    assert await store.recall("r", 0) == {"k": b"1"}


@rule
async def an_append_forgets_what_it_settles(store: Store) -> None:
    await fill(store, "r", 1)
    await store.remember("r", 1, "k", b"1")
    await store.remember("r", 2, "k", b"2")
    await store.append(record("r", 1), Along(settled=1))
    assert await store.recall("r", 1) == {}
    assert await store.recall("r", 2) == {"k": b"2"}


@rule
async def a_refused_append_forgets_nothing(store: Store) -> None:
    await fill(store, "r", 1)
    await store.remember("r", 1, "k", b"1")
    with pytest.raises(CommitConflict):
        await store.append(record("r", 0), Along(settled=1))
    assert await store.recall("r", 1) == {"k": b"1"}


@rule
async def the_memory_of_a_place_that_is_no_more_is_forgotten(store: Store) -> None:
    await fill(store, "r", 3)
    await store.remember("r", 1, "k", b"1")
    await store.remember("r", 2, "k", b"2")
    assert await store.remove("r", 2)
    assert await store.recall("r", 2) == {}
    assert await store.recall("r", 1) == {"k": b"1"}
    await store.put(record("r", 2))
    assert await store.recall("r", 2) == {}
    assert await store.remember("r", 2, "k", b"3")


@rule
async def many_things_are_remembered_at_once(store: Store) -> None:
    await fill(store, "r", 1)
    kept = await asyncio.gather(*(store.remember("r", 1, f"k{n % 10}", str(n).encode()) for n in range(30)))
    assert sum(kept) == 10
    assert sorted(await store.recall("r", 1)) == sorted(f"k{n}" for n in range(10))


# -------------------------------------------------------------------- claims


def somebody_else_alive(drive: str = "other") -> Owner:
    return this_process(drive)


@rule
async def a_run_is_driven_by_one_at_a_time(store: Store) -> None:
    mine, other = this_process("mine"), somebody_else_alive()
    await store.claim("r", mine, seconds=60)
    await store.claim("r", mine, seconds=60)
    await store.claim("s", other, seconds=60)
    with pytest.raises(RunBusy, match=str(mine.pid)) as refusal:
        await store.claim("r", other, seconds=60)
    assert (refusal.value.run_id, refusal.value.owner) == ("r", str(mine))


@rule
async def a_claim_stays_with_a_run_that_comes_and_goes(store: Store) -> None:
    await store.claim("r", this_process("mine"), seconds=60)
    await fill(store, "r", 1)
    with pytest.raises(RunBusy):
        await store.claim("r", somebody_else_alive(), seconds=60)
    await store.remove("r", 0)
    with pytest.raises(RunBusy):
        await store.claim("r", somebody_else_alive(), seconds=60)
    await fill(store, "r", 1, workflow="another")
    with pytest.raises(RunBusy):
        await store.claim("r", somebody_else_alive(), seconds=60)


@rule
async def a_released_run_is_free(store: Store) -> None:
    mine, other = this_process("mine"), somebody_else_alive()
    await store.claim("r", mine, seconds=60)
    await store.release("r", other)
    with pytest.raises(RunBusy):
        await store.claim("r", other, seconds=60)
    await store.release("r", mine)
    await store.claim("r", other, seconds=60)
    assert await store.entries() == []


@rule
async def a_claim_ends_by_itself(store: Store) -> None:
    await store.claim("r", this_process("mine"), seconds=60)
    with after(minutes=2):
        await store.claim("r", somebody_else_alive(), seconds=60)
        with pytest.raises(RunBusy):
            await store.claim("r", this_process("mine"), seconds=60)


@rule
async def renewing_extends_a_claim_that_is_still_held(store: Store) -> None:
    mine, other = this_process("mine"), somebody_else_alive()
    fence = await store.claim("r", mine, seconds=60)
    await store.claim("s", other, seconds=60)
    await asyncio.to_thread(store.renew, {"r": fence, "unknown": fence}, seconds=600)
    with after(minutes=2):
        with pytest.raises(RunBusy):
            await store.claim("r", other, seconds=60)
        await store.claim("s", mine, seconds=60)
        await store.claim("unknown", other, seconds=60)


@contextmanager
def after(*, minutes: float) -> Iterator[None]:
    """It is later, by every clock that is asked."""
    clock.set_source(lambda: time.time() + 60 * minutes)
    try:
        yield
    finally:
        clock.set_source()


def another_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


@rule
async def the_run_of_a_dead_process_is_taken_over_at_once(store: Store) -> None:
    with another_process() as process:
        theirs = replace(this_process("theirs"), pid=process.pid, started=process_start(process.pid))
        await store.claim("r", theirs, seconds=60)
        with pytest.raises(RunBusy):
            await store.claim("r", this_process("mine"), seconds=60)
        process.kill()
        while process_start(process.pid):  # dead, but not reaped yet
            time.sleep(0.01)
        await store.claim("r", this_process("mine"), seconds=60)
    with pytest.raises(RunBusy):
        await store.claim("r", somebody_else_alive(), seconds=60)


@rule
async def the_run_of_a_process_elsewhere_is_left_to_it(store: Store) -> None:
    await store.claim("r", replace(this_process("x"), machine="elsewhere", pid=1, started="0"), seconds=60)
    with pytest.raises(RunBusy):
        await store.claim("r", this_process("mine"), seconds=60)


# -------------------------------------------------------------------- loops, threads, life


@rule
async def a_store_is_used_from_many_threads_and_loops(store: Store) -> None:
    def drive(run_id: str) -> None:
        asyncio.run(fill(store, run_id, 5))

    threads = [threading.Thread(target=drive, args=(f"r{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads), fill(store, "mine", 5))
    for run_id in ["mine", *(f"r{n}" for n in range(6))]:
        assert numbers(await store.history(run_id)) == [0, 1, 2, 3, 4]
    assert len(await store.entries()) == 35


@rule
async def a_store_is_closed_twice_and_used_again(store: Store) -> None:
    await store.close()
    await fill(store, "r", 1)
    await store.close()
    await store.close()
    await store.append(record("r", 1))
    assert numbers(await store.history("r")) == [0, 1]


@rule
async def a_waiter_that_is_cancelled_harms_nobody(store: Store) -> None:
    tasks = [asyncio.create_task(store.append(record(f"r{n}", 0))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[1::2] == [None] * 10
    await fill(store, "after", 2)
    for n in range(1, 20, 2):
        assert numbers(await store.history(f"r{n}")) == [0]
