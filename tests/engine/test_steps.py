"""A step is done once: its result is remembered at once and recalled by its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    HandlerTimeout,
    RetryPolicy,
    StepFailed,
    StepOptions,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore

Body = Callable[[Any, Any], Any]


class Diary:
    """What was done. It is not data: as an argument of a step it is known by its type, however much is in it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def append(self, line: str) -> None:
        self.lines.append(line)


class Doer(Executor):
    """Does what a test gives it to do."""

    def __init__(self, body: Body, did: Any) -> None:
        super().__init__("doer")
        self.body, self.did = body, did

    @handler
    async def do(self, text: str, ctx: WorkflowContext[None, Any]) -> None:
        await ctx.yield_output(await self.body(ctx, self.did))


class PlainDoer(Executor):
    def __init__(self, body: Body, did: Any) -> None:
        super().__init__("doer")
        self.body, self.did = body, did

    @handler
    def do(self, text: str, ctx: WorkflowContext[None, Any]) -> None:
        ctx.yield_output(self.body(ctx, self.did))


def build(storage: Any, body: Any, did: Any, kind: Any = Doer) -> Workflow:
    return WorkflowBuilder(name="doing", start_executor=kind(body, did), checkpoint_storage=storage).build()


@dataclass
class Receipt:
    amount: int
    key: str


async def charge(amount: int, did: Diary, *, idempotency_key: str = "") -> Receipt:
    did.append(f"charge {amount}")
    return Receipt(amount, idempotency_key)


def count(did: Diary) -> int:
    did.append("count")
    return len(did.lines)


async def test_a_step_that_was_done_is_recalled_with_its_type(storage: Any) -> None:
    did = Diary()
    trouble = [ValueError("after the charge")]

    async def body(ctx: WorkflowContext, did: Diary) -> Any:
        receipt = await ctx.step("charge card", charge, 30, did)
        if trouble:
            raise trouble.pop()
        return receipt

    with pytest.raises(HandlerFailed):
        await build(storage, body, did).run("go", run_id="r")
    (receipt,) = (await build(storage, body, did).run(run_id="r")).get_outputs()
    assert isinstance(receipt, Receipt)
    assert receipt.amount == 30
    assert len(receipt.key) == 36
    assert did.lines == ["charge 30"]


async def test_names_may_repeat_and_plain_functions_run_in_threads(storage: Any) -> None:
    did = Diary()
    trouble = [ValueError("late")]

    async def body(ctx: WorkflowContext, did: Diary) -> Any:
        found = [await ctx.step("count", count, did) for _ in range(3)]
        if trouble:
            raise trouble.pop()
        return [*found, await ctx.step("count", count, did)]

    with pytest.raises(HandlerFailed):
        await build(storage, body, did).run("go", run_id="r")
    assert (await build(storage, body, did).run(run_id="r")).get_outputs() == [[1, 2, 3, 4]]
    assert did.lines == ["count"] * 4


async def test_a_plain_handler_gets_the_result_itself(storage: Any) -> None:
    did = Diary()
    trouble = [ValueError("late")]

    def body(ctx: Any, did: Diary) -> Any:
        found = ctx.step_sync("count", count, did), ctx.step_sync("charge", charge, 5, did).amount
        if trouble:
            raise trouble.pop()
        return list(found)

    with pytest.raises(HandlerFailed):
        await build(storage, body, did, PlainDoer).run("go", run_id="r")
    assert (await build(storage, body, did, PlainDoer).run(run_id="r")).get_outputs() == [[1, 5]]
    assert did.lines == ["count", "charge 5"]


async def test_steps_side_by_side_do_not_get_each_others_results(storage: Any) -> None:
    did: list[str] = []
    trouble = [ValueError("late")]

    async def slow(n: int) -> int:
        for _ in range(10 - n):
            await asyncio.sleep(0)
        did.append(str(n))
        return n

    async def body(ctx: WorkflowContext, did: list[str]) -> Any:
        found = await asyncio.gather(*(ctx.step("slow", slow, n) for n in range(5)))
        if trouble:
            raise trouble.pop()
        return list(found)

    with pytest.raises(HandlerFailed):
        await build(storage, body, did).run("go", run_id="r")
    assert (await build(storage, body, did).run(run_id="r")).get_outputs() == [[0, 1, 2, 3, 4]]
    assert sorted(did) == ["0", "1", "2", "3", "4"]


