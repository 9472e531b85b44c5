"""What a person sees and does: each test is one of the things the page is for."""

from __future__ import annotations

import re

from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Browser, Page, expect

from .conftest import Studio


async def test_runs_are_listed_with_how_they_stand_and_filtered_by_a_link(page: Page, studio: Studio) -> None:
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(10)
    await expect(page.get_by_role("row", name=re.compile("export-88"))).to_contain_text("stalled")
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


async def test_the_list_is_used_with_the_keyboard_alone(page: Page) -> None:
    await expect(page.locator("tbody tr")).to_have_count(10)
    await page.locator("#view").focus()
    for key in ("j", "j", "k", "Enter"):
        await page.keyboard.press(key)
    await expect(page.get_by_role("heading", name="export-88")).to_be_visible()
    await expect(page.locator(".sentence")).to_contain_text("Run export-88 of nightly-export")


async def test_a_failed_run_says_why_and_shows_which_branches_are_safe(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1045")
    await expect(page.locator(".sentence")).to_contain_text("failed in check_fraud: LookupError")
    await expect(page.locator("code").first).to_have_text(re.compile("stepwell resume .*refund-1045"))
    states = {name: page.locator(f'[data-node="{name}"]') for name in ("find_order", "check_fraud", "desk")}
    await expect(states["find_order"]).to_have_attribute("data-state", "ran")
    await expect(states["check_fraud"]).to_have_attribute("data-state", "failed")
    await expect(states["desk"]).to_have_attribute("data-state", "idle")
    await page.get_by_text("Traceback", exact=True).click()
    await expect(page.locator("pre")).to_contain_text("raise LookupError")


async def test_an_older_commit_is_shown_by_a_link_with_what_it_changed(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042")
    await page.locator(".mark", has_text="desk").click()
    await expect(page.locator(".diff")).to_contain_text("state.facts")
    await expect(page.locator('[data-node="pay"]')).to_have_attribute("data-state", "idle")
    await page.goto(page.url)
    await expect(page.get_by_role("button", name="at commit 3")).to_be_visible()
    await page.get_by_role("tab", name="State").click()
    await expect(page.locator(".tree").first).to_contain_text("customer 1208")
    await expect(page.locator(".tree").first).not_to_contain_text("decision")


async def test_a_large_state_is_searched(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/workshop-7?tab=state")
    await page.get_by_role("searchbox", name="Search in the state").fill("usage")
    await expect(page.locator(".tree").first).to_contain_text("agents/chair/usage")
    await expect(page.locator(".tree").first).not_to_contain_text("agents/chair/conversation")


async def test_turns_of_agents_are_a_conversation(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042?tab=turns")
    await expect(page.locator(".turn.tool")).to_contain_text("search_policy")
    await expect(page.locator(".turn.tool")).to_contain_text('{"words": "damaged on arrival"}')
    await expect(page.locator(".turn.model").first).to_contain_text("tokens")
    await page.get_by_role("tab", name="Time").click()
    await expect(page.locator(".times .span.ran")).to_have_count(10)


async def test_two_checkpoints_are_compared_across_a_fork(page: Page, studio: Studio) -> None:
    await page.goto(f"{studio.home}#/runs/refund-1042-rejected")
    await page.get_by_role("link", name="compare", exact=True).click()
    changed = page.locator(".diff .line", has_text="approve")
    await expect(changed.locator(".side.gone")).to_have_text("approve")
    await expect(changed.locator(".side.new")).to_have_text("reject")


async def test_nobody_is_let_in_without_the_token(browser: Browser, studio: Studio) -> None:
    page = await browser.new_page()
    response = await page.goto(studio.home)
    assert response is not None
    assert response.status == 401
    assert (await page.request.get(f"{studio.home}api/v1/runs")).status == 401
    await page.close()


async def test_every_view_passes_axe_in_both_themes_and_fits_a_phone(page: Page, studio: Studio) -> None:
    views = ("#/runs", "#/runs/refund-1041", "#/runs/refund-1042?tab=turns", "#/inbox", "#/compare", "#/operate")
    for theme in ("light", "dark"):
        await page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
        for view in views:
            await page.goto("about:blank")
            await page.goto(studio.home + view)
            await page.wait_for_timeout(400)
            assert await page.evaluate("document.documentElement.dataset.theme") == theme
            results = await Axe().run(page)
            assert results.violations_count == 0, f"{theme} {view}: {results.generate_report()}"
    await page.set_viewport_size({"width": 360, "height": 740})
    for view in views:
        await page.goto("about:blank")
        await page.goto(studio.home + view)
        await page.wait_for_timeout(300)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360, view
