"""Calls that are repeated with an idempotency key: one effect and one answer, from any server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from stepwell import Executor, SQLiteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, handler
from stepwell.admin import Examined, examine
from stepwell.server.api.repetition import CallKey
from stepwell.server.api.routes import OPERATIONS
from tests.server.clients import EVE, serving, with_token
from tests.server.flows import counting_down
from tests.server.processes import HEADERS, server
from tests.support.operating_runs import Order, asking, counting


class Breaks(Executor):
    @handler
    async def work(self, number: int, ctx: WorkflowContext[None, int]) -> None:
        raise ValueError("always")


def failing(storage: Any) -> Workflow:
    return WorkflowBuilder(name="failing", start_executor=Breaks("breaks"), checkpoint_storage=storage).build()


# Each operation that writes: its path, a body, and another one.
WRITES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "submit": ("/runs", {"workflow": "counting", "input": 1}, {"workflow": "counting", "input": 1, "run_id": "x"}),
    "respond": ("/runs/order/requests/refund-7/response", {"value": True}, {"value": False}),
    "cancel": ("/runs/order/cancel", {}, {"reason": "a mistake"}),
    "fork_run": ("/runs/numbers/fork", {"set": {"numbers": [7]}}, {"set": {"numbers": [8]}}),
    "restore_run": ("/runs/numbers/restore", {"number": 1}, {"number": 2}),
    "retry_runs": ("/retry", {"status": "failed"}, {"status": "cancelled"}),
    "prune_runs": ("/prune", {"keep_last": 1, "dry_run": False}, {"keep_last": 2, "dry_run": False}),
}


async def fill(storage: Any) -> None:
    await counting(storage).run(1, run_id="numbers")
    await asking(storage).run(Order(7, []), run_id="order")
    with pytest.raises(Exception, match="always"):
        await failing(storage).run(1, run_id="broken")


async def count_commits(storage: Any) -> dict[str, int]:
    return {run.run_id: run.number for run in await storage.list_runs()}


def test_the_table_names_every_operation_that_writes() -> None:
    assert WRITES.keys() == {one.name for one in OPERATIONS if one.writes}


async def check_who_did_it(client: httpx.AsyncClient) -> None:
    decisions = (await client.get("/api/v1/decisions", params={"by": "ada"})).json()["decisions"]
    assert {item["kind"] for item in decisions} >= {"started", "cancelled", "forked", "restored", "retried"}
    (request,) = (await client.get("/api/v1/requests", params={"run": "order"})).json()["requests"] or [{}]
    assert request.get("answered_by", "ada") == "ada"


async def test_a_repeated_call_has_one_effect_and_one_answer(everywhere: Any) -> None:
    storage = everywhere()
    # In memory there is one storage object only; everywhere else the second server has its own.
    other_storage = storage if type(storage).__name__.startswith("InMemory") else everywhere()
    await fill(storage)
    async with serving(storage, [counting(storage)]) as one, serving(other_storage, [counting(other_storage)]) as two:
        for name, (path, body, other_body) in WRITES.items():
            key = {"idempotency-key": name}
            if name == "prune_runs":  # what it deletes cannot say any more who did it
                await check_who_did_it(one)
            first = await one.post(f"/api/v1{path}", json=body, headers=key)
            assert first.is_success, (name, first.text)
            after = await count_commits(storage)
            again = await two.post(f"/api/v1{path}", json=body, headers=key)
            assert (again.status_code, again.content) == (first.status_code, first.content), name
            # The key stands for that request.
            other = await two.post(f"/api/v1{path}", json=other_body, headers=key)
            assert (other.status_code, "was used for another request" in other.json()["detail"]) == (422, True), name
            assert await count_commits(storage) == after, name
            assert (await two.post(f"/api/v1{path}", json=body, headers={**key, **with_token(EVE)})).status_code == 403
    *findings, examined = [finding async for finding in examine(storage)]
    assert findings == []  # no list, and no check, shows the keys
    assert isinstance(examined, Examined)
    assert examined.log_entries == 0
    await storage.close()
    await other_storage.close()


@pytest.mark.parametrize("name", [name for name in WRITES if name != "prune_runs"])
async def test_a_call_whose_server_died_before_it_answered_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The effect is there, and the answer is not kept: the worst moment to be killed."""
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    await fill(storage)
    path, body, _ = WRITES[name]
    key = {"idempotency-key": "k"}
    write = CallKey._write

    async def die(self: Any, entry: str, content: bytes) -> bool:
        if entry == "answer":
            raise ConnectionAbortedError
        return await write(self, entry, content)

    async with serving(storage, [counting(storage)]) as client:
        with monkeypatch.context() as patch:
            patch.setattr(CallKey, "_write", die)
            with pytest.raises(ConnectionAbortedError):
                await client.post(f"/api/v1{path}", json=body, headers=key)
        # Meanwhile the runs move on: others fail, and what was cancelled is wanted again.
        with pytest.raises(Exception, match="always"):
            await failing(storage).run(1, run_id="broken too")
        if name == "cancel":
            assert (await client.post("/api/v1/retry", json={"runs": ["order"]})).json()["runs"] == ["order"]
        after = await count_commits(storage)
        again = await client.post(f"/api/v1{path}", json=body, headers=key)
        assert again.is_success, again.text
        assert await count_commits(storage) == after
    await storage.close()


@pytest.mark.process
async def test_two_servers_and_a_restart_do_one_thing(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    async with SQLiteCheckpointStorage(store) as storage:
        await counting_down.run(1, run_id="numbers", checkpoint_storage=storage)
    with server(store) as one, server(store) as two:
        async with asyncio.timeout(60), httpx.AsyncClient(headers=HEADERS, timeout=30) as client:

            async def fork(address: str) -> httpx.Response:
                path = f"{address}/api/v1/runs/numbers/fork"
                return await client.post(path, json={"number": 1}, headers={"idempotency-key": "k"})

            answers = await asyncio.gather(*(fork(each.address) for each in (one, two) * 3))
            assert {answer.status_code for answer in answers} == {201}, [answer.text for answer in answers]
            await asyncio.to_thread(one.kill)
            await asyncio.to_thread(one.start)
            answers.append(await fork(one.address))
            assert len({answer.content for answer in answers}) == 1
            assert len((await client.get(f"{one.address}/api/v1/runs")).json()["runs"]) == 2
