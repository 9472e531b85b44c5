"""Rules for how runs stand: from when on they can be driven, whether they have signals, who drives them."""

from __future__ import annotations

from stepwell.storage.filters import ReadyFilter
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    acquire,
    after,
    check_refused_appends,
    fill,
    on,
    record,
    release,
    run_metadata,
    text,
    wakes,
)


async def ready(store: Store, by: str, workflow: str | None = None, *, limit: int | None = None) -> list[str]:
    """Return the ids of the runs that are ready by then; signals count for the status "waiting"."""
    runs = await store.ready(ReadyFilter(by, workflow, resting=("waiting",)), limit=limit)
    return [run.run_id for run in runs]


# -------------------------------------------------------------------- from when on


@rule
async def the_newest_record_sets_the_wake(store: Store) -> None:
    for number, effect in enumerate([on(5), on(3), None, on(9)]):
        await store.append(record("r", number), CommitEffects(wake=effect))
        assert await wakes(store) == ({} if effect is None else {"r": effect})


@rule
async def a_run_that_stays_ready_keeps_its_time(store: Store) -> None:
    for number, (day, effect, expected) in enumerate(
        [
            (1, on(1), on(1)),  # it can be driven now
            (2, on(2), on(1)),  # and still can
            (3, on(9), on(9)),  # not before then
            (4, on(4), on(4)),  # sooner, because of a signal
            (5, None, None),
            (6, on(6), on(6)),
            (7, on(6), on(6)),
        ]
    ):
        await store.append(record("r", number, at=on(day)), CommitEffects(wake=effect))
        assert await wakes(store) == ({} if expected is None else {"r": expected}), number
    await store.rewrite("r", insert=record("r", 6, at=on(8)), effects=CommitEffects(wake=on(8)))
    assert await wakes(store) == {"r": on(8)}


@rule
async def a_refused_append_changes_no_wake(store: Store) -> None:
    await check_refused_appends(store, CommitEffects(wake=on(1)))
    assert await wakes(store) == {"r": on(5)}


# -------------------------------------------------------------------- ready runs


@rule
async def runs_are_ready_oldest_first(store: Store) -> None:
    for run_id, day, workflow in [("b", 3, "w"), ("a", 3, "w"), ("c", 1, "v"), ("d", 9, "w")]:
        await store.append(record(run_id, 0, workflow=workflow), CommitEffects(wake=on(day)))
    await fill(store, "never", 1)
    for by, of_workflow, expected in [
        (on(9), None, ["c", "a", "b", "d"]),
        (on(3), None, ["c", "a", "b"]),
        (on(2), None, ["c"]),
        (on(3), "w", ["a", "b"]),
        ("2025", None, []),
        (on(9), "none", []),
    ]:
        assert await ready(store, by, of_workflow) == expected, f"{by=}, {of_workflow=}"
        for limit in range(3):
            assert await ready(store, by, of_workflow, limit=limit) == expected[:limit]


@rule
async def runs_with_a_higher_priority_are_ready_first(store: Store) -> None:
    for run_id, priority, day in [("b", 0, 3), ("low", -100, 1), ("a", 0, 3), ("high", 100, 4), ("later", 7, 9)]:
        metadata = run_metadata(priority=priority)
        await store.append(record(run_id, 0), CommitEffects(wake=on(day), metadata=metadata))
    await store.append(
        record("answered", 0, status="waiting", at=on(2)), CommitEffects(metadata=run_metadata(priority=7, team="red"))
    )
    await store.send("answered", "k", text(1))
    expected = ["high", "answered", "a", "b", "low"]
    assert await ready(store, on(4)) == expected
    for limit in range(6):
        assert await ready(store, on(4), limit=limit) == expected[:limit]
    assert await ready(store, on(9)) == ["high", "answered", "later", "a", "b", "low"]
    assert {run.run_id: run.metadata.priority for run in await store.runs()} == {
        "high": 100, "answered": 7, "later": 7, "a": 0, "b": 0, "low": -100
    }  # fmt: skip
    # One that somebody drives hides no other.
    await acquire(store, "high", seconds=60)
    await acquire(store, "a", seconds=60)
    assert await ready(store, on(4), limit=3) == ["answered", "b", "low"]


@rule
async def a_priority_stays_until_the_metadata_is_replaced_or_the_run_dropped(store: Store) -> None:
    await store.append(record("r", 0), CommitEffects(wake=on(1), metadata=run_metadata(priority=5)))
    await store.append(record("r", 1), CommitEffects(wake=on(1)))
    assert [run.metadata for run in await store.runs()] == [run_metadata(priority=5)]
    await store.append(record("r", 2), CommitEffects(wake=on(1), metadata=run_metadata(priority=-5)))
    assert [run.metadata for run in await store.runs()] == [run_metadata(priority=-5)]
    await store.drop("r")
    await store.append(record("r", 0), CommitEffects(wake=on(1)))
    assert [run.metadata for run in await store.runs()] == [run_metadata()]


