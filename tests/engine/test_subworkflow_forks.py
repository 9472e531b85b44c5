"""A fork of a run forks the runs inside it that are open, and a checkpoint goes on elsewhere if theirs go with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    CheckpointMissing,
    Executor,
    FileCheckpointStorage,
    HandlerFailed,
    InMemoryCheckpointStorage,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)
from stepwell.workflows import SubWorkflowRequestMessage, SubWorkflowResponseMessage
from tests.support.nesting import IDLE, WAITING, Asker, Book, End, Ok, SixMethods, alone, around, asks, deep, ids


@pytest.fixture(params=["memory", "sqlite", "file", "six methods"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Every way to keep a run over a restart."""
    made: dict[str, Callable[[], Any]] = {
        "memory": InMemoryCheckpointStorage,
        "sqlite": lambda: SQLiteCheckpointStorage(tmp_path / "runs.db"),
        "file": lambda: FileCheckpointStorage(tmp_path),
        "six methods": SixMethods,
    }
    return made[request.param]()


async def head_of(storage: Any, name: str = "outer") -> str:
    """The newest checkpoint of the only run of a workflow."""
    latest = await storage.get_latest(workflow_name=name)
    return str(latest.checkpoint_id)


@pytest.mark.parametrize("floors", [1, 3])
async def test_a_fork_and_the_original_are_answered_each_for_itself(floors: int, kept: Any) -> None:
    def build() -> Workflow:
        return deep(alone(Asker()), floors, kept)

    (id,) = ids(await build().run("a", run_id="r"))
    here = await head_of(kept)
    forked = await build().run(checkpoint_id=here, run_id="fork")
    assert (forked.get_final_state(), ids(forked)) == (WAITING, [id])
    again = asks(await build().run(run_id="fork", responses={id: Ok(False)}))
    done = await build().run(run_id="r", responses={id: Ok(True)})
    assert (done.get_outputs(), done.get_final_state()) == (["saw a", "a: True"], IDLE)
    done = await build().run(run_id="fork", responses={again[0].request_id: Ok(True)})
    assert done.get_outputs() == ["saw a", "a: False", "a again: True"]
    assert (await build().run(run_id="r")).get_outputs() == ["saw a", "a: True"]


async def test_a_fork_of_an_older_checkpoint_is_open_where_the_original_was(kept: Any) -> None:
    """The original went on long ago; the run inside is forked at what was recorded, not where it is now."""
    book = Book()

    def build() -> Workflow:
        return deep(alone(Asker(book)), 2, kept)

    (id,) = ids(await build().run("a", run_id="r"))
    here = await head_of(kept)
    second = asks(await build().run(run_id="r", responses={id: Ok(False)}))
    await build().run(run_id="r", responses={second[0].request_id: Ok(True)})
    done = await build().run(checkpoint_id=here, run_id="fork", responses={id: Ok(True)})
    assert (done.get_outputs(), done.get_final_state()) == (["saw a", "a: True"], IDLE)
    assert book.lines == ["ask a", "said a False", "said a again True", "said a True"]


@pytest.mark.long
async def test_a_fork_after_one_of_two_answers_asks_only_the_other(kept: Any) -> None:
    class Survey(Executor):
        @handler
        async def ask(self, names: str, ctx: WorkflowContext[None, str]) -> None:
            for name in names.split(","):
                await ctx.request_info(name, bool, request_id=name)

        @response_handler
        async def said(self, name: str, answer: bool, ctx: WorkflowContext[None, str]) -> None:
            await ctx.yield_output(f"{name}: {answer}")

    def build() -> Workflow:
        return deep(alone(Survey("survey")), 2, kept)

    await build().run("tea,milk", run_id="r")
    before = await head_of(kept)
    await build().run(run_id="r", responses={"tea": True})
    between = await head_of(kept)
    forked = await build().run(checkpoint_id=between, run_id="fork")
    assert ids(forked) == ["milk"]
    assert (await build().run(run_id="fork", responses={"milk": False})).get_outputs() == ["tea: True", "milk: False"]
    assert (await build().run(run_id="r", responses={"milk": True})).get_outputs() == ["tea: True", "milk: True"]
    early = await build().run(checkpoint_id=before, run_id="early", responses={"milk": False, "tea": False})
    assert sorted(early.get_outputs()) == ["milk: False", "tea: False"]


