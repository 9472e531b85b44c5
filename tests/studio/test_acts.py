"""What a person changes through the page, and what the page does while the world around it changes."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from playwright.async_api import Browser, Page, expect

from .conftest import Studio, start_studio


async def test_an_answer_moves_its_run_and_every_tab_sees_it(page: Page, studio: Studio) -> None:
    other = await page.context.new_page()
    await other.goto(f"{studio.home}#/runs/refund-1041")
    await expect(other.locator(".pill")).to_have_text("waiting")
    await page.goto(f"{studio.home}#/inbox")
    card = page.get_by_role("article").filter(has_text="Refund 129.00 to customer 4711?")
    await card.get_by_text("approve", exact=True).click()
    await card.get_by_label("Amount").fill("100")
    await card.get_by_label("Note").fill("as agreed")
    await card.get_by_label(re.compile("Comment")).fill("checked by phone")
    await card.get_by_role("button", name="Send response").click()
    await expect(card).to_have_count(0)
    await expect(other.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await other.get_by_role("tab", name="Overview").click()
    await expect(other.locator(".body")).to_contain_text("100.00 for A-20931 is on its way")
    await expect(other.locator(".body")).to_contain_text("checked by phone")
    await other.close()


async def test_a_wrong_answer_is_refused_by_the_server_and_the_form_stays(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1043")
    amount = page.get_by_label("Amount")
    await amount.fill("")
    await page.get_by_role("button", name="Send response").click()
    await expect(page.get_by_role("alert")).to_contain_text("amount")
    await expect(page.locator(".pill").first).to_have_text("waiting")


async def test_the_arguments_of_a_tool_are_edited_before_it_is_approved(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/workshop-7")
    await expect(page.locator("article h2")).to_have_text("May buyer call order?")
    edited = {"part": "a switch", "count": 2, "supplier": "another one"}
    box = page.locator("article textarea.mono").first
    await box.fill(json.dumps(edited))
    await box.blur()
    await page.get_by_role("button", name="Send response").click()
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await page.get_by_role("tab", name="Agents").click()
    await expect(page.locator(".turn.tool")).to_contain_text("ordered 2 of a switch")


async def test_a_fork_gets_another_answer_and_another_state(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042?at=5")
    await page.get_by_role("button", name="Fork from here").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("Give another answer to approval").click()
    await dialog.get_by_role("button", name="Answer in the fork").click()
    await dialog.get_by_text("reject", exact=True).click()
    await dialog.get_by_label("Change the state").fill('{"ticket.amount": 1.5}')
    await dialog.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.get_by_text("fork of")).to_be_visible()
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await page.get_by_role("tab", name="State").click()
    await expect(page.locator(".tree").first).to_contain_text("amount1.5")
    await expect(page.locator(".tree").first).to_contain_text("decisionreject")


async def test_several_runs_are_cancelled_and_deleted_after_a_preview(page: Page, studio: Studio) -> None:
    await page.get_by_role("checkbox", name="Mark refund-1044").check()
    await page.get_by_role("checkbox", name="Mark reminder-3310").check()
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("button", name="Cancel 2 runs").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Done.")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("row", name=re.compile("reminder-3310"))).to_contain_text("cancelled")
    await page.get_by_role("checkbox", name="Mark refund-1044").check()
    await page.get_by_role("button", name="Delete…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("is deleted for good")
    await page.get_by_role("button", name="Delete 1 run").click()
    await expect(page.get_by_role("dialog")).to_contain_text("deleted")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("row", name=re.compile("refund-1044"))).to_have_count(0)


async def test_a_page_survives_its_server(browser: Browser, tmp_path: Path) -> None:
    first = start_studio(tmp_path, "--store", "runs.db")
    page = await browser.new_page()
    await page.goto(first.address)
    await expect(page.get_by_text("This store has no runs yet")).to_be_visible()
    port = first.home.rpartition(":")[2].strip("/")
    first.stop(signal.SIGKILL)
    await expect(page.get_by_role("status")).to_have_text("connecting…", timeout=15_000)
    second = start_studio(tmp_path, "--store", "runs.db", "--port", port)
    # Another process has another token: the page says so, and the new address opens it again.
    await page.goto(second.address)
    await expect(page.get_by_role("status")).to_have_text("")
    second.stop()
    await page.close()


async def test_hostile_text_is_text(browser: Browser, tmp_path: Path) -> None:
    program = (
        "from stepwell import WorkflowBuilder, WorkflowContext, executor\n"
        "@executor(id='<img src=x onerror=alert(1)>')\n"
        "async def echo(text: str, ctx: WorkflowContext[None, str]) -> None:\n"
        "    await ctx.yield_output(await ctx.ask(text, str))\n"
        "flow = WorkflowBuilder(name='<script>alert(2)</script>', start_executor=echo).build()\n"
    )
    (tmp_path / "shop.py").write_text(program)
    studio = start_studio(tmp_path, "--store", "runs.db", "--work", "shop:flow")
    page = await browser.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await page.goto(studio.address)
    body = {"workflow": "<script>alert(2)</script>", "input": '"><svg onload=alert(3)>', "run_id": "'><b>x"}
    answer = await page.request.post(f"{studio.home}api/v1/runs", data=body)
    assert answer.status == 201
    await expect(page.locator("tbody tr")).to_contain_text("waiting", timeout=15_000)
    await page.locator("tbody a.mono").click()
    await expect(page.locator("article h2")).to_have_text('"><svg onload=alert(3)>')
    await page.get_by_role("tab", name="Events").click()
    await page.wait_for_timeout(300)
    assert dialogs == []
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    studio.stop()
    await page.close()


async def test_words_of_an_agent_are_seen_before_they_are_stored_and_struck_out_if_withdrawn(
    browser: Browser, tmp_path: Path
) -> None:
    program = (
        "import asyncio\n"
        "from stepwell import AgentExecutor, RetryPolicy, WorkflowBuilder, WorkflowContext, executor\n"
        "from stepwell.agents import Fails, ScriptedAgent\n"
        "@executor(id='first')\n"
        "async def first(text: str, ctx: WorkflowContext[str]) -> None:\n"
        "    await asyncio.sleep(3)\n"
        "    await ctx.send_message(text)\n"
        "clerk = ScriptedAgent('clerk', [Fails(ConnectionError('gone'), after='half a sent'), 'all of it'])\n"
        "agent = AgentExecutor(clerk, retry=RetryPolicy(max_attempts=2, initial_interval=4))\n"
        "flow = WorkflowBuilder(name='writing', start_executor=first).add_edge(first, agent).build()\n"
    )
    (tmp_path / "shop.py").write_text(program)
    studio = start_studio(tmp_path, "--store", "runs.db", "--work", "shop:flow")
    page = await browser.new_page()
    await page.goto(studio.address)
    body = {"workflow": "writing", "input": "go", "run_id": "letter"}
    assert (await page.request.post(f"{studio.home}api/v1/runs", data=body)).status == 201
    await page.goto(f"{studio.home}#/runs/letter?tab=turns")
    await expect(page.locator(".turn.withdrawn")).to_contain_text("half a sent", timeout=20_000)
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=20_000)
    await expect(page.locator(".turn.model", has_text="all of it")).to_be_visible()
    await expect(page.locator(".turn.withdrawn")).to_have_count(0)
    studio.stop()
    await page.close()
