"""The HTTP API: what it answers, and what is stored then."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepwell import AgentExecutor, SQLiteCheckpointStorage, WorkflowBuilder
from stepwell.admin import describe_run, import_run
from stepwell.agents import ScriptedAgent
from stepwell.server.api import runs
from stepwell.server.api.routes import OPERATIONS
from tests.server.clients import BOB, DOCUMENT, EVE, IDENTITIES, serving, with_token
from tests.support.operating_runs import Desk, Order, asking, counting


async def drive(storage: Any, run_id: str) -> None:
    """Drive a run with the workflow that it belongs to."""
    run = await storage.get_run(run_id)
    workflow = asking(storage) if run.workflow_name == "refunds" else counting(storage)
    await workflow.run(run_id=run_id)


async def test_a_run_is_started_seen_answered_and_completed(storage: Any) -> None:
    async with serving(storage, [asking(storage)]) as client:
        order = {
            "workflow": "refunds",
            "input": {"id": 7, "lines": ["a hat"]},
            "run_id": "hat/7",
            "tags": {"s": "N"},
        }
        submitted = await client.post("/api/v1/runs", json=order)
        assert submitted.status_code == 201
        answer = submitted.json()
        assert answer["run_id"] == "hat/7"
        assert answer["driver"]["is_driven"] is False
        assert answer["driver"]["command"] == ["stepwell", "worker", "MODULE:WORKFLOW"]
        assert (await client.post("/api/v1/runs", json=order)).json()["run_id"] == "hat/7"  # nothing changes
        listed = (await client.get("/api/v1/runs")).json()["runs"]
        assert [(run["run_id"], run["status"], run["tags"]) for run in listed] == [("hat/7", "queued", {"s": "N"})]

        await drive(storage, "hat/7")
        (request,) = (await client.get("/api/v1/requests")).json()["requests"]
        assert (request["run_id"], request["request_id"]) == ("hat/7", "refund-7")
        assert request["data"] == {"id": 7, "lines": ["a hat"]}
        respond = "/api/v1/runs/hat%2F7/requests/refund-7/response"
        refused = await client.post(respond, json={"value": "maybe"})
        assert refused.status_code == 422
        assert '"maybe" is not a boolean' in refused.json()["detail"]
        assert refused.json()["errors"] == [{"path": "", "message": '"maybe" is not a boolean'}]
        responded = (await client.post(respond, json={"value": True, "comment": "yes"})).json()
        assert responded["by"] == "ada"
        (request,) = (await client.get("/api/v1/requests", params={"run": "hat/7"})).json()["requests"]
        assert (request["answered"], request["answered_by"]) == (True, "ada")

        await drive(storage, "hat/7")
        events = (await client.get("/api/v1/runs/hat%2F7/events")).json()["events"]
        assert [event["by"] for event in events if event["type"] == "request_answered"] == ["ada"]
        assert [event["data"] for event in events if event["type"] == "output"] == ["a hat: refunded"]
        # The same answer of the same person is a repetition, even after it was applied; another one is not.
        assert (await client.post(respond, json={"value": True})).status_code == 200
        late = await client.post(respond, json={"value": False})
        assert late.status_code == 409
        assert "answered already by 'ada'" in late.json()["detail"]


async def test_the_same_key_starts_one_run(storage: Any) -> None:
    async with serving(storage, [counting(storage)]) as client:
        key = {"idempotency-key": "morning"}
        runs = [
            (await client.post("/api/v1/runs", json={"workflow": "counting", "input": 1}, headers=key)).json()["run_id"]
            for _ in range(2)
        ]
        assert runs[0] == runs[1]
        other = await client.post("/api/v1/runs", json={"workflow": "counting", "input": 2}, headers=key)
        assert (other.status_code, other.json()["type"]) == (422, "RequestRefused")
        assert len((await client.get("/api/v1/runs")).json()["runs"]) == 1
        unknown = await client.post("/api/v1/runs", json={"workflow": "sums", "input": 1})
        assert unknown.status_code == 404
        assert "'counting'" in unknown.json()["detail"]
        wrong = await client.post("/api/v1/runs", json={"workflow": "counting", "input": "one"})
        assert wrong.status_code == 422


async def test_runs_of_any_program_are_moved_without_its_code(storage: Any) -> None:
    await counting(storage).run(1, run_id="numbers")
    async with serving(storage) as client:
        state = (await client.get("/api/v1/runs/numbers/state")).json()
        assert state["state"]["numbers"] == [1, 2, 3]
        early = (await client.get("/api/v1/runs/numbers/state", params={"at": 1})).json()
        assert early["state"]["numbers"] == [1]
        checkpoints = (await client.get("/api/v1/runs/numbers/checkpoints", params={"limit": 2})).json()
        assert [item["number"] for item in checkpoints["checkpoints"]] == [3, 2]
        older = await client.get("/api/v1/runs/numbers/checkpoints", params={"before": checkpoints["next"]})
        assert [item["number"] for item in older.json()["checkpoints"]] == [1, 0]
        difference = (await client.get("/api/v1/diff", params={"before": "numbers@1", "after": "numbers@2"})).json()
        added = {"path": "/state/numbers/1", "where": "state.numbers[1]", "kind": "added", "before": None, "after": 2}
        assert added in difference["changes"]

        order = {"number": 1, "set": {"numbers": [7]}, "tags": {"why": "test"}}
        forked = [
            (await client.post("/api/v1/runs/numbers/fork", json=order, headers={"idempotency-key": "k"})).json()
            for _ in range(2)
        ]
        assert forked[0]["run_id"] == forked[1]["run_id"]
        parent = (await client.get("/api/v1/diff", params={"after": forked[0]["run_id"]})).json()
        assert parent["before_run"] == "numbers"
        forks = (await client.get("/api/v1/runs", params={"parent": "numb"})).json()["runs"]
        assert [(run["run_id"], run["parent_run"], run["parent_number"]) for run in forks] == [
            (forked[0]["run_id"], "numbers", 1)
        ]
        assert (await client.get("/api/v1/runs", params={"parent": "nobody"})).json()["runs"] == []
        lineage = (await client.get(f"/api/v1/runs/{forked[0]['run_id']}/lineage")).json()
        assert [(place["run_id"], place["depth"], place["parent_number"]) for place in lineage["runs"]] == [
            ("numbers", 0, None),
            (forked[0]["run_id"], 1, 1),
        ]
        assert (lineage["is_whole"], lineage["runs"][0]["run"]["status"]) == (True, "completed")
        part = (await client.get("/api/v1/runs/numbers/lineage", params={"limit": 1})).json()
        assert ([place["run_id"] for place in part["runs"]], part["is_whole"]) == (["numbers"], False)

        back = {"number": 1, "head": 3}
        restored = [(await client.post("/api/v1/runs/numbers/restore", json=back)).json() for _ in range(2)]
        assert [(move["number"], move["status"]) for move in restored] == [(4, "queued")] * 2
        moved = await client.post("/api/v1/runs/numbers/restore", json={"number": 2, "head": 3})
        assert (moved.status_code, moved.json()["type"]) == (409, "CommitConflict")
        await drive(storage, "numbers")
        state = (await client.get("/api/v1/runs/numbers/state")).json()
        assert state["state"]["numbers"] == [1, 2, 3]


async def test_a_run_is_cancelled_retried_exported_and_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stepwell")
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    await asking(storage).submit(Order(1, []), run_id="orders")
    async with serving(storage) as client:
        cancelled = (await client.post("/api/v1/runs/orders/cancel", json={"reason": "a mistake"})).json()
        assert cancelled["status"] == "cancelled"
        assert (await client.post("/api/v1/runs/orders/cancel")).json()["number"] == cancelled["number"]
        preview = (await client.post("/api/v1/retry", json={"status": "cancelled", "dry_run": True})).json()
        assert (preview["runs"], preview["dry_run"]) == (["orders"], True)
        retried = [(await client.post("/api/v1/retry", json={"runs": ["orders"]})).json() for _ in range(2)]
        assert [answer["runs"] for answer in retried] == [["orders"], []]
        await client.post("/api/v1/runs/orders/cancel")
        assert (await client.post("/api/v1/retry", json={"runs": ["orders"]})).json()["runs"] == ["orders"]
        await client.post("/api/v1/runs/orders/cancel")
        events = (await client.get("/api/v1/runs/orders/events")).json()["events"]
        assert [event["by"] for event in events if event["type"] == "status" and event.get("by")] == ["ada"] * 5

        exported = await client.get("/api/v1/runs/orders/export")
        async with SQLiteCheckpointStorage(tmp_path / "copy.db") as copy:
            await import_run(copy, exported.content)
            assert (await copy.get_run("orders")) is not None

        order: dict[str, Any] = {"runs": ["orders"], "entirely": True}
        preview = (await client.post("/api/v1/prune", json=order)).json()
        assert (preview["runs"], preview["dry_run"]) == (["orders"], True)
        assert (await client.get("/api/v1/runs/orders/state")).status_code == 200
        assert "deleted" not in caplog.text
        assert (await client.post("/api/v1/prune", json={**order, "dry_run": False})).json()["runs"] == ["orders"]
        assert "'ada' deleted 1 runs and 0 checkpoints" in caplog.text
        gone = await client.get("/api/v1/runs/orders/state")
        assert (gone.status_code, gone.json()["type"]) == (404, "NotFound")
    await storage.close()


async def test_what_people_decided_is_listed(storage: Any) -> None:
    async with serving(storage, [asking(storage)]) as client:
        order = {"workflow": "refunds", "input": {"id": 7, "lines": ["a hat"]}, "run_id": "hat"}
        await client.post("/api/v1/runs", json=order)
        await drive(storage, "hat")
        await client.post("/api/v1/runs/hat/requests/refund-7/response", json={"value": False, "comment": "too late"})
        await drive(storage, "hat")
        await client.post("/api/v1/runs/hat/fork", json={"number": 1})
        first = (await client.get("/api/v1/decisions", params={"limit": 2})).json()
        second = (await client.get("/api/v1/decisions", params={"limit": 2, "after": first["next"]})).json()
        listed = [*first["decisions"], *second["decisions"]]
        assert [(item["kind"], item["by"], item["source_number"]) for item in listed] == [
            ("forked", "ada", 1),
            ("answered", "ada", None),
            ("started", "ada", None),
        ]
        assert (listed[1]["request_id"], listed[1]["value"], listed[1]["comment"]) == ("refund-7", False, "too late")
        assert second["next"] is None

        async def find(**criteria: Any) -> list[str]:
            answer = await client.get("/api/v1/decisions", params=criteria)
            return [item["kind"] for item in answer.json()["decisions"]]

        assert await find(run="hat", kind=["answered", "forked"]) == ["answered"]
        assert await find(by="eve") == []
        assert await find(workflow="refunds", since="2020-01-01T00:00:00Z") == ["forked", "answered", "started"]
        for wrong in ({"kind": "eaten"}, {"after": "there"}, {"limit": 0}):
            assert (await client.get("/api/v1/decisions", params=wrong)).status_code == 422, wrong


async def test_lists_have_filters_and_pages(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    flow = counting(storage)
    for number in range(5):
        await flow.submit(number, run_id=f"run-{number}", tags={"parity": str(number % 2)})
    await flow.run(run_id="run-3")
    async with serving(storage) as client:

        async def find(**filters: Any) -> list[str]:
            page = (await client.get("/api/v1/runs", params=filters)).json()
            return [run["run_id"] for run in page["runs"]]

        assert await find(tag="parity=1") == ["run-3", "run-1"]
        assert await find(status="completed") == ["run-3"]
        assert await find(text="RUN-2") == ["run-2"]
        assert await find(contains="numbers") == ["run-3"]
        assert await find(workflow="sums") == []
        page = (await client.get("/api/v1/runs", params={"limit": 2})).json()
        assert [run["run_id"] for run in page["runs"]] == ["run-4", "run-3"]
        assert await find(limit=2, after=page["next"]) == ["run-2", "run-1"]
        for wrong in (
            {"limit": 0},
            {"limit": 501},
            {"since": "yesterday"},
            {"status": "odd"},
            {"tag": "x"},
            {"x": "y"},
        ):
            refused = await client.get("/api/v1/runs", params=wrong)
            assert refused.status_code == 422, wrong
            assert refused.json()["detail"]
    await storage.close()


async def test_a_run_is_described_as_on_the_command_line(storage: Any) -> None:
    async with serving(storage, [counting(storage)]) as client:
        await client.post("/api/v1/runs", json={"workflow": "counting", "input": 1, "run_id": "numbers"})
        await drive(storage, "numbers")
        run = (await client.get("/api/v1/runs/numbers")).json()
        described = await describe_run(storage, "numbers")
        assert {name: run[name] for name in described} == msgspec.json.decode(msgspec.json.encode(described))
        assert run["status"] == "completed"
        first = (await client.get("/api/v1/runs/numbers", params={"at": 0})).json()
        assert (first["kind"], first["by"]) == ("input", "ada")  # who started it


async def test_the_service_says_what_it_serves(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    async with serving(storage, [asking(storage)]) as client:
        assert (await client.get("/api/v1/caller")).json()["role"] == "operate"
        (workflow,) = (await client.get("/api/v1/workflows")).json()["workflows"]
        assert workflow["name"] == "refunds"
        assert set(workflow["input_schema"]["properties"]) == {"id", "lines"}
        await asking(storage).submit(Order(1, []))
        metrics = {item["name"]: item["value"] for item in (await client.get("/api/v1/metrics")).json()["metrics"]}
        assert metrics["runs_ready"] == 1
        assert "stepwell_runs_ready 1" in (await client.get("/api/v1/metrics/prometheus")).text
        assert (await client.get("/api/v1/workers")).json() == {"workers": []}
        document = (await client.get("/api/v1/openapi.json")).json()
        assert set(DOCUMENT["paths"]) == set(document["paths"])
        missing = await client.get("/api/v1/nothing")
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
        wrong = await client.delete("/api/v1/runs")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    await storage.close()


async def test_a_search_for_a_text_looks_through_so_many_runs_at_a_time(
    storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LOOKED_THROUGH", 3)
    async with serving(storage, [counting(storage)]) as client:
        for number in range(10):
            name = f"needle-{number}" if number in (0, 5, 6) else f"hay-{number}"
            await client.post("/api/v1/runs", json={"workflow": "counting", "input": number, "run_id": name})

        async def search(**query: Any) -> tuple[list[str], str | None, bool]:
            page = (await client.get("/api/v1/runs", params=query)).json()
            return [run["run_id"] for run in page["runs"]], page["next"], page["is_whole"]

        assert await search(text="NEEDLE") == ([], "hay-7", False)
        assert await search(text="NEEDLE", after="hay-7") == (["needle-6", "needle-5"], "hay-4", False)
        assert await search(text="NEEDLE", after="hay-4") == ([], "hay-1", False)
        assert await search(text="NEEDLE", after="hay-1") == (["needle-0"], None, True)
        assert await search(text="NEEDLE", after="hay-7", limit=1) == (["needle-6"], "needle-6", True)  # a full page
        assert await search(text="needle", status="queued", after="hay-7") == (["needle-6", "needle-5"], "hay-4", False)
        assert await search(limit=2) == (["hay-9", "hay-8"], "hay-8", True)  # what an index finds is not searched
        since = (await client.get("/api/v1/runs/hay-8")).json()["at"]
        assert (await search(text="needle", since=since))[0] == []


async def test_who_operates_a_store_sees_costs_fitting_code_and_damage(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    changed = WorkflowBuilder(name="refunds", start_executor=Desk("counter"), checkpoint_storage=storage).build()
    async with serving(storage, [changed]) as client:
        for id in range(3):
            await asking(storage).run(Order(id, ["tea"]), run_id=f"tea-{id}")
        clerk = AgentExecutor(ScriptedAgent("clerk", ["yes"]), price=lambda usage: 0.25)
        asked = WorkflowBuilder(name="clerks", start_executor=clerk, checkpoint_storage=storage).build()
        await asked.run("x", run_id="asked", tags={"team": "blue"})

        costs = (await client.get("/api/v1/costs", params={"since": "2020-01-01T00:00:00Z"})).json()
        assert (costs["runs"], costs["is_whole"], costs["total"]["cost"]) == (4, True, 0.25)
        assert [(item["name"], item["calls"]) for item in costs["tags"]] == [("team=blue", 1)]
        assert (await client.get("/api/v1/costs", params={"limit": 2})).json()["is_whole"] is False
        assert (await client.get("/api/v1/costs", params={"tag": "team"})).status_code == 422

        checked = (await client.get("/api/v1/check", params={"workflow": "refunds"})).json()
        assert [(run["run_id"], run["verdict"]) for run in checked["runs"]] == [
            (f"tea-{id}", "incompatible") for id in (2, 1, 0)
        ]
        assert "desk" in checked["runs"][0]["why"][0]
        part = (await client.get("/api/v1/check", params={"workflow": "refunds", "limit": 2})).json()
        assert (len(part["runs"]), part["is_whole"]) == (2, False)
        assert (await client.get("/api/v1/check", params={"workflow": "nothing"})).status_code == 404

        healthy = (await client.get("/api/v1/examination")).json()
        assert (healthy["findings"], healthy["runs"], healthy["is_whole"]) == ([], 4, True)
        hurried = (await client.get("/api/v1/examination", params={"seconds": 1e-6})).json()
        assert (hurried["is_whole"], hurried["findings"]) == (False, [])
        with closing(sqlite3.connect(tmp_path / "runs.db")) as db, db:
            db.execute("UPDATE commits SET body = '{' WHERE number = 0")
        damaged = (await client.get("/api/v1/examination")).json()
        assert {finding["severity"] for finding in damaged["findings"]} == {"error"}
        assert {finding["run_id"] for finding in damaged["findings"]} == {"tea-0", "tea-1", "tea-2", "asked"}
    await storage.close()


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
async def test_each_operation_needs_its_role(one: Any, tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    path = f"/api/v1{one.path.replace('{run_id}', 'r').replace('{request_id}', 'q')}"
    async with serving(storage) as client:
        nobody = await client.request(one.method, path, headers={"authorization": "Bearer wrong"})
        assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, "Bearer")
        for token in (EVE, BOB):
            response = await client.request(one.method, path, headers=with_token(token), json={})
            assert (response.status_code == 403) == (not IDENTITIES[token].role.includes(one.role)), token
    await storage.close()
