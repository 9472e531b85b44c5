"""Which of the ready runs a worker takes: decided without a store and without a clock."""

from __future__ import annotations

from itertools import combinations

from msgspec.structs import replace

from stepwell.storage.stored_values import RunEntry, RunMetadata
from stepwell.worker.shortlist import OFFERED, Shortlist


def run(run_id: str, number: int = 0) -> RunEntry:
    return RunEntry(
        run_id=run_id,
        workflow="w",
        status="running",
        number=number,
        checkpoint_id="",
        iteration=0,
        at="",
        began="",
        metadata=RunMetadata(),
    )


def chosen(
    shortlist: Shortlist, *runs: RunEntry, free: int = 10, driving: tuple[str, ...] = (), now: float = 0.0
) -> list[str]:
    return [entry.run_id for entry in shortlist.choose(runs, free, driving, now)]


A, B, C = map(run, "abc")


def test_the_oldest_runs_are_taken_as_many_as_there_are_free_slots() -> None:
    assert chosen(Shortlist("me"), A, B, C, free=2) == ["a", "b"]


def test_a_run_that_is_driven_here_is_not_taken_again() -> None:
    assert chosen(Shortlist("me"), A, B, driving=("a",)) == ["b"]


def test_a_run_that_is_left_to_others_is_taken_only_after_it_has_moved() -> None:
    shortlist = Shortlist("me")
    shortlist.leave(A)
    assert chosen(shortlist, A, B, now=1e9) == ["b"]
    assert chosen(shortlist, run("a", 1), B, now=1e9) == ["a", "b"]


def test_a_run_whose_drive_ended_badly_is_tried_again_after_growing_waits() -> None:
    shortlist, now, waits = Shortlist("me"), 0.0, []
    for _ in range(8):
        assert chosen(shortlist, A, now=now) == ["a"]
        wait = shortlist.set_back(A, now)
        assert chosen(shortlist, A, now=now + wait * 0.9) == []
        now += wait
        waits.append(wait)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_run_that_moved_is_not_punished_for_earlier_errors() -> None:
    shortlist = Shortlist("me")
    shortlist.set_back(A, 0.0)
    shortlist.set_back(A, 1.0)
    assert shortlist.set_back(run("a", 1), 3.0) == 1


def test_runs_that_are_not_taken_hide_no_others() -> None:
    shortlist = Shortlist("me")
    chosen(shortlist, A, B, C)
    shortlist.leave(A)
    shortlist.end_turn(B, 0.0)
    assert shortlist.limit(1) == 3


def test_a_run_whose_turn_has_ended_comes_after_all_others() -> None:
    shortlist = Shortlist("me")
    chosen(shortlist, A, B, C)
    shortlist.end_turn(A, 1.0)
    assert chosen(shortlist, A, B, C, free=2, now=2.0) == ["b", "c"]
    shortlist.end_turn(B, 3.0)
    assert chosen(shortlist, A, B, free=1, now=4.0) == ["a"]


def test_a_run_that_is_not_ready_any_more_is_forgotten() -> None:
    shortlist = Shortlist("me")
    shortlist.leave(A)
    chosen(shortlist, B)
    assert shortlist.limit(1) == 1
    assert chosen(shortlist, A) == ["a"]


def test_each_run_is_offered_to_exactly_one_worker_first() -> None:
    names = ["one", "two", "three"]
    runs = [run(f"r{n}") for n in range(300)]
    taken = {}
    for name in names:
        shortlist = Shortlist(name)
        shortlist.peers = {"w": names}
        taken[name] = set(chosen(shortlist, *runs, free=300))
    assert set.union(*taken.values()) == {entry.run_id for entry in runs}
    assert all(taken[one].isdisjoint(taken[two]) for one, two in combinations(names, 2))
    assert all(len(mine) > 60 for mine in taken.values())  # about a third each


