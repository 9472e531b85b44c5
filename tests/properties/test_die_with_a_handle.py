"""Whoever holds a run may die at any write: what was accepted is not lost, what was done is not done again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepwell import RequestError, WorkflowRunState
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import Crash, CrashingStore
from tests.support.held import Script, asking, counting

CANCELLED, IDLE = WorkflowRunState.CANCELLED, WorkflowRunState.IDLE
WAITING = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS

Life = Callable[[Any], Awaitable[Any]]
"""What a program does, with the storage it has."""


@pytest.fixture(params=["memory", "sqlite", "file"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = iter(range(1000))
    kinds = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / f"{next(made)}.db"),
        "file": lambda: FileStore(tmp_path / str(next(made))),
    }
    return kinds[request.param]


def lived(script: Script, life: Life, store: Any) -> bool:
    """Whether a program came to its end. What it had in the background ends with it."""

    async def live() -> bool:
        script.dies_with(store)
        try:
            await life(BuiltInStorage(store))
        except Crash:
            return False
        return True

    return asyncio.run(live())


def deaths(
    script: Script, before: Life, life: Callable[[list[str]], Life], make_store: Any
) -> Iterator[tuple[str, Any, list[str]]]:
    """Everywhere that a program may die: where it was, the store it left, and how far it says it came."""
    store = make_store()
    assert lived(script, before, store)
    dying = CrashingStore(store)
    assert lived(script, life([]), dying)
    assert dying.writes > 1
    for at in range(1, dying.writes + 1):
        for after in (False, True):
            store, came = make_store(), list[str]()
            assert lived(script, before, store)
            lived(script, life(came), CrashingStore(store, at, after=after))
            yield f"died {'after' if after else 'before'} write {at}", store, came


def test_an_answer_that_was_accepted_is_taken_in_and_handled_once(make_store: Any) -> None:
    script = Script()

    async def ask(storage: Any) -> None:
        script.ran.clear()
        await asking(storage, script).start("a", run_id="r").result()

    def answer(came: list[str]) -> Life:
        async def life(storage: Any) -> None:
            handle = asking(storage, script).attach("r", drive=True)
            await handle.respond({"a": True})
            came.append("accepted")
            await handle.result()

        return life

    async def survive(where: str, came: list[str], storage: Any) -> None:
        handle = asking(storage, script).attach("r", drive=True)
        if not came:
            with suppress(RequestError):  # it may have been accepted, only nobody was told
                await handle.respond({"a": True})
        assert (await handle.result()).get_outputs() == ["done a"], where
        assert await storage.pending_requests() == [], where
        assert await storage._store.pending_signals("r") == [], where

    for where, store, came in deaths(script, ask, answer, make_store):
        assert lived(script, partial(survive, where, came), store)
        assert script.ran[0] == "a"
        assert 1 <= script.ran.count("a True") <= 2, where  # again only if it died before that was stored


def test_an_input_that_was_accepted_is_taken_in_once(make_store: Any) -> None:
    script = Script()

    async def begin(storage: Any) -> None:
        await counting(storage, script, last=0).start(1, run_id="r").result()

    def send(came: list[str]) -> Life:
        async def life(storage: Any) -> None:
            handle = counting(storage, script, last=0).attach("r", drive=True)
            for number in (7, 8):
                await handle.send(number)
                came.append(str(number))
            await handle.result()

        return life

    async def survive(where: str, came: list[str], storage: Any) -> None:
        outputs = (await counting(storage, script, last=0).attach("r", drive=True).result()).get_outputs()
        assert outputs in ([1], [1, 7], [1, 7, 8]), where
        assert len(outputs) > len(came), where  # more, if it died before it was told

    for where, store, came in deaths(script, begin, send, make_store):
        assert lived(script, partial(survive, where, came), store)


@pytest.mark.parametrize("status", ["driven", "waiting"])
def test_a_run_whose_end_was_told_is_cancelled_and_what_finished_is_not_run_again(make_store: Any, status: str) -> None:
    async def nothing(storage: Any) -> None: ...

    script = Script()
    build = counting if status == "driven" else asking
    message: Any = 1 if status == "driven" else "a"

    def stop(came: list[str]) -> Life:
        async def life(storage: Any) -> None:
            script.ran.clear()
            script.forget()
            gate = script.hold(3)
            handle = build(storage, script).start(message, run_id="r")
            if status == "driven":
                await asyncio.wait(
                    [asyncio.ensure_future(handle.result()), asyncio.ensure_future(gate.reached.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            else:
                await handle.result()
            assert await handle.cancel() is CANCELLED
            came.append("cancelled")

        return life

    async def survive(where: str, came: list[str], storage: Any) -> None:
        script.forget()
        again = build(storage, script)
        committed = await storage._store.run("r")
        if came:
            assert await again.attach("r", drive=True).status() is CANCELLED, where
        handle = again.start(message, run_id="r")  # on purpose
        result = await handle.result()
        expected = [1, 2, 3, 4] if status == "driven" else []
        assert result.get_outputs() == expected, where
        assert result.get_final_state() is (IDLE if status == "driven" else WAITING), where
        assert len(script.ran) - len(set(script.ran)) <= 1, where  # the one that was under way
        assert committed is None or committed.number < 1 or script.ran.count(message) == 1, where

    for where, store, came in deaths(script, nothing, stop, make_store):
        assert lived(script, partial(survive, where, came), store)


def test_a_run_that_was_moved_back_is_moved_back_once(make_store: Any) -> None:
    script = Script()

    async def begin(storage: Any) -> None:
        await counting(storage, script).start(1, run_id="r").result()

    def restore(came: list[str]) -> Life:
        async def life(storage: Any) -> None:
            handle = counting(storage, script).attach("r", drive=True)
            await handle.restore((await handle.checkpoints())[2])
            came.append("moved back")
            await handle.result()

        return life

    async def survive(where: str, came: list[str], storage: Any) -> None:
        handle = counting(storage, script).attach("r", drive=True)
        assert (await handle.result()).get_outputs() == [1, 2, 3, 4], where
        moved = [event.type for event in await storage.event_history("r")].count("restored")
        assert moved in ((1,) if came else (0, 1)), where
        await handle.restore((await handle.checkpoints())[1])
        assert (await handle.result()).get_outputs() == [1, 2, 3, 4], where
        ids = [info.checkpoint_id for info in await handle.checkpoints()]
        assert len(ids) == len(set(ids)), where

    for where, store, came in deaths(script, begin, restore, make_store):
        assert lived(script, partial(survive, where, came), store)


def test_a_question_that_is_open_again_takes_another_answer_wherever_it_died(make_store: Any) -> None:
    script = Script()

    async def ask(storage: Any) -> None:
        handle = asking(storage, script).start("a", run_id="r")
        await handle.result()
        await handle.respond({"a": True})
        await handle.result()

    def restore(came: list[str]) -> Life:
        async def life(storage: Any) -> None:
            handle = asking(storage, script).attach("r", drive=True)
            await handle.restore((await handle.checkpoints())[1])
            came.append("moved back")
            await handle.respond({"a": False})
            came.append("answered")
            await handle.result()

        return life

    async def survive(where: str, came: list[str], storage: Any) -> None:
        handle = asking(storage, script).attach("r", drive=True)
        if not came and await handle.status() is IDLE:
            await handle.restore((await handle.checkpoints())[1])
        if "answered" not in came:
            with suppress(RequestError):  # it may have been accepted, only nobody was told
                await handle.respond({"a": False})
        result = await handle.result()
        assert [event.request_id for event in result.get_request_info_events()] == ["a?"], where
        assert [one.request_id for one in await storage.pending_requests()] == ["a?"], where
        assert result.get_outputs() == [], where

    for where, store, came in deaths(script, ask, restore, make_store):
        assert lived(script, partial(survive, where, came), store)


def test_the_wish_to_stop_a_run_that_another_drives_is_left_or_it_is_not(make_store: Any) -> None:
    """The program that wants it to stop dies at its one write; the one that drives obeys what it finds."""
    for after in (False, True):
        store, script, other = make_store(), Script(), Script()

        async def both(store: Any = store, script: Script = script, other: Script = other, after: bool = after) -> Any:
            gate = script.hold(2)
            driver = counting(BuiltInStorage(store), script).start(1, run_id="r")
            await gate.reached.wait()
            stopper = counting(BuiltInStorage(CrashingStore(store, 1, after=after)), other)
            with pytest.raises(Crash):
                await stopper.attach("r", drive=True).cancel()
            if not after:
                script.let_go()
            return (await driver.result()).get_final_state()

        assert asyncio.run(both()) is (CANCELLED if after else IDLE)
        assert script.ran == ([1, 2] if after else [1, 2, 3, 4])
