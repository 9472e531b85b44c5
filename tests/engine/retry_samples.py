"""Handlers that fail, for the tests of retries."""

from __future__ import annotations

from typing import Any

from stepwell import (
    RetryPolicy,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    executor,
)

AT_ONCE = RetryPolicy(max_attempts=3, initial_interval=0)


def hourly(max_attempts: int) -> RetryPolicy:
    """So far apart that a run is put aside in between."""
    return RetryPolicy(max_attempts, initial_interval=3600, max_interval=3600, jitter=0)


class SixMethods:
    """A storage that can do no more than it must."""

    def __init__(self) -> None:
        self._kept: dict[str, WorkflowCheckpoint] = {}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self._kept[checkpoint.checkpoint_id] = checkpoint
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        return self._kept[checkpoint_id]

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        return [one for one in self._kept.values() if one.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        return self._kept.pop(checkpoint_id, None) is not None

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        return (await self.list_checkpoints(workflow_name=workflow_name))[-1]

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [one.checkpoint_id for one in await self.list_checkpoints(workflow_name=workflow_name)]


def build(start: Any, storage: Any = None, **options: Any) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage, **options).build()


def attempts(events: Any, type: str = "executor_invoked") -> list[int | None]:
    return [event.attempt for event in events if event.type == type]


def failing(times: int, called: list[Any], *, plain: bool = False, **options: Any) -> Any:
    """An executor that raises so many times before it yields; it writes down what it is called with."""
    options.setdefault("retry", AT_ONCE)

    def work(n: int, ctx: WorkflowContext[None, int]) -> None:
        called.append(n)
        if len(called) <= times:
            raise ValueError(f"failure {len(called)}")
        ctx.yield_output(n)

    async def async_work(n: int, ctx: WorkflowContext[None, int]) -> None:
        work(n, ctx)

    return executor(id="flaky", **options)(work if plain else async_work)
