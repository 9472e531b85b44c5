"""Every error has an id, and every id a section that says what happened, why, and what to do."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.cli.explanations import PAGES, read_explanations, read_page
from stepwell.error_ids import ErrorId
from stepwell.errors import HandlerFailed, StepwellError
from tests.support.command_line import Say
from tools.site.pages import PACKAGES

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def public_errors() -> Iterator[type[BaseException]]:
    for package in map(importlib.import_module, PACKAGES):
        for value in (getattr(package, name) for name in package.__all__):
            if inspect.isclass(value) and issubclass(value, BaseException):
                yield value


@pytest.mark.process  # a library that a package loads asks for the kind of machine
def test_every_public_error_has_the_id_of_its_name() -> None:
    ids = {kind.__name__: getattr(kind, "id", None) for kind in public_errors()}
    assert ids == {name: ErrorId[name] for name in ids}


def test_no_error_of_the_package_comes_without_an_id() -> None:
    with pytest.raises(KeyError, match="OutOfTea"):
        type("OutOfTea", (StepwellError,), {"__module__": "stepwell.kitchen"})


def test_every_id_belongs_to_a_class_or_to_the_commands() -> None:
    classes = {name for source in SOURCES for name in re.findall(r"^class (\w+)", source.read_text(), re.MULTILINE)}
    of_commands = {id.name for id in ErrorId if id.startswith("SW5")}
    assert {id.name for id in ErrorId} - of_commands <= classes
    assert of_commands == {id.name for id in ErrorId if id.name.isupper()}


def test_an_id_is_used_once_and_has_one_form() -> None:
    assert list(ErrorId) == list(ErrorId.__members__.values())
    assert [id for id in ErrorId if not re.fullmatch(r"SW\d{3}", id)] == []


def test_a_class_of_somebody_else_has_the_id_of_its_base() -> None:
    class NotFound(HandlerFailed):  # a name that we use, too
        pass

    assert NotFound.id == HandlerFailed.id == "SW201"


def test_every_id_has_a_section_with_its_name_and_every_section_an_id() -> None:
    explanations = read_explanations()
    assert {id: item.name for id, item in explanations.items()} == {id.value: id.name for id in ErrorId}
    for item in explanations.values():
        assert all(re.search(r"\w.*[.:*`)]$", part, re.DOTALL) for part in (item.happened, item.why, item.do)), item
    assert sum(page.count("\n## ") for page in map(read_page, PAGES)) == len(ErrorId)


def test_every_id_of_a_command_is_raised_by_one() -> None:
    command_line = [source for source in SOURCES if "cli" in source.parts]
    named = {name for source in command_line for name in re.findall(r"\bErrorId\.(\w+)", source.read_text())}
    assert {id.name for id in ErrorId if id.name.isupper()} <= named


@pytest.mark.parametrize("page", PAGES)
def test_the_docs_show_the_page_that_is_packaged(page: str) -> None:
    shown = (ROOT / "docs" / page).read_text()
    assert shown == read_page(page), "cp src/stepwell/cli/explanations/*.md docs"


def test_a_command_ends_with_the_id_and_explain_knows_it(say: Say) -> None:
    failed = say("--store", "nowhere.db", "list")
    assert failed.stderr.splitlines()[0] == "stepwell: there is no store: nowhere.db does not exist [SW503]"
    explained = say("explain", "sw503")
    assert (explained.exit_code, explained.stdout.splitlines()[0]) == (0, "SW503 NO_STORE")
    assert "\nWhy: " in explained.stdout
    assert "\nDo: name the store with `--store`" in explained.stdout


@pytest.mark.parametrize(
    ("arguments", "id"),
    [
        (["frobnicate"], "SW501"),
        (["list", "--frobnicate"], "SW501"),
        (["--store", "ftp://x", "list"], "SW504"),
        (["viz", "nothing:at_all"], "SW507"),
        (["import", "nothing.stepwell"], "SW510"),
        (["--server", "http://127.0.0.1:9", "list"], "SW516"),
        (["explain", "SW999"], "SW525"),
    ],
)
def test_each_kind_of_failure_shows_its_id_and_a_hint(say: Say, arguments: list[str], id: str) -> None:
    first, *_, last = say(*arguments).stderr.splitlines()
    assert first.startswith("stepwell: ")
    assert first.endswith(f" [{id}]")
    assert last.startswith("hint: ")


def test_explain_suggests_what_was_meant_and_lists_all(say: Say) -> None:
    wrong = say("explain", "HandlerFail")
    assert (wrong.exit_code, wrong.stdout) == (3, "")
    assert "did you mean SW201 (HandlerFailed)" in wrong.stderr
    listed = say("explain").stdout.splitlines()
    assert listed == [f"{id.value}  {id.name}" for id in ErrorId]
    document = json.loads(say("explain", "HandlerFailed", "--json").stdout)
    assert (document["id"], document["name"]) == ("SW201", "HandlerFailed")
    assert document["do"].startswith("fix the cause")
