"""Rules for open requests, and for the times at which runs are due."""

from __future__ import annotations

from msgspec.structs import replace

from stepwell.errors import CommitConflict
from stepwell.storage.filters import RequestFilter
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, RequestEntry, Wake
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import fill, logged, names, on, question, record, refused, signals_of, text

# -------------------------------------------------------------------- requests


@rule
async def a_run_without_requests_has_none(store: Store) -> None:
    assert await store.requests() == []
    assert await store.wakes() == []
    await fill(store, "r", 1)
    assert await store.requests(RequestFilter(run_id="r")) == []
    assert await store.wakes(workflow="w") == []


@rule
async def a_request_is_pending_until_it_is_closed(store: Store) -> None:
    first = replace(question("r", "q1"), deadline="2026-02-01T00:00:00+00:00")
    second = replace(question("r", "q2"), executor="é", request_type="", schema="{}")
    await store.append(record("r", 0), CommitEffects(asked=(first, second)))
    assert await store.requests() == [first, second]
    await store.append(record("r", 1))
    assert await store.requests() == [first, second]
    await store.append(record("r", 2), CommitEffects(closed=("q1", "unknown")))
    assert await store.requests() == [second]
    await store.append(record("r", 3), CommitEffects(closed=("q2",)))
    assert await store.requests() == []


@rule
async def a_request_asked_again_is_pending_once(store: Store) -> None:
    await store.append(record("r", 0), CommitEffects(asked=(question("r", "q1"), question("r", "q2"))))
    again = replace(question("r", "q1"), executor="another")
    # Closed and asked in one record: it moves to the end of the list.
    await store.append(record("r", 1), CommitEffects(asked=(again,), closed=("q1",)))
    assert await store.requests() == [question("r", "q2"), again]


@rule
async def closing_a_request_leaves_other_runs_alone(store: Store) -> None:
    for run_id in ("r", "s"):
        await store.append(record(run_id, 0), CommitEffects(asked=(question(run_id, "q"),)))
    await store.append(record("r", 1), CommitEffects(closed=("q",)))
    assert await store.requests() == [question("s", "q")]


@rule
async def requests_are_listed_oldest_first(store: Store) -> None:
    for run_id, second in [("b", 3), ("a", 1), ("c", 2)]:
        asked = [question(run_id, f"q{n}", at=f"2026-01-01T00:00:0{second}+00:00") for n in (2, 1)]
        await store.append(record(run_id, 0), CommitEffects(asked=tuple(asked)))
    await store.append(record("a", 1), CommitEffects(asked=(question("a", "q0", at="2026-01-01T00:00:02.5+00:00"),)))
    expected = [("a", "q2"), ("a", "q1"), ("c", "q2"), ("c", "q1"), ("a", "q0"), ("b", "q2"), ("b", "q1")]
    assert names(await store.requests()) == expected


@rule
async def requests_are_found_by_workflow_and_by_run(store: Store) -> None:
    for run_id, workflow in [("r", "w"), ("s", "w"), ("t", "V 2")]:
        asked = (question(run_id, "q", workflow=workflow),)
        await store.append(record(run_id, 0, workflow=workflow), CommitEffects(asked=asked))
    assert names(await store.requests(RequestFilter(workflow="w"))) == [("r", "q"), ("s", "q")]
    assert names(await store.requests(RequestFilter(workflow="V 2"))) == [("t", "q")]
    assert names(await store.requests(RequestFilter(run_id="s"))) == [("s", "q")]
    assert names(await store.requests(RequestFilter(run_id="s", workflow="w"))) == [("s", "q")]
    assert await store.requests(RequestFilter(run_id="s", workflow="V 2")) == []
    assert await store.requests(RequestFilter(workflow="none")) == []
    assert await store.requests(RequestFilter(run_id="none")) == []


