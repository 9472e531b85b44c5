"""Whoever listens: streams that are closed or cannot write everything, interrupts, and hints that can be typed."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell import PostgresCheckpointStorage
from stepwell.cli.app import stepwell
from stepwell.cli.failures import format_command
from stepwell.cli.settings import Settings
from stepwell.cli.views.output import print_table
from tests.support.command_line import Place, Say, postgres_address
from tests.support.launching import heeding_interrupts
from tests.support.postgres_server import fresh_schema

CODE = """
from pathlib import Path
from time import sleep

from stepwell import WorkflowBuilder, WorkflowContext, executor


@executor(id="echo")
async def echo(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(text)


@executor(id="blocking")
def blocking(text: str, ctx: WorkflowContext[None, str]) -> None:
    print("here", flush=True)
    sleep(60)


@executor(id="failing")
async def failing(text: str, ctx: WorkflowContext[None, str]) -> None:
    raise RuntimeError(text)


@executor(id="losing")
async def losing(text: str, ctx: WorkflowContext[None, str]) -> None:
    Path(text).rename("elsewhere")
    Path(text).touch()


lost = WorkflowBuilder(name="lost", start_executor=losing).build()
echoing = WorkflowBuilder(name="echoing", start_executor=echo).build()
waiting = WorkflowBuilder(name="waiting", start_executor=blocking).build()
broken = WorkflowBuilder(name="broken", start_executor=failing).build()
"""


@pytest.fixture
def code(tmp_path: Path) -> None:
    (tmp_path / "heard.py").write_text(CODE)


@pytest.mark.parametrize("charset", ["ascii", "latin-1"])
def test_what_a_stream_cannot_write_is_written_out(code: None, charset: str) -> None:
    said = ["run", "heard:echoing", "--input", "5 → 6", "--run-id", "arrow"]
    told = CliRunner(charset=charset).invoke(stepwell, said)
    assert (told.exit_code, told.stdout, told.stderr) == (0, "5 \\u2192 6\n", "")


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["run", "heard:echoing", "--input", "x", "--follow"], ["list"]])
def test_streams_that_are_closed_are_no_failure(code: None, say: Say, arguments: list[str]) -> None:
    say("run", "heard:echoing", "--input", "x")
    quoted = shlex.join([sys.executable, "-m", "stepwell.cli", *arguments])
    done = subprocess.run(["bash", "-c", f"{quoted} >&- 2>&-"], timeout=60, check=False)
    assert done.returncode == 0


def test_a_store_that_was_left_empty_is_not_another_one(sqlite: Place, say: Say) -> None:
    told = say("list", "--store", "", env={"STEPWELL_STORE": sqlite.address})
    assert (told.exit_code, told.stdout) == (2, "")
    assert "--store" in told.stderr


@pytest.mark.process
def test_an_interrupt_while_the_program_is_loaded_ends_it_quietly() -> None:
    program = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from stepwell.cli.main import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.process
def test_a_second_interrupt_does_not_wait_for_a_handler_in_a_thread(code: None) -> None:
    command = [sys.executable, "-m", "stepwell.cli", "run", "heard:waiting", "--input", "x", "--run-id", "w-1"]
    begun = subprocess.Popen(heeding_interrupts(command), stderr=subprocess.PIPE, text=True)
    assert begun.stderr is not None
    assert begun.stderr.readline() == "here\n"
    begun.send_signal(signal.SIGINT)
    assert begun.stderr.readline() == "stepwell: interrupted; run 'w-1' is stored up to its last commit [SW514]\n"
    assert begun.stderr.readline() == "hint: stepwell resume w-1 heard:waiting\n"
    begun.send_signal(signal.SIGINT)
    _, said = begun.communicate(timeout=30)
    assert said == ""
    assert begun.returncode in (130, -signal.SIGINT)


def test_a_hint_can_be_typed_as_it_is(code: None, say: Say) -> None:
    for name in ("-v", "two words"):
        say("run", "heard:echoing", "--input", "x", f"--run-id={name}", "--store", "some runs")
        other = say("run", "heard:echoing", "--input", "y", f"--run-id={name}", "--store", "some runs")
        assert other.exit_code == 2
        resume = other.stderr.splitlines()[-1].removeprefix("hint: ").removesuffix(", or pass another --run-id")
        words = shlex.split(resume.replace("MODULE:WORKFLOW", "heard:echoing"))
        assert words[0] == "stepwell"
        assert say(*words[1:]).stdout == "x\n"


def test_a_hint_keeps_options_before_what_looks_like_one() -> None:
    settings = Settings(store="runs")
    assert format_command(settings, "tail", "-v", options=["--follow"]) == "stepwell tail --follow --store runs -- -v"
    assert format_command(settings, "tail", "v", options=["--follow"]) == "stepwell tail v --follow --store runs"


@pytest.mark.parametrize(("width", "drawn"), [(300, True), (60, True), (59, False), (10, False)])
def test_no_terminal_is_so_narrow_that_an_id_is_broken(
    width: int, drawn: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    name = "8c7885a7-3076-4404-ac4b-d40696f430f3"
    print_table(["run", "workflow", "began"], [[name, "orders", "2026-11-16 10:00:00"]])
    seen = capsys.readouterr().out
    assert name in seen
    assert ("─" in seen) == drawn
    if not drawn:  # one line per cell, none of which is wider than it has to be
        assert seen.splitlines() == [name, "  workflow  orders", "  began     2026-11-16 10:00:00"]


@pytest.mark.parametrize(("width", "left_out"), [(120, []), (60, ["commits"]), (50, ["commits", "started"])])
def test_a_narrow_terminal_leaves_out_columns_before_it_breaks_lines(
    width: int, left_out: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    columns = ["run", "status", "commits", "started"]
    row = ["refund-1042-rejected", "completed", "4", "2026-11-16 10:00:00"]
    print_table(columns, [row], optional=("commits", "started"))
    head, _, *rows = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert head.split() == [name for name in columns if name not in left_out]
    assert len(rows) == 1


def test_only_the_status_is_coloured_by_its_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(["run", "status"], [["failed", "stalled"]])
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.startswith("failed ")
    assert "\x1b[31mstalled" in row


def test_debug_shows_where_a_handler_failed_and_nothing_that_a_terminal_would_obey(code: None, say: Say) -> None:
    told = say("--debug", "run", "heard:broken", "--input", "\x1b[31mred")
    assert told.exit_code == 1
    assert "heard.py" in told.stderr
    assert "raise RuntimeError(text)" in told.stderr
    assert "RuntimeError: \\x1b[31mred" in told.stderr
    assert "\x1b" not in told.stderr


def test_whoever_drives_a_run_whose_store_goes_away_is_told_how_it_goes_on(code: None, say: Say) -> None:
    told = say("run", "heard:lost", "--input", "kept", "--run-id", "l-1", "--store", "kept")
    assert told.exit_code == 1
    assert told.stderr.splitlines()[-1] == (
        "hint: once the store is available again: stepwell resume l-1 heard:lost --store kept"
    )


@pytest.mark.process
def test_a_server_may_be_away_for_longer_while_a_run_is_driven(
    code: None, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience: set[float] = set()

    class Noting(PostgresCheckpointStorage):
        def __init__(self, dsn: str, **known: Any) -> None:
            patience.add(known["timeout"])
            super().__init__(dsn, **known)

    monkeypatch.setattr("stepwell.cli.stores.postgres_schema.PostgresCheckpointStorage", Noting)
    with fresh_schema() as schema:
        assert say("run", "heard:echoing", "--input", "x", "--store", postgres_address(schema)).exit_code == 0
        assert 30.0 in patience
        patience.clear()
        assert say("list", "--store", postgres_address(schema)).exit_code == 0
        assert max(patience) < 30.0  # a person waits for it
