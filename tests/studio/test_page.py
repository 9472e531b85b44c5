"""What a person sees and does: each test is one of the things the page is for."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from .conftest import CONTRAST, DESKTOP, Studio, check_axe, show_theme, submit

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What does not fit a phone: a view that scrolls sideways, and what can be pressed but is cut off, or too small for a
# finger. The bars of a timeline are as long as what they show; a row that scrolls by itself may be longer.
MISFITS = """width => {
    const scrolls = each => /auto|scroll/.test(getComputedStyle(each).overflowX) && each.scrollWidth > each.clientWidth;
    const wide = [...document.querySelectorAll('.view, .page, .body, .head')].filter(each =>
        each.scrollWidth > each.clientWidth);
    const parts = document.querySelectorAll('button, a, select, summary, input:not([type=radio])');
    const pressed = [...parts].filter(each => {
        const box = each.getBoundingClientRect();
        if (!box.width || each.closest('svg, .times') || getComputedStyle(each).display === 'inline') return false;
        let row = each.parentElement;
        while (row && !scrolls(row)) row = row.parentElement;
        return (box.right > width && !row) || box.height < 24 || box.width < 24;
    });
    return [...wide, ...pressed].map(each => each.outerHTML.slice(0, 100));
}"""


async def test_runs_are_listed_with_how_they_stand_and_filtered_by_a_link(page: Page, studio: Studio) -> None:
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(10)
    await expect(page.get_by_role("row", name=re.compile("export-88"))).to_contain_text("stalled")
    colour = "status => getComputedStyle(document.querySelector(`.pill.${status}`)).color"
    assert await page.evaluate(colour, "sleeping") != await page.evaluate(colour, "waiting")
    await page.get_by_role("button", name="failed").click()
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("refund-1045")
    link = page.url
    await page.goto("about:blank")
    await page.goto(link)
    await expect(rows).to_have_count(1)
    await page.get_by_role("searchbox", name="Search runs").fill("no such run")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("No run is like that")).to_be_visible()


async def test_runs_are_filtered_by_text_workflow_tag_and_time_and_the_link_shows_them_again(
    page: Page, studio: Studio
) -> None:
    rows = page.locator("tbody tr")
    await page.get_by_role("searchbox", name="Search runs").fill("refund-1042")
    await expect(rows).to_have_count(2)
    await page.goto(f"{studio.home}#/runs")
    await page.get_by_label("Workflow").fill("articles")
    await page.keyboard.press("Enter")
    await expect(rows).to_have_count(1)
    await page.goto(f"{studio.home}#/runs")
    await page.get_by_role("link", name="customer=customer 1208").first.click()
    await expect(rows).to_have_count(2)
    await page.goto(f"{studio.home}#/runs")
    await page.get_by_label("Started").select_option("1h")
    await expect(page).to_have_url(re.compile("within=1h"))
    await expect(rows).to_have_count(10)
    await page.get_by_label("Started").select_option("between")
    await page.get_by_label("Started before").fill("2020-01-01T00:00")
    await expect(page.get_by_text("No run is like that")).to_be_visible()
    link = page.url
    await page.goto("about:blank")
    await page.goto(link)
    await expect(page.get_by_label("Started before")).to_have_value("2020-01-01T00:00")
    await expect(page.get_by_text("No run is like that")).to_be_visible()


async def test_the_list_is_used_with_the_keyboard_alone(page: Page) -> None:
    await expect(page.locator("tbody tr")).to_have_count(10)
    await page.locator("#view").focus()
    for key in ("j", "j", "x", "k"):
        await page.keyboard.press(key)
    await expect(page.get_by_role("region", name="Marked runs")).to_contain_text("1 run marked")
    await expect(page.get_by_role("checkbox", name="Mark reminder-3310")).to_be_checked()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="export-88")).to_be_visible()
    await expect(page.locator(".sentence")).to_contain_text("Run export-88 of nightly-export")
    await page.get_by_role("tab", name="Overview").focus()
    await page.keyboard.press("ArrowRight")
    await expect(page.get_by_role("tab", name="Agents")).to_be_focused()
    await expect(page).to_have_url(re.compile("tab=turns"))
    await page.locator('[data-node="collect"] [role="button"]').focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("collect ran in 1 of them")).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_contain_text("commit before and after")
    await page.keyboard.press("Escape")
    await page.keyboard.press("g")
    await page.keyboard.press("i")
    await expect(page.get_by_role("link", name="Inbox")).to_have_attribute("aria-current", "page")
    opened = page.locator('.title[aria-expanded="true"]')
    await expect(opened).to_have_text("Refund 129.00 to customer 4711?")
    await page.keyboard.press("j")
    await expect(opened).to_have_text("Refund 312.50 to customer 3090?")
    await expect(opened).to_be_focused()


async def test_a_failed_run_says_why_and_shows_which_branches_are_safe(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1045")
    await expect(page.locator(".sentence")).to_contain_text("failed in check_fraud: LookupError")
    await expect(page.locator("code").first).to_have_text("stepwell retry -- refund-1045")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy the command").click()
    assert await page.evaluate("navigator.clipboard.readText()") == "stepwell retry -- refund-1045"
    states = {name: page.locator(f'[data-node="{name}"]') for name in ("find_order", "check_fraud", "desk")}
    await expect(states["find_order"]).to_have_attribute("data-state", "ran")
    await expect(states["check_fraud"]).to_have_attribute("data-state", "failed")
    await expect(states["desk"]).to_have_attribute("data-state", "idle")
    await expect(page.locator("pre.frames")).to_contain_text("raise LookupError")
    await page.get_by_text("Whole traceback", exact=True).click()
    await expect(page.locator("details pre")).to_contain_text("raise LookupError")


async def test_an_older_commit_is_shown_by_a_link_with_what_it_changed(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042")
    await expect(page.locator('[data-node="approval"]')).to_contain_text("\N{MULTIPLICATION SIGN}2")  # how often it ran
    await expect(page.locator('[data-node="check_fraud"]')).to_contain_text(re.compile("[0-9] ms"))  # and how long
    await expect(page.locator(".mark").nth(2)).to_contain_text("3 messages")
    await page.locator(".mark").nth(3).click()
    await expect(page.locator(".diff")).to_contain_text("state.facts")
    await expect(page.locator('[data-node="pay"]')).to_have_attribute("data-state", "idle")
    await page.goto(page.url)
    await expect(page.get_by_role("button", name="at commit 3")).to_be_visible()
    await expect(page.locator(".messages")).to_contain_text("desk → draft")
    await expect(page.locator('.box.lit[data-node="desk"]')).to_have_count(1)
    await page.get_by_label("Compare with commit").select_option("0")
    await expect(page.locator(".diff")).to_contain_text("state.ticket")
    await page.locator("#view").focus()
    await page.keyboard.press("[")
    await expect(page.get_by_role("button", name="at commit 2")).to_be_visible()
    await page.keyboard.press("]")
    await page.get_by_role("tab", name="State").click()
    await expect(page.locator(".tree").first).to_contain_text("customer 1208")
    await expect(page.locator(".tree").first).not_to_contain_text("decision")


async def test_one_sentence_says_why_a_run_rests_and_what_is_next(page: Page, studio: Studio) -> None:
    for run, words in (
        ("refund-1043", r"is waiting for a response. approval asks: Refund 312.50 to customer 3090\?"),
        ("reminder-3310", r"is sleeping until .*; reminders comes next then. Worker \S+ wakes it."),
        ("export-88", r"is stalled: process \d+ on \S+ stopped driving it.*; a resume calls upload. No live worker"),
        ("refund-1044", r"was cancelled by support desk \(the customer withdrew\)"),
        ("refund-1042?at=3", r"as it was at commit 3 of 9 \(superstep\); draft comes next."),
    ):
        await page.goto(f"{studio.home}#/runs/{run}")
        await expect(page.locator(".sentence")).to_contain_text(re.compile(words))


async def test_an_output_is_a_tree_that_opens_and_is_searched(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042?tab=overview")
    tree = page.locator(".tree").filter(has=page.get_by_role("searchbox", name="Search in the output"))
    await tree.get_by_role("button", expanded=False).first.press("Enter")
    await expect(tree).to_contain_text("roleassistant")
    await tree.get_by_role("searchbox").fill("tool_calls")
    await expect(tree).to_contain_text("tool_calls1")
    await expect(tree).not_to_contain_text("messages")
    await tree.get_by_role("searchbox").fill("no such word")
    await expect(tree).to_contain_text("Nothing in the output contains")


async def test_a_large_state_is_searched(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/workshop-7?tab=state")
    await page.get_by_role("searchbox", name="Search in the state").fill("usage")
    await expect(page.locator(".tree").first).to_contain_text("agents/chair/usage")
    await expect(page.locator(".tree").first).not_to_contain_text("agents/chair/conversation")
    # A cost is a float, which has more digits than anybody reads.
    await page.goto(f"{studio.home}#/runs/refund-1042?tab=state")
    await page.get_by_role("searchbox", name="Search in the state").fill("cost")
    await expect(page.locator('.atom.number[title^="0.0015210000"]')).to_have_text("0.001521")


async def test_turns_of_agents_are_a_conversation(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042?tab=turns")
    await expect(page.locator(".turn.tool")).to_contain_text("search_policy")
    await expect(page.locator(".turn.tool")).to_contain_text('{"words": "damaged on arrival"}')
    await expect(page.locator(".turn.model").first).to_contain_text("tokens")
    await expect(page.locator(".sum")).to_contain_text("2 model calls · 1 tool call")
    await expect(page.locator(".sum")).to_contain_text("cost 0.0015")
    await expect(page.locator(".turn.speech.said")).to_contain_text("I suggest a full refund")
    await page.locator('[data-node="find_order"] [role="button"]').click()
    await expect(page.locator(".talk")).to_have_count(1)
    await expect(page.locator(".mark.lit")).to_have_count(1)
    await expect(page.locator(".strip small").first).to_have_text("find_order ran in 1 of them")
    await page.get_by_role("tab", name="Time").click()
    await expect(page.locator(".times .span.ran")).to_have_count(10)
    await page.locator(".times .span.ran").nth(4).click()
    await expect(page.get_by_role("button", name="at commit 3")).to_be_visible()


async def test_two_checkpoints_are_compared_across_a_fork(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042-rejected")
    for name, state in (("check_fraud", "ran"), ("approval", "ran"), ("notify", "ran"), ("pay", "idle")):
        await expect(page.locator(f'[data-node="{name}"]')).to_have_attribute("data-state", state)
    await expect(page.locator('[data-node="check_fraud"]')).to_contain_text(re.compile("[0-9] ms"))  # before the fork
    await page.get_by_role("link", name="Compare with refund-1042").click()
    changed = page.locator(".diff .line", has_text="approve").first  # the state, and the output
    await expect(changed.locator(".side.gone")).to_have_text("approve")
    await expect(changed.locator(".side.new")).to_have_text("reject")


async def test_any_two_checkpoints_are_chosen_and_swapped(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/compare")
    await expect(page.get_by_text("stepwell diff RUN@5 FORK")).to_be_visible()
    await page.get_by_label("One run", exact=True).fill("refund-1042")
    await page.get_by_label("The other run", exact=True).fill("refund-1043")
    await page.keyboard.press("Tab")
    await page.get_by_label("Commit of one run").select_option("1")
    await expect(page).to_have_url(re.compile("before=refund-1042%401&after=refund-1043"))
    changed = page.locator(".diff .line", has_text="state.ticket.order")
    await expect(changed.locator(".side.gone")).to_have_text("A-20940")
    await page.get_by_role("button", name="Swap the two").click()
    await expect(changed.locator(".side.new")).to_have_text("A-20940")


async def test_the_nodes_of_named_agents_are_drawn_and_not_what_leads_them(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/article-12")
    await expect(page.locator(".box[data-state]")).to_have_count(3)
    for node in ("draft", "review", "print"):
        await expect(page.locator(f'[data-node="{node}"]')).to_have_attribute("data-state", "ran")


async def test_new_runs_appear_and_do_not_move_what_somebody_points_at(page: Page, studio: Studio) -> None:
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(10)
    await page.get_by_role("checkbox", name="Mark export-88").hover()
    where = await page.get_by_role("row", name=re.compile("export-88")).bounding_box()
    await page.get_by_label("Tag").fill("customer=")
    await submit(page, studio, "articles", "wells", "article-13")
    await expect(page.get_by_role("button", name="1 new run: show")).to_be_visible(timeout=15_000)
    assert await page.get_by_role("row", name=re.compile("export-88")).bounding_box() == where
    assert await page.get_by_label("Tag").input_value() == "customer="  # nor what somebody types
    await page.get_by_label("Tag").fill("")
    await page.mouse.move(5, 5)
    await expect(rows).to_have_count(11)
    await page.get_by_role("checkbox", name="Mark export-88").check()
    await page.mouse.move(5, 5)
    await submit(page, studio, "articles", "steps", "article-14")
    await page.get_by_role("button", name="1 new run: show").click(timeout=15_000)
    await expect(rows).to_have_count(12)
    await expect(page.get_by_role("checkbox", name="Mark export-88")).to_be_checked()
    await expect(page.get_by_role("row", name=re.compile("article-14"))).to_contain_text("completed", timeout=15_000)


async def test_workers_are_seen_with_their_slots_and_what_waits_for_them(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/operate")
    await expect(page.locator(".sentence")).to_contain_text("1 worker alive, 0 of 50 slots in use.", timeout=15_000)
    await expect(page.locator(".sentence")).to_contain_text("the oldest for")  # a stalled run, whose code nobody has
    worker = page.locator("tbody tr")
    await expect(worker).to_contain_text("refunds, workshop, articles, reminders")
    await expect(worker).to_contain_text("0 of 50")
    await page.get_by_role("link", name="stalled").click()
    await expect(page.locator("tbody tr")).to_contain_text("export-88")


async def test_cost_is_shown_by_workflow_tag_and_day_and_the_link_shows_it_again(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/operate")
    await page.get_by_role("tab", name="Cost").click()
    await expect(page.locator(".sentence")).to_contain_text("model calls cost 0.006")
    workflow, tag, day = page.locator("table").nth(0), page.locator("table").nth(1), page.locator("table").nth(2)
    await expect(workflow.get_by_role("row", name=re.compile("^refunds"))).to_contain_text("0.006")
    await expect(workflow.get_by_role("row", name=re.compile("^workshop"))).to_contain_text("unknown")
    await expect(day.locator("tbody tr").first).to_contain_text(re.compile(r"20\d\d-\d\d-\d\d"))
    await tag.get_by_role("link", name="customer=customer 4711").click()
    await expect(page.locator(".sentence")).to_contain_text("2 model calls cost 0.001521")
    link = page.url
    await page.goto("about:blank")
    await page.goto(link)
    await expect(page.locator(".sentence")).to_contain_text("2 model calls cost 0.001521")
    await page.get_by_label("Workflow").fill("articles")
    await page.keyboard.press("Enter")
    await expect(page.locator(".sentence")).to_contain_text("No model was called in 0 runs")


async def test_who_decided_what_is_listed_and_filtered(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/operate?tab=decisions")
    rows = page.locator("tbody tr")
    await expect(rows.filter(has_text="cancelled")).to_contain_text("the customer withdrew")
    await expect(rows.filter(has_text="forked")).to_contain_text("from refund-1042@5")
    await page.get_by_label("Decided by").fill("accounting")
    await page.get_by_role("button", name="answered").click()
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("decision: reject")
    await rows.get_by_role("link").click()
    await expect(page).to_have_url(re.compile("refund-1042-rejected\\?at=1"))
    await page.goto(f"{studio.home}#/operate?tab=decisions&by=nobody")
    await expect(page.get_by_text("No decision is like that")).to_be_visible()


async def test_the_loaded_code_is_checked_and_the_store_examined(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/operate?tab=code")
    await expect(page.locator("section.card", has_text="reminders")).to_contain_text("1 unfinished run: 1 as they are.")
    await expect(page.locator("section.card", has_text="articles")).to_contain_text("No run is unfinished.")
    await page.get_by_role("tab", name="Store").click()
    await expect(page.locator(".sentence")).to_contain_text("The store is healthy: ")


async def test_nobody_is_let_in_without_the_token(browser: Browser, studio: Studio) -> None:
    page = await browser.new_page()
    response = await page.goto(studio.home)
    assert response is not None
    assert response.status == 401
    assert (await page.request.get(f"{studio.home}api/v1/runs")).status == 401
    await page.close()


async def test_every_view_passes_axe_in_both_themes_and_fits_a_phone(page: Page, studio: Studio) -> None:
    views = (
        "#/runs",
        "#/runs/refund-1041",
        "#/runs/refund-1042?tab=turns",
        "#/runs/refund-1042?tab=changes&at=3",
        "#/runs/refund-1042?tab=time",
        "#/runs/refund-1042-rejected?tab=overview",
        "#/inbox",
        "#/compare?before=refund-1042&after=refund-1042-rejected",
        "#/operate",
        "#/operate?tab=cost",
        "#/operate?tab=decisions",
        "#/operate?tab=code",
        "#/operate?tab=store",
    )
    for view in views:
        await page.goto(studio.home + view)
        await page.wait_for_timeout(300)
        await check_axe(page, view)
        await show_theme(page, "dark")
        await check_axe(page, f"dark {view}", CONTRAST)
        await show_theme(page, "light")
        for width in (390, 360):
            await page.set_viewport_size({"width": width, "height": 740})
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, view
            assert await page.evaluate(MISFITS, width) == [], view
        await page.set_viewport_size(DESKTOP)


async def test_who_sees_the_page_first_answers_a_waiting_run_forks_it_and_compares(page: Page, studio: Studio) -> None:
    """Only what is on the screen is used, by its name there."""
    await page.goto(studio.home)
    await page.get_by_role("button", name="waiting").click()
    await page.get_by_role("link", name="refund-1041").click()
    await expect(page.get_by_text("is waiting for a response. approval asks: Refund 129.00")).to_be_visible()
    taken = page.locator(".edge.past")
    await expect(taken).to_have_count(9)  # of 13: nothing has left the approval
    await page.get_by_role("button", name="Answer", exact=True).click()
    await expect(page.get_by_role("radio", name="approve")).to_be_focused()
    await page.keyboard.press("Space")
    await page.get_by_role("button", name="Send response").click()
    await expect(page.get_by_text("Answered: approve.")).to_be_visible()
    await expect(page.get_by_text("Run refund-1041 of refunds is completed")).to_be_visible(timeout=15_000)
    await expect(page.locator(".headline")).to_have_text("129.00 for A-20931 is on its way")
    await expect(taken).to_have_count(11)  # and the two to pay, and from there
    await page.get_by_role("tab", name="Time").click()
    await expect(page.get_by_text(re.compile("waited for an answer"))).to_be_visible()
    await page.get_by_role("button", name="Fork with another answer…").first.click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Commit 5 is the point where refund-1041 waited for an answer.")
    await expect(dialog).to_contain_text("Answered there: approve")
    await dialog.get_by_text("reject", exact=True).click()
    await dialog.get_by_label("Note").fill("too late")
    await expect(dialog.get_by_label("Id of the new run")).to_have_value("refund-1041-fork")
    await dialog.get_by_role("button", name="Fork", exact=True).click()
    await expect(page.get_by_text("Run refund-1041-fork of refunds is completed")).to_be_visible(timeout=15_000)
    await expect(page.locator(".headline")).to_have_text("No refund for A-20931: too late")
    await expect(taken).to_have_count(10)
    await expect(page.locator("section", has=page.get_by_text("of refund-1041, before the fork"))).to_contain_text(
        "It arrived damaged."
    )
    await expect(page.get_by_role("button", name="desk, ran in refund-1041, before the fork")).to_be_visible()
    await page.get_by_role("link", name="Compare with refund-1041").click()
    await expect(page.get_by_role("heading", name="Compare refund-1041 with refund-1041-fork")).to_be_visible()
    await expect(page.locator(".sentence")).to_have_text(
        "Result: “129.00 for A-20931 is on its way” in refund-1041, “No refund for A-20931: too late” in "
        "refund-1041-fork. pay ran only in refund-1041."
    )
    for text in ("129.00 for A-20931 is on its way", "No refund for A-20931: too late"):
        await expect(page.locator(".diff").get_by_text(text)).to_be_visible()


async def press_until(page: Page, name: str, *, key: str = "Tab") -> None:
    """Move through the page as somebody without a mouse does, until what has this name is focused."""
    reached = """name => {
        const e = document.activeElement, label = e.labels?.[0]?.textContent ?? '';
        const words = `${e.ariaLabel ?? ''} ${e.textContent} ${label}`;
        return !['BODY', 'MAIN'].includes(e.tagName) && words.replace(/\\s+/g, ' ').trim().startsWith(name);
    }"""
    for _ in range(80):
        if await page.evaluate(reached, name):
            return
        await page.keyboard.press(key)
    raise AssertionError(f"{key} does not lead to {name!r}")


async def test_a_run_is_found_answered_forked_and_compared_with_the_keyboard_alone(page: Page, studio: Studio) -> None:
    keys = page.keyboard
    await page.goto(f"{studio.home}#/runs")
    await expect(page.get_by_role("link", name="refund-1043", exact=True)).to_be_visible()
    await keys.press("/")
    await keys.type("refund-1043")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await press_until(page, "refund-1043")
    await keys.press("Enter")
    await expect(page.locator(".sentence")).to_contain_text("is waiting for a response")
    await press_until(page, "Answer")
    await keys.press("Enter")
    await expect(page.get_by_role("radio", name="approve")).to_be_focused()
    await keys.press("ArrowRight")  # reject
    await expect(page.get_by_role("radio", name="reject")).to_be_checked()
    await press_until(page, "Send response")
    await keys.press("Enter")
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await press_until(page, "Fork with another answer")
    await keys.press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("radio", name="approve")).to_be_visible()
    await press_until(page, "approve")
    await keys.press("Space")
    await press_until(page, "Fork")
    await keys.press("Enter")
    await expect(page.get_by_role("heading", name="refund-1043-fork")).to_be_visible()
    await expect(page.locator(".pill").first).to_have_text("completed", timeout=15_000)
    await press_until(page, "Compare with refund-1043")
    await keys.press("Enter")
    await expect(page.locator(".diff .line", has_text="state.decision.decision").locator(".new")).to_have_text(
        "approve"
    )


async def test_what_is_on_the_page_is_shown_again_by_its_link_and_in_the_theme_that_was_chosen(
    page: Page, studio: Studio
) -> None:
    other = await page.context.new_page()

    async def shown(tab: Page) -> str:
        await tab.wait_for_timeout(400)
        text = await tab.locator("main").inner_text()
        fields = await tab.evaluate(
            "[...document.querySelectorAll('main :is(input, select)')].map(e => e.value).join()"
        )
        return re.sub(r"\d+ (s|min) ago|now", "", f"{text} {fields}")

    async def compare() -> None:
        before = await shown(page)
        await other.goto("about:blank")
        await other.goto(page.url)
        assert await shown(other) == before, page.url

    await page.goto(f"{studio.home}#/inbox")
    await page.get_by_role("button", name="May buyer call order?").click()
    await page.get_by_label("Workflow").select_option("workshop")
    await expect(page.get_by_role("article")).to_have_count(1)
    await compare()
    await page.goto(f"{studio.home}#/runs/refund-1042")
    await page.locator('[data-node="pay"] [role="button"]').click()
    await expect(page.get_by_text("Only pay")).to_be_visible()
    await page.locator(".mark").nth(4).click()
    await compare()
    await page.get_by_role("tab", name="State").click()
    await compare()
    await page.goto(f"{studio.home}#/compare")
    await page.get_by_label("One run", exact=True).fill("refund-1042")
    await page.get_by_label("The other run", exact=True).fill("refund-1042-rejected")
    await page.keyboard.press("Tab")
    await expect(page.locator(".diff .line").first).to_be_visible()
    await compare()
    await page.goto(f"{studio.home}#/operate?tab=decisions")
    await page.get_by_role("button", name="forked").click()
    await expect(page.locator("tbody tr").first).to_contain_text("forked")
    await compare()
    await page.get_by_role("button", name="Use the dark theme").click()
    await other.reload()
    for tab in (page, other):
        assert await tab.evaluate("document.documentElement.dataset.theme") == "dark"
        await tab.get_by_role("button", name="Use the light theme").focus()
    await other.close()
