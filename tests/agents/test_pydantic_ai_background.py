"""Models that work in the background: a durable agent waits for the result, wherever its function is stopped."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from stepwell import HandlerFailed, InMemoryCheckpointStorage, workflow
from stepwell.agents.adapters.pydantic_ai import StepwellDurability
from stepwell.functional import DurableFunction
from stepwell.testing import FakeClock, crash_everywhere


class Batch(FunctionModel):
    """A model whose answer takes two looks after the first request."""

    def __init__(self, delay: float) -> None:
        super().__init__(self.reply)
        self.delay, self.asked = delay, asyncio.Event()
        self.requests: list[str | None] = []
        self.cancelled: list[str | None] = []
        self.errors: list[Exception] = []

    def reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        pending = messages[-1] if isinstance(messages[-1], ModelResponse) else None
        if pending is not None and self.errors:
            raise self.errors.pop()
        looks = 0 if pending is None else int((pending.provider_response_id or "").partition("/")[2])
        self.requests.append(None if pending is None else pending.provider_response_id)
        self.asked.set()
        if looks < 2:
            return ModelResponse([], state="suspended", provider_response_id=f"job/{looks + 1}")
        return ModelResponse([TextPart("done")], provider_response_id="job/3")

    def continuation_delay(self, response: ModelResponse) -> float:
        return self.delay

    async def cancel_suspended_response(self, response: ModelResponse) -> None:
        self.cancelled.append(response.provider_response_id)


def office_of(model: Batch) -> DurableFunction[str, str]:
    agent = Agent(model, name="clerk", capabilities=[StepwellDurability[None]()])

    @workflow(name="office", checkpoint_storage=InMemoryCheckpointStorage())
    async def office(task: str) -> str:
        return str((await agent.run(task)).output)

    return office


async def test_a_long_delay_leaves_the_process_and_not_the_job() -> None:
    model = Batch(delay=3600)
    office = office_of(model)
    with FakeClock() as clock:
        result = await office.run("go", run_id="r")
        for requests in (1, 2):
            assert result.wakes_at is not None
            assert len(model.requests) == requests
            clock(hours=2)
            result = await office.run(run_id="r")
    assert result.get_outputs() == ["done"]
    assert (model.requests, model.cancelled) == ([None, "job/1", "job/2"], [])


async def test_a_function_that_is_stopped_while_it_waits_leaves_the_job_alone() -> None:
    model = Batch(delay=5)
    office = office_of(model)
    with FakeClock() as clock:
        running = asyncio.ensure_future(office.run("go", run_id="r"))
        await model.asked.wait()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        model.delay = 0.0
        clock(hours=1)
        assert (await office.run(run_id="r")).get_outputs() == ["done"]
    assert (model.requests, model.cancelled) == ([None, "job/1", "job/2"], [])


async def test_a_request_that_fails_cancels_the_job_and_the_run_can_be_resumed() -> None:
    model = Batch(delay=0.0)
    model.errors = [ConnectionError("away")]
    office = office_of(model)
    with pytest.raises(HandlerFailed, match="away"):
        await office.run("go", run_id="r")
    assert model.cancelled == ["job/1"]
    assert (await office.run(run_id="r")).get_outputs() == ["done"]


async def test_it_survives_a_crash_at_every_write() -> None:
    model = Batch(delay=3600)
    await crash_everywhere(office_of(model), "go")
    assert model.cancelled == []
