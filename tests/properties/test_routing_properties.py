"""Routing and planning: every message goes exactly where the graph says, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from stepwell.codec.codec import Codec
from stepwell.engine.superstep.edge_conditions import choose_routes
from stepwell.graph.graph import Graph
from stepwell.kernel import apply, begin, merge, plan
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.commit import Stamp
from stepwell.model.message import Outcome, Plan, RoutedMessage, Sent
from stepwell.model.payload import pack_copy
from stepwell.storage.store_archive import StoreArchive
from stepwell.stores.memory.store import MemoryStore
from tests.properties.webs import NAMES, Model, Sending, Way, Web, webs

quick = settings(max_examples=120, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
CODEC = Codec()
MOST_CALLS = 12
"""In one superstep; graphs with loops may have more and more of them."""


def stamp(number: int) -> Stamp:
    return Stamp(f"id-{number}", "2026-01-01T00:00:00+00:00")


class Journey:
    """A run of a graph whose handlers send what the test says."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.archive = graph, StoreArchive(MemoryStore(), CODEC)
        self.header = RunHeader("r", "w", {}, "")
        self.first = begin("a", CODEC.pack(0, "$"), {}, stamp(0))
        self.at = apply(self.header, None, self.first)
        self.ids: list[str] = []
        self.warnings: list[str] = []

    def plan(self) -> Plan:
        return plan(self.graph, self.at.place, self.at.messages, self.at.held)

    async def begin(self) -> None:
        await self.archive.commit(self.first, self.at)

    async def superstep(self, sent: Sequence[Sequence[Sending]], finished: Sequence[int]) -> None:
        made = self.plan()
        self.ids += [delivery.id for delivery in made.deliveries]
        done = [
            Outcome(d.id, d.executor, tuple(Sent(CODEC.pack(one.value, "$"), one.target) for one in parts))
            for d, parts in zip(made.deliveries, sent, strict=True)
        ]
        outcomes = {done[n].delivery: done[n] for n in finished}
        routes = {id: await choose_routes(self.graph, "r", outcome) for id, outcome in outcomes.items()}
        merged = merge(self.graph, self.at, made, outcomes, routes, pack_copy, stamp(self.at.number + 1))
        before, self.at = self.at, apply(self.header, self.at, merged.commit)
        self.warnings += merged.commit.warnings
        assert merged.next is not None
        assert seen(merged.next) == seen(self.plan()), "what follows a commit is what is planned from its checkpoint"
        await self.archive.commit(merged.commit, self.at, before=before)

    async def stored(self) -> Checkpoint:
        head = await StoreArchive(self.archive.store, CODEC).head("r")
        assert head is not None
        return head


def seen(made: Plan) -> tuple[Any, ...]:
    """A plan for comparing: every delivery with its id and what is in it, and what is held."""
    deliveries = [(d.id, d.executor, d.payload.open(), d.sources, d.reply) for d in made.deliveries]
    held = {k: {s: [p.open() for p in parcels] for s, parcels in v.items()} for k, v in made.held.items()}
    return deliveries, held


def sendings(draw: Any, calls: int, count: Any) -> list[list[Sending]]:
    """What each of so many calls sends. No value is sent twice; about half are texts."""
    parts = []
    for _ in range(calls):
        found = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 2, 0]))):
            number = next(count)
            value = number if draw(st.booleans()) else f"text {number}"
            found.append(Sending(value, draw(st.sampled_from([*[None] * 40, *NAMES, "nobody"]))))
        parts.append(found)
    return parts


@quick
@given(webs(), st.data())
def test_every_message_goes_where_the_graph_says_and_nowhere_else(web: Web, data: st.DataObject) -> None:
    asyncio.run(travelled(web, data))


async def travelled(web: Web, data: st.DataObject) -> None:
    heard: list[tuple[Way, Any]] = []
    journey, count = Journey(web.graph(heard)), itertools.count(1)
    model = Model(web, [("a", 0, ())])
    everything: list[Sending] = []
    got: list[Any] = []
    await journey.begin()
    for _ in range(data.draw(st.integers(3, 6))):
        calls = len(model.calls)
        if not 0 < calls <= MOST_CALLS:
            break
        sent = sendings(data.draw, calls, count)
        everything += [one for parts in sent for one in parts]
        await journey.superstep(sent, data.draw(st.permutations(range(calls))))
        model.superstep(sent)
        check_plan(journey, model)
        got += [payload for _, payload, _ in model.calls]
        assert seen(plan(journey.graph, *where(await journey.stored()))) == seen(journey.plan()), "read again, the same"
    event(f"{journey.at.number} supersteps")
    event("with a fan-in that was complete" if any(isinstance(one, list) for one in got) else "without")
    assert len(set(journey.ids)) == len(journey.ids), f"ids of deliveries are used twice: {journey.ids}"
    assert set(heard) == set(model.asked), "conditions are asked about what may pass them, and about nothing else"
    check_nothing_lost(journey, model, everything, got)


def where(at: Checkpoint) -> tuple[int, tuple[RoutedMessage, ...], Any]:
    return at.place, at.messages, at.held


def check_plan(journey: Journey, model: Model) -> None:
    made = journey.plan()
    assert seen(made) == seen(journey.plan()), "planned twice, the plan is the same"
    called = [(d.executor, d.payload.open(), d.sources) for d in made.deliveries]
    assert called == model.calls
    assert [d.id for d in made.deliveries] == [f"{journey.at.number}.{n}" for n in range(len(called))]
    held = {way.edge([]).describe(): by_source for way, by_source in model.held.items() if by_source}
    assert seen(made)[1] == held


def check_nothing_lost(journey: Journey, model: Model, sent: list[Sending], got: list[Any]) -> None:
    """Each message was delivered, is held, or was spoken of in a warning: declined, or nobody to take it."""
    delivered = {one for payload in got for one in (payload if isinstance(payload, list) else [payload])}
    held = {value for by_source in model.held.values() for values in by_source.values() for value in values}
    spoken_of = {*model.declined, *model.missing}
    assert {one.value for one in sent} == delivered | held | spoken_of
    assert not (delivered | held) & spoken_of
    dropped = [words for words in journey.warnings if words.startswith("dropped: ")]
    declined = [words for words in journey.warnings if "every condition declined it" in words]
    assert (len(dropped), len(declined)) == (len(model.missing), len(model.declined))
