"""`checkpoint_storage="default"`: one SQLite file, picked in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell import DefinitionError, SQLiteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor


def build(storage: str | None) -> Workflow:
    @executor(id="echo")
    async def echo(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text)

    return WorkflowBuilder(name="echo", start_executor=echo, checkpoint_storage=storage).build()


async def test_the_default_is_a_sqlite_file_in_the_home_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_HOME", str(tmp_path / "home"))
    await build("default").run("a", run_id="r")
    assert (await build(None).run(run_id="r", checkpoint_storage="default")).get_outputs() == ["a"]
    latest = await SQLiteCheckpointStorage(tmp_path / "home" / "runs.db").get_latest(run_id="r")
    assert latest is not None


async def test_without_a_home_it_lies_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPWELL_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    await build("default").run("a", run_id="r")
    assert (tmp_path / ".stepwell" / "runs.db").exists()


async def test_checkpointing_is_off_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await build(None).run("a", run_id="r")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_means_no_storage_is_refused() -> None:
    with pytest.raises(DefinitionError, match="there is no storage called 'postgres'"):
        build("postgres")
