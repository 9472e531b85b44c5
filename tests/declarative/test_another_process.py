"""A run that is killed between its agents goes on in a process that has only its definition, as it was stored."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import CheckpointMissing, DefinitionError, Message, SQLiteCheckpointStorage
from holdfast.declarative import AgentWorkflow

HERE = Path(__file__).parent


def run(script: str, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, HERE / script, str(root)], capture_output=True, text=True, timeout=60)


def test_a_killed_run_is_resumed_from_its_stored_definition(tmp_path: Path) -> None:
    killed = run("begins.py", tmp_path)
    assert killed.returncode == 9
    assert killed.stdout == "draft\n"
    done = run("goes_on.py", tmp_path)
    assert done.stderr == ""
    assert done.stdout == "reviewed: all about kelp\n"
    assert (tmp_path / "drafted").read_text() == "x"
    assert (tmp_path / "store" / "definitions").is_dir()


async def says(messages: list[Message]) -> str:
    return f"<{messages[-1].text}>"


def built(storage: Any, **options: Any) -> Any:
    return (
        AgentWorkflow.create()
        .with_name("kept")
        .with_checkpointing()
        .with_workflow_store(storage)
        .add_agent("a", says, approval=True)
        .add_agent("b", "other")
        .from_("a")
        .to("b", **options)
        .with_agents({"other": says})
    )


async def test_the_definition_travels_with_the_run_on_any_storage(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    ((id, asked),) = (await built(storage).build().run("go", execution_id="r")).requests.items()
    found = await AgentWorkflow.of_run(storage, "r")
    with pytest.raises(DefinitionError, match="the agent 'a' is not bound") as caught:
        found.build()
    assert "'other' is not bound" in str(caught.value)
    workflow = found.with_agents({"a": says, "other": says}).build()
    assert (await workflow.resume("r", responses={id: asked.approve()})).output == "<<go>>"


async def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMissing, match="'nobody' is not stored"):
        await AgentWorkflow.of_run(SQLiteCheckpointStorage(tmp_path / "runs.db"), "nobody")


async def test_what_has_a_callable_can_be_resumed_only_by_the_program_that_built_it(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    workflow = built(storage, when=lambda values: True).build()
    ((id, asked),) = (await workflow.run("go", execution_id="r")).requests.items()
    with pytest.raises(DefinitionError, match="resume it with the program that built it"):
        await AgentWorkflow.of_run(storage, "r")
    with pytest.raises(DefinitionError, match="is a function of this program"):
        workflow.to_json()
    assert (await workflow.resume("r", responses={id: asked.approve()})).output == "<<go>>"


async def test_a_definition_is_found_by_its_name(tmp_path: Path) -> None:
    workflow = (
        AgentWorkflow.create()
        .with_name("Odd / name")
        .with_checkpointing()
        .with_json_workflow_store(tmp_path)
        .add_agent("a", says)
        .build()
    )
    assert (await workflow.run("go")).output == "<go>"
    again = AgentWorkflow.load(tmp_path, "Odd / name").with_agents({"a": says}).build()
    assert again.definition == workflow.definition
    with pytest.raises(FileNotFoundError, match="there are 'Odd / name'"):
        AgentWorkflow.load(tmp_path, "other")
