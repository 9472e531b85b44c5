"""Deferred tools of pydantic-ai in durable functions are questions to people."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, CallDeferred, FunctionToolset, Tool

from stepwell import InMemoryCheckpointStorage, WorkflowRunState, workflow
from stepwell.agents.adapters.pydantic_ai import StepwellDurability
from stepwell.agents.requests import AgentInputRequest, ToolApprovalRequest
from stepwell.functional import DurableFunction
from stepwell.testing import crash_everywhere
from tests.agents.pydantic_ai_scripts import Script, calls

PAID: list[int] = []


def pay(amount: int) -> str:
    PAID.append(amount)
    return f"paid {amount}"


def look(what: str) -> str:
    return what


def weigh(what: str) -> str:
    raise CallDeferred


def office_of(script: Script) -> DurableFunction[str, str]:
    PAID.clear()
    tools = FunctionToolset[None]([Tool(pay, requires_approval=True), look, weigh], id="desk")
    agent = Agent(script.model, name="clerk", toolsets=[tools], capabilities=[StepwellDurability[None]()])

    @workflow(name="office", checkpoint_storage=InMemoryCheckpointStorage())
    async def office(task: str) -> str:
        return (await agent.run(task)).output

    return office


REPLY = calls(("pay", {"amount": 3}), ("look", {"what": "it"}), ("weigh", {"what": "box"}), ("pay", {"amount": 5}))


async def test_approvals_and_results_from_elsewhere_are_asked_together() -> None:
    script = Script(REPLY, "done")
    office = office_of(script)
    waiting = await office.run("go", run_id="r")
    assert waiting.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    first, second, third = sorted(waiting.get_request_info_events(), key=lambda event: str(event.data))
    assert isinstance(first.data, AgentInputRequest)
    assert first.data.data == {"tool": "weigh", "arguments": {"what": "box"}, "tool_call_id": "call-2"}
    assert isinstance(second.data, ToolApprovalRequest)
    assert isinstance(third.data, ToolApprovalRequest)
    assert (second.data.agent, second.data.tool, second.data.arguments) == ("clerk", "pay", {"amount": 3})
    responses: dict[str, Any] = {
        str(first.request_id): first.data.answer("3 kg"),
        str(second.request_id): second.data.approve({"amount": 4}),
        str(third.request_id): third.data.deny("too much"),
    }
    result = await office.run(run_id="r", responses=responses)
    assert result.get_outputs() == ["done"]
    assert PAID == [4]
    assert sorted(map(str, script.results())) == ["3 kg", "The call was denied: too much", "it", "paid 4"]
    assert len(script.given) == 2


async def test_a_result_may_be_supplied_instead_of_an_approval() -> None:
    script = Script(calls(("pay", {"amount": 3})), "done")
    office = office_of(script)
    (event,) = (await office.run("go", run_id="r")).get_request_info_events()
    assert isinstance(event.data, ToolApprovalRequest)
    result = await office.run(run_id="r", responses={str(event.request_id): event.data.answer("paid by hand")})
    assert (result.get_outputs(), script.results(), PAID) == (["done"], ["paid by hand"], [])


async def test_they_survive_a_crash_at_every_write() -> None:
    class Forgetful(Script):
        def _reply(self, messages: Any, info: Any) -> Any:
            replies: list[Any] = [REPLY, "done"]
            self._replies = replies[len(messages) // 2 :]
            return super()._reply(messages, info)

    def answer(event: Any) -> Any:
        return event.data.answer("3 kg") if isinstance(event.data, AgentInputRequest) else event.data.approve()

    await crash_everywhere(office_of(Forgetful()), "go", answer=answer)