@rule
async def requests_are_found_by_age_and_by_deadline(store: Store) -> None:
    for n, (asked, due) in enumerate([(1, 9), (2, None), (3, 5), (4, 7), (4, 5)]):
        request = replace(question(f"r{n}", "q", at=on(asked)), deadline=None if due is None else on(due))
        await store.append(record(f"r{n}", 0), CommitEffects(asked=(request,)))
    assert names(await store.requests(RequestFilter(asked_until=on(3)))) == [("r0", "q"), ("r1", "q"), ("r2", "q")]
    assert names(await store.requests(RequestFilter(due_until=on(7)))) == [("r2", "q"), ("r4", "q"), ("r3", "q")]
    assert names(await store.requests(RequestFilter(due_until=on(7), asked_until=on(3)))) == [("r2", "q")]
    assert names(await store.requests(RequestFilter(due_until=on(7), run_id="r3"))) == [("r3", "q")]
    assert names(await store.requests(RequestFilter(due_until=on(7), workflow="w"), limit=1)) == [("r2", "q")]
    assert (
        await store.requests(RequestFilter(due_until=on(4)))
        == await store.requests(RequestFilter(asked_until="2025"))
        == []
    )


@rule
async def requests_are_listed_in_pages(store: Store) -> None:
    asked = [("b", 2), ("a", 3), ("c", 3), ("d", 1)]
    for run_id, day in asked:
        both = tuple(replace(question(run_id, f"q{n}", at=on(day)), deadline=on(9 - day)) for n in (2, 1))
        await store.append(record(run_id, 0), CommitEffects(asked=both))
    for criteria in ({}, {"due_until": on(9)}, {"workflow": "w"}, {"workflow": "w", "due_until": on(9)}):
        search = RequestFilter(**criteria)
        every = await store.requests(search)
        assert len(every) == 8
        for size in (1, 3, 8):
            pages: list[RequestEntry] = []
            while page := await store.requests(search, past=pages[-1] if pages else None, limit=size):
                assert len(page) <= size
                pages += page
            assert pages == every


@rule
async def the_page_after_a_closed_request_misses_none(store: Store) -> None:
    both = (question("r", "q1", at=on(1)), question("r", "q2", at=on(1)))
    await store.append(record("r", 0), CommitEffects(asked=both))
    await store.append(record("s", 0), CommitEffects(asked=(question("s", "q", at=on(2)),)))
    (last,) = await store.requests(limit=1)
    # The last request of the page is answered before the next page is read.
    await store.append(record("r", 1), CommitEffects(closed=("q1",)))
    assert names(await store.requests(past=last)) == [("r", "q2"), ("s", "q")]


@rule
async def a_refused_append_changes_no_requests_and_no_wake(store: Store) -> None:
    before = CommitEffects(asked=(question("r", "q"),), wake="2026-01-01")
    await store.append(record("r", 0), before)
    stale = CommitEffects(asked=(question("r", "new"),), closed=("q",), wake="2027-01-01")
    for number, workflow in [(0, "w"), (2, "w"), (1, "another")]:  # every reason to refuse an append
        with refused(CommitConflict):
            await store.append(record("r", number, workflow=workflow), stale)
    with refused(CommitConflict):
        await store.rewrite("r", insert=record("r", 0, workflow="another"), effects=stale)
    with refused(CommitConflict):
        await store.append(record("s", 1), CommitEffects(asked=(question("s", "q"),), wake="2027-01-01"))
    assert names(await store.requests()) == [("r", "q")]
    assert await store.wakes() == [Wake("r", "w", "2026-01-01")]


