"""A run that is killed between its agents goes on in a process that has only its definition, as it was stored."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from stepwell import CheckpointMissing, DefinitionError, Message, SQLiteCheckpointStorage
from stepwell.declarative import AgentWorkflow
from stepwell.declarative.definition_store import list_definitions, save_definition
from stepwell.storage.durable_files import safe_name
from tests.support.postgres_server import fresh_database

HERE = Path(__file__).parent


def run(script: str, root: Path, store: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / script), str(root), store]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.process
@pytest.mark.parametrize("kind", ["files", "sqlite", "postgres"])
def test_a_killed_run_is_resumed_from_its_stored_definition(tmp_path: Path, kind: str) -> None:
    with fresh_database() if kind == "postgres" else nullcontext(kind) as store:
        killed = run("begins.py", tmp_path, store)
        assert (killed.returncode, killed.stdout) == (9, "draft\n"), killed.stderr
        done = run("goes_on.py", tmp_path, store)
    assert done.stderr == ""
    assert done.stdout == "reviewed: all about kelp\n"
    assert (tmp_path / "drafted").read_text() == "x"
    assert (tmp_path / "store" / "definitions").is_dir() is (kind == "files")


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
    ((id, asked),) = (await built(storage).build().run("go", run_id="r")).requests.items()
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
    ((id, asked),) = (await workflow.run("go", run_id="r")).requests.items()
    with pytest.raises(DefinitionError, match="resume it with the program that built it"):
        await AgentWorkflow.of_run(storage, "r")
    with pytest.raises(DefinitionError, match="is a function of this program"):
        workflow.to_json()
    assert (await workflow.resume("r", responses={id: asked.approve()})).output == "<<go>>"


def test_a_definition_that_changed_is_kept_beside_the_older_one(tmp_path: Path) -> None:
    def build(timeout: float) -> Any:
        made = AgentWorkflow.create().with_name("kept").with_checkpointing().with_json_workflow_store(tmp_path)
        return made.add_agent("a", says, timeout=timeout).build()

    first, same, second = build(1), build(1), build(2)
    assert first.definition == same.definition
    assert AgentWorkflow.load(tmp_path, "kept").with_agents({"a": says}).build().definition == second.definition
    folder = tmp_path / "definitions" / "kept"
    texts = {path.read_text() for path in folder.iterdir() if path.name != "definition.json"}
    assert texts == {first.to_json(), second.to_json()}
    build(1)
    assert AgentWorkflow.load(tmp_path, "kept").with_agents({"a": says}).build().definition == first.definition
    assert len([*folder.iterdir()]) == 3


def test_hostile_names_of_definitions_stay_in_their_folder(tmp_path: Path) -> None:
    root = tmp_path / "in"
    names = ["../up", "..", "a/b", "A", "a", "ü", "x" * 3000, safe_name("a/b")]
    for name in names:
        save_definition(root, name, json.dumps({"name": name}))
    assert sorted(list_definitions(root)) == sorted(names)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert {path.parent.parent for path in root.rglob("*.json")} == {root / "definitions"}


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
