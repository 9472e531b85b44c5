"""`respond`: a question is answered from a shell, by a form or in JSON, and the program gets the answer."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from stepwell import (
    AgentExecutor,
    Executor,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from stepwell.admin import open_requests, respond
from stepwell.agents import Calls, ScriptedAgent
from stepwell.agents.messages import Message
from stepwell.storage import store_archive
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.record import fold
from tests.support.command_line import Place, Say, ran
from tests.support.nesting import Asker, alone, around
from tests.support.operating_runs import Order, asking
from tests.support.terminal import Terminal


@dataclass
class Line:
    item: str
    pieces: int = 1


@dataclass
class Verdict:
    kind: Literal["good", "bad"]
    why: str | None
    lines: list[Line]
    weight: float = 1.0


class Judge(Executor):
    """Asks about each name, and says what it was told."""

    @handler
    async def ask(self, names: list[str], ctx: WorkflowContext[None, str]) -> None:
        for name in names:
            await ctx.request_info(name, Verdict, request_id=name, deadline=timedelta(hours=2))

    @response_handler
    async def told(self, name: str, verdict: Verdict, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{name}: {verdict}")


def judging(storage: Any) -> Workflow:
    return WorkflowBuilder(name="judging", start_executor=Judge("judge"), checkpoint_storage=storage).build()


def begun(place: Place, flow: Any, message: Any, run_id: str) -> Any:
    """A run that was begun, or gone on with, by its program."""

    async def run() -> Any:
        try:
            told = {} if message is None else {"message": message}
            return await flow(place.storage).run(**told, run_id=run_id)
        finally:
            await place.storage.close()

    return asyncio.run(run())


def outputs(place: Place, flow: Any, run_id: str) -> Any:
    """What the program gives when it goes on with the run."""
    return begun(place, flow, None, run_id).get_outputs()


@pytest.fixture
def here(tmp_path: Any) -> Place:
    return Place("sqlite:///runs.db", SQLiteCheckpointStorage(tmp_path / "runs.db"))


VERDICT = {"kind": "bad", "why": None, "lines": [{"item": "tea"}, {"item": "cup", "pieces": 2}]}


@pytest.mark.parametrize("way", ["text", "file", "stdin"])
def test_an_answer_in_json_reaches_the_program(place: Place, say: Say, tmp_path: Any, way: str) -> None:
    begun(place, judging, ["tea"], "judge-1")
    (tmp_path / "verdict.json").write_text(json.dumps(VERDICT))
    given = {"text": json.dumps(VERDICT), "file": "@verdict.json", "stdin": "-"}[way]
    done = say("--store", place.address, "respond", "judge-1", "tea", "--response", given, input=json.dumps(VERDICT))
    assert (done.exit_code, done.stdout) == (0, "responded to tea of judge-1\n")
    assert "stepwell resume judge-1 MODULE:WORKFLOW" in done.stderr
    assert outputs(place, judging, "judge-1") == [
        "tea: Verdict(kind='bad', why=None, lines=[Line(item='tea', pieces=1), Line(item='cup', pieces=2)], weight=1.0)"
    ]


def test_an_answer_in_json_folds_no_run(place: Place, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(place, judging, ["tea"], "judge-1")
    begun(place, judging, ["milk"], "judge-2")
    folds: list[int] = []

    def counted(chain: Any, codec: Any) -> Any:
        folds.append(len(chain))
        return fold(chain, codec)

    monkeypatch.setattr(store_archive, "fold", counted)
    for given in (["judge-1"], ["judge-2", "milk"]):
        folds.clear()
        done = say("--store", place.address, "respond", *given, "--response", json.dumps(VERDICT))
        assert (done.exit_code, len(folds)) == (0, 0), done.stderr
    assert len(outputs(place, judging, "judge-1")) == 1


@pytest.mark.process
def test_an_answer_in_json_to_sqlite_loads_neither_asyncio_nor_forms(here: Place) -> None:
    begun(here, judging, ["tea"], "judge-1")
    command = [
        "-X",
        "importtime",
        "-m",
        "stepwell.cli",
        "--store",
        here.address,
        "respond",
        "--response",
        json.dumps(VERDICT),
    ]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "jsonschema_rs" in loaded
    assert loaded & {"asyncio", "rich", "stepwell.cli.forms.schema_form", "stepwell.admin.run_history"} == set()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("{", "not valid JSON"),
        ("yes", "not valid JSON"),
        ('{"kind": "odd", "why": null, "lines": []}', 'kind: "odd" is not one of "bad", "good"'),
        ('{"kind": "bad", "why": null}', "lines: is missing"),
        ('{"kind": "bad", "why": null, "lines": [{"item": 3}]}', "lines[0].item: 3 is not a string"),
        ('{"kind": "bad", "why": null, "lines": [], "wheight": 2}', "wheight: unknown field"),
        ('{"kind": "bad", "why": null, "lines": [], "weight": 1e999}', "not JSON that can be stored"),
        ("[" * 100_000, "nested too deeply"),
        ("@nowhere.json", "nowhere.json"),
    ],
)
def test_what_is_no_answer_is_not_sent(here: Place, say: Say, value: str, why: str) -> None:
    begun(here, judging, ["tea"], "judge-1")
    done = say("--store", here.address, "respond", "judge-1", "--response", value)
    assert (done.exit_code, done.stdout) == (2, "")
    assert why in done.stderr
    assert not asyncio.run(_answered(here))


async def _answered(place: Place) -> bool:
    async with place.storage as storage:
        return any(one.answered for one in await open_requests(storage, "judge-1"))


def test_what_is_clear_may_be_left_out_and_ids_may_be_shortened(here: Place, say: Say) -> None:
    begun(here, judging, ["earl grey", "green"], "judge-1")
    begun(here, judging, ["oolong"], "judge-2")
    command = ["--store", here.address, "respond"]
    several = say(*command, "--response", json.dumps(VERDICT))
    assert several.exit_code == 2
    assert "earl grey of judge-1\n  green of judge-1\n  oolong of judge-2\n" in several.stderr
    for said, answered in [
        (["judge-2"], "oolong of judge-2"),
        (["judge-1", "earl"], "earl grey of judge-1"),
        (["gree"], "green of judge-1"),
    ]:
        done = say(*command, *said, "--response", json.dumps(VERDICT))
        assert (done.exit_code, done.stdout) == (0, f"responded to {answered}\n"), done.stderr
    assert len(outputs(here, judging, "judge-1")) == 2


def test_a_question_that_is_not_open_cannot_be_answered(here: Place, say: Say, later: Any) -> None:
    begun(here, judging, ["tea", "milk", "rum"], "judge-1")
    command = ["--store", here.address, "respond", "judge-1"]
    assert say(*command, "tea", "--response", json.dumps(VERDICT)).exit_code == 0
    again = say(*command, "tea", "--response", json.dumps(VERDICT))
    assert (again.exit_code, again.stdout) == (3, "")
    assert "'tea' of run 'judge-1' already has a response" in again.stderr
    begun(here, judging, None, "judge-1")
    taken = say(*command, "tea", "--response", json.dumps(VERDICT))
    assert (taken.exit_code, taken.stderr.splitlines()[0]) == (
        3,
        "stepwell: 'tea' of run 'judge-1' was already answered, in judge-1@2 [SW518]",
    )
    unknown = say(*command, "gin", "--response", "1")
    assert (unknown.exit_code, unknown.stderr.splitlines()[0]) == (
        3,
        "stepwell: run 'judge-1' has no open request 'gin'; open requests: 'milk', 'rum' [SW518]",
    )
    later(minutes=180)
    late = say(*command, "milk", "--response", json.dumps(VERDICT))
    assert late.exit_code == 3
    assert "has expired" in late.stderr
    assert say("--store", here.address, "respond", "nobody").exit_code == 3


def test_a_refused_answer_can_be_given_again(here: Place, say: Say) -> None:
    """One that nobody held against the schema: the program refuses it, and the question is open again."""
    begun(here, judging, ["tea"], "judge-1")

    async def posted() -> None:
        async with here.storage as storage:
            await respond(storage, "judge-1", "tea", "good")

    asyncio.run(posted())
    command = ["--store", here.address, "respond", "judge-1", "--response", json.dumps(VERDICT)]
    assert say(*command).exit_code == 3
    with pytest.raises(Exception, match="not accepted"):
        begun(here, judging, None, "judge-1")
    assert say(*command).exit_code == 0
    assert len(outputs(here, judging, "judge-1")) == 1


def test_a_run_that_works_for_another_is_answered_there(here: Place, say: Say) -> None:
    def nested(storage: Any) -> Workflow:
        return around(alone(Asker()), storage)

    begun(here, nested, "tea", "outer")

    async def children() -> list[str]:
        async with here.storage as storage:
            return [run.run_id for run in await storage._store.runs(ALL_RUNS) if run.run_id != "outer"]

    (inner,) = asyncio.run(children())
    done = say("--store", here.address, "respond", inner, "--response", '{"yes": true}')
    assert done.exit_code == 2
    assert "is a sub-workflow run of 'outer'" in done.stderr
    assert say("--store", here.address, "respond", "outer", "--response", '{"yes": true}').exit_code == 0
    assert "tea: True" in outputs(here, nested, "outer")


def test_where_nobody_is_there_the_answer_must_be_given(sqlite: Place, say: Say) -> None:
    for more in ([], ["--no-input"]):
        done = say("--store", sqlite.address, "respond", "refund-7", *more)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "hint: pass the response with --response" in done.stderr


@pytest.mark.process
def test_a_form_is_filled_in_on_a_terminal(here: Place) -> None:
    begun(here, judging, ["tea"], "judge-1")
    with Terminal("--store", here.address, "respond", "judge-1") as terminal:
        terminal.answer("kind (one of these):", "neither\n")
        terminal.answer("kind (one of these):", "2\n")
        terminal.answer("why (text; Enter: nothing):", "it is gréen\n")
        terminal.answer("lines[0] (fields: give it? yes or no; Enter: no more):", "y\n")
        terminal.answer("lines[0].item (text):", "tea\n")
        terminal.answer("lines[0].pieces (integer; Enter: 1):", "two\n")
        terminal.answer("lines[0].pieces (integer; Enter: 1):", "2\n")
        terminal.answer("lines[1] (fields: give it? yes or no; Enter: no more):", "\n")
        terminal.answer("weight (number; Enter: 1.0):", "0.5\n")
        terminal.answer("send (yes or no; Enter: yes):", "\n")
        assert terminal.end() == 0
        for shown in (
            "  tea\ndeadline: in ",
            "! 'neither' is not one of the choices",
            "! 'two' is not a number",
            "responded to tea",
        ):
            assert shown in terminal.seen
    assert outputs(here, judging, "judge-1") == [
        "tea: Verdict(kind='good', why='it is gréen', lines=[Line(item='tea', pieces=2)], weight=0.5)"
    ]


@pytest.mark.process
@pytest.mark.parametrize("way", ["ctrl-c", "ctrl-d", "no"])
def test_who_stops_sends_nothing(sqlite: Place, way: str) -> None:
    with Terminal("--store", sqlite.address, "respond", "refund-7") as terminal:
        if way == "ctrl-c":
            terminal.interrupt("response (yes or no):")
        elif way == "ctrl-d":
            terminal.answer("response (yes or no):", "\x04")
        else:
            terminal.answer("response (yes or no):", "y\n")
            terminal.answer("send (yes or no; Enter: yes):", "n\n")
        assert terminal.end() == 130
        assert "nothing was sent" in terminal.seen or way == "ctrl-c"  # who presses it twice is not told, either
        assert "Traceback" not in terminal.seen

    async def left() -> list[bool]:
        async with sqlite.storage as storage:
            return [one.answered is not None for one in await open_requests(storage, "refund-7")]

    assert asyncio.run(left()) == [False]


@pytest.mark.process
def test_on_a_terminal_one_of_several_is_chosen_and_yes_sends_it(here: Place) -> None:
    begun(here, asking, Order(1, ["tea"]), "refund-1")
    begun(here, asking, Order(2, ["cup"]), "refund-2")
    with Terminal("--store", here.address, "respond", "--yes") as terminal:
        terminal.answer("request (one of these):", "2\n")
        terminal.answer("response (yes or no):", "n\n")
        assert terminal.end() == 0
        assert "responded to refund-2 of refund-2" in terminal.seen
    assert outputs(here, asking, "refund-2") == ["cup: kept"]


def office(storage: Any) -> Workflow:
    """An agent that wants to pay, and says what the tool gave."""

    def think(messages: list[Message]) -> str | Calls:
        if messages[-1].role != "tool":
            return Calls(("pay", {"to": "ada", "amount": 300}))
        return f"done: {messages[-1].text}"

    def pay(to: str, amount: int) -> str:
        return f"paid {amount} to {to}"

    clerk = AgentExecutor(ScriptedAgent("clerk", think, tools={"pay": pay}), approve=["pay"])
    return WorkflowBuilder(name="office", start_executor=clerk, checkpoint_storage=storage).build()


@pytest.mark.process
def test_an_agent_that_asks_for_a_tool_gets_its_answer(here: Place) -> None:
    begun(here, office, "ada wants her 300", "ada")
    with Terminal("--store", here.address, "respond", "ada", "--yes") as terminal:
        terminal.answer("response (one of these):", "edit\n")
        terminal.answer('arguments.to (JSON, or text; Enter: "ada"):', "\n")
        terminal.answer("arguments.amount (JSON, or text; Enter: 300):", "250\n")
        assert terminal.end() == 0
        assert "tool: pay" in terminal.seen
    (done,) = outputs(here, office, "ada")
    assert done.text == "done: paid 250 to ada"


@pytest.mark.process
def test_the_form_that_the_docs_show_is_the_one_on_a_terminal(tmp_path: Path) -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    shop = re.search(r"^```python\n(# file: shop.py\n.*?)^```$", (docs / "cli.md").read_text(), re.M | re.S)
    shown = re.search(r"^```\n\$ stepwell (.*?)\n(.*?)^```$", (docs / "cli" / "respond.md").read_text(), re.M | re.S)
    assert shop
    assert shown
    (tmp_path / "shop.py").write_text(shop[1])
    begin = ["run", "shop:workflow", "--input", '{"item": "urn", "price": 300}', "--run-id", "order-3"]
    assert ran(*begin, env={"STEPWELL_HOME": str(tmp_path)}).returncode == 4
    with Terminal(*shown[1].split(), STEPWELL_HOME=str(tmp_path), COLUMNS="200") as terminal:
        for prompt, typed in re.findall(r"^(.*\):) ?(.*)$", shown[2], re.M):
            terminal.answer(prompt, f"{typed}\n")
        assert terminal.end() == 0
        assert _ageless(terminal.seen) == _ageless(shown[2])


def _ageless(text: str) -> list[str]:
    return [re.sub(r"\d+ s ago", "AGE", line.rstrip()) for line in text.splitlines()]


class Busy(Executor):
    """Asks, and has something else to do until it was answered."""

    @handler
    async def wait(self, turns: int, ctx: WorkflowContext[int, str]) -> None:
        await asyncio.sleep(0.02)
        if not ctx.get_state("answered", False):
            await ctx.send_message(turns + 1)

    @handler
    async def begin(self, name: str, ctx: WorkflowContext[int, str]) -> None:
        await ctx.request_info(name, bool, request_id=name)
        await ctx.send_message(0)

    @response_handler
    async def answered(self, name: str, yes: bool, ctx: WorkflowContext[int, str]) -> None:
        ctx.set_state("answered", True)
        await ctx.yield_output(f"{name}: {yes}")


@pytest.mark.process
async def test_a_process_that_drives_the_run_takes_the_answer_in(tmp_path: Path) -> None:
    busy = Busy("busy")
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as storage:
        flow = WorkflowBuilder(name="busy", start_executor=busy, checkpoint_storage=storage, max_iterations=10_000)
        driven = asyncio.create_task(flow.add_edge(busy, busy).build().run("tea", run_id="busy-1"))
        while not await storage.pending_requests():  # noqa: ASYNC110 - what is stored has no event
            await asyncio.sleep(0.05)
        answered = ["--store", "sqlite:///runs.db", "respond", "busy-1", "--response", "true"]
        done = await asyncio.to_thread(ran, *answered, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "responded to tea of busy-1\n"), done.stderr
        assert (await asyncio.wait_for(driven, 60)).get_outputs() == ["tea: True"]


def test_a_run_that_was_left_empty_is_not_any_run(sqlite: Place, say: Say) -> None:
    told = say("--store", sqlite.address, "respond", "", "--response", "true")
    assert (told.exit_code, told.stdout) == (3, "")
    assert say("--store", sqlite.address, "respond", "--response", "true").exit_code == 0
