"""The command that is suggested next works when it is copied as it is, for runs that the command line started."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

from stepwell import LatestOnly, SQLiteCheckpointStorage, WorkflowBuilder, WorkflowExecutor
from stepwell.storage.filters import ALL_RUNS
from tests.support.command_line import Say
from tests.support.driven_runs import READY
from tests.support.operating_runs import Order, asking
from tests.surfaces.cli.test_definition_files import AGENTS

STORE = ["--store", "runs.db"]
RUNS = "tests.support.driven_runs"
FLOW = """
format: 1
name: Review
nodes:
  - id: writer
    approval: {message: "Is it right?"}
"""


def words_of(command: str) -> list[str]:
    """The arguments of a line such as `next: stepwell resume a b`, whatever stands before the command."""
    return shlex.split(command.partition("stepwell ")[2])


def suggested(say: Say, run_id: str) -> list[str]:
    """What `show` suggests."""
    return words_of(say(*STORE, "show", run_id).stdout.splitlines()[1])


def test_what_run_show_submit_and_fork_suggest_resumes_the_run(say: Say) -> None:
    letter = ["--input", "letter", "--run-id", "letter-1"]
    failed = say(*STORE, "run", f"{RUNS}:letters", *letter)
    assert failed.exit_code == 1
    hint = words_of(failed.stderr.splitlines()[-1])
    assert hint == ["resume", "letter-1", f"{RUNS}:letters", *STORE]
    assert hint == suggested(say, "letter-1")
    assert say(*STORE, "submit", f"{RUNS}:letters", "--input", "another", "--run-id", "letter-2").exit_code == 0
    forked = say(*STORE, "fork", "letter-1", "--as", "letter-3").stderr.splitlines()[-1]
    assert forked.startswith("to resume it: ")
    Path(READY).touch()
    for command in (hint, suggested(say, "letter-2"), words_of(forked)):
        assert say(*command).stdout.splitlines()[-1].startswith("sent ")


def test_the_command_for_a_definition_file_names_its_agents(say: Say) -> None:
    Path("review.yaml").write_text(FLOW)
    Path("reviewers.py").write_text(AGENTS)
    code = ["review.yaml", "--agents", "reviewers:few"]
    assert say(*STORE, "run", *code, "--input", "Write.", "--run-id", "review-1").exit_code == 4
    responded = say(*STORE, *suggested(say, "review-1"), "--response", '{"decision": "approve"}')
    assert responded.exit_code == 0, responded.stderr
    note = responded.stderr.splitlines()[-1]
    assert note.startswith("the process that drives the run applies it; if there is none: stepwell resume review-1 ")
    assert words_of(note) == suggested(say, "review-1") == ["resume", "review-1", *code, *STORE]
    # As JSON, options stand before `--`.
    command = json.loads(say(*STORE, "show", "review-1", "--json").stdout)["command"]
    assert command == ["stepwell", "resume", *code[1:], "--", "review-1", code[0]]
    assert say(*STORE, *command[1:]).stdout == "A lamp.\n"


def test_the_code_of_a_run_is_known_when_only_its_latest_checkpoint_is_kept(say: Say) -> None:
    async def start() -> None:
        async with SQLiteCheckpointStorage("runs.db", retention=LatestOnly) as storage:
            workflow = asking(storage)
            workflow._name_code("shop:refunds")
            await workflow.run(Order(7, ["tea"]), run_id="refund-7")

    asyncio.run(start())
    responded = say(*STORE, "respond", "refund-7", "--response", "true")
    assert words_of(responded.stderr.splitlines()[-1]) == ["resume", "refund-7", "shop:refunds", *STORE]


def test_a_sub_workflow_points_to_the_code_of_its_caller(say: Say) -> None:
    Path("nested.py").write_text(
        "from stepwell import WorkflowBuilder, WorkflowExecutor\n"
        f"from {RUNS} import letters\n"
        "calls = WorkflowExecutor(letters, id='calls', allow_direct_output=True)\n"
        "workflow = WorkflowBuilder(name='nested', start_executor=calls).build()\n"
    )
    assert say(*STORE, "run", "nested:workflow", "--input", "x", "--run-id", "outer").exit_code == 1

    async def find_child() -> str:
        async with SQLiteCheckpointStorage("runs.db") as storage:
            return next(run.run_id for run in await storage._store.runs(ALL_RUNS) if run.metadata.caller == "outer")

    child = asyncio.run(find_child())
    assert suggested(say, child) == ["resume", "outer", "nested:workflow", *STORE]


def test_the_code_of_a_run_that_a_program_started_is_explained(say: Say) -> None:
    async def start() -> None:
        async with SQLiteCheckpointStorage("runs.db") as storage:
            inner = WorkflowExecutor(asking(None), id="inner", allow_direct_output=True)
            builder = WorkflowBuilder(name="outer", start_executor=inner, checkpoint_storage=storage)
            await builder.build().submit(Order(7, ["tea"]), run_id="outer")

    asyncio.run(start())
    assert suggested(say, "outer") == ["resume", "outer", "MODULE:WORKFLOW", *STORE]
    explanation = say(*STORE, "show", "outer").stdout.splitlines()[2]
    assert explanation == "      MODULE:WORKFLOW is the code of outer, such as shop.orders:workflow"


def test_another_input_under_the_same_id_suggests_a_resume_with_that_code(say: Say) -> None:
    for text, code in (("letter", 1), ("another", 2)):
        done = say(*STORE, "run", f"{RUNS}:letters", "--input", text, "--run-id", "letter-1")
        assert done.exit_code == code
    resume = f"stepwell resume letter-1 {RUNS}:letters --store runs.db"
    assert done.stderr.splitlines()[-1] == f"hint: {resume}, or pass another --run-id"
