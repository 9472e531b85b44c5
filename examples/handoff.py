"""Agents hand a customer over to each other, and ask the customer questions.

    python handoff.py

Each agent has a tool for each colleague it may hand over to. The customer's replies come from a list
here; the run is stored in a SQLite database and waits for each of them without a process.
"""

import asyncio
import tempfile
from pathlib import Path

from stepwell import Message, SQLiteCheckpointStorage, Workflow, WorkflowRunState
from stepwell.agents import Calls, ScriptedAgent
from stepwell.orchestrations import HandoffAgentUserRequest, HandoffBuilder
from stepwell.workflows import status_word

CUSTOMER = ["The red one.", "No, thank you. Goodbye."]


def is_over(conversation: list[Message]) -> bool:
    return conversation[-1].role == "user" and "goodbye" in conversation[-1].text.lower()


def build(database: Path) -> Workflow:
    desk = ScriptedAgent("desk", [Calls(("handoff_to_returns", {}), text="I am sorry. One moment.")])
    returns = ScriptedAgent(
        "returns",
        ["Which lamp is it?", Calls(("handoff_to_shipping", {}))],
        description="takes things back",
    )
    shipping = ScriptedAgent("shipping", ["A label for the red lamp is on its way. Anything else?"])
    return (
        HandoffBuilder(
            name="service",
            participants=[desk, returns, shipping],
            termination_condition=is_over,
            checkpoint_storage=SQLiteCheckpointStorage(database),
        )
        .with_start_agent(desk)
        .add_handoff(desk, [returns])
        .add_handoff(returns, [desk, shipping])
        .enable_return_to_previous()
        .build()
    )


async def main(database: Path) -> None:
    replies = iter(CUSTOMER)
    print("customer: My lamp is broken.")
    stream = build(database).run("My lamp is broken.", run_id="lamp", stream=True)
    while True:
        async for event in stream:
            if event.type == "output" and event.data.text and not event.replayed:
                print(f"{event.executor_id}: {event.data}")
            if event.type == "handoff_sent":
                print(f"  ({event.data.source} hands over to {event.data.target})")
        result = await stream
        if result.get_final_state() is not WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            break
        (request,) = result.get_request_info_events()
        reply = next(replies)
        print(f"customer: {reply}")
        responses = {request.request_id: HandoffAgentUserRequest.create_response(reply)}
        # A new workflow object, as after a restart: everything it needs is in the database.
        stream = build(database).run(run_id="lamp", responses=responses, stream=True)
    print(f"the run is {status_word(result.get_final_state())}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "service.db"))