@rule
async def a_ready_run_is_listed_as_in_the_list_of_runs(store: Store) -> None:
    effects = CommitEffects(wake=on(1), metadata=run_metadata(team="red"))
    await store.append(record("r", 0, status="waiting", iteration=7), effects)
    await store.send("r", "k", text(1))
    (listed,) = await store.runs()
    assert (listed.wake, listed.signalled) == (on(1), True)
    assert await store.ready(ReadyFilter(on(1))) == [listed] == [await store.run("r")]


@rule
async def a_time_without_microseconds_sorts_before_the_rest_of_its_second(store: Store) -> None:
    # Times are compared as strings, and "+" sorts before ".".
    moments = [
        "2026-01-01T11:59:59.999999+00:00",
        "2026-01-01T12:00:00+00:00",  # as isoformat() writes it when they are 0
        "2026-01-01T12:00:00.000001+00:00",
        "2026-01-01T12:00:00.500000+00:00",
        "2026-01-01T12:00:01+00:00",
    ]
    for n, moment in reversed(list(enumerate(moments))):
        await store.append(record(f"r{n}", 0), CommitEffects(wake=moment))
    for n, moment in enumerate(moments):
        assert await ready(store, moment) == [f"r{m}" for m in range(n + 1)]


@rule
async def a_signal_makes_a_resting_run_ready_until_it_is_consumed(store: Store) -> None:
    for run_id, status, at in [
        ("waits", "waiting", None),
        ("waits until", "waiting", on(9)),
        ("sleeps", "running", on(9)),
        ("failed", "failed", None),
    ]:
        await store.append(record(run_id, 0, status=status, at=on(2)), CommitEffects(wake=at))
    await store.append(record("due", 0, at=on(1)), CommitEffects(wake=on(1)))
    await store.append(record("late", 0, at=on(3)), CommitEffects(wake=on(3)))
    assert await ready(store, on(4)) == ["due", "late"]
    for run_id in ("waits", "waits until", "sleeps", "failed", "new"):
        await store.send(run_id, "k", text(1))
    assert await ready(store, on(4)) == ["due", "waits", "waits until", "late"]
    assert await ready(store, on(4), limit=2) == ["due", "waits"]
    assert await ready(store, on(4), "none") == []
    await store.append(record("waits", 1, status="waiting", at=on(3)), CommitEffects(consumed=("k",)))
    await store.drop("waits until")
    assert await ready(store, on(4)) == ["due", "late"]
    # A run that is due and has signals is listed once.
    assert await ready(store, on(9)) == ["due", "late", "sleeps"]


@rule
async def a_run_that_somebody_drives_is_not_ready(store: Store) -> None:
    for n, run_id in enumerate(("a", "b", "c")):
        await store.append(record(run_id, 0, status="waiting"), CommitEffects(wake=on(1 + n)))
    await acquire(store, "a", seconds=60)
    await store.append(record("s", 0, status="waiting", at="2025"))
    await store.send("s", "k", text(1))
    await acquire(store, "s", seconds=60)
    assert await ready(store, on(9)) == ["b", "c"]
    assert await ready(store, on(9), limit=1) == ["b"]
    with after(minutes=2):  # the leases are over
        assert await ready(store, on(9)) == ["s", "a", "b", "c"]
    await release(store, "a")
    assert await ready(store, on(9)) == ["a", "b", "c"]


@rule
async def a_run_is_listed_with_its_lease(store: Store) -> None:
    await fill(store, "r", 1)
    fence = await acquire(store, "r", seconds=60)
    for listed in (await store.run("r"), (await store.runs())[0]):
        assert listed is not None
        assert listed.lease is not None
        assert listed.lease.owner == this_process("mine")
        assert 50 < listed.lease.left <= 61
        assert not listed.lease.is_over()
    with after(minutes=2):
        (listed,) = await store.runs()
        assert listed.lease is not None
        assert listed.lease.is_over()
        assert listed.lease.left < -50
    await store.append(record("r", 1), CommitEffects(fence=fence, release=True))
    assert [run.lease for run in await store.runs()] == [None]


@rule
async def a_run_is_listed_as_signalled_until_its_signals_are_consumed(store: Store) -> None:
    await store.send("r", "early", text(1))
    await fill(store, "r", 1)
    await fill(store, "other", 1)
    for consumed, is_signalled in [(("early",), False), ((), True), (("k", "never sent"), False)]:
        if not consumed:
            await store.send("r", "k", text(1))
        else:
            number = (await store.read("r"))[-1].entry.number + 1
            await store.append(record("r", number), CommitEffects(consumed=consumed))
        assert {run.run_id: run.signalled for run in await store.runs()} == {"r": is_signalled, "other": False}
