"""The project has one name, and what it says about installing itself is so."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import stepwell

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = ("src", "tests", "docs", "examples", "benchmarks", "requirements")
OLD_NAME = "hold" + "fast"
HINT = re.compile(r"pip install (?:--upgrade )?['\"]?(\w+)(?:\[([\w,-]+)\])?")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.name != "CHANGELOG.md")
    for folder in WRITTEN:
        found = (path for path in (ROOT / folder).rglob("*") if path.is_file())
        yield from (path for path in found if "__pycache__" not in path.parts)


def test_the_name_it_had_before_is_only_in_the_changelog() -> None:
    for path in files():
        assert OLD_NAME not in path.name.lower()
        assert OLD_NAME.encode() not in path.read_bytes().lower(), path


def test_the_distribution_the_command_and_the_version_agree() -> None:
    assert PROJECT["name"] == stepwell.__name__
    assert PROJECT["scripts"] == {"stepwell": "stepwell.cli.main:main"}
    assert PROJECT["version"] == stepwell.__version__
    assert f"\n## {stepwell.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_hints_about_installing_name_the_package_and_an_extra_that_it_has() -> None:
    hints = [
        (hint[1], hint[2])
        for path in files()
        if path.suffix in (".py", ".md") and path.parts[-2] != "surfaces"
        for hint in HINT.finditer(path.read_text())
        if hint[1] not in ("to", "or", "and")
    ]
    assert len(hints) > 10
    assert {name for name, _ in hints} == {"stepwell"}
    named = {extra for _, extras in hints if extras for extra in extras.split(",")}
    assert named <= set(PROJECT["optional-dependencies"])
    assert {"cli", "declarative", "postgres", "seal"} <= named