@rule
async def inserting_the_newest_record_sets_the_open_requests(store: Store) -> None:
    await store.append(
        record("r", 0), CommitEffects(asked=(question("r", "q1"), question("r", "q2")), wake="2026-01-01")
    )
    await store.append(record("r", 1))
    effects = CommitEffects(asked=(question("r", "q3"),), wake="2026-01-03")
    await store.rewrite("r", insert=record("r", 1, body="same id"), effects=effects)
    assert names(await store.requests()) == [("r", "q3")]
    assert await store.wakes() == [Wake("r", "w", "2026-01-03")]
    effects = CommitEffects(asked=(question("r", "q4"), question("r", "q2")))
    await store.rewrite("r", insert=record("r", 1, checkpoint_id="another"), effects=effects)
    assert names(await store.requests()) == [("r", "q4"), ("r", "q2")]
    assert await store.wakes() == []
    effects = CommitEffects(asked=(question("r", "q5"),), wake="2026-01-07")
    await store.rewrite("r", insert=record("r", 7), effects=effects)
    assert names(await store.requests()) == [("r", "q5")]
    # Without effects, what is open stays as it is.
    await store.rewrite("r", insert=record("r", 7, body="again"))
    assert names(await store.requests()) == [("r", "q5")]
    assert await store.wakes() == [Wake("r", "w", "2026-01-07")]
    await store.rewrite("r", insert=record("r", 7), effects=NO_EFFECTS)
    assert await store.requests() == []
    assert await store.wakes() == []
    await store.rewrite("new", insert=record("new", 3), effects=CommitEffects(asked=(question("new", "q"),)))
    assert names(await store.requests()) == [("new", "q")]


@rule
async def inserting_an_older_record_changes_no_requests(store: Store) -> None:
    await fill(store, "r", 1)
    await store.append(record("r", 1), CommitEffects(asked=(question("r", "q"),), wake="2026-01-01"))
    effects = CommitEffects(asked=(question("r", "old"),), closed=("q",), wake="2027-01-01")
    await store.rewrite("r", insert=record("r", 0), effects=effects)
    assert names(await store.requests()) == [("r", "q")]
    assert await store.wakes() == [Wake("r", "w", "2026-01-01")]


@rule
async def removing_an_older_record_keeps_signals_requests_and_wakes(store: Store) -> None:
    await store.append(record("r", 0), CommitEffects(asked=(question("r", "q"),)))
    await store.append(record("r", 1, is_snapshot=False))
    await store.send("r", "used", text(0))
    await store.append(
        record("r", 2), CommitEffects(asked=(question("r", "q2"),), consumed=("used",), wake="2026-01-01")
    )
    await store.send("r", "k", text(1))
    wrong = CommitEffects(asked=(question("r", "wrong"),), wake="2027-01-01")
    assert await store.rewrite("r", remove=[0], replace=[record("r", 1, body="whole")], effects=wrong) == 1
    assert await store.rewrite("r", remove=[1]) == 1
    assert names(await store.requests()) == [("r", "q"), ("r", "q2")]
    assert await store.wakes() == [Wake("r", "w", "2026-01-01")]
    assert await signals_of(store, "r") == [("k", text(1))]
    assert not await store.send("r", "used", text(1))
    await store.append(record("r", 3), CommitEffects(closed=("q",)))
    assert names(await store.requests()) == [("r", "q2")]
    assert await store.wakes() == []


@rule
async def removing_the_newest_record_replaces_the_open_requests(store: Store) -> None:
    first, second = question("r", "q1"), question("r", "q2")
    of_r = RequestFilter(run_id="r")
    await store.append(record("s", 0), CommitEffects(asked=(question("s", "q1"),), wake="2026-01-09"))
    await store.append(record("r", 0), CommitEffects(asked=(first,)))
    await store.append(record("r", 1), CommitEffects(asked=(second,), wake="2026-01-01"))
    await store.send("r", "used", text(0))
    await store.append(record("r", 2), CommitEffects(closed=("q1", "q2"), consumed=("used",), wake="2026-01-02"))
    await store.send("r", "k", text(1))
    assert await store.rewrite("r", remove=[2], effects=CommitEffects(asked=(second, first))) == 1
    assert await store.requests(of_r) == [second, first]
    assert await store.wakes() == [Wake("s", "w", "2026-01-09")]
    assert await signals_of(store, "r") == [("k", text(1))]
    assert not await store.send("r", "used", text(1))
    assert await store.rewrite("r", remove=[1], effects=CommitEffects(asked=(first,))) == 1
    assert await store.requests(of_r) == [first]
    await store.append(record("r", 1))
    assert await store.requests(of_r) == [first]
    await store.append(record("r", 2), CommitEffects(asked=(second,)))
    assert await store.requests(of_r) == [first, second]
    assert await store.rewrite("r", remove=[2], effects=NO_EFFECTS) == 1
    assert await store.requests() == [question("s", "q1")]
    assert await store.rewrite("r", remove=[0, 1], effects=CommitEffects(asked=(first,), wake="2026-01-03")) == 2
    assert await store.requests() == [question("s", "q1")]
    assert await store.wakes() == [Wake("s", "w", "2026-01-09")]


