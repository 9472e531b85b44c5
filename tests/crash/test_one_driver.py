"""Several processes resume one run at the same moment: one of them drives it."""

from __future__ import annotations

import pytest

from .held import RUN
from .world import World

CALLERS = ("anna", "ben", "cleo", "dan")


def left_behind(world: World) -> None:
    """A run that was cut off in the middle."""
    first = world.begin("first")
    world.until("ran", me="first", name="slow")
    first.kill()


@pytest.mark.parametrize("again", range(3))
def test_of_those_who_resume_a_run_at_once_one_drives_it_and_the_others_are_told_that_it_is_busy(
    world: World,
    again: int,
) -> None:
    left_behind(world)
    children = [world.begin(name, "once", lease=30) for name in CALLERS]
    world.until("ready", times=len(CALLERS))
    world.let_go()
    world.until("busy", times=len(CALLERS) - 1)
    world.let_on("all", "quick", "slow")
    assert [child.wait() for child in children] == [0] * len(CALLERS)
    (ended,) = world.lines("ended")
    me = ended.more["me"]
    assert {line.more["me"] for line in world.lines("ran")} == {"first", me}
    assert ended.more["outputs"] == [f"quick by {me}, slow by {me}"]
    assert {line.more["me"] for line in world.lines("busy")} == {*CALLERS} - {me}
    assert [record.entry.number for record in world.records()] == [0, 1, 2, 3]


def test_of_those_who_drive_a_run_at_once_because_no_claim_holds_one_commits(world: World) -> None:
    """Each claim is over as soon as it is made, so everybody gets in. What is committed is of one of them."""
    left_behind(world)
    children = [world.begin(name, "once", lease=-1) for name in CALLERS]
    world.until("ready", times=len(CALLERS))
    world.let_go()
    for name in CALLERS:
        world.until("ran", me=name, name="slow")
    last = max(world.lines("claimed"), key=lambda line: line.more["fence"])
    me = next(child.name for child in children if child.pid == last.by)
    world.let_on("all", "quick", "slow")
    assert [child.wait() for child in children] == [0] * len(CALLERS)
    (ended,) = world.lines("ended")
    assert ended.more == {"me": me, "outputs": [f"quick by {me}, slow by {me}"]}
    assert {line.more["me"] for line in world.lines("conflict")} == {*CALLERS} - {me}
    stored = [(record.entry.run_id, record.entry.number) for record in world.records()]
    assert stored == [(RUN, number) for number in range(4)]
