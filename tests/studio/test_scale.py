"""The page on a large store, in a long stream, and while processes die under it."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Request, Route, expect

from .conftest import Studio, open_page, start_studio, submit

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNS = 100_100  # a search for a text looks through a hundred thousand at a time
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = str(Path(sys.executable).parent / "stepwell")


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """A store of many runs, and a worker for the workflows of `flows.py`."""
    folder = tmp_path_factory.mktemp("crowd")
    shutil.copy(Path(__file__).with_name("flows.py"), folder)
    fill = [sys.executable, str(ROOT / "benchmarks" / "large_store.py"), str(folder / "runs.db"), "--runs", str(RUNS)]
    subprocess.run(fill, check=True, stdout=subprocess.DEVNULL, timeout=300)
    works = ("--work", "flows:talking", "--work", "flows:counting")
    served = start_studio(folder, "--store", "runs.db", *works)
    yield served
    served.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def crowd_page(browser: Browser, crowd: Studio) -> AsyncIterator[Page]:
    context, page, complaints = await open_page(browser, crowd)
    yield page
    await context.close()
    assert complaints == []


async def test_a_hundred_thousand_runs_are_paged_filtered_and_counted(crowd_page: Page, crowd: Studio) -> None:
    page, rows = crowd_page, crowd_page.locator("tbody tr")
    await expect(rows).to_have_count(50)
    newest = await rows.first.locator("a.mono").inner_text()
    await page.get_by_role("link", name="Older").click()
    await expect(page).to_have_url(re.compile("after="))
    await expect(page.get_by_role("link", name=newest, exact=True)).to_have_count(0)
    await expect(rows).to_have_count(50)
    # Eight in a thousand are queued, and these are in no index of their own.
    await page.goto(f"{crowd.home}#/runs?status=queued")
    await expect(rows).to_have_count(50)
    await expect(page.locator("tbody .pill", has_text="queued")).to_have_count(50)
    await page.goto(f"{crowd.home}#/runs?tag=customer%3Dcustomer+17&status=completed")
    await expect(rows).to_have_count(21, timeout=15_000)

    async def delay(route: Route) -> None:
        await asyncio.sleep(1)
        await route.continue_()

    # Until the rows of a new filter are there, the old ones stay where they are, and are marked as old.
    await page.route(re.compile("text=NOWHERE"), delay)
    await page.goto(f"{crowd.home}#/runs?text=NOWHERE")
    await expect(page.locator('table[aria-busy="true"]')).to_be_visible()
    await expect(page.get_by_text("None of the 100,000 runs looked through is like that")).to_be_visible(timeout=30_000)
    await page.get_by_role("link", name="Search further").click()
    await expect(page.get_by_text("No run is like that")).to_be_visible(timeout=30_000)
    await page.goto(f"{crowd.home}#/operate")
    counted = page.get_by_role("tabpanel")
    await expect(counted).to_contain_text(re.compile(r"completed\s*94,0\d\d"), timeout=15_000)
    await expect(page.get_by_role("link", name="Inbox")).to_contain_text("100+")


async def test_among_a_hundred_thousand_runs_new_ones_appear_even_while_the_list_is_slow(
    crowd_page: Page, crowd: Studio
) -> None:
    page = crowd_page

    async def delay(route: Route) -> None:
        await asyncio.sleep(1)
        await route.continue_()

    await page.route(re.compile("/api/v1/runs\\?"), delay)
    await page.goto(f"{crowd.home}#/runs?workflow=counting")
    for number in range(8):  # something changes more often than the list can be read
        await submit(page, crowd, "counting", number, f"count-{number}")
        await asyncio.sleep(0.4)
        if number >= 5:
            assert await page.locator("tbody tr").count() > 0
    await expect(page.locator("tbody tr")).to_have_count(8, timeout=15_000)
    await expect(page.locator("tbody .pill", has_text="completed")).to_have_count(8, timeout=15_000)


async def test_a_tab_that_nobody_sees_holds_no_connection(crowd_page: Page, crowd: Studio) -> None:
    page, streams = crowd_page, list[str]()
    await expect(page.locator("tbody tr")).to_have_count(50)
    hide = """hidden => {
        Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    async with page.expect_event("requestfailed", lambda request: "/stream" in request.url, timeout=30_000) as ended:
        await page.evaluate(hide, True)
    assert "/stream" in (await ended.value).url

    def note(request: Request) -> None:
        if "/stream" in request.url:
            streams.append(request.url)

    page.on("request", note)
    await submit(page, crowd, "counting", 1, "unseen")
    await asyncio.sleep(1.5)
    assert streams == []
    await expect(page.get_by_role("link", name="unseen", exact=True)).to_have_count(0)
    await page.evaluate(hide, False)
    await expect(page.get_by_role("link", name="unseen", exact=True)).to_be_visible(timeout=15_000)


async def test_twelve_thousand_live_pieces_take_no_more_memory_than_two_thousand(
    crowd_page: Page, crowd: Studio
) -> None:
    page = crowd_page
    client = await page.context.new_cdp_session(page)
    await client.send("Performance.enable")

    async def measure() -> tuple[int, int]:
        await client.send("HeapProfiler.collectGarbage")
        metrics = (await client.send("Performance.getMetrics"))["metrics"]
        heap = next(metric["value"] for metric in metrics if metric["name"] == "JSHeapUsedSize")
        pages = int(Path(f"/proc/{crowd.process.pid}/statm").read_text().split()[1])
        return int(heap), pages * 4096

    await page.goto(f"{crowd.home}#/runs?workflow=talking")
    await submit(page, crowd, "talking", "go", "talk")
    await page.goto(f"{crowd.home}#/runs/talk?tab=turns")
    text = page.locator(".turn.live pre, .turn pre").last
    await expect(text).to_contain_text("hello?", timeout=30_000)
    (crowd.folder / "seen").touch()
    await expect(text).to_contain_text("piece-2000", timeout=30_000)
    heap, memory = await measure()
    (crowd.folder / "more").touch()
    await expect(text).to_contain_text("piece-11999", timeout=60_000)
    later_heap, later_memory = await measure()
    assert later_heap - heap < 1_000_000
    assert later_memory - memory < 20_000_000
    (crowd.folder / "enough").touch()
    await expect(page.locator(".turn.said", has_text="that is all")).to_be_visible(timeout=20_000)


@contextmanager
def worker(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [SCRIPT, "worker", "flows:delivering", "--store", "runs.db"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


@contextmanager
def server(folder: Path, port: str) -> Iterator[Studio]:
    """A server with a token that outlives it; it is killed at the end of the block."""
    command = [SCRIPT, "serve", "--store", "runs.db", "--port", port, "--work", "flows:counting"]
    process = subprocess.Popen(
        [*command, "--token", "a-token-of-the-tests"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    served = Studio(process, process.stdout.readline().strip(), folder)
    try:
        yield served
    finally:
        served.stop(signal.SIGKILL)


async def submit_by_program(folder: Path, run_id: str) -> None:
    program = (
        "import asyncio, flows, stepwell; storage = stepwell.SQLiteCheckpointStorage('runs.db'); "
        f"asyncio.run(flows.delivering.submit('tea', run_id={run_id!r}, checkpoint_storage=storage))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=folder)
    assert await process.wait() == 0


async def test_two_tabs_see_a_killed_worker_a_takeover_and_a_killed_server_without_a_reload(
    browser: Browser, tmp_path: Path
) -> None:
    shutil.copy(Path(__file__).with_name("flows.py"), tmp_path)
    await submit_by_program(tmp_path, "tea")
    with server(tmp_path, "0") as served:
        context, page, _ = await open_page(browser, served)
        other = await context.new_page()
        with worker(tmp_path) as first:
            for tab in (page, other):
                await tab.goto(f"{served.home}#/runs/tea")
                await expect(tab.locator(".pill").first).to_have_text("running", timeout=30_000)
                await expect(tab.locator('[data-node="deliver"]')).to_have_attribute("data-state", "working")
            first.kill()
            for tab in (page, other):
                await expect(tab.locator(".pill").first).to_have_text("stalled", timeout=30_000)
    for tab in (page, other):
        await expect(tab.get_by_role("status")).to_have_text("connecting…", timeout=15_000)
    # While nobody serves the page, another worker takes the run over.
    (tmp_path / "arrived").touch()
    with worker(tmp_path), server(tmp_path, served.home.rpartition(":")[2].strip("/")) as again:
        for tab in (page, other):
            await expect(tab.locator(".pill").first).to_have_text("completed", timeout=30_000)
            await expect(tab.get_by_role("status")).to_have_text("")
            await expect(tab.locator(".body")).to_contain_text("tea arrived")
        await page.get_by_role("tab", name="Time").click()
        await expect(page.locator("ul.plain")).to_contain_text("deliver: cut off; 1 step recalled")
        await submit(page, again, "counting", 1, "after")  # signed in as before
        await page.goto(f"{again.home}#/runs")
        await expect(page.locator("tbody tr")).to_have_count(2)
    await context.close()
