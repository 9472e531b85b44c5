"""Measure the page of `stepwell studio` in a Chromium, and print the table of docs/performance.md.

    python benchmarks/studio.py [--runs 1000000] [--store runs.db] [--pages 50] [--write docs/performance.md]

On a store of many runs: how soon the page shows something and how soon its list is there; how long the server takes
for a page of the list with each filter; the CPU that open pages take of the server while nothing happens, and while
runs are submitted; how large the page is. A store that is not there yet is filled first (`large_store.py`), which
takes about a minute for a million runs. Needs the environment of the tests, and a Chromium.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import large_store  # noqa: E402
from playwright.async_api import APIRequestContext, Browser, Page, async_playwright  # noqa: E402
from server import cpu_seconds, resident, write  # noqa: E402

from tests.support.browser import FLAGS, find_chromium  # noqa: E402

BEGIN, END = "<!-- studio: begin -->", "<!-- studio: end -->"
REPEATS = 7
IDLE, BUSY, RATE = 20.0, 20.0, 5.0  # seconds, seconds, submits per second
FILTERS = {
    "the newest runs": "",
    "completed": "status=completed",
    "failed, of one workflow": "status=failed&workflow=orders",
    "queued": "status=queued",
    "running": "status=running",
    "with a tag that few runs have": "tag=customer%3Dcustomer%2017",
    "with two tags": "tag=customer%3Dcustomer%2017&tag=team%3Dsouth",
    "failed, with a tag that one run in four has": "status=failed&tag=team%3Dnorth",
    "with a text that is in a few thousand": "text=stomer%20171",
    "with a text that none of the newest 100,000 has": "text=nowhere",
}


@contextmanager
def served(store: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process that serves the page, with a worker; yields its address, with the token."""
    command = [str(Path(sys.executable).parent / "stepwell"), "studio", "--no-browser", "--store", str(store)]
    command += ["--work", "large_store:parcels"]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).resolve().parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.wait()


async def open_page(browser: Browser, address: str) -> Page:
    """Open a page of its own: browsers open few connections to one server."""
    page = await (await browser.new_context(viewport={"width": 1400, "height": 880})).new_page()
    await page.goto(address)
    return page


async def measure_opening(page: Page, home: str) -> tuple[float, float]:
    """Return the milliseconds until something is painted, and until the list can be used."""
    await page.goto("about:blank")
    await page.goto(home, wait_until="commit")
    ready = """() => new Promise(done => {
        const look = () => document.querySelectorAll('tbody tr').length >= 50
            ? requestAnimationFrame(() => setTimeout(() => done(performance.now()))) : requestAnimationFrame(look);
        look();
    })"""
    usable = float(await page.evaluate(ready))
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return float(await page.evaluate(paint)), usable


async def measure_filters(request: APIRequestContext, home: str) -> list[tuple[str, str]]:
    rows = []
    for name, query in FILTERS.items():

        async def ask(query: str = query) -> None:
            answer = await request.get(f"{home}api/v1/runs?limit=50&{query}")
            assert answer.ok, await answer.text()

        rows.append((f"a page of the list: {name}", f"{await median_of(ask):.0f} ms"))
    return rows


async def median_of(ask: Callable[[], Awaitable[None]]) -> float:
    """Return the median time of a call in milliseconds, after one that does not count."""
    times = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        await ask()
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[1:])


async def measure_pages(browser: Browser, address: str, process: int, pages: int) -> list[tuple[str, str]]:
    """Return the CPU that open pages take of the server, and its memory."""
    home = address.partition("/login")[0] + "/"
    opened = [await open_page(browser, address) for _ in range(pages)]
    await asyncio.sleep(3)

    async def share_during(work: Awaitable[None], seconds: float) -> float:
        before, begin = cpu_seconds(process), time.perf_counter()
        await work
        await asyncio.sleep(max(0.0, begin + seconds - time.perf_counter()))
        return (cpu_seconds(process) - before) / (time.perf_counter() - begin)

    async def submit() -> None:
        begin = time.perf_counter()
        for number in range(int(BUSY * RATE)):
            await asyncio.sleep(max(0.0, begin + number / RATE - time.perf_counter()))
            order = {"workflow": "parcels", "input": "small"}
            assert (await opened[0].request.post(f"{home}api/v1/runs", data=order)).ok

    idle = await share_during(asyncio.sleep(0), IDLE)
    busy = await share_during(submit(), BUSY)
    for page in opened:
        await page.context.close()
    await asyncio.sleep(2)
    alone = await share_during(asyncio.sleep(0), 5.0)
    return [
        (f"CPU of the server, {pages} open pages, nothing happens", f"{idle:.0%} of a core"),
        (f"the same, {RATE:.0f} runs per second are submitted and driven", f"{busy:.0%} of a core"),
        ("the same, no page, nothing happens", f"{alone:.0%} of a core"),
        ("memory of the server at the end", f"{resident(process) / 2**20:.0f} MiB"),
    ]


def measure_files() -> list[tuple[str, str]]:
    folder = ROOT / "src" / "stepwell" / "server" / "studio"
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    packed = sum(len(zlib.compress(path.read_bytes())) for path in files)
    whole = sum(path.stat().st_size for path in files)
    return [("size of the page in the wheel", f"{packed / 1000:.0f} KB ({whole / 1000:.0f} KB unpacked)")]


async def measure(store: Path, pages: int) -> list[tuple[str, str]]:
    rows = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        with served(store) as (address, process):
            home = address.partition("/login")[0] + "/"
            page = await open_page(browser, address)
            opened = [await measure_opening(page, home) for _ in range(REPEATS + 1)][1:]
            painted, usable = (statistics.median(times) for times in zip(*opened, strict=True))
            rows += [
                ("first paint", f"{painted:.0f} ms"),
                ("time to interactive: 50 runs are listed", f"{usable:.0f} ms"),
            ]
            rows += await measure_filters(page.request, home)
            await page.context.close()
            rows += await measure_pages(browser, address, process.pid, pages)
        await browser.close()
    return rows + measure_files()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path, help="an SQLite store, filled first if it is not there")
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepwell-studio-", dir=Path.cwd()) as folder:
        store = arguments.store or Path(folder) / "runs.db"
        if not store.exists():
            large_store.fill(store, arguments.runs)
        rows = asyncio.run(measure(store.resolve(), arguments.pages))
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    print("\n".join(lines))
    if arguments.write is not None:
        write(arguments.write, lines, BEGIN, END)


if __name__ == "__main__":
    main()
