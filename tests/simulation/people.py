"""Those who answer: each question once, in their own time; some answer again, and some never."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from stepwell import RequestError
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.kernel import open_requests
from stepwell.storage import clock
from stepwell.storage.filters import RequestFilter
from stepwell.storage.store_archive import StoreArchive
from stepwell.storage.stored_values import RequestEntry
from tests.simulation.plan import Node, chance
from tests.simulation.script import Question, answer_to, is_ignored

if TYPE_CHECKING:
    from tests.simulation.world import World


class People:
    def __init__(self, world: World) -> None:
        self._world = world
        self._nodes = {node.name: node for node in world.plan.graph.every_node()}

    async def answers(self, *, again: bool) -> dict[str, Any]:
        """What somebody gives to a run that waits: answers, or nothing but time."""
        world = self._world
        listed: list[RequestEntry] = await world.bare.requests(RequestFilter(run_id="run"))
        await self._check_listed(listed)
        if never := [one.request_id for one in listed if one.request_id not in world.witness.questions]:
            from tests.simulation.world import Broken  # it imports this module

            raise Broken(world.plan, [*world.witness.broken, f"{never} are listed, but nobody was ever asked"])
        if again or world.plan.repeated:
            await self.answer_again()
        waiting = [one for one in listed if not self._is_left_alone(one)]
        # What was given already waits for another answer, or the program died that was to take it in.
        new = [one for one in waiting if one.request_id not in world.witness.posted]
        run = await world.bare.run("run")
        assert run is not None
        if run.wake is not None and self._is_time_to_wait(run.wake, new):
            world.clock.until(datetime.fromisoformat(run.wake))
            return {}
        if not waiting or (not new and world.loop.dice.randrange(2)):
            return {}
        new = new or waiting
        chosen = waiting if world.plan.batch else [min(new, key=lambda one: chance(self._question(one).trail))]
        return {"responses": {one.request_id: self._answer(one) for one in chosen}}

    async def answer_again(self) -> None:
        """Say something else to what was answered: it must be refused."""
        posted = sorted(self._world.witness.posted)
        if not posted:
            return
        request_id = self._world.loop.dice.choice(posted)
        await self._be_refused({request_id: 5000})

    async def _be_refused(self, responses: dict[str, int]) -> None:
        world = self._world
        came_to = await world.drive({"responses": responses}, expects=RequestError)
        if not isinstance(came_to, RequestError):
            world.witness.broken.append(f"the answer {responses} was taken, although there was one before: {came_to!r}")

    async def _check_listed(self, listed: list[RequestEntry]) -> None:
        stored = await StoreArchive(self._world.storage(self._world.bare)._store, DEFAULT_CODEC).look("run")
        assert stored.head is not None
        expected, names = open_requests(stored.head, stored.log), {one.request_id for one in listed}
        # Without sync, what a handler that has returned asks is listed with the commit.
        early = set() if self._world.plan.durability == "sync" else expected.keys() - stored.head.requests.keys()
        if expected.keys() - early - names or names - expected.keys():
            self._world.witness.broken.append(f"{listed} are listed, but open are {list(expected)}")

    def _is_time_to_wait(self, wake: str, new: list[RequestEntry]) -> bool:
        """Whether people let time pass, for a deadline or a timer; never so much that an answer would be late."""
        times = [datetime.fromisoformat(one.deadline) for one in new if one.deadline is not None]
        if not all(datetime.fromisoformat(wake) < time for time in times):
            return False
        return not new or self._world.loop.dice.randrange(3) == 0

    def _question(self, pending: RequestEntry) -> Question:
        return Question(**self._world.witness.questions[pending.request_id])

    def _asker(self, question: Question) -> Node:
        return self._nodes[question.asker]

    def _answer(self, pending: RequestEntry) -> int:
        question = self._question(pending)
        return answer_to(question, self._asker(question))

    def _is_left_alone(self, pending: RequestEntry) -> bool:
        question = self._question(pending)
        late = pending.deadline is not None and clock.now() >= datetime.fromisoformat(pending.deadline)
        return late or is_ignored(question, self._asker(question))
