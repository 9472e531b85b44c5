"""A research team: a manager plans, a person approves the plan, and agents work until the manager is satisfied.

    python research_team.py research              the manager makes a plan and asks for its review
    python research_team.py research approve      a person approves, and the team works

The first argument is a folder for the data. The agents are scripted, so nothing leaves the machine; put agents of
your library in their place. Kill the program anywhere and repeat the command: no agent is asked again for what it
has answered. The ledger has a line for each call of an agent that works.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from stepwell import Message, SQLiteCheckpointStorage
from stepwell.agents import ScriptedAgent
from stepwell.orchestrations import MagenticBuilder, MagenticPlanReviewResponse

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "research")
FOLDER.mkdir(exist_ok=True)
ROUNDS = {"researcher": "How many lamps were sold?", "analyst": "Compare it.", "writer": "One sentence, please."}
WORDS = {
    "researcher": "512 lamps this year, 400 last year.",
    "analyst": "That is 28 percent more.",
    "writer": "We sold 512 lamps, 28 percent more than last year.",
}


def assess(done: bool, speaker: str) -> str:
    """Fill in the form in which a manager decides who is next."""
    facts = {"is_request_satisfied": done, "is_in_loop": False, "is_progress_being_made": True}
    answers = {**facts, "next_speaker": speaker, "instruction_or_question": ROUNDS[speaker]}
    return json.dumps({key: {"reason": "", "answer": answer} for key, answer in answers.items()})


def manage(messages: list[Message]) -> str:
    """Stand in for the manager's model: answer its four prompts."""
    prompt, spoken = messages[-1].text, [message.author_name for message in messages]
    if "take stock" in prompt:
        return "TO FIND OUT: how many lamps were sold"
    if "Write a plan" in prompt:
        return "researcher, then analyst, then writer"
    if "Write the answer" in prompt:
        return WORDS["writer"]
    missing = [name for name in ROUNDS if name not in spoken]
    return assess(not missing, missing[0] if missing else "writer")


def make_worker(name: str) -> ScriptedAgent:
    def answer(messages: list[Message]) -> str:
        with (FOLDER / "ledger.txt").open("a") as ledger:
            ledger.write(f"{name}\n")
        time.sleep(0.2)  # a model takes its time
        return WORDS[name]

    return ScriptedAgent(name, answer, description=f"the {name} of the team")


storage = SQLiteCheckpointStorage(FOLDER / "runs.db")
team = MagenticBuilder(
    participants=[make_worker(name) for name in WORDS],
    manager_agent=ScriptedAgent("manager", manage),
    enable_plan_review=True,
    checkpoint_storage=storage,
).build()


async def main(*, approve: bool) -> None:
    if approve:
        waiting = await storage.pending_requests()
        responses = {request.request_id: MagenticPlanReviewResponse.approve() for request in waiting}
        result = await team.run(run_id="lamps", responses=responses)
    else:
        result = await team.run("Write a sentence about the lamps we sold.", run_id="lamps")
    for event in result.get_request_info_events():
        print(f"plan to review: {event.data.plan.data.plan.text}")
    for output in result.get_outputs():
        print(output if isinstance(output, str) else output.text)


if __name__ == "__main__":
    asyncio.run(main(approve="approve" in sys.argv[2:]))