async def test_a_step_is_tried_again_as_its_policy_says_and_its_key_stays(storage: Any) -> None:
    keys: list[str] = []

    async def flaky(*, idempotency_key: str = "") -> str:
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("no line")
        return "done"

    async def body(ctx: WorkflowContext, did: list[str]) -> Any:
        return await ctx.step(StepOptions("flaky", retry=RetryPolicy(initial_interval=0)), flaky)

    result = await build(storage, body, []).run("go")
    assert result.get_outputs() == ["done"]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert [event.attempt for event in result if event.type == "executor_retrying"] == [1, 2]


async def test_keywords_of_a_function_may_be_named_as_options_of_its_step(storage: Any) -> None:
    def wash(*, retry: int, timeout: str, key: str, transaction: bool, name: str) -> list[Any]:
        return [retry, timeout, key, transaction, name]

    async def body(ctx: WorkflowContext, did: list[str]) -> Any:
        options = StepOptions("wash", timeout=60)
        return await ctx.step(options, wash, retry=3, timeout="none", key="k", transaction=True, name="n")

    assert (await build(storage, body, []).run("go")).get_outputs() == [[3, "none", "k", True, "n"]]


async def test_a_step_that_takes_too_long_is_stopped(storage: Any) -> None:
    async def body(ctx: WorkflowContext, did: list[str]) -> Any:
        return await ctx.step(StepOptions("wait", timeout=0.01), asyncio.Event().wait)

    with pytest.raises(HandlerTimeout, match="step 'wait' of 'doer'"):
        await build(storage, body, []).run("go")


async def test_an_error_is_remembered_if_that_was_asked_for(storage: Any) -> None:
    did: list[str] = []
    trouble = [RuntimeError("later")]

    async def refused() -> None:
        did.append("refused")
        raise LookupError("no such card", 7)

    async def body(ctx: WorkflowContext, did: list[str]) -> Any:
        try:
            await ctx.step(StepOptions("charge", remember=LookupError), refused)
        except LookupError as error:
            if trouble:
                raise trouble.pop() from error
            return list(error.args)

    with pytest.raises(HandlerFailed):
        await build(storage, body, did).run("go", run_id="r")
    assert (await build(storage, body, did).run(run_id="r")).get_outputs() == [["no such card", 7]]
    assert did == ["refused"]


async def test_a_remembered_error_that_the_code_names_no_more_says_what_it_was(storage: Any) -> None:
    class Gone(Exception):
        pass

    async def refused() -> None:
        raise Gone("away")

    kinds: list[Any] = [Gone, KeyError]

    async def body(ctx: WorkflowContext, did: list[str]) -> Any:
        await ctx.step(StepOptions("charge", remember=kinds.pop(0)), refused)

    with pytest.raises(HandlerFailed):
        await build(storage, body, []).run("go", run_id="r")
    with pytest.raises(StepFailed, match="had failed: Gone: away"):
        await build(storage, body, []).run(run_id="r")


async def test_a_result_may_be_changed_without_changing_what_is_recalled(storage: Any) -> None:
    trouble = [ValueError("late")]

    async def make() -> list[int]:
        return [1]

    async def body(ctx: WorkflowContext, did: list[str]) -> Any:
        found = await ctx.step("make", make)
        found.append(2)
        if trouble:
            raise trouble.pop()
        return found

    with pytest.raises(HandlerFailed):
        await build(storage, body, []).run("go", run_id="r")
    assert (await build(storage, body, []).run(run_id="r")).get_outputs() == [[1, 2]]


@pytest.mark.parametrize(("name", "function"), [("", count), (3, count), ("a", None), ("\ud800", count)])
async def test_a_step_needs_a_name_and_a_function(name: Any, function: Any) -> None:
    async def body(ctx: WorkflowContext, did: list[str]) -> Any:
        await ctx.step(name, function)

    with pytest.raises(HandlerFailed) as raised:
        await build(None, body, []).run("go")
    assert isinstance(raised.value.__cause__, (ValueError, TypeError))


async def test_wherever_it_dies_a_step_that_was_remembered_is_not_done_again() -> None:
    async def body(ctx: WorkflowContext, did: Diary) -> Any:
        total = 0
        for n in range(3):
            total += (await ctx.step("charge", charge, n, did)).amount
        return total

    for at in range(1, 8):
        for after in (False, True):
            inner, did = MemoryStore(), Diary()
            store = CrashingStore(inner, at, after=after)
            try:
                result = await build(BuiltInStorage(store), body, did).run("go", run_id="r")
            except Crash:
                done = [row.key for row in (await inner.open("r")).log if "/step/" in row.key]
                known, before = len(done), len(did.lines)
                result = await build(BuiltInStorage(inner), body, did).run("go", run_id="r")
                assert len(did.lines) - before <= 3 - known
            assert result.get_outputs() == [3]
