"""Commands on a server: they say and do what they say and do on a store."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import pytest
import uvicorn
from click.testing import CliRunner, Result

from stepwell import SQLiteCheckpointStorage
from stepwell.cli.app import stepwell
from stepwell.server import app
from stepwell.server.api import runs
from stepwell.server.process import bind
from tests.server.flows import counting_down, refunds
from tests.server.processes import TOKEN, server

pytestmark = pytest.mark.process
CHECKPOINT = r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
TIMES = r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00| UTC)?|\b\d+ (s|min)\b|[\d,]+ bytes"
FIELDS = r"(\"(?:age_seconds|bytes|given_back)\": )\d+"
SUBMIT = ("submit", "tests.server.flows:refunds")


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPWELL_TOKEN", TOKEN)
    monkeypatch.delenv("STEPWELL_STORE", raising=False)


def say(*words: str) -> Result:
    return CliRunner().invoke(stepwell, list(words), prog_name="stepwell")


def fill(path: str) -> None:
    async def work() -> None:
        async with SQLiteCheckpointStorage(path) as storage:
            await counting_down.run(2, run_id="numbers", checkpoint_storage=storage)
            await refunds.run(400, run_id="refund", checkpoint_storage=storage, tags={"shop": "north"})

    asyncio.run(work())


class Twins:
    """A server on one store, and another store with the same runs."""

    def __init__(self, address: str, store: str) -> None:
        self._places = {"--server": address, "--store": store}

    def say(self, *words: str, same_notes: bool = True) -> Result:
        """Give a command to both, and check that they say the same; return what it says of the server."""
        here, there = (say(*words, *place) for place in self._places.items())
        said_here, said_there = (self._neutral(said.stdout) for said in (here, there))
        assert here.exit_code == there.exit_code, here.output
        if "--json" in words and said_here.startswith("{") and words[0] not in ("events", "tail"):
            assert json.loads(said_here) == json.loads(said_there)
        else:
            assert said_here.split() == said_there.split()
        if same_notes:
            assert self._neutral(here.stderr) == self._neutral(there.stderr)
        assert TOKEN not in here.output
        return here

    def _neutral(self, text: str) -> str:
        """Leave out how the place is named, and what differs from moment to moment."""
        for name, address in self._places.items():
            text = text.replace(f" {name} {address}", "")
        return re.sub(FIELDS, r"\g<1>0", re.sub(TIMES, "", re.sub(CHECKPOINT, "ID", text)))


def test_commands_that_read(tmp_path: Path) -> None:
    fill("runs.db")
    with server("runs.db") as one:
        both = Twins(one.address, "runs.db")
        assert "refund" in both.say("list").stdout
        assert "refund 400?" in both.say("requests").stdout
        both.say("requests", "--json")
        both.say("list", "--tag", "shop=north", "--json")
        both.say("list", "--status", "failed")
        both.say("workers")
        for name in ("numbers", "refund"):
            for json_option in ((), ("--json",)):
                assert both.say("events", name, *json_option).stdout
                both.say("tail", name, "-n", "3", *json_option)
        assert both.say("tail", "numbers", "--follow", "-n", "2").stdout.count("\n") == 2
        assert say("tail", "refund", "--follow", "--server", one.address).exit_code == 4
        first = json.loads(say("show", "numbers@0", "--json", "--server", one.address).stdout)["checkpoint_id"]
        for words in (("numbers", "--utc"), ("refund",), ("refund@0", "--full"), ("numb", "1"), (first,)):
            assert both.say("show", *words).exit_code == 0
            both.say("show", *words, "--json")
        for words in (("missing",), ("numbers@77",), ("refund", first)):
            assert both.say("show", *words).exit_code == 3
        assert both.say("cancel", "missing").exit_code == 3
        assert both.say("retry", "missing").exit_code == 3


def test_what_a_server_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill("runs.db")
    with server("runs.db") as one:
        place = ("--server", f"{one.address}/login?token={quote(TOKEN)}")
        monkeypatch.delenv("STEPWELL_TOKEN")
        sent = say("respond", "refund", "approval", "--response", "true", *place)
        assert sent.stdout == "responded to approval of refund\n"
        assert "nobody drives the runs of 'refunds'" in sent.stderr
        late = say("respond", "refund", "approval", "--response", "false", *place)
        assert (late.exit_code, "already has a response from 'operator'" in late.stderr) == (3, True)
        assert say("cancel", "refund", *place).exit_code == 0
        assert say("retry", "refund", *place).stdout == "refund\n"
        refused = say("list", "--server", one.address)
        assert (refused.exit_code, "STEPWELL_TOKEN" in refused.stderr) == (1, True)
        assert say("doctor", *place).exit_code == 2
        # The next command to type does not hold the token.
        shown = say("show", "refund", *place).output
        assert TOKEN not in shown
        assert quote(TOKEN) not in shown


def test_commands_that_move_runs(tmp_path: Path) -> None:
    for store in ("served.db", "other.db"):
        fill(store)
    with server("served.db") as one:
        both = Twins(one.address, "other.db")
        # What differs between checkpoints: in lines, as JSON and as a patch.
        for options in ([], ["--full"], ["--json"]):
            assert "completed" in both.say("diff", "numbers@1", "numb@-1", *options).stdout
        assert '"op": "replace"' in both.say("diff", "numbers@1", "numb@-1", "--patch").stdout
        assert "is not a fork" in both.say("diff", "numbers").stderr
        assert both.say("diff", "numbers", "nowhere").exit_code == 3

        # Forks: what one would change, one with a response, and those that are refused.
        assert "+ state.note: 7" in both.say("fork", "refund", "--add", "note=7", "--dry-run").stdout
        both.say("fork", "refund", "--add", "note=7", "--dry-run", "--json")
        options = ["--add", "note=7", "--response", "appr=true", "--tag", "why=test", "--as", "second"]
        assert both.say("fork", "refund@-1", *options, same_notes=False).stdout == "second\n"
        assert "+ state.note: 7" in both.say("diff", "second").stdout
        assert "second" in both.say("list", "--tag", "why=test").stdout
        for wrong in (("--as", "second"), ("--set", "nothing=1"), ("--response", "appr=7"), ("--response", "none=1")):
            assert both.say("fork", "refund", *wrong).exit_code != 0, wrong
        assert both.say("fork", "nowhere").exit_code == 3

        # Moved back, by number and by the id of a checkpoint.
        assert both.say("restore", "numbers@1", same_notes=False).stdout == "numbers@4\n"
        assert '"number": 5' in both.say("restore", "numb@2", "--json").stdout
        assert both.say("restore", "numbers@99").exit_code == 3
        checkpoint = json.loads(say("show", "numbers@1", "--json", "--server", one.address).stdout)["checkpoint_id"]
        assert say("restore", checkpoint, "--server", one.address).stdout == "numbers@6\n"
        assert say("restore", "numbers@1", "--by", "ada", "--server", one.address).exit_code == 2

        # The request of a response may be shortened or left out; a wrong response is refused.
        assert "is not a valid response" in both.say("respond", "refund", "--response", "7").stderr
        assert both.say("respond", "refund", "nope", "--response", "true").exit_code == 3
        assert "has no open requests" in both.say("respond", "numbers", "--response", "true").stderr
        assert both.say("respond", "refund", "appr", "--response", "true", same_notes=False).exit_code == 0

        # Deleted: what would be, what is, and what may not be.
        for options in (
            ["--keep-last", "1"],
            ["--keep-last", "1", "--status", "queued"],
            ["--keep-last", "1", "--json"],
        ):
            assert "numbers" in both.say("prune", *options, "--dry-run").stdout
        assert both.say("prune", "nowhere", "--all", "--yes").exit_code == 3
        assert both.say("prune", "refund", "--all", "--no-input").exit_code == 2
        assert "deleted: 1 run" in both.say("prune", "second", "--all", "--yes", same_notes=False).stdout
        assert both.say("show", "second").exit_code == 3


def test_a_run_is_submitted_by_the_name_of_its_workflow(tmp_path: Path) -> None:
    with server("runs.db", "--work", "tests.server.flows:refunds") as one:
        place = ("--server", one.address)
        options = ("--run-id", "r", "--tag", "shop=north", "--priority", "3")
        for _ in range(2):  # the second changes nothing
            assert say("submit", "refunds", "--input", "400", *options, *place).stdout == "r\n"
        shown = json.loads(say("show", "r", "--json", "--store", "runs.db").stdout)
        assert (shown["input"], shown["tags"], shown["priority"]) == (400, {"shop": "north"}, 3)
        assert json.loads(say("submit", "refunds", "--input", "1", "--json", *place).stdout)["run_id"]
        for words in ([], ["--input", "many"], ["--input", "1", "--run-id", "r"]):
            here, there = say("submit", "refunds", *words, *place), say(*SUBMIT, *words, "--store", "runs.db")
            assert (here.exit_code, here.stderr) == (there.exit_code, there.stderr.replace(" --store runs.db", ""))
        unknown = say(*SUBMIT, "--input", "1", *place)
        assert (unknown.exit_code, "there are: 'refunds'" in unknown.stderr) == (3, True)
        for words in (["--by", "ada"], ["--agents", "shop:agents"]):
            assert say("submit", "refunds", "--input", "1", *words, *place).exit_code == 2


def test_a_run_is_exported(tmp_path: Path) -> None:
    for store in ("served.db", "other.db"):
        fill(store)
    with server("served.db") as one:
        both = Twins(one.address, "other.db")
        assert "4 commits" in both.say("export", "numb", "--yes").stderr
        assert '"records": 4' in both.say("export", "numb", "-o", "n", "--json", "--redact", "outputs", "--yes").stdout
        assert "matches nothing" in both.say("export", "numb", "--redact", "state.nothing", "--yes").stderr
        assert both.say("export", "nowhere").exit_code == 3
        assert both.say("export", "refund@0", "--html", "--yes").exit_code == 0
        assert both.say("export", "refund", "-o", "nowhere/r").exit_code == 2
        place = ("--server", one.address)
        assert say("export", "refund", "--html", "-o", "r.html", *place).exit_code == 0
        assert say("export", "refund", "-o", "r.stepwell", *place).exit_code == 0
    assert "refund 400?" in Path("r.html").read_text()
    assert Path("r.stepwell").stat().st_mode & 0o077 == 0
    assert say("import", "r.stepwell", "--store", "copy.db").exit_code == 0
    assert "refund 400?" in say("requests", "--store", "copy.db").stdout


def test_a_list_by_text_is_whole_however_many_runs_a_server_looks_through_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LOOKED_THROUGH", 2)
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    application = app(storage, auth=TOKEN)
    listener = bind("127.0.0.1", 0, application.state.services)
    served = uvicorn.Server(uvicorn.Config(application, log_level="error"))

    async def serve() -> None:
        for number in range(7):
            name = f"{'needle' if number % 3 else 'hay'}-{number}"
            await counting_down.submit(1, run_id=name, checkpoint_storage=storage)
        await served.serve([listener])
        await storage.close()

    thread = Thread(target=asyncio.run, args=[serve()])
    thread.start()
    try:
        while not served.started:
            time.sleep(0.05)
        search = ("list", "--server", f"http://127.0.0.1:{listener.getsockname()[1]}", "--text", "needle")
        listed = say(*search, "--json").stdout
        assert re.findall(r'run_id": "(.*?)"', listed) == ["needle-5", "needle-4", "needle-2", "needle-1"]
        shown = say(*search, "--limit", "2").stdout
        assert re.findall(r"needle-\d", shown)[:2] == ["needle-5", "needle-4"]
        assert "needle-2" not in shown
    finally:
        served.should_exit = True
        thread.join(30)
