"""Agents one after the other; a person reviews each draft, even from another process.

    python sequential.py

The writer's drafts are reviewed before the translator receives them. Between request and response the
workflow is built again, as another process would do it: everything it needs is in the database.
"""

import asyncio
import tempfile
from pathlib import Path

from stepwell import SQLiteCheckpointStorage, Workflow
from stepwell.agents import ScriptedAgent
from stepwell.orchestrations import AgentRequestInfoResponse, SequentialBuilder


def build(database: Path) -> Workflow:
    writer = ScriptedAgent("writer", ["Our lamp is a very good lamp.", "Our lamp shines."])
    translator = ScriptedAgent("translator", lambda messages: f"[in French] {messages[-1].text}")
    builder = SequentialBuilder(
        participants=[writer, translator], name="slogan", checkpoint_storage=SQLiteCheckpointStorage(database)
    )
    return builder.with_request_info(agents=["writer"]).build()


async def main(database: Path) -> None:
    result = await build(database).run("A slogan for a lamp, please.", run_id="lamp")
    for feedback in (["Shorter, please."], None):
        (event,) = result.get_request_info_events()
        print(f"{event.data.executor_id}: {event.data.agent_response}")
        print(f"  a person: {feedback[0] if feedback else 'fine'}")
        review = AgentRequestInfoResponse.from_strings(feedback) if feedback else AgentRequestInfoResponse.approve()
        result = await build(database).run(run_id="lamp", responses={event.request_id: review})
    print(f"output: {result.get_outputs()[0]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "runs.db"))
