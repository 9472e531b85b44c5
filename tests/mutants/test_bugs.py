"""The list of bugs fits the source. Whether each is noticed is tried by `make mutants`, which takes minutes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_put_in(bug: Bug) -> None:
    text = (ROOT / "src" / "stepwell" / bug.file).read_text()
    assert text.count(bug.good) == 1
    ast.parse(text.replace(bug.good, bug.bad))  # a bug that is no Python would be noticed by anything
    assert all((ROOT / "tests" / name).exists() for name in bug.tests)


def test_no_two_bugs_have_one_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)


def test_the_page_about_reliability_does_not_count_them() -> None:
    rows = [
        row for row in (ROOT / "docs" / "reliability.md").read_text().splitlines() if row.startswith("| deliberate")
    ]
    assert [row.split("|")[2].strip() for row in rows] == ["all noticed"]  # a count would be wrong with the next bug
