"""A response link in a real browser: the form is sent, and the answer is stored."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser

from stepwell import SQLiteCheckpointStorage
from tests.server.flows import refunds
from tests.server.processes import HEADERS, server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_person_without_a_token_answers(browser: Browser, tmp_path: Path) -> None:
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as storage:
        await refunds.run(400, run_id="refund", checkpoint_storage=storage)
        with server(str(tmp_path / "runs.db")) as one:
            path = f"{one.address}/api/v1/runs/refund/requests/approval/link"
            async with httpx.AsyncClient(headers=HEADERS) as client:
                link = (await client.post(path, json={"by": "cy@example.org"})).json()["path"]
            context = await browser.new_context()
            page = await context.new_page()
            await page.goto(one.address + link)
            await page.get_by_role("combobox").select_option("true")
            await page.get_by_role("button").click()
            await page.get_by_text("Your response is stored.").wait_for()
            await context.close()
        (request,) = await storage.pending_requests()
        assert request.answered is not None
        assert request.answered.by == "cy@example.org"
