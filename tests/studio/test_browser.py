"""The set-up finds a Chromium, installs the distribution's, or says in one line what to do. Other programs stand in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import browser
from tests.support.browser import find_chromium


@pytest.fixture
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("STEPWELL_CHROMIUM", raising=False)
    monkeypatch.setattr(browser, "PLACES", ())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(browser, "find_chromium", find_chromium.__wrapped__)  # not what an earlier test found
    return tmp_path


def put(path: Path, script: str = "exit 0") -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_one_that_is_named_or_on_the_path_is_used(bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bin / "apt-get", f"echo > {bin}/called")
    chrome = put(bin / "google-chrome")
    assert browser.find_chromium() == chrome
    named = put(bin / "mine")
    monkeypatch.setenv("STEPWELL_CHROMIUM", named)
    assert browser.find_chromium() == named
    monkeypatch.setenv("STEPWELL_CHROMIUM", str(bin / "gone"))
    with pytest.raises(RuntimeError, match=r"STEPWELL_CHROMIUM names .*gone, which is not a program"):
        browser.find_chromium()
    assert not (bin / "called").exists()


@pytest.mark.parametrize("installer", ["apt-get", "dnf", "apk"])
def test_root_installs_the_package_of_the_distribution(bin: Path, installer: str) -> None:
    made = f"echo > {bin}/chromium; /bin/chmod 755 {bin}/chromium"
    put(bin / installer, f'echo "$@" >> {bin}/called; case "$*" in *chromium) {made};; esac')
    assert browser.find_chromium() == str(bin / "chromium")
    *before, last = (bin / "called").read_text().splitlines()
    assert last.endswith("chromium")
    assert before == (["update -qq"] if installer == "apt-get" else [])


def test_what_cannot_be_installed_is_said_in_one_line(bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError) as bare:
        browser.find_chromium()
    put(bin / "apt-get", 'echo "no network" >&2; exit 100')
    with pytest.raises(RuntimeError) as failed:
        browser.find_chromium()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RuntimeError) as refused:
        browser.find_chromium()
    end = ", or set STEPWELL_CHROMIUM to one"
    command = "`apt-get install -y -qq chromium`"
    assert str(bare.value) == f"there is no Chromium here: install it with your package manager{end}"
    assert (
        str(failed.value) == f"there is no Chromium here (apt-get failed: no network): install it with {command}{end}"
    )
    assert str(refused.value) == f"there is no Chromium here: install it with {command}{end}"
