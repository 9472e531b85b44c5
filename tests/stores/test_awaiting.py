"""A task that waits for a thread is woken when the work is done, and is cancelled when it should be."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from typing import Any

import pytest

from stepwell.stores.jobs import Awaited, wake_up


def in_a_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def finish(*all_of_them: Awaited[Any]) -> None:
    """What the thread does: each result is its place among them."""

    def work() -> None:
        for place, one in enumerate(all_of_them):
            one.set_result(place)
        wake_up(all_of_them)

    in_a_thread(work)


async def wait_for(one: Awaited[Any]) -> Any:
    return await one


async def asleep(one: Awaited[Any]) -> asyncio.Task[Any]:
    """A task that waits for it, and has had its turn."""
    task = asyncio.ensure_future(wait_for(one))
    await asyncio.sleep(0)
    return task


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_tasks_get_the_results_of_their_own_work() -> None:
    work: list[Awaited[Any]] = [Awaited() for _ in range(5)]
    tasks = [await asleep(one) for one in work]
    finish(*work)
    assert await asyncio.gather(*tasks) == [0, 1, 2, 3, 4]


async def test_what_was_done_before_anybody_waited_is_there() -> None:
    one: Awaited[int] = Awaited()
    finish(one)
    assert await one == 0


async def test_an_error_is_raised_where_it_is_awaited() -> None:
    one: Awaited[int] = Awaited(unbroken=True)
    task = await asleep(one)
    one.set_exception(OSError("no disk"))
    wake_up([one])
    with pytest.raises(OSError, match="no disk"):
        await task


async def test_a_task_is_woken_in_the_turn_in_which_the_loop_notices() -> None:
    one: Awaited[int] = Awaited()
    task = await asleep(one)
    finish(one)
    await asyncio.sleep(0)  # the loop notices when this turn has begun
    await asyncio.sleep(0)
    assert task.done()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_waits_until_unbroken_work_is_done(fails: bool) -> None:
    one: Awaited[int] = Awaited(unbroken=True)
    task = await asleep(one)
    task.cancel()
    await turns()
    assert not task.done()
    assert one.is_wanted
    one.set_exception(OSError()) if fails else one.set_result(1)
    wake_up([one])
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_before_the_task_waits_is_held_back_too() -> None:
    one: Awaited[int] = Awaited(unbroken=True)

    async def cancelled_first() -> int:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        return await one

    task = asyncio.ensure_future(cancelled_first())
    await turns()
    assert not task.done()
    finish(one)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_second_cancellation_waits_for_nothing_and_the_work_is_done_all_the_same() -> None:
    one: Awaited[int] = Awaited(unbroken=True)
    task = await asleep(one)
    task.cancel()
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.is_wanted
    finish(one)  # nobody is there to be woken
    await turns()


async def test_other_work_is_not_wanted_any_more_when_its_task_is_cancelled() -> None:
    one: Awaited[int] = Awaited()
    task = await asleep(one)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task
    assert not one.is_wanted
    finish(one)
    await turns()


async def test_a_time_limit_ends_when_the_work_is_done() -> None:
    one: Awaited[int] = Awaited(unbroken=True)

    async def limited() -> None:
        async with asyncio.timeout(0):
            await one

    task = asyncio.ensure_future(limited())
    await turns()
    assert not task.done()
    finish(one)
    with pytest.raises(TimeoutError):
        await task


def test_each_loop_wakes_its_own_and_a_closed_one_is_passed_over() -> None:
    async def begin() -> Awaited[Any]:
        return Awaited()

    closed, alive = asyncio.new_event_loop(), asyncio.new_event_loop()
    left: list[Awaited[Any]] = [closed.run_until_complete(begin()) for _ in range(2)]
    sleepers = [closed.create_task(wait_for(one)) for one in left]
    closed.run_until_complete(turns())
    closed.close()
    one = alive.run_until_complete(begin())
    task = alive.create_task(wait_for(one))
    alive.run_until_complete(turns())
    finish(*left, one)
    assert alive.run_until_complete(task) == 2
    alive.close()
    assert not any(task.done() for task in sleepers)
    for task in sleepers:
        task.get_coro().close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]


async def test_one_that_was_cancelled_does_not_keep_the_others_asleep() -> None:
    work: list[Awaited[Any]] = [Awaited() for _ in range(3)]
    tasks = [await asleep(one) for one in work]
    tasks[1].cancel()
    finish(*work)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert (found[0], type(found[1]), found[2]) == (0, asyncio.CancelledError, 2)


def test_a_loop_that_watches_no_files_wakes_its_tasks_too() -> None:
    class Loop(asyncio.SelectorEventLoop):
        def add_reader(self, *args: Any) -> None:  # type: ignore[override]
            raise NotImplementedError

        def remove_reader(self, fd: Any) -> bool:
            return True

    async def work() -> Any:
        done: list[Awaited[Any]] = [Awaited() for _ in range(3)]
        tasks = [await asleep(one) for one in done]
        finish(*done)
        return await asyncio.gather(*tasks)

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(work()) == [0, 1, 2]


def test_a_task_that_is_interrupted_does_not_keep_the_others_asleep() -> None:
    async def begin() -> list[Awaited[Any]]:
        return [Awaited() for _ in range(3)]

    async def interrupted(one: Awaited[Any]) -> None:
        await one
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    work = loop.run_until_complete(begin())
    first, *others = (loop.create_task((wait_for if n else interrupted)(one)) for n, one in enumerate(work))
    loop.run_until_complete(turns())
    finish(*work)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.wait(others))
    assert first.done()
    assert [loop.run_until_complete(asyncio.wait_for(task, 10)) for task in others] == [1, 2]
    assert isinstance(first.exception(), KeyboardInterrupt)
    loop.close()


def test_what_wakes_a_loop_is_closed_with_it() -> None:
    async def work() -> weakref.ref[Any]:
        one: Awaited[int] = Awaited()
        finish(one)
        await one
        return weakref.ref(asyncio.get_running_loop())

    before = len(os.listdir("/proc/self/fd"))
    loops = [asyncio.run(work()) for _ in range(20)]
    gc.collect()
    assert not any(loop() for loop in loops)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
