"""The program itself: its help, commands that are misspelt, completion, and the names of stores and ids."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from stepwell import (
    Executor,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from stepwell.cli.app import COMMANDS
from tests.support.command_line import Place, Say, ran
from tests.support.operating_runs import Order, asking

COMMON = ("--store", "--server", "--debug", "--no-input", "--yes", "--utc")


def test_without_arguments_the_program_prints_its_help(say: Say) -> None:
    done = say()
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == say("--help").stdout
    assert all(option in done.stdout for option in COMMON)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_names_the_common_options_in_one_line_and_cuts_no_sentence(say: Say, name: str) -> None:
    shown = say(name, "--help").stdout
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  --")]
    assert not [option for option in listed if option.rstrip(",") in COMMON]
    ending = re.sub(r"\s+", " ", shown).strip()
    assert ending.endswith(f"Every command also has {', '.join(COMMON)}: see stepwell --help.")
    assert "..." not in re.sub(r"(\]|[A-Z])\.\.\.", "", shown)  # as in [RUN]...


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("lst", "; did you mean list"), ("shwo", "; did you mean show?"), ("Respnd", "; did you mean respond"), ("x", "")],
)
def test_a_misspelt_command_gets_the_one_that_was_meant(say: Say, typed: str, hint: str) -> None:
    done = say(typed)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"stepwell: there is no command '{typed}'{hint}")
    assert done.stderr.splitlines()[-1] == "hint: stepwell --help"


@pytest.mark.parametrize("address", ["orders.db", "orders.sqlite3", "./orders.db", "runs"])
def test_a_store_is_named_by_its_file(say: Say, tmp_path: Path, address: str) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / address)

    async def work() -> None:
        await asking(storage).run(Order(7, ["tea"]), run_id="refund-7")
        await storage.close()

    asyncio.run(work())
    done = say("--store", address, "list")
    assert (done.exit_code, "refund-7" in done.stdout) == (0, True), done.stderr
    assert f"--store {address}" in say("--store", address, "show", "refund-7").stdout


def test_a_file_that_is_named_is_created_and_anything_else_is_a_directory(say: Say, tmp_path: Path) -> None:
    for address in ("new.db", "new"):
        assert say("--store", address, "migrate").exit_code == 0
    assert (tmp_path / "new.db").is_file()
    assert (tmp_path / "new").is_dir()


def complete(words: str, at: int) -> list[list[str]]:
    """What a shell is told: pairs of a suggestion and its help."""
    environment = {"_STEPWELL_COMPLETE": "fish_complete", "COMP_WORDS": words, "COMP_CWORD": words.split(" ")[at]}
    done = ran(env=environment)
    assert done.returncode == 0, done.stderr
    return [line.partition(",")[2].split("\t") for line in done.stdout.splitlines()]


@pytest.mark.process
def test_ids_of_runs_and_requests_are_completed(sqlite: Place) -> None:
    assert complete("stepwell --store runs.db show re", -1) == [["refund-7", "refunds, waiting"]]
    assert [item[0] for item in complete("stepwell --store runs.db show ", -1)] == ["refund-7", "count-1"]
    assert complete("stepwell tail --store runs.db coun", -1) == [["count-1", "counting, completed"]]
    assert [item[0] for item in complete("stepwell --store runs.db respond refund-7 ", -1)] == ["refund-7"]
    assert complete("stepwell --store nothing.db show re", -1) == [[""]]  # what the shell itself knows: nothing


class Asker(Executor):
    """Asks questions whose ids start alike."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        for id in ("approve-tea", "approve-cup", "number"):
            await ctx.request_info(text, bool, request_id=id)

    @response_handler
    async def decided(self, original_request: str, response: bool, ctx: WorkflowContext[None, str]) -> None:
        """Nothing comes of it."""


def test_a_fork_takes_shortened_ids_of_requests(say: Say, tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")

    async def work() -> None:
        asks = WorkflowBuilder(name="asks", start_executor=Asker("ask"), checkpoint_storage=storage).build()
        await asks.run("tea", run_id="asks-1")
        await storage.close()

    asyncio.run(work())
    fork = ["--store", "runs.db", "fork", "asks-1", "--as", "fork-1"]
    several = say(*fork, "--response", "appr=true")
    assert (several.exit_code, "'appr' matches 'approve-tea', 'approve-cup'" in several.stderr) == (2, True)
    twice = say(*fork, "--response", "numb=true", "--response", "number=false")
    assert (twice.exit_code, "'number' is responded to twice" in twice.stderr) == (2, True)
    wrong = say(*fork, "--response", "numb=3")
    assert (wrong.exit_code, "is not a valid response to 'number'" in wrong.stderr) == (2, True)
    unknown = say(*fork, "--response", "gone=true")
    assert (unknown.exit_code, "no open request 'gone'" in unknown.stderr) == (3, True)
    assert say(*fork, "--response", "approve-t=true", "--response", "numb=true").exit_code == 0
    assert "2 responses have arrived and are not applied yet" in say("--store", "runs.db", "show", "fork-1").stdout


SHORT = [
    "show refu",
    "show refu@0",
    "events refu",
    "tail refu",
    "diff refu@0 refu",
    "fork refu --dry-run",
    "requests --run refu",
    "respond refu refu --response true",
    "export refu -o run.stepwell",
    "export refu --html -o run.html",
    "cancel refu",
    "retry refu",
    "prune refu --keep-last 1 --dry-run",
    "restore refu@0",
]


def test_ids_of_runs_may_be_shortened_wherever_they_are_taken(say: Say, tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "orders.db")

    async def work() -> None:
        await asking(storage).run(Order(7, ["tea"]), run_id="refund-7")
        await storage.close()

    asyncio.run(work())
    for command in SHORT:
        done = say("--store", "orders.db", *shlex.split(command))
        assert done.exit_code == 0, (command, done.stderr)


def test_respond_prints_json_and_takes_the_response_as_an_option(sqlite: Place, say: Say) -> None:
    done = say("--store", "runs.db", "respond", "refund-7", "--response", "true", "--by", "ada", "--json")
    assert done.exit_code == 0, done.stderr
    assert '"request_id": "refund-7"' in done.stdout
    assert '"by": "ada"' in done.stdout
    assert done.stderr == ""
