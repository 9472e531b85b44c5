"""A manager plans the work of a team, and a person approves the plan in another process.

    python magentic_plan_review.py

The script starts itself twice as a child process. In the first child the manager makes a plan and
requests its review; then the child exits. The second finds the request in the newest checkpoint and
approves; then the team works.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from stepwell import FileCheckpointStorage, Message, Workflow, WorkflowRunState
from stepwell.agents import ScriptedAgent
from stepwell.orchestrations import MagenticBuilder, MagenticPlanReviewRequest, MagenticTaskLedger


def progress(done: bool, speaker: str, instruction: str) -> str:
    next_step = {"next_speaker": speaker, "instruction_or_question": instruction}
    assessment = {"is_request_satisfied": done, "is_in_loop": False, "is_progress_being_made": True}
    return json.dumps({key: {"reason": "", "answer": answer} for key, answer in {**assessment, **next_step}.items()})


def manage(messages: list[Message]) -> str:
    """Answer as a model would, depending on the prompt and on who has spoken."""
    prompt, speakers = messages[-1].text, [message.author_name for message in messages]
    if "take stock" in prompt:
        return "TO FIND OUT: how many lamps were sold"
    if "Write a plan" in prompt:
        return "1. researcher finds the number. 2. writer puts it into a sentence."
    if "Write the answer" in prompt:
        return next(message.text for message in messages if message.author_name == "writer")
    if "researcher" not in speakers:
        return progress(False, "researcher", "How many lamps were sold?")
    return progress("writer" in speakers, "writer", "One sentence about it, please.")


def build_workflow(storage: FileCheckpointStorage) -> Workflow:
    researcher = ScriptedAgent("researcher", ["512 lamps."], description="finds things out")
    writer = ScriptedAgent("writer", lambda messages: f"We sold {messages[-2].text}", description="writes briefs")
    return MagenticBuilder(
        participants=[researcher, writer],
        enable_plan_review=True,
        checkpoint_storage=storage,
        manager_agent=ScriptedAgent("manager", manage),
    ).build()


async def plan(storage: FileCheckpointStorage) -> None:
    async for event in build_workflow(storage).run("Draft a brief about the lamps.", stream=True):
        if event.type == "request_info" and isinstance(event.data, MagenticPlanReviewRequest):
            ledger: MagenticTaskLedger = event.data.plan.data
            print(f"  plan to review: {ledger.plan.text}")
        if event.state == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            break


async def work(storage: FileCheckpointStorage) -> None:
    workflow = build_workflow(storage)
    checkpoint = await storage.get_latest(workflow_name=workflow.name)
    assert checkpoint is not None
    (event,) = checkpoint.pending_request_info_events.values()
    plan_request: MagenticPlanReviewRequest = event.data
    responses = {plan_request.request_id: plan_request.approve()}
    async for progress_event in workflow.run(checkpoint_id=checkpoint.checkpoint_id, stream=True, responses=responses):
        if progress_event.type == "executor_invoked":
            print(f"  {progress_event.executor_id}")
        if progress_event.type == "output":
            print(f"  final result: {progress_event.data}")


async def main(directory: Path) -> None:
    for part in ("plan", "work"):
        child = await asyncio.create_subprocess_exec(sys.executable, __file__, part, str(directory))
        assert await child.wait() == 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(f"process {os.getpid()}: {sys.argv[1]}", flush=True)
        asyncio.run({"plan": plan, "work": work}[sys.argv[1]](FileCheckpointStorage(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(main(Path(temporary)))
