"""What somebody who sees the program for the first time reads: on a narrow terminal, cut, wrapped, and answered."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, admin, executor
from stepwell.agents import AgentExecutor, Budget
from stepwell.agents.scripted import ScriptedAgent
from stepwell.model.timing import StepRecord
from tests.support.agent_runs import clerking
from tests.support.command_line import Say
from tests.support.operating_runs import Order, asking
from tests.surfaces.cli.test_following import heard

STORE = ["--store", "runs.db"]
LONG_ID = "refund-1042-rejected-by-ada"


@pytest.fixture
def storage(tmp_path: Any) -> Any:
    return SQLiteCheckpointStorage(tmp_path / "runs.db")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """The program thinks that it writes to a terminal of so many columns."""

    def make(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda stream: True)

    return make


def ran(storage: Any, *work: Any) -> None:
    async def main() -> None:
        for each in work:
            await each
        await storage.close()

    asyncio.run(main())


def printed(say: Say, *arguments: str) -> list[str]:
    done = say(*STORE, *arguments)
    assert done.exit_code == 0, done.stderr
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in done.stdout.splitlines()]


def napping(storage: Any, hours: int) -> Any:
    @executor(id="nap")
    async def nap(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=hours))

    return WorkflowBuilder(name="reminders", start_executor=nap, checkpoint_storage=storage).build()


@pytest.mark.parametrize("columns", [80, 120])
def test_a_list_has_one_line_per_run(columns: int, storage: Any, say: Say, terminal: Callable[[int], None]) -> None:
    terminal(columns)
    ran(
        storage,
        asking(storage).run(Order(7, ["tea"]), run_id=LONG_ID),
        napping(storage, 3).run("x", run_id="reminder-3310"),
        napping(storage, 99).run("x", run_id="reminder-3311"),
    )
    head, _, *rows = printed(say, "list")
    assert "tags" not in head  # no run has any
    assert [row.split()[0] for row in rows] == ["reminder-3311", "reminder-3310", LONG_ID]
    assert all(len(row) <= columns for row in rows)
    assert re.search(r"sleeping until 20\d\d-\d\d-\d\d UTC ", rows[0])
    assert re.search(r"sleeping until \d\d:\d\d UTC ", rows[1])


def test_requests_are_a_table_whose_questions_are_cut_to_the_room(
    storage: Any, say: Say, terminal: Callable[[int], None]
) -> None:
    terminal(120)
    ran(
        storage,
        asking(storage).run(Order(7, ["tea"] * 60), run_id="refund-7"),
        clerking(storage).run("order 7 is broken", run_id="clerk-1"),
    )
    head, _, *rows = printed(say, "requests")
    assert head.split()[:2] == ["request", "run"]
    assert "deadline" not in head  # no request has one
    assert all(len(row) <= 120 for row in rows)
    assert '["tea","tea"' in rows[0]
    assert "…" in rows[0]
    assert "May clerk call refund(order=7" in rows[1]


def test_long_lines_are_wrapped_between_words_and_commands_are_not(
    storage: Any, say: Say, terminal: Callable[[int], None]
) -> None:
    ran(storage, asking(storage).run(Order(7, ["green tea"] * 9), run_id="refund-7"))
    (whole, command, *_), events = printed(say, "show", "refund-7"), printed(say, "events", "refund-7")
    terminal(80)
    lines = printed(say, "show", "refund-7")
    first = lines[: lines.index(command)]
    assert len(first) > 1
    assert all(len(line) <= 80 for line in first)
    assert " ".join(line.strip() for line in first) == whole
    wrapped = printed(say, "events", "refund-7")
    assert len(wrapped) > len(events)
    assert all(len(line) <= 80 or " " not in line.strip() for line in wrapped)


def test_what_is_cut_says_how_to_see_the_rest(storage: Any, say: Say) -> None:
    ran(storage, asking(storage).run(Order(7, ["green tea"] * 90), run_id="refund-7"))
    note = "long values are shortened; --full shows them\n"
    for command in (["show", "refund-7"], ["events", "refund-7"], ["diff", "refund-7@0", "refund-7"]):
        cut, full = say(*STORE, *command), say(*STORE, *command, "--full")
        assert cut.stderr == note
        assert full.stderr == ""
        assert full.stdout.count("green tea") >= 90 > cut.stdout.count("green tea") - 40
    ran(storage, asking(storage).run(Order(8, ["tea..."]), run_id="refund-8"))
    assert say(*STORE, "show", "refund-8").stderr == ""


def test_two_finished_forks_are_compared_by_what_came_out_and_who_decided(storage: Any, say: Say) -> None:
    async def work() -> None:
        workflow = asking(storage)
        await workflow.run(Order(7, ["tea"]), run_id="refund-7")
        for name, by in (("yes", "ada"), ("no", "bob")):
            await admin.fork(storage, "refund-7", run_id=name)
            await admin.respond(storage, name, "refund-7", name == "yes", by=by)
            await workflow.run(run_id=name)

    ran(storage, work())
    lines = printed(say, "diff", "yes", "no")
    assert "~ answers.refund-7.value: true → false" in lines
    assert '~ answers.refund-7.by: "ada" → "bob"' in lines
    assert any(line.startswith("~ outputs[0]: ") for line in lines)
    # A fork that was never resumed has the outputs of its parent up to there, and no others.
    assert say(*STORE, "diff", "refund-7", "yes@0").stdout.splitlines()[1:] == ["no difference"]


def test_an_answer_that_is_not_applied_yet_is_shown_with_its_comment(storage: Any, say: Say) -> None:
    ran(storage, clerking(storage).run("order 7 is broken", run_id="clerk-1"))
    deny = '{"decision": "deny", "reason": "too much"}'
    assert say(*STORE, "respond", "clerk-1", "--response", deny, "--by", "ada", "--comment", "call me").exit_code == 0
    lines = printed(say, "show", "clerk-1")
    assert '    response: {"decision":"deny","reason":"too much"}' in lines
    assert "    comment: call me" in lines
    (asked,) = [line for line in lines if line.strip().startswith("asked: ")]
    assert asked.endswith('? → {"decision":"deny","reason":"too much"} by ada, not applied yet')
    answer = json.loads(say(*STORE, "show", "clerk-1", "--json").stdout)["requests"].popitem()[1]["answer"]
    assert (answer["value"]["decision"], answer["comment"]) == ("deny", "call me")


def test_the_form_of_a_budget_starts_with_its_question(storage: Any, say: Say, terminal: Callable[[int], None]) -> None:
    agent = AgentExecutor(ScriptedAgent("clerk", ["hello", "again"]), budget=Budget(calls=0))
    workflow = WorkflowBuilder(name="clerks", start_executor=agent, checkpoint_storage=storage).build()
    ran(storage, workflow.run("x", run_id="clerk-1"))
    terminal(80)
    done = say(*STORE, "respond", "clerk-1", input="5\ny\n")
    assert done.exit_code == 0, done.stderr
    assert "  clerk has stopped: clerk has spent 0 of 0 calls. What is the new limit?" in done.stderr


def test_an_option_of_another_name_is_suggested(storage: Any, say: Say) -> None:
    ran(storage, asking(storage).run(Order(7, ["tea"]), run_id="refund-7"))
    for command in (["fork", "refund-7", "--answer", "refund-7=true"], ["respond", "refund-7", "--answer", "true"]):
        done = say(*STORE, *command)
        assert done.exit_code == 2
        assert "there is no option --answer; did you mean --response?" in done.stderr
    assert "did you mean --response" not in say(*STORE, "show", "refund-7", "--answer", "x").stderr


def test_a_response_that_is_not_json_or_not_valid_says_what_is_expected(storage: Any, say: Say) -> None:
    ran(storage, asking(storage).run(Order(7, ["tea"]), run_id="refund-7"))
    for response in ("maybe", '"maybe"'):
        done = say(*STORE, "respond", "refund-7", "--response", response)
        assert done.exit_code == 2
        assert done.stderr.splitlines()[-1] == "hint: 'refund-7' expects bool: true or false"


def test_the_usage_of_an_agent_is_one_line(storage: Any, say: Say) -> None:
    agent = AgentExecutor(ScriptedAgent("clerk", ["hello you"]))
    workflow = WorkflowBuilder(name="clerks", start_executor=agent, checkpoint_storage=storage).build()
    ran(storage, workflow.run("good morning clerk", run_id="clerk-1"))
    usages = [line.strip() for line in printed(say, "show", "clerk-1", "--full") if "usage" in line]
    assert usages
    assert all(re.match(r"\S*usage: 1 model call, 3 tokens in, 2 out", line) for line in usages), usages


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("model 2", "model 2"),
        ("tool 1/call-0 look_up", "tool look_up"),
        ("+tool 1/call-0 look_up", "tool look_up"),
        ("began tool 1/call-0 look_up", ""),
        ("charge", "step charge"),
        ("tool box", "step tool box"),
    ],
)
def test_a_live_step_of_an_agent_has_a_readable_name(name: str, shown: str) -> None:
    event = heard("step_completed", "clerk", data=StepRecord(name))
    assert event.describe() == "  ".join(filter(None, ["step_completed", "executor=clerk", shown]))
