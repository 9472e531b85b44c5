"""The page in a real Chromium, on a real `stepwell studio` process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    async_playwright,
)

from tests.support.browser import FLAGS, find_chromium
from tests.support.lanes import mark_room

DESKTOP: ViewportSize = {"width": 1400, "height": 880}
CONTRAST = {"runOnly": ["color-contrast"]}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_room(__file__, items)


@dataclass
class Studio:
    """A process that serves the page."""

    process: subprocess.Popen[str]
    address: str  # with the token
    folder: Path

    @property
    def home(self) -> str:
        return self.address.partition("/login")[0] + "/"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()


def start_studio(folder: Path, *arguments: str) -> Studio:
    command = [str(Path(sys.executable).parent / "stepwell"), "studio", "--no-browser", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "STEPWELL_STORE"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:"), address
    return Studio(process, address, folder)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """The demo, for the tests of one module."""
    demo = start_studio(tmp_path_factory.mktemp("studio"), "--demo")
    yield demo
    demo.stop()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """A store with the workflows of `shop.py`, and a run whose process died in the middle."""
    folder = tmp_path_factory.mktemp("shop")
    shutil.copy(Path(__file__).with_name("shop.py"), folder)
    crashed = subprocess.run([sys.executable, "shop.py"], cwd=folder, check=False, timeout=60)
    assert crashed.returncode == 9
    names = ("survey", "team", "parcel", "flaky", "writing", "hostile", "crashing")
    served = start_studio(
        folder, "--store", "runs.db", *(part for name in names for part in ("--work", f"shop:{name}"))
    )
    yield served
    served.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield browser
        await browser.close()


async def check_both_themes(page: Page) -> None:
    """What a test leaves on the page can be read in light and in dark."""
    for theme in ("light", "dark"):
        await show_theme(page, theme)
        await check_axe(page, f"{theme} {page.url}", CONTRAST)


async def show_theme(page: Page, theme: str) -> None:
    await page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)


async def check_axe(page: Page, what: str, options: dict[str, Any] | None = None) -> None:
    results = await Axe().run(page, options=options)
    assert results.violations_count == 0, f"{what}: {results.generate_report()}"


async def open_page(browser: Browser, served: Studio) -> tuple[BrowserContext, Page, list[str]]:
    """Return a page that is signed in, and the list of what it complains about."""
    context = await browser.new_context(viewport=DESKTOP)
    page = await context.new_page()
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # What the server refuses, the page shows; the browser notes it as well.
        if message.type == "error" and "the server responded with a status of 4" not in message.text:
            complaints.append(message.text)

    def check_address(request: Request) -> None:
        if not request.url.startswith(served.home):
            complaints.append(f"asks {request.url}")

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", check_address)
    await page.goto(served.address)
    return context, page, complaints


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, studio: Studio) -> AsyncIterator[Page]:
    """A page of the demo; whatever it complains about fails the test."""
    context, page, complaints = await open_page(browser, studio)
    yield page
    await check_both_themes(page)
    await context.close()
    assert complaints == []


@pytest_asyncio.fixture(loop_scope="module")
async def shop_page(browser: Browser, shop: Studio) -> AsyncIterator[Page]:
    """A page of the shop; whatever it complains about fails the test."""
    context, page, complaints = await open_page(browser, shop)
    yield page
    await check_both_themes(page)
    await context.close()
    assert complaints == []


async def submit(page: Page, served: Studio, workflow: str, value: Any, run_id: str) -> None:
    """Start a run over HTTP, as another program would."""
    body = {"workflow": workflow, "input": value, "run_id": run_id}
    answer = await page.request.post(f"{served.home}api/v1/runs", data=body)
    assert answer.status == 201, await answer.text()
