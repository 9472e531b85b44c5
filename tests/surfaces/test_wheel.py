"""What the wheel holds besides code: the explanations of errors, and the skill for coding agents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from stepwell.cli.explanations import PAGES
from tests.surfaces.test_docs import SKILL

ROOT = Path(__file__).resolve().parents[2]
LONGEST_SKILL = 150  # lines; an agent reads all of it


@pytest.mark.process
def test_the_wheel_holds_the_skill_and_the_explanations(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        for file in [SKILL, *(ROOT / "src/stepwell/cli/explanations" / page for page in PAGES)]:
            assert archive.read(file.relative_to(ROOT / "src").as_posix()) == file.read_bytes()


def test_the_skill_says_its_name_and_when_it_is_needed_and_is_short() -> None:
    front = re.match(r"---\nname: (\S+)\ndescription: (.+)\n---\n", SKILL.read_text())
    assert front is not None
    assert front[1] == SKILL.parent.name == "stepwell"
    assert "Use it when" in front[2]
    assert len(front[2]) <= 1024
    assert len(SKILL.read_text().splitlines()) <= LONGEST_SKILL
