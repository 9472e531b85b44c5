"""A custom storage: any class with the six methods can store runs.

This one writes each checkpoint as one line of a text file. `to_dict` returns plain JSON data, and
`from_dict` reads it back. The `warning` event says what such a storage cannot guarantee.
"""

import asyncio
import json
import tempfile
from pathlib import Path

from stepwell import CheckpointMissing, WorkflowBuilder, WorkflowCheckpoint, WorkflowContext, executor


class LinesStorage:
    """One line per checkpoint, the newest last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.touch()

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        with self._path.open("a") as file:
            file.write(json.dumps(checkpoint.to_dict()) + "\n")
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        for checkpoint in self._all():
            if checkpoint.checkpoint_id == checkpoint_id:
                return checkpoint
        raise CheckpointMissing(f"{self._path} holds no checkpoint {checkpoint_id!r}")

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        return [checkpoint for checkpoint in self._all() if checkpoint.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        checkpoints = self._all()
        kept = [checkpoint for checkpoint in checkpoints if checkpoint.checkpoint_id != checkpoint_id]
        self._path.write_text("".join(json.dumps(checkpoint.to_dict()) + "\n" for checkpoint in kept))
        return len(kept) < len(checkpoints)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        checkpoints = await self.list_checkpoints(workflow_name=workflow_name)
        return checkpoints[-1] if checkpoints else None

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [checkpoint.checkpoint_id for checkpoint in await self.list_checkpoints(workflow_name=workflow_name)]

    def _all(self) -> list[WorkflowCheckpoint]:
        return [WorkflowCheckpoint.from_dict(json.loads(line)) for line in self._path.read_text().splitlines()]


@executor
async def double(number: int, ctx: WorkflowContext[int, int]) -> None:
    if number < 100:
        await ctx.send_message(number * 2)
    else:
        await ctx.yield_output(number)


async def main(path: Path) -> None:
    storage = LinesStorage(path)
    builder = WorkflowBuilder(name="doubling", start_executor=double, checkpoint_storage=storage)
    workflow = builder.add_edge(double, double).build()
    async for event in workflow.run(7, stream=True, run_id="seven"):
        if event.type in ("warning", "output"):
            print(f"{event.type}: {event.data}")
    print(f"lines in the file: {len(path.read_text().splitlines())}")

    second = (await storage.list_checkpoint_ids(workflow_name="doubling"))[1]
    result = await builder.build().run(checkpoint_id=second)
    print(f"continued from the second line: {result.get_outputs()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "checkpoints.jsonl"))
