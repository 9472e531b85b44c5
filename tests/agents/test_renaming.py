"""An agent that is called by another name in newer code: what it heard, said and has under way is still its own."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import AgentExecutor, GraphChanged, InMemoryCheckpointStorage, Migration, Workflow, WorkflowBuilder
from stepwell.agents import Calls, ScriptedAgent, conversation_key


def paying(storage: Any, id: str, paid: list[int], *migrations: Migration) -> Workflow:
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    agent = ScriptedAgent("clerk", [Calls(("pay", {"amount": 3})), "done"], tools={"pay": pay}, approve=["pay"])
    start = AgentExecutor(agent, id=id)
    return WorkflowBuilder(
        name="paying", start_executor=start, checkpoint_storage=storage, migrations=migrations
    ).build()


async def test_a_turn_that_waits_goes_on_under_the_new_name() -> None:
    storage, paid = InMemoryCheckpointStorage(), list[int]()
    (event,) = (await paying(storage, "clerk", paid).run("go", run_id="r")).get_request_info_events()
    answers = {event.request_id: event.data.approve()}
    with pytest.raises(
        GraphChanged, match="executor 'clerk' was removed, but this run has state of it: 'agents/clerk/"
    ):
        await paying(storage, "cashier", paid).run(run_id="r", responses=answers)
    renamed = paying(storage, "cashier", paid, Migration(2).rename_executor("clerk", "cashier"))
    result = await renamed.run(run_id="r", responses=answers)
    assert ([one.text for one in result.get_outputs()], paid) == (["done"], [3])
    head = await storage.get_latest(run_id="r")
    assert head is not None
    assert [key for key in head.state if key.startswith("agents/clerk/")] == []
    assert [message.text for message in head.state[conversation_key("cashier")]] == ["go", "done"]
