"""Rules for open requests."""

from __future__ import annotations

from msgspec.structs import replace

from stepwell.errors import CommitConflict
from stepwell.storage.filters import ANY_REQUEST, RequestFilter
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, RequestEntry
from stepwell.testing.store_rules.rule import rule
from stepwell.testing.store_rules.samples import (
    acquire,
    check_refused_appends,
    expect_error,
    fill,
    log_of,
    names,
    on,
    question,
    record,
    signals_of,
    store_sample_run,
    text,
    wakes,
)

# -------------------------------------------------------------------- requests


@rule
async def a_run_without_requests_has_none(store: Store) -> None:
    assert await store.requests() == []
    await fill(store, "r", 1)
    assert await store.requests(RequestFilter(run_id="r")) == []


@rule
async def a_request_is_pending_until_it_is_closed(store: Store) -> None:
    first = replace(question("r", "q1"), deadline="2026-02-01T00:00:00+00:00")
    second = replace(question("r", "q2"), executor="é", request_type="", schema="{}")
    for number, (effects, expected) in enumerate(
        [
            (CommitEffects(asked=(first, second)), [first, second]),
            (NO_EFFECTS, [first, second]),
            (CommitEffects(closed=("q1", "unknown")), [second]),
            (CommitEffects(closed=("q2",)), []),
        ]
    ):
        await store.append(record("r", number), effects)
        assert await store.requests() == expected, effects


@rule
async def a_request_is_found_by_its_id(store: Store) -> None:
    for run_id in ("r", "s"):
        both = (question(run_id, "q"), question(run_id, f"of {run_id}"))
        await store.append(record(run_id, 0), CommitEffects(asked=both))
    assert await store.requests(RequestFilter(request_id="of s")) == [question("s", "of s")]
    assert names(await store.requests(RequestFilter(request_id="q"))) == [("r", "q"), ("s", "q")]
    assert names(await store.requests(RequestFilter(request_id="q", run_id="s"))) == [("s", "q")]
    assert await store.requests(RequestFilter(request_id="none")) == []


@rule
async def the_body_of_a_request_is_listed_with_it(store: Store) -> None:
    asked = replace(question("r", "q"), body='{"payload":"é\\u0000\\u0010 \\"?\\"","more":[1]}')
    await store.append(record("r", 0), CommitEffects(asked=(asked,)))
    assert await store.requests() == [asked]


@rule
async def requests_of_a_stopped_run_are_left_out_until_it_is_driven_again(store: Store) -> None:
    asked = [question(run_id, "q") for run_id in ("r", "s", "t")]
    for number, each in enumerate(asked):
        effects = CommitEffects(asked=(each,))
        await store.append(record(each.run_id, 0, status=("FAILED", "CANCELLED", "IDLE")[number]), effects)
    assert await store.requests() == []
    assert await store.requests(RequestFilter(run_id="r")) == []
    assert await store.requests(RequestFilter(request_id="q")) == []
    assert await store.requests(RequestFilter(stopped=True)) == asked
    owner = this_process("again")
    await store.acquire("s", owner, seconds=60)
    assert await store.requests() == asked[1:2]
    await store.release("s", owner)
    assert await store.requests() == []
    await store.append(record("t", 1, status="IDLE_WITH_PENDING_REQUESTS"))
    assert await store.requests() == asked[2:]


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
    await check_searches(
        store,
        (RequestFilter(workflow="w"), ["r", "s"]),
        (RequestFilter(workflow="V 2"), ["t"]),
        (RequestFilter(run_id="s"), ["s"]),
        (RequestFilter(run_id="s", workflow="w"), ["s"]),
        (RequestFilter(run_id="s", workflow="V 2"), []),
        (RequestFilter(workflow="none"), []),
        (RequestFilter(run_id="none"), []),
    )


