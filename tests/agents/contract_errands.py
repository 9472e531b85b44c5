"""One process of the contract: does its errands one after the other, and says as a line of JSON what came of each.

python contract_errands.py KIT DATABASE '[{"name": ..., "url": ..., "agent": ..., and what is to be done}, ...]'

What is to be done is one of

    say         begin a run with these words; with `die`, end the process when a tool has returned that
    responses   go on with answers, by request id; with none, just go on
    send        say something more to a run that is done
    everywhere  let runs that begin with these words die at every write, let every write fail, and approve what they ask
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import stepwell
from stepwell import AgentExecutor, SQLiteCheckpointStorage, StepwellError, Workflow, WorkflowBuilder, WorkflowEvent
from stepwell.agents import usage_in
from stepwell.testing import FailingStore, crash_everywhere

Json = dict[str, Any]


def workflow_of(kit: ModuleType, errand: Json, storage: Any = None) -> Workflow:
    agent = kit.agent(errand["agent"], errand["url"])
    executor = AgentExecutor(agent, id=errand["agent"], handoffs=errand.get("handoffs"))
    return WorkflowBuilder(name="contract", start_executor=executor, checkpoint_storage=storage).build()


async def events_of(workflow: Workflow, errand: Json) -> AsyncIterator[WorkflowEvent]:
    run = errand["name"]
    if "send" in errand:
        handle = workflow.attach(run, drive=True)
        before = (await handle.checkpoints())[-1]
        await handle.send(errand["send"])
        async for event in handle.events(after=before):
            yield event
    elif "say" in errand:
        async for event in workflow.run(errand["say"], run_id=run, stream=True):
            yield event
    else:
        async for event in workflow.run(run_id=run, responses=errand["responses"], stream=True):
            yield event


async def run(kit: ModuleType, errand: Json, database: str) -> Json:
    storage = SQLiteCheckpointStorage(database)
    seen: Json = {"pieces": [], "asked": {}, "outputs": [], "warnings": [], "imported": []}
    async for event in events_of(workflow_of(kit, errand, storage), errand):
        note(event, seen)
        if event.type == "superstep_started":
            IMPORTS.noted = seen["imported"]
        if event.type == "update" and event.data.kind == "tool_returned" and "die" in errand:
            assert errand["die"] in repr(event.data.data)
            os._exit(9)  # what is told to have returned is noted
    IMPORTS.noted = None
    checkpoint = await storage.get_latest(run_id=errand["name"])
    assert checkpoint is not None
    usage = usage_in(checkpoint.state).get(errand["agent"])
    return {**seen, "usage": None if usage is None else asdict(usage)}


def note(event: WorkflowEvent, seen: Json) -> None:
    match event.type:
        case "update" if event.data.kind == "text":
            seen["pieces"].append(event.data.text)
        case "request_info":
            seen["asked"][event.request_id] = asdict(event.data)
        case "warning":
            seen["warnings"].append(str(event.data))
        case "output":
            answer = event.data
            value = None if answer.value is None else [type(answer.value).__name__, dict(answer.value)]
            seen["outputs"].append({"text": answer.text, "handoff": answer.handoff, "value": value})


class Imports(MetaPathFinder):
    """Finds nothing, and notes what modules of this library import while a superstep is under way."""

    noted: list[str] | None = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if self.noted is not None and frame is not None and frame.f_code.co_filename.startswith(OURS):
            self.noted.append(f"{name} in {frame.f_code.co_filename}:{frame.f_lineno}")


IMPORTS = Imports()
OURS = str(Path(stepwell.__file__).parent)


async def everywhere(kit: ModuleType, errand: Json) -> Json:
    def answer(event: WorkflowEvent) -> Any:
        return event.data.approve()

    workflow = workflow_of(kit, errand)
    died = await crash_everywhere(workflow, errand["everywhere"], answer=answer)
    failed = await crash_everywhere(workflow, errand["everywhere"], answer=answer, fault=FailingStore)
    return {"died": died.crashes, "writes that failed": failed.crashes}


async def main(kit: ModuleType, database: str, errands: list[Json]) -> None:
    for errand in errands:
        try:
            seen = await (everywhere(kit, errand) if "everywhere" in errand else run(kit, errand, database))
        except (StepwellError, AssertionError) as error:  # the other errands are tried all the same
            seen = {"failed": f"{type(error).__name__}: {error}"}
        IMPORTS.noted = None
        print(json.dumps({"errand": errand["name"], **seen}), flush=True)


if __name__ == "__main__":
    given = import_module(f"tests.agents.kits.{sys.argv[1]}")
    sys.meta_path.insert(0, IMPORTS)
    asyncio.run(main(given, sys.argv[2], json.loads(sys.argv[3])))
