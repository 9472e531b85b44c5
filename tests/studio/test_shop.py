"""What a person sees of runs that no demo has: every kind of form, plans, sub-workflows, crashes, live text."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from playwright.async_api import Page, expect

from .conftest import Studio, check_both_themes, submit

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_form_has_a_field_for_every_part_of_its_schema(shop_page: Page, shop: Studio) -> None:
    page = shop_page
    await submit(page, shop, "survey", "Who moves in?", "survey-1")
    await page.goto(f"{shop.home}#/inbox")
    await page.get_by_role("button", name="Who moves in?").click(timeout=15_000)
    card = page.get_by_role("article").filter(has_text="Who moves in?")
    await expect(card.locator(".due")).to_contain_text("due in 1 d")
    await expect(card).to_contain_text("as operator")
    await card.get_by_label("Name").fill("Ada")
    await card.get_by_label("First day").fill("2027-03-01")
    address = card.get_by_role("group", name="Address", exact=True).first
    await expect(address).to_contain_text("Where the parcel goes.")
    await address.get_by_label("Street").fill("Well Road 1")
    await address.get_by_label("Give whole number").check()
    await address.get_by_role("spinbutton").fill("3")
    await card.get_by_role("button", name="Add an item").click()
    slot = card.get_by_role("group", name="Slots")
    await expect(slot.get_by_role("radio", checked=True)).to_have_count(0)
    await slot.get_by_text("large", exact=True).click()
    # Nobody decides by not looking: neither choice has a default, and none is made.
    await expect(card.get_by_label("Colour").locator("option:checked")).to_have_text("choose…")
    await card.get_by_label("Colour").select_option(label="green")
    contact = card.get_by_role("group", name="Contact")
    await contact.get_by_label("Kind").select_option(label="text")
    await contact.locator("textarea").fill("by phone")
    await expect(card.get_by_role("group", name="Insured").get_by_role("radio", checked=True)).to_have_count(0)
    await card.get_by_role("group", name="Insured").get_by_text("yes", exact=True).click()
    await card.get_by_role("button", name="Add labels").click()
    await card.get_by_label("Add a key").fill("boxes")
    await card.get_by_label("Add a key").press("Enter")
    await card.get_by_role("spinbutton", name="Boxes").fill("12")
    await card.get_by_label("Give text").check()
    await card.get_by_role("group", name="Note").locator("textarea").fill("ring twice")
    await card.get_by_label("Express").check()
    await card.get_by_role("button", name="Send response").click()
    day = slot.get_by_label("Day")  # the only part that is still empty
    await expect(day).to_have_attribute("aria-invalid", "true")
    await expect(slot.locator("small.error")).to_contain_text('"" is not a date')
    await day.fill("2027-03-02")
    await card.get_by_role("button", name="Send response").click()
    await expect(card).to_have_count(0, timeout=15_000)
    await page.goto(f"{shop.home}#/runs/survey-1")
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    for text in ("Ada 2027-03-01", "2027, 3, 2", "by phone", "boxes"):
        await expect(page.locator(".body")).to_contain_text(text)


async def test_several_alike_requests_are_answered_with_one_form(shop_page: Page, shop: Studio) -> None:
    page = shop_page
    for number in (1, 2):
        await submit(page, shop, "parcel", f"parcel {number}", f"bulk-{number}")
    await submit(page, shop, "survey", "Another kind?", "survey-2")
    await page.goto(f"{shop.home}#/inbox")
    await page.get_by_role("checkbox", name="Mark the request of bulk-1").check(timeout=15_000)
    await page.get_by_role("checkbox", name="Mark the request of bulk-2").check(timeout=15_000)
    await expect(page.get_by_role("checkbox", name="Mark the request of survey-2")).to_be_disabled(timeout=15_000)
    form = page.locator(".card.bulk")
    await expect(form).to_contain_text("Answer 2 requests with one form")
    await form.locator("textarea").fill("3 kg")
    await form.get_by_role("button", name="Send 2 responses").click()
    for number in (1, 2):
        await page.goto(f"{shop.home}#/runs/bulk-{number}")
        await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
        await expect(page.locator(".body")).to_contain_text("shipped 3 kg")
        await expect(page.locator(".body")).to_contain_text("operator")  # who answered


async def test_a_plan_is_sent_back_with_feedback_and_then_approved(shop_page: Page, shop: Studio) -> None:
    page = shop_page
    await submit(page, shop, "team", "How many lamps were sold?", "plan-1")
    await page.goto(f"{shop.home}#/runs/plan-1")
    await expect(page.locator(".request h2")).to_have_text("Is this plan right?", timeout=15_000)
    await expect(page.locator("pre.plan")).to_contain_text("Count.")
    await page.get_by_text("ask for another plan").click()
    await page.get_by_label("Feedback").fill("Count twice.")
    await page.get_by_role("button", name="Send response").click()
    await expect(page.locator("pre.plan")).to_contain_text("counts twice", timeout=15_000)
    await page.get_by_role("button", name="Send response").click()
    await expect(page.get_by_role("alert").first).to_contain_text("choose one")  # nobody approves by not looking
    await page.get_by_text("approve", exact=True).click()
    await page.get_by_role("button", name="Send response").click()
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await expect(page.locator(".mark", has_text="by operator")).to_have_count(3)  # the input, and two answers


async def test_a_sub_workflow_opens_in_place_and_the_link_keeps_it_open(shop_page: Page, shop: Studio) -> None:
    page = shop_page
    await submit(page, shop, "parcel", "a box", "parcel-1")
    await page.goto(f"{shop.home}#/runs/parcel-1")
    await expect(page.locator('[data-node="checking"]')).to_have_attribute("data-state", "waiting", timeout=15_000)
    await page.get_by_role("button", name="Open the sub-workflow of checking").press("Enter")
    inner = page.locator('[data-node="checking"] [data-node="weigh"]')
    await expect(inner).to_have_attribute("data-state", "waiting")
    await page.goto(page.url)
    await expect(inner).to_have_attribute("data-state", "waiting")
    await page.get_by_label("Answer", exact=True).fill("2 kg")
    await page.get_by_role("button", name="Send response").click()
    await expect(inner).to_have_attribute("data-state", "ran", timeout=15_000)
    await page.get_by_role("link", name="its run").click()
    await expect(page.get_by_text("called by")).to_be_visible()
    await page.get_by_role("link", name="parcel-1").click()
    await expect(page.locator('[data-node="ship"]')).to_have_attribute("data-state", "ran")


async def test_retries_crashes_and_takeovers_are_in_the_timeline(shop_page: Page, shop: Studio) -> None:
    page = shop_page
    await submit(page, shop, "flaky", "x", "flaky-1")
    await page.goto(f"{shop.home}#/runs/flaky-1?tab=time")
    await expect(page.locator(".times .span.retried")).to_have_count(1, timeout=15_000)
    await expect(page.locator("ul.plain")).to_contain_text("flaky: 2 earlier attempts failed")
    await page.goto(f"{shop.home}#/runs/crashed-1?tab=time")
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=30_000)
    await expect(page.locator(".times .span.lost")).to_have_count(1)
    await expect(page.locator("ul.plain")).to_contain_text("pack: cut off; 1 step recalled")
    await expect(page.locator("ul.plain")).to_contain_text(re.compile("cut off, and taken over after: [0-9.]+ s"))
    await page.get_by_role("tab", name="Agents").click()
    await expect(page.locator(".turn.step", has_text="wrap").locator(".recalled")).to_have_text("recalled")
    await expect(page.locator(".turn.step", has_text="tape").locator(".recalled")).to_have_count(0)


async def test_hostile_text_is_text(shop_page: Page, shop: Studio) -> None:
    page, dialogs = shop_page, list[str]()
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await submit(page, shop, "<script>alert(2)</script>", '"><svg onload=alert(3)>', "'><b>x")
    await page.goto(f"{shop.home}#/runs?workflow=%3Cscript%3Ealert(2)%3C%2Fscript%3E")
    await expect(page.locator("tbody tr")).to_have_count(1, timeout=15_000)
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("tbody tr")).to_contain_text("waiting", timeout=15_000)
    await page.locator("tbody a.mono").click()
    await expect(page.locator("article h2")).to_have_text('"><svg onload=alert(3)>')
    await page.get_by_role("tab", name="Events").click()
    await page.wait_for_timeout(300)
    assert dialogs == []
    long = "x" * 180
    await submit(page, shop, "parcel", "y" * 300, long)
    await page.set_viewport_size({"width": 390, "height": 780})
    for view in ("runs", f"runs/{long}", "inbox", f"compare?before={long}&after={long}", "operate?tab=decisions"):
        await page.goto(f"{shop.home}#/{view}")
        await expect(page.locator(".view").get_by_text("x" * 100).first).to_be_attached()
        await page.wait_for_timeout(300)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390, view
        widest = "[...document.querySelectorAll('.view, .page, .body')].map(e => e.scrollWidth - e.clientWidth)"
        assert max(await page.evaluate(widest)) <= 0, view
    with closing(sqlite3.connect(shop.folder / "runs.db")) as db:
        assert db.execute("SELECT count(*) FROM runs WHERE run_id LIKE '%<b>x'").fetchone() == (1,)


async def test_a_question_of_a_handler_that_waits_is_answered_otherwise_in_a_fork(
    shop_page: Page, shop: Studio
) -> None:
    page = shop_page
    await submit(page, shop, "<script>alert(2)</script>", "Which colour?", "colour")
    await page.goto(f"{shop.home}#/runs/colour")
    await page.get_by_label("Answer", exact=True).fill("red", timeout=15_000)
    await page.get_by_role("button", name="Send response").click()
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await page.get_by_role("button", name="Fork with another answer…").first.click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Which colour? (The fork asks this anew, and then gets your answer.)")
    await dialog.get_by_label("Answer", exact=True).fill("blue")
    await dialog.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.get_by_role("heading", name="colour-fork")).to_be_visible(timeout=15_000)
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await page.get_by_role("link", name="Compare with colour").click()
    changed = page.locator(".diff .line", has_text="outputs")
    await expect(changed.locator(".side.gone")).to_have_text("red")
    await expect(changed.locator(".side.new")).to_have_text("blue")


async def test_words_of_an_agent_are_seen_before_they_are_stored_and_struck_out_if_withdrawn(
    shop_page: Page, shop: Studio
) -> None:
    page = shop_page
    await submit(page, shop, "writing", "go", "letter")
    await page.goto(f"{shop.home}#/runs/letter?tab=turns")
    withdrawn = page.locator(".turn.withdrawn")
    await expect(withdrawn).to_contain_text("half a sent", timeout=20_000)
    await expect(withdrawn).to_contain_text("withdrawn")
    struck = "element => getComputedStyle(element).textDecorationLine"
    assert await withdrawn.locator("pre").evaluate(struck) == "line-through"
    await expect(page.locator(".mark.live")).to_contain_text("working")
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=20_000)
    await expect(page.locator(".turn.said", has_text="all of it")).to_be_visible()
    await expect(withdrawn).to_have_count(0)
    await expect(page.locator(".turn.model").first).to_contain_text("cost")


async def test_code_that_cannot_continue_a_waiting_run_and_a_damaged_store_are_named(
    shop_page: Page, shop: Studio
) -> None:
    page = shop_page
    await page.goto(f"{shop.home}#/operate")  # its worker has taken over the run of the process that died
    await expect(page.get_by_role("row", name=re.compile("yes 0 of 50 1 "))).to_be_visible(timeout=30_000)
    await page.get_by_role("tab", name="Code").click()
    card = page.locator("section.card", has_text="survey")
    await expect(card).to_contain_text(re.compile("unfinished runs?: .*1 not"), timeout=15_000)
    await expect(card.get_by_role("listitem").filter(has_text="survey-old")).to_contain_text("questionnaire")
    await page.get_by_role("tab", name="Store").click()
    await expect(page.locator(".sentence")).to_contain_text("The store is healthy", timeout=15_000)
    with closing(sqlite3.connect(shop.folder / "runs.db")) as db, db:
        db.execute(
            "UPDATE commits SET body = '{' WHERE number = 0 AND run = (SELECT run FROM runs WHERE run_id = ?)",
            ["survey-old"],
        )
    await page.get_by_role("button", name="Examine again").click()
    await expect(page.locator(".sentence")).to_contain_text("problem", timeout=15_000)
    damaged = page.get_by_role("row", name=re.compile("error survey-old")).first.get_by_role("link")
    await expect(damaged).to_have_attribute("href", re.compile("#/runs/survey-old"))


async def test_what_is_damaged_is_a_sentence_with_a_command_wherever_it_is_met_and_is_not_asked_for_again_and_again(
    shop_page: Page, shop: Studio
) -> None:
    page, asked = shop_page, list[str]()
    for run_id in ("whole", "broken-record", "broken-entry", "broken-request"):
        await submit(page, shop, "parcel", f"box of {run_id}", run_id)
        await page.goto(f"{shop.home}#/runs/{run_id}")
        await expect(page.locator(".pill").first).to_have_text("waiting", timeout=15_000)
    with closing(sqlite3.connect(shop.folder / "runs.db")) as db, db:
        of_run = "run = (SELECT run FROM runs WHERE run_id = 'broken-record')"
        db.execute(f"UPDATE commits SET body = '{{' WHERE number = 1 AND {of_run}")
        db.execute("UPDATE runs SET status = 'ASLEEP' WHERE run_id = 'broken-entry'")
        db.execute("UPDATE requests SET body = '{' WHERE run_id = 'broken-request'")
    trouble = page.get_by_role("alert").filter(has_text="stepwell doctor").first
    try:
        await page.goto(f"{shop.home}#/runs")
        await expect(trouble).to_contain_text(re.compile("run 'broken-entry'.* is damaged"))
        await check_both_themes(page)
        await expect(page.get_by_role("link", name="whole", exact=True)).to_be_visible()
        await page.goto(f"{shop.home}#/inbox")
        await expect(trouble).to_contain_text(re.compile("run 'broken-request' is damaged"))
        await expect(page.get_by_role("button", name="How heavy is box of whole?")).to_be_visible()
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{shop.home}#/runs/broken-record")
        await expect(page.get_by_role("heading", name="broken-record")).to_be_visible()
        await expect(trouble).to_contain_text(re.compile("broken-record.* is damaged"))
        await page.wait_for_timeout(4000)
        for path in ("runs/broken-record", "stream"):
            assert 1 <= sum(path in url for url in asked) <= 3, asked
        await expect(page.get_by_role("status")).to_have_text("")  # the list is followed nevertheless
        await page.goto(f"{shop.home}#/compare?before=whole&after=broken-record")
        await expect(trouble).to_contain_text(re.compile("broken-record.* is damaged"))
        asked.clear()
        await page.goto(f"{shop.home}#/runs/nowhere")
        await expect(page.get_by_role("alert")).to_contain_text("no run 'nowhere' in this store")
        await expect(page.get_by_role("link", name="Show all runs")).to_be_visible()
        await page.wait_for_timeout(3000)
        assert sum("nowhere" in url for url in asked) <= 3, asked
        await expect(page.get_by_role("status")).to_have_text("")
    finally:
        with closing(sqlite3.connect(shop.folder / "runs.db")) as db, db:
            db.execute("DELETE FROM runs WHERE run_id LIKE 'broken-%'")
            db.execute("DELETE FROM requests WHERE run_id LIKE 'broken-%'")