async def test_a_fork_of_a_fork_goes_on_for_itself(kept: Any) -> None:
    def build() -> Workflow:
        return around(alone(Asker()), kept)

    (id,) = ids(await build().run("a", run_id="r"))
    here = await head_of(kept)
    await build().run(checkpoint_id=here, run_id="fork")
    forked = await _head_of_run(kept, "fork")
    (again,) = asks(await build().run(run_id="fork", responses={id: Ok(False)}))
    await build().run(checkpoint_id=forked, run_id="fork of fork")
    later = await _head_of_run(kept, "fork")
    done = await build().run(checkpoint_id=later, run_id="later", responses={again.request_id: Ok(True, "later")})
    assert done.get_outputs() == ["saw a", "a: False", "a again: True"]
    done = await build().run(run_id="fork of fork", responses={id: Ok(True)})
    assert done.get_outputs() == ["saw a", "a: True"]
    done = await build().run(run_id="fork", responses={again.request_id: Ok(True)})
    assert done.get_outputs() == ["saw a", "a: False", "a again: True"]


async def _head_of_run(storage: Any, run_id: str) -> str:
    found = [one for one in await storage.list_checkpoints(workflow_name="outer") if one.run_id == run_id]
    return str(found[-1].checkpoint_id)


async def test_a_fork_from_before_the_call_makes_the_call_itself(storage: Any) -> None:
    book = Book()
    (id,) = ids(await around(alone(Asker(book)), storage).run("a", run_id="r"))
    first, *_ = await storage.list_checkpoint_ids(run_id="r")
    forked = await around(alone(Asker(book)), storage).run(checkpoint_id=first, run_id="fork")
    (other,) = ids(forked)
    assert other != id
    await around(alone(Asker(book)), storage).run(run_id="fork", responses={other: Ok(True)})
    done = await around(alone(Asker(book)), storage).run(run_id="r", responses={id: Ok(True)})
    assert done.get_outputs() == ["saw a", "a: True"]
    assert book.lines == ["ask a", "ask a", "said a True", "said a True"]


async def test_a_fork_that_fails_inside_goes_on_inside_its_own(storage: Any) -> None:
    book, broken = Book(), [True]

    class Shaky(Asker):
        @response_handler
        async def said(self, question: Any, answer: Ok, ctx: WorkflowContext[str, str]) -> None:
            book.note(answer.by)
            if broken and answer.by == "fork":
                raise ValueError("not yet")
            await ctx.yield_output(answer.by)

    def build() -> Workflow:
        return deep(alone(Shaky(book)), 2, storage)

    (id,) = ids(await build().run("a", run_id="r"))
    here = await head_of(storage)
    await build().run(run_id="r", responses={id: Ok(True, "original")})
    with pytest.raises(HandlerFailed, match="not yet"):
        await build().run(checkpoint_id=here, run_id="fork", responses={id: Ok(True, "fork")})
    broken.clear()
    assert (await build().run(run_id="fork")).get_outputs() == ["saw a", "fork"]
    assert (await build().run(run_id="r")).get_outputs() == ["saw a", "original"]
    assert book.lines == ["ask a", "original", "fork", "fork"]


@pytest.mark.parametrize("floors", [1, 3])
async def test_a_run_that_is_moved_back_asks_and_is_answered_anew(floors: int, storage: Any) -> None:
    book = Book()
    handle = deep(alone(Asker(book)), floors, storage).start("a", run_id="r")
    (id,) = ids(await handle.result())
    here = (await handle.checkpoints())[-1]
    await handle.respond({id: Ok(False)})
    await handle.result()
    await deep(alone(Asker(book)), floors, storage).attach("r", drive=True).restore(here)
    result = await handle.result()
    assert [event.request_id for event in result.get_request_info_events()][-1] == id
    assert [one.request_id for one in await storage.pending_requests()] == [id]
    await handle.respond({id: Ok(True)})
    assert (await handle.result()).get_outputs() == ["saw a", "a: True"]
    assert await handle.status() is IDLE
    assert book.lines == ["ask a", "said a False", "said a True"]


