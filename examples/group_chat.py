"""A group chat led by an agent, with a tool call that a person approves.

    python group_chat.py

The chair decides in JSON who speaks next. The buyer wants to order something, and the chat waits
until a person approves.
"""

import asyncio
import json

from stepwell import InMemoryCheckpointStorage
from stepwell.agents import Calls, ScriptedAgent
from stepwell.orchestrations import GroupChatBuilder


def to(name: str) -> str:
    return json.dumps({"terminate": False, "reason": f"{name} knows", "next_speaker": name})


async def main() -> None:
    over = json.dumps({"terminate": True, "reason": "all is said", "final_message": "The switch is ordered."})
    chair = ScriptedAgent("chair", [to("engineer"), to("buyer"), over])
    engineer = ScriptedAgent("engineer", ["The lamp needs a switch."], description="knows what a lamp needs")
    buyer = ScriptedAgent(
        "buyer",
        [Calls(("order", {"what": "a switch"})), "I ordered it."],
        description="orders parts",
        tools={"order": lambda what: f"ordered {what}"},
        approve=["order"],
    )
    workflow = GroupChatBuilder(
        participants=[engineer, buyer],
        orchestrator_agent=chair,
        max_rounds=10,
        checkpoint_storage=InMemoryCheckpointStorage(),
    ).build()
    result = await workflow.run("What about the lamp?", run_id="lamp")
    (event,) = result.get_request_info_events()
    print(f"{event.data.agent} wants to {event.data.tool} {event.data.arguments['what']}: yes")
    stream = workflow.run(run_id="lamp", responses={event.request_id: event.data.approve()}, stream=True)
    async for chat_event in stream:
        if chat_event.type == "group_chat":
            print(f"  {chat_event.data}")
    print(f"output: {(await stream).get_outputs()[0]}")


if __name__ == "__main__":
    asyncio.run(main())
