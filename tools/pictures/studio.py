"""Photographs Studio's views, in both themes: `python -m tools.pictures.studio` writes docs/pictures/studio-*.png.

It starts `stepwell studio --demo` and opens the page in the Chromium of the machine.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.async_api import async_playwright

from tests.support.browser import FLAGS, find_chromium
from tools.pictures.__main__ import FOLDER

VIEWS = {
    "runs": "#/",
    "run": "#/runs/refund-1041",
    "agents": "#/runs/refund-1042?tab=turns",
    "inbox": "#/inbox",
    "compare": "#/compare?before=refund-1042&after=refund-1042-rejected",
    "operate": "#/operate?tab=cost",
}
THEMES: tuple[tuple[Literal["light", "dark"], str], ...] = (("light", ""), ("dark", "-dark"))
SETTLED = 1500  # milliseconds until the page shows what it fetched


async def photograph(address: str) -> None:
    home = address.partition("/login")[0] + "/"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        for theme, suffix in THEMES:
            context = await browser.new_context(viewport={"width": 1200, "height": 750}, color_scheme=theme)
            page = await context.new_page()
            await page.goto(address)
            for name, place in VIEWS.items():
                await page.goto("about:blank")
                await page.goto(home + place)
                await page.wait_for_timeout(SETTLED)
                await page.screenshot(path=FOLDER / f"studio-{name}{suffix}.png")
        await browser.close()


def main() -> None:
    command = [str(Path(sys.executable).parent / "stepwell"), "studio", "--no-browser", "--demo"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as studio,
    ):
        assert studio.stdout is not None
        try:
            asyncio.run(photograph(studio.stdout.readline().strip()))
        finally:
            studio.terminate()


if __name__ == "__main__":
    main()