async def check_searches(store: Store, *searches: tuple[RequestFilter, list[str]]) -> None:
    """Check for which runs each filter finds the request "q", and in which order."""
    for request_filter, run_ids in searches:
        assert names(await store.requests(request_filter)) == [(run_id, "q") for run_id in run_ids], request_filter


@rule
async def requests_are_found_by_age_and_by_deadline(store: Store) -> None:
    for n, (asked, due) in enumerate([(1, 9), (2, None), (3, 5), (4, 7), (4, 5)]):
        request = replace(question(f"r{n}", "q", at=on(asked)), deadline=None if due is None else on(due))
        await store.append(record(f"r{n}", 0), CommitEffects(asked=(request,)))
    await check_searches(
        store,
        (RequestFilter(asked_until=on(3)), ["r0", "r1", "r2"]),
        (RequestFilter(due_until=on(7)), ["r2", "r4", "r3"]),
        (RequestFilter(due_until=on(7), asked_until=on(3)), ["r2"]),
        (RequestFilter(due_until=on(7), run_id="r3"), ["r3"]),
        (RequestFilter(due_until=on(4)), []),
        (RequestFilter(asked_until="2025"), []),
    )
    assert names(await store.requests(RequestFilter(due_until=on(7), workflow="w"), limit=1)) == [("r2", "q")]


@rule
async def requests_are_listed_in_pages(store: Store) -> None:
    asked = [("b", 2), ("a", 3), ("c", 3), ("d", 1)]
    for run_id, day in asked:
        both = tuple(replace(question(run_id, f"q{n}", at=on(day)), deadline=on(9 - day)) for n in (2, 1))
        await store.append(record(run_id, 0), CommitEffects(asked=both))
    for search in (
        ANY_REQUEST,
        RequestFilter(due_until=on(9)),
        RequestFilter(workflow="w"),
        RequestFilter(workflow="w", due_until=on(9)),
    ):
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
    stale = CommitEffects(asked=(question("r", "new"),), closed=("q",), wake="2027-01-01")
    await check_refused_appends(store, stale)
    rewriting = store.rewrite("r", insert=record("r", 0, workflow="another"), effects=stale)
    await expect_error(CommitConflict, rewriting)
    await check_open(store, ["q", "q2"], wake=on(5))


async def check_open(store: Store, request_ids: list[str], *, wake: str | None = None) -> None:
    """Check which requests of run "r" are open, and from when on it can be driven; no other run has any."""
    assert names(await store.requests()) == [("r", request_id) for request_id in request_ids]
    assert await wakes(store) == ({} if wake is None else {"r": wake})


@rule
async def inserting_the_newest_record_sets_the_open_requests(store: Store) -> None:
    first = CommitEffects(asked=(question("r", "q1"), question("r", "q2")), wake="2026-01-01")
    await store.append(record("r", 0), first)
    await store.append(record("r", 1))
    for newest, request_ids, wake in [
        (record("r", 1, body="same id"), ["q3"], "2026-01-03"),
        (record("r", 1, checkpoint_id="another"), ["q4", "q2"], None),
        (record("r", 7), ["q5"], "2026-01-07"),
    ]:
        effects = CommitEffects(asked=tuple(question("r", request_id) for request_id in request_ids), wake=wake)
        await store.rewrite("r", insert=newest, effects=effects)
        await check_open(store, request_ids, wake=wake)
    # Without effects, what is open stays as it is.
    await store.rewrite("r", insert=record("r", 7, body="again"))
    await check_open(store, ["q5"], wake="2026-01-07")
    await store.rewrite("r", insert=record("r", 7), effects=NO_EFFECTS)
    await check_open(store, [])
    await store.rewrite("new", insert=record("new", 3), effects=CommitEffects(asked=(question("new", "q"),)))
    assert names(await store.requests()) == [("new", "q")]


@rule
async def inserting_an_older_record_changes_no_requests(store: Store) -> None:
    await fill(store, "r", 1)
    await store.append(record("r", 1), CommitEffects(asked=(question("r", "q"),), wake="2026-01-01"))
    effects = CommitEffects(asked=(question("r", "old"),), closed=("q",), wake="2027-01-01")
    await store.rewrite("r", insert=record("r", 0), effects=effects)
    await check_open(store, ["q"], wake="2026-01-01")


@rule
async def removing_an_older_record_keeps_signals_requests_and_wakes(store: Store) -> None:
    await store_sample_run(store, "r")
    wrong = CommitEffects(asked=(question("r", "wrong"),), wake="2027-01-01")
    assert await store.rewrite("r", remove=[0], replace=[record("r", 1, body="whole")], effects=wrong) == 1
    assert await store.rewrite("r", remove=[1]) == 1
    await check_open(store, ["q", "q2"], wake=on(5))
    assert await signals_of(store, "r") == [("k", text(1))]
    assert not await store.send("r", "used", text(1))
    await store.append(record("r", 3), CommitEffects(closed=("q",)))
    await check_open(store, ["q2"])


@rule
async def removing_the_newest_record_replaces_the_open_requests(store: Store) -> None:
    first, second, of_s = question("r", "q1"), question("r", "q2"), question("s", "q1")
    await store.append(record("s", 0), CommitEffects(asked=(of_s,), wake="2026-01-09"))
    await store.append(record("r", 0), CommitEffects(asked=(first,)))
    await store.append(record("r", 1), CommitEffects(asked=(second,), wake="2026-01-01"))
    await store.send("r", "used", text(0))
    await store.append(record("r", 2), CommitEffects(closed=("q1", "q2"), consumed=("used",), wake="2026-01-02"))
    await store.send("r", "k", text(1))
    assert await store.rewrite("r", remove=[2], effects=CommitEffects(asked=(second, first))) == 1
    assert await store.requests() == [second, first, of_s]
    assert await wakes(store) == {"s": "2026-01-09"}
    assert await signals_of(store, "r") == [("k", text(1))]
    assert not await store.send("r", "used", text(1))
    assert await store.rewrite("r", remove=[1], effects=CommitEffects(asked=(first,))) == 1
    assert await store.requests() == [first, of_s]
    for number, asked, expected in [(1, (), [first]), (2, (second,), [first, second])]:
        await store.append(record("r", number), CommitEffects(asked=asked))
        assert await store.requests(RequestFilter(run_id="r")) == expected
    assert await store.rewrite("r", remove=[2], effects=NO_EFFECTS) == 1
    assert await store.requests() == [of_s]
    assert await store.rewrite("r", remove=[0, 1], effects=CommitEffects(asked=(first,), wake="2026-01-03")) == 2
    assert await store.requests() == [of_s]
    assert await wakes(store) == {"s": "2026-01-09"}


@rule
async def removing_the_newest_record_replaces_the_wake(store: Store) -> None:
    await fill(store, "r", 1)
    await store.append(record("r", 1), CommitEffects(wake=on(5)))
    await store.append(record("r", 2))
    for removed, wake, expected in [(2, on(5), on(5)), (0, on(9), on(5)), (1, on(9), None)]:
        assert await store.rewrite("r", remove=[removed], effects=CommitEffects(wake=wake)) == 1
        await check_open(store, [], wake=expected)


@rule
async def removing_the_last_record_removes_signals_requests_and_wakes(store: Store) -> None:
    for run_id in ("r", "s"):
        await store_sample_run(store, run_id)
    await acquire(store, "s")
    for run_id in ("r", "s"):
        assert await store.rewrite(run_id, remove=[0, 1, 2], effects=NO_EFFECTS) == 3
        assert (await signals_of(store, run_id), await log_of(store, run_id)) == ([], {})
    await check_open(store, [])
    for run_id in ("r", "s"):
        assert await store.send(run_id, "used", text(2))
        await store.append(record(run_id, 0, workflow="another"))
        assert await signals_of(store, run_id) == [("used", text(2))]
    assert await store.requests() == []