@rule
async def removing_the_newest_record_replaces_the_wake(store: Store) -> None:
    await fill(store, "r", 1)
    await store.append(record("r", 1), CommitEffects(wake=on(5)))
    await store.append(record("r", 2))
    assert await store.rewrite("r", remove=[2], effects=CommitEffects(wake=on(5))) == 1
    assert await store.wakes() == [Wake("r", "w", on(5))]
    assert await store.rewrite("r", remove=[0], effects=CommitEffects(wake=on(9))) == 1
    assert await store.wakes() == [Wake("r", "w", on(5))]
    assert await store.rewrite("r", remove=[1], effects=CommitEffects(wake=on(9))) == 1
    assert await store.wakes() == []


@rule
async def removing_the_last_record_removes_signals_requests_and_wakes(store: Store) -> None:
    for run_id in ("r", "s"):
        await store.send(run_id, "used", text(0))
        effects = CommitEffects(asked=(question(run_id, "q"),), consumed=("used",), wake="2026-01-01")
        await store.append(record(run_id, 0), effects)
        await store.send(run_id, "k", text(1))
        await store.write_log(run_id, 0, "k", text(1))
    await store.acquire("s", this_process("mine"), seconds=60)
    for run_id in ("r", "s"):
        assert await store.rewrite(run_id, remove=[0], effects=NO_EFFECTS) == 1
        assert await store.pending_signals(run_id) == []
        assert await logged(store, run_id, 0) == {}
    assert await store.requests() == []
    assert await store.wakes() == []
    for run_id in ("r", "s"):
        assert await store.send(run_id, "used", text(2))
        await store.append(record(run_id, 0, workflow="another"))
        assert await signals_of(store, run_id) == [("used", text(2))]
    assert await store.requests() == []


# -------------------------------------------------------------------- wake-up times


@rule
async def the_newest_record_sets_the_wake(store: Store) -> None:
    await store.append(record("r", 0), CommitEffects(wake="2026-01-05"))
    assert await store.wakes() == [Wake("r", "w", "2026-01-05")]
    await store.append(record("r", 1), CommitEffects(wake="2026-01-03"))
    assert await store.wakes() == [Wake("r", "w", "2026-01-03")]
    await store.append(record("r", 2))
    assert await store.wakes() == []


@rule
async def due_runs_are_listed_soonest_first(store: Store) -> None:
    for run_id, day, workflow in [("b", 3, "w"), ("a", 3, "w"), ("c", 1, "v"), ("d", 9, "w")]:
        await store.append(record(run_id, 0, workflow=workflow), CommitEffects(wake=f"2026-01-0{day}"))
    await fill(store, "never", 1)
    assert [wake.run_id for wake in await store.wakes()] == ["c", "a", "b", "d"]
    assert [wake.run_id for wake in await store.wakes(before="2026-01-03")] == ["c", "a", "b"]
    assert [wake.run_id for wake in await store.wakes(before="2026-01-02")] == ["c"]
    assert [wake.run_id for wake in await store.wakes(before="2026-01-03", workflow="w")] == ["a", "b"]
    assert await store.wakes(before="2025") == []
    assert await store.wakes(workflow="none") == []


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
    assert [wake.at for wake in await store.wakes()] == moments
    for n, moment in enumerate(moments):
        assert [wake.at for wake in await store.wakes(before=moment)] == moments[: n + 1]
