"""Shared state: whoever is faster, what comes of a superstep is what its plan says, and so is each conflict."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from stepwell import InMemoryCheckpointStorage, StateConflict, WorkflowBuilder, WorkflowContext, executor
from stepwell.codec.codec import Codec
from stepwell.graph.graph import Graph
from stepwell.kernel import apply, merge
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.commit import Stamp
from stepwell.model.event import WorkflowRunState
from stepwell.model.message import Delivery, Outcome, Plan
from stepwell.model.payload import Pack, pack_copy
from stepwell.model.state import StateView, add_writes
from stepwell.model.state_writes import Write
from tests.properties.pages import REDUCERS, Conflict, Page, Sight, Turn, came_to, committed, reducers, turns

quick = settings(max_examples=200, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
NOW = Stamp("now", "2026-01-01T00:00:00+00:00")
PACKS: dict[str, Pack] = {"copied": pack_copy, "encoded": Codec().pack}
executors = st.sampled_from(["a", "b", "c"])


def checkpoint(state: dict[str, Any], pack: Pack) -> Checkpoint:
    closed = {key: pack(value, "$") for key, value in state.items()}
    header = RunHeader("r", "w", {}, "")
    return Checkpoint(header, 4, NOW, None, WorkflowRunState.IN_PROGRESS, 3, 3, 4, state=closed)


class Superstep:
    """The deliveries of a superstep, made in plan order on the real views and on plain dicts beside them."""

    def __init__(self, before: dict[str, Any], plan: list[Turn], pack: Pack) -> None:
        self.at = checkpoint(before, pack)
        self.pages: list[tuple[str, Page]] = []
        self.outcomes: dict[str, Outcome] = {}
        written: dict[str, dict[str, Write]] = {}
        sights: dict[str, Sight] = {}
        for n, turn in enumerate(plan):
            earlier = written.setdefault(turn.executor, {})
            view = StateView(self.at.state, pack, earlier)
            sight = sights.setdefault(turn.executor, Sight(dict(before)))
            self._do(turn, view, sight)
            add_writes(earlier, view.writes)
            self.pages.append((turn.executor, sight.turn_page()))
            self.outcomes[f"4.{n}"] = Outcome(f"4.{n}", turn.executor, writes=view.writes)

    @staticmethod
    def _do(turn: Turn, view: StateView, sight: Sight) -> None:
        for op in turn.ops:
            arguments = {"set": (op.key, op.value), "append": (op.key, op.value), "delete": (op.key,)}[op.kind]
            if (refused := sight.refuses(op)) is not None:
                with pytest.raises(refused):
                    getattr(view, op.kind)(*arguments)
            else:
                getattr(view, op.kind)(*arguments)
                sight.do(op)
            seen = {key: view.get(key) for key in list(view.keys())}
            assert seen == sight.state, f"{turn.executor} sees what it did"

    def merged(self, order: list[str], graph: Graph, pack: Pack) -> dict[str, Any] | str:
        """The state after the outcomes, which finished in that order; or the words of the conflict."""
        nothing = pack_copy(None, "$")
        plan = Plan(tuple(Delivery(id, one.executor, nothing, ()) for id, one in self.outcomes.items()), {})
        finished = {id: self.outcomes[id] for id in order}
        try:
            commit = merge(graph, self.at, plan, finished, dict.fromkeys(order, ()), pack, NOW).commit
        except StateConflict as conflict:
            return str(conflict)
        return {key: parcel.open() for key, parcel in apply(self.at.header, self.at, commit).state.items()}


@quick
@given(committed, turns(executors), reducers, st.sampled_from(sorted(PACKS)), st.data())
def test_outcomes_come_to_what_the_plan_says_in_whatever_order_they_finish(
    before: dict[str, Any], plan: list[Turn], reduced: dict[str, str], packed: str, data: st.DataObject
) -> None:
    chosen = {key: REDUCERS[name] for key, name in reduced.items()}
    step = Superstep(before, plan, PACKS[packed])
    graph = Graph("a", {}, (), reducers=chosen)
    ids = list(step.outcomes)
    got = step.merged(ids, graph, PACKS[packed])
    expected = came_to(before, step.pages, chosen)
    event(type(expected).__name__)
    check(got, expected)
    for _ in range(2):
        assert step.merged(data.draw(st.permutations(ids)), graph, PACKS[packed]) == got


def check(got: dict[str, Any] | str, expected: dict[str, Any] | Conflict) -> None:
    """The state that was expected, or a conflict that names the key and everybody who wrote it."""
    if isinstance(expected, Conflict):
        named = " and ".join(repr(one) for one in dict.fromkeys(expected.writers))
        assert isinstance(got, str), f"nobody noticed {expected}: {got}"
        assert got.startswith(f"state[{expected.key!r}] was written by {named} in one superstep of run 'r'")
    else:
        assert got == expected


# --- with handlers that really work side by side ----------------------------------------------------------------------


def worker(turn: Turn) -> Any:
    """An executor that does what its turn says, and is finished when its time has come."""

    async def work(message: str, ctx: WorkflowContext[str]) -> None:
        for op in turn.ops:
            with suppress(KeyError, TypeError):
                match op.kind:
                    case "set":
                        ctx.set_state(op.key, op.value)
                    case "append":
                        ctx.append_state(op.key, *op.value)
                    case "delete":
                        ctx.delete_state(op.key)
        for _ in range(turn.ticks):
            await asyncio.sleep(0)

    return executor(id=turn.executor)(work)


@executor(id="start")
async def start(before: dict[str, Any], ctx: WorkflowContext[str]) -> None:
    for key, value in before.items():
        ctx.set_state(key, value)
    await ctx.send_message("go")


async def state_after(before: dict[str, Any], plan: list[Turn], chosen: dict[str, Any]) -> dict[str, Any] | str:
    storage = InMemoryCheckpointStorage()
    builder = WorkflowBuilder(name="w", start_executor=start, reducers=chosen, checkpoint_storage=storage)
    workers = [worker(turn) for turn in plan]
    built = builder.add_fan_out_edges(start, workers) if len(workers) > 1 else builder.add_edge(start, workers[0])
    try:
        await built.build().run(before, run_id="r")
    except StateConflict as conflict:
        return str(conflict)
    latest = await storage.get_latest(run_id="r")
    assert latest is not None
    return dict(latest.state)


@settings(quick, max_examples=40)
@given(committed, turns(executors).map(lambda plan: list({one.executor: one for one in plan}.values())), reducers)
def test_handlers_side_by_side_come_to_what_the_plan_says(
    before: dict[str, Any], plan: list[Turn], reduced: dict[str, str]
) -> None:
    chosen = {key: REDUCERS[name] for key, name in reduced.items()}
    step = Superstep(before, plan, pack_copy)
    check(asyncio.run(state_after(before, plan, chosen)), came_to(before, step.pages, chosen))
