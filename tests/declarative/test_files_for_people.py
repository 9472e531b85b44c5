"""Wrong keys get the right hint; values, folders and results are where people look for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    DefinitionError,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    executor,
)
from stepwell.agents import ScriptedAgent
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.declarative import AgentWorkflow, Approval, JsonTranscriptStore, from_data


@pytest.mark.parametrize(
    ("path", "key", "value", "hint"),
    [
        ("node", "output", "Ticket", "write `output_types: [Ticket]` and `output_mode: structured`"),
        ("node", "output", ["Ticket", "Bill"], "write `output_types: [Ticket, Bill]` and `output_mode: union`"),
        ("node", "output", "handoff", "write `output_mode: handoff`"),
        ("node", "output", {"a": 1}, "did you mean `output_types` or `output_mode`?"),
        ("node", "prompt", "Be kind", "did you mean `instructions`?"),
        ("node", "retries", 3, "did you mean `retry`?"),
        ("node", "timout", 3, "did you mean `timeout`?"),
        ("edge", "condition", {}, "did you mean `when`?"),
        ("edge", "source", "a", "did you mean `from`?"),
        ("retry", "max_attempts", 3, "did you mean `attempts`?"),
        ("approval", "question", "?", "did you mean `message`?"),
        ("definition", "agents", [], "did you mean `nodes`?"),
    ],
)
def test_a_wrong_key_gets_the_right_hint(path: str, key: str, value: Any, hint: str) -> None:
    node: dict[str, Any] = {"id": "a", "retry": {}, "approval": {}}
    edge: dict[str, Any] = {"from": "a", "to": "a"}
    data: dict[str, Any] = {"format": 1, "name": "x", "nodes": [node], "edges": [edge]}
    records = {"definition": data, "node": node, "edge": edge, "retry": node["retry"], "approval": node["approval"]}
    records[path][key] = value
    with pytest.raises(DefinitionError) as caught:
        from_data(data)
    assert [problem for problem in caught.value.problems if "unknown key" in problem] == [
        problem for problem in caught.value.problems if problem.endswith(f"has an unknown key {key!r}: {hint}")
    ]


def team(**options: Any) -> AgentWorkflow:
    builder = AgentWorkflow.create().with_name("team").add_agent("write", ScriptedAgent("write", ["a text"]))
    builder.add_agent("check", ScriptedAgent("check", ["fine"]), approval=Approval(message="Is it?"))
    builder.from_("write").to("check")
    return builder


@pytest.mark.parametrize("store", ["none", "memory", "folder"])
async def test_values_are_there_while_a_run_waits(store: str, tmp_path: Path) -> None:
    builder = team()
    if store != "none":
        builder = builder.with_checkpointing()
    if store == "folder":
        builder = builder.with_json_workflow_store(str(tmp_path / "store"))
    workflow = builder.build()
    result = await workflow.run("go", run_id="r")
    assert result.output is None
    assert result.values == {"input": "go", "write": "a text"}
    (request,) = result.requests.values()
    html = result._repr_html_()
    assert html.startswith("<p><b>waiting</b> · run <code>r</code></p><div><svg")
    assert "check: needs an answer." in html
    assert "write: ran once." in html
    (id,) = result.requests
    if store != "none":
        again = await workflow.resume("r")
        assert again.values == {"input": "go", "write": "a text"}
    stored = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(result))
    assert stored == result
    assert stored._repr_html_() == html
    assert result.statuses == {"write": "succeeded", "check": "running"}
    done = await workflow.resume("r", responses={id: request.approve()})
    assert done.values == {"input": "go", "write": "a text", "check": "fine"}
    assert "<pre>&#x27;fine&#x27;</pre><div><svg" in done._repr_html_()


async def test_a_folder_may_be_a_string_wherever_a_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workflow = team().with_checkpointing().with_json_workflow_store("store").with_transcript_store("talk").build()
    result = await workflow.run("go", run_id="r")
    for store in ("store", f".{os.sep}store", str(tmp_path / "store"), tmp_path / "store"):
        found = await AgentWorkflow.of_run(store, "r")
        agents = {"write": ScriptedAgent("write", []), "check": ScriptedAgent("check", [])}
        assert (await found.with_agents(agents).build().resume("r")).values == result.values
    assert AgentWorkflow.load("store", "team").with_agents(agents).build().definition.name == "team"
    for kind in (FileCheckpointStorage, JsonTranscriptStore):
        kind("some folder")
    SQLiteCheckpointStorage("runs.db")


@executor(id="echo")
async def echo(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(text)


async def test_a_workflow_takes_a_folder_as_its_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await WorkflowBuilder(name="echo", start_executor=echo, checkpoint_storage="./runs").build().run("a", run_id="r")
    other = WorkflowBuilder(name="echo", start_executor=echo).build()
    for folder in ("runs", "./runs", tmp_path / "runs", str(tmp_path / "runs")):
        assert (await other.run(run_id="r", checkpoint_storage=folder)).get_outputs() == ["a"]
    agents = team().with_checkpointing().with_workflow_store("./team").build()
    assert isinstance(agents.storage, FileCheckpointStorage)
    with pytest.raises(DefinitionError, match=r"there is no storage called 'defualt'; pass .*, such as './defualt'"):
        WorkflowBuilder(start_executor=echo, checkpoint_storage="defualt").build()
    assert not (tmp_path / "defualt").exists()


def test_a_storage_object_is_still_a_storage() -> None:
    storage = InMemoryCheckpointStorage()
    assert team().with_checkpointing().with_workflow_store(storage).build().storage is storage
