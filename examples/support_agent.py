"""A support agent of pydantic-ai that may refund money once a person has approved it.

    python support_agent.py tickets              the agent works until it needs an approval
    python support_agent.py tickets approve      a person approves, and the agent finishes

The first argument is a folder for the data. The model is a function, so nothing leaves the machine; put the name of
a real model in its place. Kill the program anywhere and repeat the command: no call of a tool or the model is made
again whose result was stored.
"""

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from stepwell import AgentExecutor, SQLiteCheckpointStorage, WorkflowBuilder
from stepwell.agents import current_tool_call

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "tickets")
FOLDER.mkdir(exist_ok=True)
WORK = 0.2  # seconds that the model and the systems outside take


async def call(what: str) -> None:
    with (FOLDER / "ledger.txt").open("a") as ledger:
        ledger.write(f"{what}\n")
    await asyncio.sleep(WORK)


async def decide(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stand in for a model: look up the order, refund it, then answer."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    results = [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]
    await call(f"model {len(results)}")
    if not results:
        return ModelResponse(parts=[ToolCallPart("look_up", {"order": "A7"}, tool_call_id="call-1")])
    if len(results) == 1:
        return ModelResponse(parts=[ToolCallPart("refund", {"order": "A7", "amount": 40}, tool_call_id="call-2")])
    return ModelResponse(parts=[TextPart(f"I am sorry about the lamp. {results[-1].content}.")])


support = Agent(FunctionModel(decide), name="support", instructions="Help customers. Refund what arrived broken.")


@support.tool_plain
async def look_up(order: str) -> str:
    """Look up an order."""
    await call(f"look_up {order}")
    return f"order {order}: a lamp for 40, delivered"


@support.tool_plain
async def refund(order: str, amount: int) -> str:
    """Refund money for an order."""
    # The key is the same whenever this call is repeated, so a payment service books it once.
    await call(f"refund {order} {amount} {current_tool_call().idempotency_key}")
    return f"{amount} were refunded for {order}"


storage = SQLiteCheckpointStorage(FOLDER / "runs.db")
desk = AgentExecutor(support, approve=["refund"])
workflow = WorkflowBuilder(name="support", start_executor=desk, checkpoint_storage=storage).build()


async def main(*, approve: bool) -> None:
    if approve:
        waiting = await storage.pending_requests()
        responses = {request.request_id: {"decision": "approve"} for request in waiting}
        result = await workflow.run(run_id="ticket-1", responses=responses)
    else:
        result = await workflow.run("The lamp of order A7 arrived broken.", run_id="ticket-1")
    for event in result.get_request_info_events():
        print(f"may {event.data.agent} {event.data.tool} {event.data.arguments}?")
    for output in result.get_outputs():
        print(output.text)


if __name__ == "__main__":
    asyncio.run(main(approve="approve" in sys.argv[2:]))
