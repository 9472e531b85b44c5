"""Whether a run came to what the model foretells, and tells the same story again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell import WorkflowRunResult
from tests.simulation.model import foretold
from tests.simulation.witness import gist

if TYPE_CHECKING:
    from tests.simulation.world import World


async def found(world: World) -> list[str]:
    """What is wrong with a run that has ended, in words."""
    return [
        *await _outcome(world),
        *await _left_over(world),
        *await _history(world),
        *await _once_more(world),
    ]


async def _outcome(world: World) -> list[str]:
    expected = foretold(world.plan, world.witness.timed_intakes())
    assert expected is not None
    latest = await world.storage(world.bare).get_latest(run_id="run")
    assert latest is not None
    exact = world.plan.durability == "sync"  # otherwise what was lost may be done again in another place
    effects = world.ledger.effects if exact else sorted(set(world.ledger.effects))
    pairs: list[tuple[str, Any, Any]] = [
        ("the state is", dict(latest.state), expected.state),
        ("done to the world was", effects, expected.effects),
        ("the steps done were", sorted(world.steps), sorted(set(expected.steps))),
        ("open questions are", [], expected.open),
    ]
    return [difference(*pair) for pair in pairs if pair[1] != pair[2]]


async def _left_over(world: World) -> list[str]:
    pairs: list[tuple[str, Any]] = [
        ("questions are listed", await world.bare.requests()),
        ("somebody is to be woken", [run.wake for run in await world.bare.runs() if run.wake is not None]),
        ("mail was not consumed", await world.bare.pending_signals("run")),
        ("answers were taken more than once", [id for id, times in world.witness.taken_in.items() if times != 1]),
    ]
    return [f"the run has ended, but {what}: {left}" for what, left in pairs if left]


async def _history(world: World) -> list[str]:
    """What was told must be what is told again."""
    again: dict[int, list[object]] = {}
    for event in await world.storage(world.bare).event_history("run"):
        # What a reader saw early is not told to it again.
        if event.commit is not None and not _was_early(world, gist(event)):
            again.setdefault(event.commit, []).append(gist(event))
    # whoever leaves may have heard only the beginning of what a commit tells
    left = any(fault.kind in ("leave", "stop") for fault in world.plan.faults)
    problems = []
    for number, everything in world.witness.told.items():
        told = [one for one in everything if not _was_early(world, one)]
        whole = again.get(number, told)  # a run that keeps only its latest commit tells no more of the others,
        if world.plan.latest_only and number != max(again):
            told, whole = _outputs(told), _outputs(whole)  # except their outputs
        if told != (whole[: len(told)] if left else whole):
            problems.append(difference(f"told again of commit {number} is", whole, told))
    return problems


def _was_early(world: World, gist: object) -> bool:
    return isinstance(gist, tuple) and gist[0] == "request_info" and gist[-1] in world.witness.told_early


def _outputs(gists: list[object]) -> list[object]:
    return [one for one in gists if isinstance(one, tuple) and one[0] == "output"]


async def _once_more(world: World) -> list[str]:
    """A run that has ended tells its outputs again, and does nothing."""
    expected, calls = foretold(world.plan, world.witness.timed_intakes()), world.calls
    assert expected is not None
    result = await world.drive({})
    if not isinstance(result, WorkflowRunResult):
        return [f"a run that has ended could not be looked at again: {result!r}"]
    problems = []
    if result.get_outputs() != expected.outputs:
        problems.append(difference("the outputs are", result.get_outputs(), expected.outputs))
    if world.calls != calls:
        problems.append(f"a run that had ended called {world.calls - calls} handlers")
    return problems


def difference(what: str, is_: Any, should: Any) -> str:
    return f"{what}\n      {is_}\n    instead of\n      {should}"
