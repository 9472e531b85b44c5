"""Every operation under random requests, made from the OpenAPI document, against a server with runs in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from stepwell import SQLiteCheckpointStorage
from tests.server.flows import counting_down, refunds
from tests.server.processes import HEADERS, server

pytestmark = pytest.mark.process
EXAMPLES = 8  # of each operation that fit its types, and as many that do not


async def fill(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await counting_down.run(2, run_id="0", checkpoint_storage=storage)
        await refunds.run(400, run_id="refund", checkpoint_storage=storage)


def test_no_request_breaks_the_server(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    asyncio.run(fill(store))
    with server(str(store)) as one:
        document: dict[str, Any] = httpx.get(f"{one.address}/api/v1/openapi.json", headers=HEADERS).json()
        for path in [path for path in document["paths"] if path.endswith("stream")]:
            del document["paths"][path]  # they need not end
        schema = schemathesis.openapi.from_dict(document)
        results: list[Any] = list(schema.get_all_operations())
        for result in results:
            for mode in GenerationMode:
                send_examples(result.ok(), mode, f"{one.address}/api/v1")
        assert httpx.get(f"{one.address}/api/v1/runs/refund", headers=HEADERS).status_code in (200, 404)


def send_examples(operation: Any, mode: GenerationMode, address: str) -> None:
    @given(case=operation.as_strategy(mode))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def check(case: Any) -> None:
        response = case.call(base_url=address, headers=HEADERS)
        assert response.status_code < 500, response.text
        operation.validate_response(response)

    check()