async def test_moved_back_twice_it_is_open_at_the_same_place_again(storage: Any) -> None:
    handle = around(alone(Asker()), storage).start("a", run_id="r")
    (id,) = ids(await handle.result())
    here = (await handle.checkpoints())[-1]
    for answer in (True, False, True):
        await handle.respond({id: Ok(answer)})
        assert (await handle.result()).get_outputs() == ["saw a", f"a: {answer}"]
        await handle.restore(here)
    await handle.respond({id: Ok(True)})
    assert (await handle.result()).get_outputs() == ["saw a", "a: True"]


async def test_a_fork_is_answered_by_an_executor_beside_it(storage: Any) -> None:
    """A fork made while the question is on its way to whoever answers it."""
    answers = iter([False, True, True])

    @executor(id="boss")
    async def boss(question: SubWorkflowRequestMessage) -> SubWorkflowResponseMessage:
        return question.create_response(Ok(next(answers)))

    sub = WorkflowExecutor(alone(Asker()), "sub")
    builder = WorkflowBuilder(name="outer", start_executor=sub, checkpoint_storage=storage)
    workflow = builder.add_edge(sub, boss).add_edge(boss, sub).add_edge(sub, End("end")).build()
    assert (await workflow.run("a", run_id="r")).get_outputs() == ["saw a", "a: False", "a again: True"]
    asked = (await storage.list_checkpoint_ids(run_id="r"))[1]
    assert (await workflow.run(checkpoint_id=asked, run_id="fork")).get_outputs() == ["saw a", "a: True"]
    assert (await workflow.run(run_id="r")).get_outputs() == ["saw a", "a: False", "a again: True"]


# ------------------------------------------------------------------------------------- taken somewhere else


async def copied(storage: Any, run_ids: list[str] | None = None) -> InMemoryCheckpointStorage:
    """Another storage with the same checkpoints, as JSON text."""
    elsewhere = InMemoryCheckpointStorage()
    for checkpoint in await storage.list_checkpoints():
        if run_ids is None or checkpoint.run_id in run_ids:
            text = json.dumps(checkpoint.to_dict())
            await elsewhere.save(WorkflowCheckpoint.from_dict(json.loads(text)))
    return elsewhere


@pytest.mark.parametrize("floors", [1, 3])
async def test_a_run_with_open_runs_inside_goes_on_in_another_storage(floors: int, storage: Any) -> None:
    (one, two) = ids(await deep(alone(Asker()), floors, storage).run("a b", run_id="r"))
    await deep(alone(Asker()), floors, storage).run(run_id="r", responses={one: Ok(True)})
    elsewhere = await copied(storage)
    assert [(one.run_id, one.request_id) for one in await elsewhere.pending_requests()] == [("r", two)]
    done = await deep(alone(Asker()), floors, elsewhere).run(run_id="r", responses={two: Ok(True)})
    assert done.get_outputs() == ["saw a", "saw b", "a: True", "b: True"]


async def test_without_the_runs_inside_it_says_what_is_missing_and_goes_on_once_it_is_there(storage: Any) -> None:
    result = await around(alone(Asker()), storage).run("a", run_id="r")
    (id,) = ids(result)
    (inside,) = {event.run_id for event in result if event.path}
    elsewhere = await copied(storage, ["r"])
    with pytest.raises(CheckpointMissing, match=f"run '{inside}' inside 'sub'.* is not in this storage"):
        await around(alone(Asker()), elsewhere).run(run_id="r", responses={id: Ok(True)})
    for checkpoint in await storage.list_checkpoints(run_id=inside):
        await elsewhere.save(checkpoint)
    assert (await around(alone(Asker()), elsewhere).run(run_id="r")).get_outputs() == ["saw a", "a: True"]


async def test_an_answer_on_its_way_in_is_still_there_after_a_copy(storage: Any) -> None:
    """The checkpoint holds the answer as a message; which run inside asked travels with it."""
    broken = [True]

    class Shaky(Asker):
        @response_handler
        async def said(self, question: Any, answer: Ok, ctx: WorkflowContext[str, str]) -> None:
            if broken:
                raise ValueError("not yet")
            await ctx.yield_output(f"{answer.yes}")

    (id,) = ids(await around(alone(Shaky()), storage).run("a", run_id="r"))
    with pytest.raises(HandlerFailed, match="not yet"):
        await around(alone(Shaky()), storage).run(run_id="r", responses={id: Ok(True)})
    broken.clear()
    elsewhere = await copied(storage)
    assert (await around(alone(Shaky()), elsewhere).run(run_id="r")).get_outputs() == ["saw a", "True"]
