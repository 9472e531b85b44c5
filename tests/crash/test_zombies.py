"""A process stands still for longer than its lease, another takes over, and the first comes back: it is refused.

Each of these has a control, in which the process that comes back is not held to the rules: then it does the damage that
the rules are there to prevent.
"""

from __future__ import annotations

from stepwell.storage.stored_values import Record

from .nursery import Child
from .world import World


def overtaken_and_done(world: World, manner: str) -> tuple[list[Record], list[Record]]:
    """The run goes on to its end while a process stands still in the middle of it: what is stored before and after
    that one comes back."""
    zombie = world.begin("zombie", manner=manner)
    world.let_on("zombie", "quick")
    world.until("kept", key="1.0")
    world.until("ran", me="zombie", name="slow")
    world.stop_until_overtaken(zombie, "heir")
    world.let_on("all", "quick", "slow")
    ended = world.until("ended", me="heir")
    assert ended.more["outputs"] == ["quick by zombie, slow by heir"], "what the zombie had finished is kept"
    before = world.records()
    zombie.go_on()
    zombie.wait()
    return before, world.records()


def test_a_zombie_that_commits_after_the_run_was_done_is_refused(world: World) -> None:
    before, after = overtaken_and_done(world, "as it is")
    assert before == after
    assert world.lines("conflict", me="zombie"), world.story()
    assert [line.more["name"] for line in world.lines("ran", me="heir")] == ["slow"]


def test_control_a_zombie_whose_commits_are_not_checked_overwrites_what_was_done(world: World) -> None:
    before, after = overtaken_and_done(world, "no check")
    assert before != after
    assert b"slow by heir" in before[2].body
    assert b"slow by zombie" in after[2].body


def overtaken_at_work(world: World, manner: str) -> None:
    """A process comes back from standing still, while the one that took over has not committed anything yet."""
    zombie = world.begin("zombie", manner=manner)
    world.let_on("all", "quick")
    world.until("kept", key="1.0")
    world.until("ran", me="zombie", name="slow")
    heir = world.stop_until_overtaken(zombie, "heir")
    world.let_on("zombie", "slow")
    zombie.go_on()
    zombie.wait()
    world.let_on("heir", "slow")
    heir.wait()


def test_a_zombie_that_commits_before_its_heir_does_is_refused(world: World) -> None:
    """Nobody has moved the run, so its number is right. Only the fence tells that the run is not its own any more."""
    overtaken_at_work(world, "as it is")
    (refused,) = world.lines("conflict", me="zombie")
    assert "acquired by another process" in refused.more["why"]
    (ended,) = world.lines("ended")
    assert ended.more == {"me": "heir", "outputs": ["quick by zombie, slow by heir"]}


def test_control_without_the_fence_a_zombie_takes_the_run_from_its_heir(world: World) -> None:
    overtaken_at_work(world, "no fence")
    (ended,) = world.lines("ended")
    assert ended.more == {"me": "zombie", "outputs": ["quick by zombie, slow by zombie"]}
    assert world.lines("conflict", me="heir")


def remembers_late(world: World, manner: str) -> Child:
    """A process comes back and finishes something, but not its superstep, while its heir is at the same."""
    zombie = world.begin("zombie", manner=manner)
    world.until("ran", me="zombie", name="slow")
    heir = world.stop_until_overtaken(zombie, "heir")
    world.let_on("zombie", "quick")
    zombie.go_on()
    return heir


def test_what_a_zombie_wants_to_be_remembered_is_refused(world: World) -> None:
    heir = remembers_late(world, "as it is")
    world.until("refused", writing="memory 1.0")
    assert "zombie" not in world.memory()
    world.let_on("heir", "quick")
    world.until("kept", key="1.0", new=True)
    assert "quick by heir" in world.memory()
    world.let_on("all", "slow")
    assert world.until("ended").more == {"me": "heir", "outputs": ["quick by heir, slow by heir"]}
    assert heir.wait() == 0
    world.until("conflict", me="zombie")


def test_control_without_the_fence_what_a_zombie_did_is_taken_for_what_its_heir_did(world: World) -> None:
    heir = remembers_late(world, "no fence")
    world.until("kept", key="1.0", new=True)
    assert "quick by zombie" in world.memory()
    world.let_on("heir", "quick")
    world.until("kept", key="1.0", new=False)
    heir.kill()
    assert "quick by heir" not in world.memory(), "the heir was told that it is kept, and it is not"


def test_a_zombie_takes_nothing_from_its_heir_that_is_inside_the_run_it_has_lost(world: World) -> None:
    """Whoever drives a run has a right to those inside it. A zombie drives nothing any more."""
    zombie = world.begin("zombie", manner="late", shape="nested")
    world.until("late", me="zombie")
    zombie.stop_between_writes()
    heir = world.begin("heir", shape="nested")
    world.until("ran", me="heir", name="below")
    world.let_on("zombie", "claim", "below")
    zombie.go_on()
    assert zombie.wait() == 0
    assert world.lines("conflict", me="zombie"), world.story()
    world.let_on("heir", "below")
    assert heir.wait() == 0
    (ended,) = world.lines("ended")
    assert ended.more == {"me": "heir", "outputs": ["below by heir"]}
    assert [line.more["me"] for line in world.lines("ran")] == ["heir"]