def test_a_run_that_nobody_takes_is_offered_to_one_after_the_other() -> None:
    shortlist = Shortlist("me")
    shortlist.peers = {"w": ["me", "somebody", "another"]}
    runs = [run(f"r{n}") for n in range(50)]
    mine = chosen(shortlist, *runs, free=50, now=0.0)
    assert 0 < len(mine) < 50
    assert chosen(shortlist, *runs, free=50, now=OFFERED * 0.9) == mine
    assert len(mine) < len(chosen(shortlist, *runs, free=50, now=OFFERED)) < 50
    assert len(chosen(shortlist, *runs, free=50, now=2 * OFFERED)) == 50


def test_workers_of_other_workflows_share_nothing() -> None:
    shortlist = Shortlist("me")
    shortlist.peers = {"other": ["somebody", "another"]}
    assert len(chosen(shortlist, *(run(f"r{n}") for n in range(50)), free=50)) == 50


def test_it_asks_for_enough_to_find_its_share() -> None:
    shortlist = Shortlist("me")
    shortlist.peers = {"w": ["me", "somebody", "another"]}
    assert shortlist.limit(5) == 42
    assert shortlist.limit(5000) == 1000


def test_of_the_runs_of_another_it_takes_the_last_and_of_its_own_the_first() -> None:
    names = ["me", "somebody"]
    shortlists = {name: Shortlist(name) for name in names}
    runs = [run(f"r{n}") for n in range(40)]
    taken: dict[str, list[str]] = {}
    for name, shortlist in shortlists.items():
        shortlist.peers = {"w": names}
        shortlist.choose(runs, 40, (), 0.0)
        # Long after: everything may be taken by everybody.
        taken[name] = [each.run_id for each in shortlist.choose(runs, 40, (), 10.0)]
    # Each begins where the other ends.
    assert taken["me"][:20] != taken["somebody"][:20]
    assert not set(taken["me"][:15]) & set(taken["somebody"][:15])
    assert set(taken["me"]) == set(taken["somebody"]) == {each.run_id for each in runs}


def test_two_workers_that_have_nothing_of_their_own_take_different_runs_of_a_third() -> None:
    names = ["busy", "one", "two"]
    probe = Shortlist("busy")
    probe.peers = {"w": names}
    runs = [each for each in (run(f"r{n}") for n in range(200)) if probe._place_in_line(each) == 0]
    taken = []
    for name in names[1:]:
        shortlist = Shortlist(name)
        shortlist.peers = {"w": names}
        assert chosen(shortlist, *runs, now=0.0) == []
        taken.append(set(chosen(shortlist, *runs, now=10.0)))
    assert len(taken[0]) == len(taken[1]) == 10
    assert taken[0].isdisjoint(taken[1])


def test_a_worker_begins_to_wait_for_runs_of_others_when_it_has_a_slot_for_them() -> None:
    names = ["me", "somebody"]
    shortlist = Shortlist("me")
    shortlist.peers = {"w": names}
    runs = [run(f"r{n}") for n in range(40)]
    mine = chosen(shortlist, *runs, free=40, now=0.0)
    full = Shortlist("me")
    full.peers = {"w": names}
    for now in range(10):
        assert chosen(full, *runs, free=3, now=now) == mine[:3]
    others = [each for each in runs if each.run_id not in mine]
    assert chosen(full, *others, free=40, now=10.0) == []  # its slots are free now: the others may be so, too
    assert len(chosen(full, *others, free=40, now=10.0 + OFFERED)) == len(others)


def test_an_urgent_run_of_another_is_waited_for_even_if_all_slots_go_to_its_own() -> None:
    shortlist = Shortlist("me")
    shortlist.peers = {"w": ["me", "somebody"]}
    runs = [run(f"r{n}") for n in range(40)]
    mine = chosen(shortlist, *runs, free=40, now=0.0)
    other = next(each for each in runs if each.run_id not in mine)
    urgent = replace(other, metadata=RunMetadata(priority=9))
    full = Shortlist("me")
    full.peers = shortlist.peers
    assert chosen(full, urgent, *runs, free=2, now=0.0) == mine[:2]
    assert chosen(full, urgent, *runs, free=2, now=OFFERED) == [urgent.run_id, mine[0]]
