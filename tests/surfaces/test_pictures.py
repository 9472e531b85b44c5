"""The pictures of the docs are those that the code draws, and each has a dark twin."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tools.pictures.__main__ import FOLDER, draw_all
from tools.pictures.canvas import DARK, LIGHT
from tools.pictures.demo import Line, draw, read_line
from tools.pictures.studio import VIEWS


@pytest.mark.parametrize("name", draw_all())
def test_a_picture_is_the_one_that_the_code_draws(name: str) -> None:
    drawn = draw_all()[name]
    assert (FOLDER / name).read_text() == drawn, "python -m tools.pictures draws them anew"
    ElementTree.fromstring(drawn)


def test_every_picture_has_a_dark_twin_and_is_made_by_code() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    made = {*draw_all(), *(f"studio-{view}{twin}.png" for view in VIEWS for twin in ("", "-dark"))}
    assert names == made | {"demo.svg", "demo-dark.svg"}


@pytest.mark.parametrize("name", ["demo.svg", "demo-dark.svg"])
def test_the_recording_shows_the_kills_and_what_ran_again(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert "killed with SIGKILL while 2 of them were still working" in text
    assert re.search(r"research/hotels +2x", text)
    assert re.search(r"research/weather +1x", text)
    assert "Nothing that had finished ran again." in text


def test_a_recording_shows_each_line_at_its_time_in_its_style() -> None:
    faint = read_line("\x1b[2m  [7]  a < b\x1b[0m\r", at=2.0)
    assert faint == Line("  [7]  a < b", "2", 2.0)
    heading = read_line("\x1b[36;1m[1]\x1b[0m Start", at=0.0)
    assert heading == Line("[1] Start", "1", 0.0)
    picture = draw([heading, faint], LIGHT)
    rows = ElementTree.fromstring(picture).findall("{http://www.w3.org/2000/svg}text")
    assert [row.get("fill") for row in rows] == [LIGHT.good, LIGHT.faint]
    assert "a &lt; b" in picture
    assert DARK.paper in draw([faint], DARK)
