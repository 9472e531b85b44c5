"""The OpenAPI document: it is one, and every operation answers as it says."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema_rs

from stepwell import InMemoryCheckpointStorage
from stepwell.server.api.routes import OPERATIONS
from tests.server.clients import DOCUMENT, called, serving
from tests.support.operating_runs import Order, asking, counting

READS = (
    "/caller",
    "/workflows",
    "/workers",
    "/metrics",
    "/metrics/prometheus",
    "/runs?tag=a=b&limit=1",
    "/runs/numbers",
    "/runs/numbers/lines?full=true",
    "/runs/numbers/lineage",
    "/runs/numbers/checkpoints?limit=2",
    "/runs/numbers/state?at=1",
    "/runs/numbers/events?lines=true",
    "/runs/numbers/export?without=outputs",
    "/checkpoint?name=numb@-1",
    "/diff?before=numbers@1&after=numbers@2&stored=true&lines=true",
    "/requests?stored=true",
    "/decisions",
    "/costs",
    "/check?workflow=counting",
    "/examination",
    "/openapi.json",
)
WRITES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/runs", {"workflow": "counting", "input_text": "1", "run_id": "typed"}),
    ("/runs/numbers/fork/preview?lines=true", {"add": {"note": 7}}),
    ("/runs/numbers/fork", {"add": {"note": 7}}),
    ("/runs/order/requests/refund-7/link", {"by": "cy"}),
    ("/runs/order/requests/refund-7/response", {"value": True}),
    ("/runs/order/cancel", {"reason": "enough"}),
    ("/retry", {"runs": ["order"]}),
    ("/runs/numbers/restore", {"number": 1, "head": 3}),
    ("/prune", {"keep_last": 1, "compact": True, "dry_run": False}),
)


async def test_every_operation_answers_as_the_document_says() -> None:
    storage = InMemoryCheckpointStorage()
    await counting(storage).run(1, run_id="numbers", tags={"a": "b"})
    await asking(storage).run(Order(7, ["a hat"]), run_id="order")
    called.clear()
    # The client compares each answer with the document.
    async with serving(storage, [counting(storage)]) as client:
        for path in READS:
            answer = await client.get(f"/api/v1{path}")
            assert answer.status_code == 200, (path, answer.text)
        for path, body in WRITES:
            answer = await client.post(f"/api/v1{path}", json=body)
            assert answer.is_success, (path, answer.text)
    assert called == {one.name for one in OPERATIONS if one.media_type != "text/event-stream"}


def test_the_document_is_openapi() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate({**schema, "components": DOCUMENT["components"]})
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            assert operation["summary"].endswith(".")
    assert httpx.URL(DOCUMENT["servers"][0]["url"]).path == "/api/v1"
