"""What a person changes through the page, and what the page does while the world around it changes."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from .conftest import Studio, start_studio

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
    await expect(card).to_have_count(0, timeout=15_000)
    await expect(other.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await other.get_by_role("tab", name="Overview").click()
    await expect(other.locator(".body")).to_contain_text("100.00 for A-20931 is on its way")
    await expect(other.locator(".body")).to_contain_text("checked by phone")
    await other.close()


async def test_a_wrong_answer_is_refused_by_the_server_at_its_field(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1043")
    amount = page.get_by_label("Amount")
    await amount.fill("")
    await page.get_by_role("button", name="Send response").click()
    await expect(amount).to_have_attribute("aria-invalid", "true")
    await expect(amount).to_be_focused()
    await expect(page.locator(".field", has=amount).last.locator("small.error")).to_have_text('"" is not a number')
    await expect(page.locator(".pill").first).to_have_text("waiting")


async def test_the_arguments_of_a_tool_are_edited_before_it_is_approved(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/workshop-7")
    await expect(page.locator("article h2")).to_have_text("May buyer call order?")
    await expect(page.get_by_label("Count")).to_have_value("40")
    await expect(page.get_by_role("radio", checked=True)).to_have_count(0)
    await page.get_by_text("deny", exact=True).click()
    await expect(page.get_by_label("Reason")).to_be_visible()
    await expect(page.get_by_label("Count")).to_have_count(0)
    await page.get_by_text("approve", exact=True).click()
    await page.get_by_label("Count").fill("2")
    await page.get_by_label("Part").fill("a switch")
    await page.get_by_role("button", name="Send response").click()
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await page.get_by_role("tab", name="Agents").click()
    await expect(page.locator(".turn.tool")).to_contain_text("ordered 2 of a switch")


async def test_a_fork_gets_another_answer_and_another_state_and_is_compared_with_its_parent(
    page: Page, studio: Studio
) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042")
    await page.get_by_role("button", name="Fork with another answer").first.click()
    dialog = page.get_by_role("dialog", name="Fork refund-1042 at commit 5")
    await expect(dialog.get_by_role("checkbox", name="Answer approval in the fork")).to_be_checked()
    await dialog.get_by_text("reject", exact=True).click()
    await dialog.get_by_text("Change the state").click()
    tree = dialog.locator(".tree")
    await tree.get_by_label("amount", exact=True).fill("1.5")
    await tree.get_by_label("text", exact=True).first.fill("It came late.")
    await tree.get_by_role("button", name="Remove evidence").click(force=True)
    await tree.get_by_label("New key").fill("urgent")
    await tree.get_by_label("New value").fill("true")
    await tree.get_by_role("button", name="Add").click()
    await expect(dialog.get_by_text("Change the state (4)")).to_be_visible()
    await dialog.get_by_label("Id of the new run").fill("refund-1042-late")
    await dialog.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.get_by_role("heading", name="refund-1042-late")).to_be_visible()
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await page.get_by_role("tab", name="State").click()
    for text in ("amount1.5", "textIt came late.", "urgenttrue", "decisionreject"):
        await expect(page.locator(".tree").first).to_contain_text(text)
    await expect(page.locator(".tree").first).not_to_contain_text("evidence")
    await page.get_by_role("tab", name="Overview").click()
    tree = page.locator(".lineage")
    await expect(tree.locator("li li")).to_have_count(2)  # both forks, under their parent
    await expect(tree.locator("[aria-current]")).to_have_text("refund-1042-late")
    await tree.get_by_role("link", name="Compare refund-1042-late with its parent").click()
    changed = page.locator(".diff .line", has_text="state.ticket.amount")
    await expect(changed.locator(".side.gone")).to_have_text("54.9")
    await expect(changed.locator(".side.new")).to_have_text("1.5")


async def test_a_run_is_executed_afresh_from_an_earlier_commit(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042-rejected?at=1")
    await page.get_by_role("button", name="Rerun from here…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("moved back to commit 1")
    await page.get_by_role("button", name="Rerun from here", exact=True).click()
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await expect(page.locator(".mark", has_text="restored")).to_contain_text("by operator")


async def test_a_failed_run_is_retried_and_a_running_one_cancelled_with_a_reason(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1045")
    await page.get_by_role("button", name="Retry…").click()
    await page.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator(".mark", has_text="retried")).to_be_visible(timeout=15_000)
    await expect(page.locator(".pill").first).to_have_text("failed", timeout=15_000)  # there is still no evidence
    await page.goto(f"{studio.home}#/runs/reminder-3310")
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_label("Reason").fill("paid by cheque")
    await page.get_by_role("button", name="Cancel the run").click()
    await expect(page.locator(".pill").first).to_have_text("cancelled")
    await page.get_by_role("tab", name="Overview").click()
    await expect(page.locator(".facts")).to_contain_text("paid by cheque")


async def test_several_runs_are_retried_cancelled_and_pruned_after_a_preview(page: Page, studio: Studio) -> None:
    await page.get_by_role("checkbox", name="Mark refund-1044").check()
    await page.get_by_role("checkbox", name="Mark refund-1043").check()
    dialog = page.get_by_role("dialog")

    async def close() -> None:
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("region", name="Marked runs")).to_have_count(0)

    await page.get_by_role("button", name="Cancel…").click()
    await expect(dialog).to_contain_text("1 run would be cancelled")
    await expect(dialog.get_by_role("row", name=re.compile("refund-1044"))).to_contain_text("stays cancelled")
    await dialog.get_by_role("button", name="Cancel 2 runs").click()
    await expect(dialog).to_contain_text("Done.")
    await close()
    await expect(page.get_by_role("row", name=re.compile("refund-1043"))).to_contain_text("cancelled")
    await page.get_by_role("checkbox", name="Mark refund-1044").check()
    await page.get_by_role("checkbox", name="Mark article-12").check()
    await page.get_by_role("button", name="Retry…").click()
    await expect(dialog.get_by_role("row", name=re.compile("article-12"))).to_contain_text("it is completed")
    await dialog.get_by_role("button", name="Retry 2 runs").click()
    await expect(dialog).to_contain_text("1 run is retried")
    await close()
    await expect(page.get_by_role("row", name=re.compile("refund-1044"))).to_contain_text("waiting", timeout=15_000)
    await page.get_by_role("checkbox", name="Mark article-12").check()
    await page.get_by_role("button", name="Delete…").click()
    await expect(dialog).to_contain_text("is deleted for good")
    await dialog.get_by_label("Delete", exact=True).select_option("1")
    await expect(dialog).to_contain_text("the run stays")
    await dialog.get_by_role("button", name="Delete 1 run").click()
    await expect(dialog).to_contain_text("Done.")
    await close()
    await page.get_by_role("checkbox", name="Mark article-12").check()
    await page.get_by_role("button", name="Delete…").click()
    await dialog.get_by_role("button", name="Delete 1 run").click()
    await expect(dialog).to_contain_text("Done.")
    await close()
    await expect(page.get_by_role("row", name=re.compile("article-12"))).to_have_count(0)


async def test_a_page_survives_its_server(browser: Browser, tmp_path: Path) -> None:
    first = start_studio(tmp_path, "--store", "runs.db")
    page = await browser.new_page()
    await page.goto(first.address)
    for view, words, command in (
        ("runs", "This store has no runs yet", "stepwell run module:workflow 'your input'"),
        ("inbox", "Nobody is asked anything", "stepwell requests"),
        ("operate", "No worker has announced itself", "stepwell worker module:workflow"),
        ("operate?tab=decisions", "Nobody has decided anything yet", "stepwell respond RUN REQUEST"),
        ("operate?tab=code", "No code is loaded here", "stepwell studio --work module:workflow"),
        ("compare", "Any two checkpoints", "stepwell diff RUN@5 FORK"),
    ):
        await page.goto(f"{first.home}#/{view}")
        await expect(page.locator(".empty")).to_contain_text(words)
        await expect(page.locator(".empty .command")).to_contain_text(command)
    port = first.home.rpartition(":")[2].strip("/")
    first.stop(signal.SIGKILL)
    await expect(page.get_by_role("status")).to_have_text("connecting…", timeout=15_000)
    second = start_studio(tmp_path, "--store", "runs.db", "--port", port)
    # Another process has another token: the page says so, and the new address opens it again.
    await page.goto(second.address)
    await expect(page.get_by_role("status")).to_have_text("")
    second.stop()
    await page.close()
