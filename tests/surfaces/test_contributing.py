"""What CONTRIBUTING.md says can be done: every command, path and marker that it names is there."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
CODE = [*re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL), *re.findall(r"`([^`\n]+)`", TEXT)]
COMMANDS = sorted({line for block in CODE for line in block.splitlines() if re.match(r"make |\.venv/bin/", line)})
FOLDERS = ("tests/", "src/", "docs/", "requirements/")
PATHS = sorted(
    {word for block in CODE for word in block.split() if word.startswith(FOLDERS) or re.fullmatch(r"[\w.-]+\.md", word)}
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def targets() -> set[str]:
    """The targets of the Makefile."""
    lines = (ROOT / "Makefile").read_text("utf-8").splitlines()
    rules = [line.partition(":")[0] for line in lines if re.match(r"[a-z][a-z ]*:(?!=)", line)]
    return {name for rule in rules for name in rule.split()} | {".venv/.ready"}


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("make ")])
def test_every_target_is_in_the_makefile(command: str) -> None:
    words = re.sub(r'"[^"]*"', "", command).split()[1:]
    assert {word for word in words if "=" not in word} <= targets()


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith(".venv")])
def test_every_tool_is_installed_by_the_lock(command: str) -> None:
    tool = command.removeprefix(".venv/bin/").split()
    name = tool[2] if tool[:2] == ["python", "-m"] else tool[0]
    assert re.search(rf"^{name}==", (ROOT / "requirements/dev.lock").read_text("utf-8"), re.MULTILINE)


def test_the_test_it_picks_is_there() -> None:
    (command,) = [command for command in COMMANDS if " -k " in command]
    *_, path, _, word = command.split()
    assert re.search(rf"def test_\w*{word}", (ROOT / path).read_text("utf-8"))


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_it_names_what_newcomers_need() -> None:
    assert {f"make {name}" for name in ("fast", "test", "matrix", "mutants", "lint", "types", "contracts")} <= {
        *COMMANDS
    }
    assert len(PATHS) > 10


def test_every_marker_it_names_is_known() -> None:
    markers = {line.partition(":")[0] for line in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    assert set(re.findall(r"the marker `(\w+)`", TEXT)) == markers


def test_it_is_part_of_what_is_published() -> None:
    assert "CONTRIBUTING.md" in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


def test_the_pythons_it_names_are_those_of_the_package() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if name.startswith(prefix)]
    assert named == ["3.11", "3.12", "3.13"]
    assert "Python 3.11, 3.12 and 3.13" in TEXT
    assert PROJECT["project"]["requires-python"] == ">=3.11"
