"""Manners of the door that a comparison of traces does not show."""

from __future__ import annotations

import logging
from typing import Any, Never

import pytest

from stepwell.compat.agent_framework import (
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    WorkflowMessage,
    handler,
    response_handler,
)
from stepwell.compat.agent_framework.orchestrations import SequentialBuilder
from tests.compat.scripted import agent


class Sends(Executor):
    @handler
    async def send(self, message: str, ctx: WorkflowContext[Any]) -> None:
        await ctx.send_message(5)


class Takes(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(message)


class Asks(Executor):
    @handler
    async def ask(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.request_info(message, int)

    @response_handler
    async def answered(self, asked: str, response: int, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{asked}: {response}")


async def test_a_message_that_nobody_takes_is_a_logged_warning(caplog: pytest.LogCaptureFixture) -> None:
    start, end = Sends("start"), Takes("end")
    with caplog.at_level(logging.WARNING, "stepwell"):
        await WorkflowBuilder(start_executor=start).add_edge(start, end).build().run("go")
    assert [record.message for record in caplog.records] == [
        "dropped: 'start' sent a int, but no handler accepts it: 'end' accepts str"
    ]


async def test_runs_of_the_door_are_runs_of_the_store() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(name="asks", start_executor=Asks("asks"), checkpoint_storage=storage).build()
    await workflow.run("age")
    (run,) = await storage.native.list_runs()  # type: ignore[attr-defined]
    assert run.workflow_name == "asks"


def test_what_a_builder_makes_is_a_workflow_of_the_door() -> None:
    assert isinstance(WorkflowBuilder(start_executor=Takes("t")).build(), Workflow)
    assert isinstance(SequentialBuilder(participants=[agent("a", "x")]).build(), Workflow)


def test_a_storage_in_files_knows_its_folder(tmp_path: Any) -> None:
    assert FileCheckpointStorage(tmp_path / "c").storage_path == tmp_path / "c"


async def test_messages_of_a_checkpoint_of_ones_own_cannot_be_delivered() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=Takes("t"), checkpoint_storage=storage).build()
    message = WorkflowMessage(data="x", source_id="t")
    made = WorkflowCheckpoint(workflow.name, workflow.graph_signature_hash, messages={"t": [message]})
    with pytest.raises(WorkflowCheckpointException, match="was saved by a program, with messages in flight"):
        await workflow.run(checkpoint_id=await storage.save(made))


async def test_pieces_of_an_answer_are_shown_and_not_stored() -> None:
    storage = InMemoryCheckpointStorage()
    builder = WorkflowBuilder(name="poet", start_executor=agent("poet", "one two"), checkpoint_storage=storage)
    events = [event async for event in builder.build().run("go", stream=True) if event.type == "output"]
    assert [event.data.text for event in events] == ["one", "two"]
    checkpoints = await storage.native.list_checkpoints(workflow_name="poet")
    stored = [done.get("outputs", []) for checkpoint in checkpoints for done in checkpoint.position.get("done", [])]
    assert stored == [[]]
