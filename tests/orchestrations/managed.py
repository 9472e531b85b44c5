"""A managed team and a manager that follows a script, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from stepwell import InMemoryCheckpointStorage, Message, Workflow
from stepwell.agents import AgentResponse, ScriptedAgent
from stepwell.orchestrations import MagenticBuilder

PROMPTS: dict[str, Any] = {
    "task_ledger_facts_prompt": "FACTS? {task}",
    "task_ledger_plan_prompt": "PLAN? {team}",
    "task_ledger_full_prompt": "{task} | {facts} | {plan}",
    "task_ledger_facts_update_prompt": "FACTS AGAIN? {old_facts}",
    "task_ledger_plan_update_prompt": "PLAN AGAIN?",
    "progress_ledger_prompt": "PROGRESS? {names}",
    "final_answer_prompt": "ANSWER? {task}",
}


def said_by(messages: Sequence[Message], *names: str) -> list[str]:
    return [message.text for message in messages if message.author_name in names]


def ledger(
    speaker: str = "", instruction: str = "", *, done: bool = False, progress: bool = True, loop: bool = False
) -> str:
    answers = {
        "is_request_satisfied": done,
        "is_in_loop": loop,
        "is_progress_being_made": progress,
        "next_speaker": speaker,
        "instruction_or_question": instruction,
    }
    return json.dumps({key: {"reason": f"why {key}", "answer": answer} for key, answer in answers.items()})


def managing(progress: Callable[[list[Message]], str], **options: Any) -> ScriptedAgent:
    """A manager whose answers follow from what it is asked; `progress` gives the ledger, from what was said."""

    def script(messages: list[Message]) -> str:
        asked = messages[-1].text
        if asked.startswith("FACTS AGAIN"):
            return f"more facts than {asked.removeprefix('FACTS AGAIN? ')}"
        if asked.startswith("FACTS"):
            return "facts"
        if asked.startswith("PLAN AGAIN"):
            heard = [message.text for message in messages[:-3] if message.author_name != "magentic_manager"]
            return f"another plan, after {heard}"
        if asked.startswith("PLAN"):
            return "plan"
        if asked.startswith("ANSWER"):
            return "the answer: " + ", ".join(said_by(messages, "writer", "critic"))
        return progress(messages[:-1])

    return ScriptedAgent("manager", script, **options)


def in_turn(messages: list[Message]) -> str:
    """The writer writes, the critic judges, and that is it."""
    match len(said_by(messages, "writer", "critic")):
        case 0:
            return ledger("writer", "write it")
        case 1:
            return ledger("critic", "judge it")
    return ledger(done=True)


def team(agent: Any = None, *, writer: Any = None, **options: Any) -> MagenticBuilder:
    agents = [
        writer or ScriptedAgent("writer", lambda messages: "a text", description="writes texts"),
        ScriptedAgent("critic", lambda messages: "a fine text"),
    ]
    options.setdefault("checkpoint_storage", InMemoryCheckpointStorage())
    if not {"manager", "manager_factory"} & set(options):
        options = {"manager_agent": agent or managing(in_turn), **PROMPTS, **options}
    return MagenticBuilder(participants=agents, **options)


async def final(workflow: Workflow, task: Any = "a poem") -> str:
    (response,) = (await workflow.run(task, run_id="r")).get_outputs()
    assert isinstance(response, AgentResponse)
    return response.text


async def state_of(storage: Any) -> Any:
    checkpoint = await storage.get_latest(run_id="r")
    assert checkpoint is not None
    return checkpoint.state
