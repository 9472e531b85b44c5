"""The files of the page: small, typed, and nobody else's but for three vendored modules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import stepwell.server

FILES = Path(stepwell.server.__file__).parent / "studio" / "static"
TYPESCRIPT = "typescript@7.0.2"
IN_THE_WHEEL = 100_000  # bytes, compressed one by one as a wheel does it, with the licences
LOADED = 250_000  # bytes, not compressed: what a browser reads and keeps


def test_the_page_is_small() -> None:
    files = [path for path in FILES.parent.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) < IN_THE_WHEEL
    assert sum(path.stat().st_size for path in FILES.rglob("*") if path.is_file()) < LOADED


def test_the_page_asks_nobody_else_for_anything() -> None:
    for path in FILES.rglob("*"):
        if path.suffix in (".js", ".mjs", ".css", ".html"):
            addresses = re.findall(r"""(?:src|href|from|import|url)\s*[=(]?\s*["'(](https?:)?//""", path.read_text())
            assert addresses == [], path.name
    assert {path.name for path in (FILES.parent / "licences").iterdir()} == {"preact.txt", "htm.txt"}


def test_a_free_port_and_a_token_are_opened_in_the_browser_of_the_person(tmp_path: Path) -> None:
    """The program named by BROWSER stands in: it notes what it is to open."""
    note = 'echo "$1" > opened.part; mv opened.part opened'
    (tmp_path / "browse").write_text(f"#!/bin/sh\n{note}\n")
    (tmp_path / "browse").chmod(0o755)
    command = [str(Path(sys.executable).parent / "stepwell"), "studio", "--store", "runs.db"]
    environment = {**os.environ, "BROWSER": f"{tmp_path}/browse %s"}
    addresses = set[str]()
    processes = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        addresses.add(process.stdout.readline().strip())
        process.stdout.close()
    deadline = time.monotonic() + 20
    while not (tmp_path / "opened").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    opened = (tmp_path / "opened").read_text().strip()
    for process in processes:
        process.terminate()
        process.wait(20)
    assert opened in addresses
    assert len({urlsplit(address).port for address in addresses}) == 2
    assert all(re.fullmatch(r"http://127\.0\.0\.1:\d+/login\?token=[\w-]{20,}", address) for address in addresses)


def test_types_of_the_page_optional(tmp_path: Path) -> None:
    """Needs node, and the compiler, which is installed once beside the environment."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no node here")
    home = Path(sys.prefix) / "typescript"
    compiler = home / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        subprocess.run([npm, "install", "--silent", "--prefix", str(home), TYPESCRIPT], check=True, timeout=300)
    options = {
        "allowJs": True,
        "checkJs": True,
        "noEmit": True,
        "strict": True,
        "noImplicitAny": False,  # what a template calls has no types
        "noUnusedLocals": True,
        "target": "es2022",
        "module": "es2022",
        "moduleResolution": "bundler",
        "lib": ["es2023", "dom", "dom.iterable"],
        "types": [],
    }
    settings = {"compilerOptions": options, "files": [str(FILES / "main.js")]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    result = subprocess.run([str(compiler), "-p", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout
