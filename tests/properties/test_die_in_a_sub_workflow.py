"""Three floors of workflows, with questions: wherever the process dies, they end the same, and nothing that was stored
runs again on any floor."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import (
    CheckpointMissing,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    persistent,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import idempotency_key
from stepwell.storage.lease import Owner
from stepwell.storage.port import Store
from stepwell.storage.stored_values import OpenedRun
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import Crash, CrashingStore, crash_everywhere
from stepwell.workflows import SubWorkflowRequestMessage, SubWorkflowResponseMessage
from tests.support.nesting import Ask, End, Ok, SixMethods, Start


class Witness:
    """Knows which handlers began, and whose outcomes are stored: those must not begin again."""

    def __init__(self) -> None:
        self.began: Counter[str] = Counter()
        self.stored: set[str] = set()

    def begin(self, name: str, ctx: WorkflowContext[Any, Any]) -> None:
        assert ctx.idempotency_key not in self.stored, f"{name} had finished, and began again"
        self.began[name] += 1

    def finished(self, run_id: str, deliveries: list[str]) -> None:
        self.stored |= {idempotency_key(run_id, 0, delivery) for delivery in deliveries}


class Mortal(CrashingStore):
    """A store that dies before or after its n-th write, of whatever kind. What it did write is witnessed."""

    def __init__(self, inner: Store, witness: Witness, at: int | None = None, *, after: bool = False) -> None:
        super().__init__(inner, at, after=after)
        self._witness = witness

    async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        async def witnessed() -> Any:
            result = await call()
            if name == "write_log":
                self._witness.finished(args[0], [args[2]])
            elif name == "append":
                done = json.loads(args[0].body).get("done", ())
                self._witness.finished(args[0].entry.run_id, [one["delivery"] for one in done])
            return result

        return await super().write(name, args, witnessed)


def cellar(witness: Witness) -> Workflow:
    """split → (left, right) → join, which asks, and asks again after a no."""

    @executor(id="split")
    async def split(text: str, ctx: WorkflowContext[str]) -> None:
        witness.begin("split", ctx)
        ctx.set_state("text", text)
        await ctx.send_message(text)

    def branch(name: str) -> Executor:
        @executor(id=name)
        async def work(text: str, ctx: WorkflowContext[str]) -> None:
            witness.begin(name, ctx)
            await asyncio.sleep(0)
            ctx.append_state("log", name)
            await ctx.send_message(f"{name} {text}")

        return work

    class Join(Executor):
        asked = persistent(0)

        @handler
        async def join(self, parts: list[str], ctx: WorkflowContext[None, str]) -> None:
            witness.begin("join", ctx)
            await ctx.yield_output(" and ".join(parts))
            await self._ask(ctx.get_state("text"), ctx)

        @response_handler
        async def said(self, question: Ask, answer: Ok, ctx: WorkflowContext[None, str]) -> None:
            witness.begin("said", ctx)
            await ctx.yield_output(f"{question.text} {answer.yes} {answer.by} {ctx.get_state('log')} {self.asked}")
            if not answer.yes:
                await self._ask(f"{question.text}, really", ctx)

        async def _ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            self.asked += 1
            await ctx.request_info(Ask(text), Ok)

    left, right = branch("left"), branch("right")
    builder = WorkflowBuilder(name="cellar", start_executor=split).add_fan_out_edges(split, [left, right])
    return builder.add_fan_in_edges([left, right], Join("join")).build()


def ground(witness: Witness, answers: bool) -> Workflow:
    """prepare → cellar → finish; a boss beside the cellar may answer what it asks."""

    @executor(id="prepare")
    async def prepare(text: str, ctx: WorkflowContext[str]) -> None:
        witness.begin("prepare", ctx)
        await ctx.send_message(f"<{text}>")

    @executor(id="boss")
    async def boss(question: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]) -> None:
        witness.begin("boss", ctx)
        answer = Ok(question.source_event.data.text.endswith("really"), "boss")
        await ctx.send_message(question.create_response(answer), target_id="cellar")

    @executor(id="finish")
    async def finish(text: str, ctx: WorkflowContext[None, str]) -> None:
        witness.begin("finish", ctx)
        await ctx.yield_output(f"[{text}]")

    below = WorkflowExecutor(cellar(witness), "cellar")
    builder = WorkflowBuilder(name="ground", start_executor=prepare).add_chain([prepare, below, finish])
    if answers:
        builder.add_edge(below, boss).add_edge(boss, below)
    return builder.build()


def house(storage: Any, witness: Witness, answers: bool) -> Workflow:
    """start, which sends each word → ground → end."""
    below = WorkflowExecutor(ground(witness, answers), "ground")
    builder = WorkflowBuilder(name="house", start_executor=Start("start"), checkpoint_storage=storage)
    return builder.add_edge("start", below).add_edge(below, End("end")).build()


WORDS = "a b"


async def live(build: Any, dying: Any, surviving: Any) -> list[str]:
    """From the input to the end; whoever dies is followed by another. Every question gets a no, then a yes."""
    storage = dying
    result = None
    while result is None or result.get_final_state() is not WorkflowRunState.IDLE:
        try:
            if result is None:
                result = await _begin(build(storage))
            else:
                asked = {event.request_id: event.data for event in result.get_request_info_events()}
                answers = {id: {"yes": ask.text.endswith("really"), "by": "me"} for id, ask in asked.items()}
                result = await build(storage).run(run_id="r", responses=answers)
        except Crash:
            assert storage is dying
            storage, result = surviving, None
    outputs: list[str] = result.get_outputs()
    return outputs


async def _begin(workflow: Workflow) -> Any:
    try:
        return await workflow.run(run_id="r")
    except CheckpointMissing:  # nothing is stored yet: whoever asked must ask again
        return await workflow.run(WORDS, run_id="r")


@pytest.fixture(params=["memory", "sqlite", "file"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = iter(range(10000))
    kinds = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / f"{next(made)}.db"),
        "file": lambda: FileStore(tmp_path / str(next(made))),
    }
    return kinds[request.param]


@pytest.mark.parametrize("answers", [False, True], ids=["asked outside", "answered beside"])
async def test_it_ends_the_same_wherever_it_dies_and_nothing_that_was_stored_runs_again(
    answers: bool, make_store: Any
) -> None:
    async def life(at: int | None, after: bool) -> tuple[list[str], Witness, int]:
        inner, witness = make_store(), Witness()
        mortal = Mortal(inner, witness, at, after=after)
        storages = BuiltInStorage(mortal), BuiltInStorage(Mortal(inner, witness))
        outputs = await live(lambda storage: house(storage, witness, answers), *storages)
        assert await storages[1].pending_requests() == []
        await storages[1].close()
        return outputs, witness, mortal.writes

    reference, witness, writes = await life(None, False)
    once = {"prepare": 2, "split": 2, "left": 2, "right": 2, "join": 2, "said": 4, "finish": 6}
    assert witness.began == once | ({"boss": 4} if answers else {})
    assert len(reference) == 6
    step = 1 if make_store is MemoryStore else 11  # a disk is slower; it is the same engine
    for at in range(1, writes + 1, step):
        for after in (False, True):
            outputs, seen, _ = await life(at, after)
            assert outputs == reference, f"died {'after' if after else 'before'} write {at}"
            again = seen.began - witness.began
            assert sum(again.values()) <= 4, f"died {'after' if after else 'before'} write {at}: {again}"


@pytest.mark.parametrize("answers", [False, True], ids=["asked outside", "answered beside"])
async def test_it_ends_the_same_with_six_methods_too(answers: bool) -> None:
    """Here a superstep that was cut off runs again as a whole, but on its own floor only."""

    class Mortals(SixMethods):
        def __init__(self, kept: dict[str, str], at: int | None = None, *, after: bool = False) -> None:
            super().__init__()
            self.kept, self._at, self._after, self.writes = kept, at, after, 0

        async def save(self, checkpoint: Any) -> str:
            self.writes += 1
            if self._at is not None and self.writes >= self._at and not (self._after and self.writes == self._at):
                raise Crash
            await super().save(checkpoint)
            if self.writes == self._at:
                raise Crash
            return str(checkpoint.checkpoint_id)

    async def life(at: int | None, after: bool) -> tuple[list[str], Counter[str], int]:
        kept, witness = dict[str, str](), Witness()
        mortal = Mortals(kept, at, after=after)
        outputs = await live(lambda storage: house(storage, witness, answers), mortal, Mortals(kept))
        return outputs, witness.began, mortal.writes

    reference, began, writes = await life(None, False)
    assert sum(began.values()) == (24 if answers else 20)
    for at in range(1, writes + 1, 3):
        for after in (False, True):
            outputs, seen, _ = await life(at, after)
            assert outputs == reference, f"died {'after' if after else 'before'} save {at}"
            assert sum((seen - began).values()) <= 8


async def test_the_tool_for_users_finds_nothing_on_any_floor() -> None:
    class Blind(Witness):
        def begin(self, name: str, ctx: WorkflowContext[Any, Any]) -> None:
            """The tool looks for itself."""

    def answer(event: Any) -> Any:
        return Ok(event.data.text.endswith("really"), "me")

    report = await crash_everywhere(house(None, Blind(), False), "a", answer=answer)
    assert report.crashes == 2 * report.writes


async def test_the_tool_for_users_sees_what_runs_again_inside() -> None:
    """A store that forgets what was remembered makes handlers of the inside run again."""

    class Forgetful(MemoryStore):
        async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
            return replace(await super().open(run_id, owner=owner, seconds=seconds), log=())

    class Blind(Witness):
        def begin(self, name: str, ctx: WorkflowContext[Any, Any]) -> None:
            """The tool looks for itself."""

    with pytest.raises(AssertionError, match="repeated what was durable"):
        await crash_everywhere(house(None, Blind(), True), "a", store=Forgetful)


async def test_a_fork_of_any_checkpoint_ends_the_same() -> None:
    witness, inner = Witness(), MemoryStore()
    storage = BuiltInStorage(inner)
    reference = await live(lambda storage: house(storage, witness, False), storage, storage)
    for n, checkpoint in enumerate(await storage.list_checkpoints(run_id="r")):
        workflow = house(storage, Witness(), False)
        result = await workflow.run(checkpoint_id=checkpoint.checkpoint_id, run_id=f"fork {n}")
        while result.get_final_state() is not WorkflowRunState.IDLE:
            asked = {event.request_id: event.data for event in result.get_request_info_events()}
            answers = {id: Ok(ask.text.endswith("really"), "me") for id, ask in asked.items()}
            result = await house(storage, Witness(), False).run(run_id=f"fork {n}", responses=answers)
        assert result.get_outputs() == reference, n
    assert (await house(storage, witness, False).run(run_id="r")).get_outputs() == reference
