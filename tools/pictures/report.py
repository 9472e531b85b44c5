"""Photographs a report, in both themes: `python -m tools.pictures.report` writes docs/report-light.png and -dark.png.

The report is that of a run of Studio's demo, in the Chromium of the machine.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

from playwright.async_api import async_playwright

from stepwell import SQLiteCheckpointStorage
from stepwell.admin.report.page import report_to
from stepwell.server.studio.demo.runs import make_runs
from tests.support.browser import FLAGS, find_chromium
from tools.pictures.__main__ import FOLDER

RUN = "refund-1042"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def photograph(page_file: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        for theme in THEMES:
            page = await browser.new_page(viewport={"width": 900, "height": 1500}, color_scheme=theme)
            await page.goto(page_file.as_uri())
            await page.screenshot(path=FOLDER.parent / f"report-{theme}.png")
        await browser.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, page_file = Path(folder, "runs.db"), Path(folder, "report.html")
        async with SQLiteCheckpointStorage(store) as storage:
            await make_runs(storage, store)
            await report_to(page_file, storage, RUN)
        await photograph(page_file)


if __name__ == "__main__":
    asyncio.run(main())
