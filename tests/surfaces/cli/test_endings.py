"""How the program ends, as a process: codes, streams, pipes, terminals, and what it must never say."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from stepwell.cli import secrets
from stepwell.cli.app import COMMANDS
from tests.support.command_line import Place, Say, postgres_address, ran
from tests.support.launching import heeding_interrupts
from tests.support.postgres_server import fresh_schema, own_server

pytestmark = pytest.mark.process

SECRET = "hunter2-and-more"
PROGRAM = [sys.executable, "-m", "stepwell.cli"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list"], 0),
        (["show", "count-1"], 0),
        (["--version"], 0),
        (["list", "--help"], 0),
        (["show", "nobody"], 3),
        (["show", "count-1@77"], 3),
        (["show", "co"], 3),
        (["events", "nobody"], 3),
        (["list", "--after", "nobody"], 3),
        (["frobnicate"], 2),
        (["list", "--frobnicate"], 2),
        (["list", "--limit", "0"], 2),
        (["list", "--status", "odd"], 2),
        (["list", "--tag", "team"], 2),
        (["show"], 2),
        (["viz", "nothing"], 2),
        (["viz", "nothing_of_that_name:workflow"], 5),
    ],
)
def test_the_code_says_how_it_went(sqlite: Place, arguments: list[str], code: int) -> None:
    done = ran("--store", sqlite.address, *arguments)
    assert done.returncode == code, done.stderr
    if code == 0:
        assert done.stdout
        assert not done.stderr
    else:
        assert not done.stdout
        assert done.stderr.startswith("stepwell: ")
        assert "Traceback" not in done.stderr


def test_an_id_that_fits_several_is_wrong_usage(place: Place, say: Say) -> None:
    import asyncio

    from tests.support.operating_runs import counting

    async def made() -> None:
        for number in (1, 2):
            await counting(place.storage).run(1, run_id=f"same-{number}")
        await place.storage.close()

    asyncio.run(made())
    told = say("--store", place.address, "show", "same")
    assert told.exit_code == 2
    assert "same-1" in told.stderr
    assert "same-2" in told.stderr


def test_debug_shows_the_traceback(sqlite: Place) -> None:
    done = ran("--store", sqlite.address, "--debug", "show", "nobody")
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-2].startswith("stepwell: no checkpoint or run 'nobody'")


def test_a_reader_who_leaves_ends_it_quietly(sqlite: Place) -> None:
    command = f"set -o pipefail; {' '.join(PROGRAM)} --store {sqlite.address} events count-1 --json | true"
    for _ in range(3):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_it_with_130(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("print('here', flush=True)\nimport time\ntime.sleep(60)\n")
    command = heeding_interrupts([*PROGRAM, "viz", "slow:workflow"])
    begun = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert begun.stderr is not None
    assert begun.stderr.readline() == "here\n"
    begun.send_signal(signal.SIGINT)
    _, said = begun.communicate(timeout=30)
    assert begun.returncode == 130
    assert "Traceback" not in said


def test_without_the_extra_one_sentence_says_what_to_install() -> None:
    program = "import sys; sys.modules['click'] = None\nfrom stepwell.cli.main import main\nmain()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "stepwell: the command line needs click, jsonschema-rs and rich [SW502]\nhint: pip install 'stepwell[cli]'\n"
    )


def test_the_script_is_installed() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "stepwell", "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "stepwell 0.2.0\n")


def on_a_terminal(arguments: list[str], **env: str) -> str:
    """What a terminal of 80 columns gets to see."""
    ours, theirs = pty.openpty()
    known = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **env}
    process = subprocess.Popen([*PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=known)
    os.close(theirs)
    seen = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        seen += more
    os.close(ours)
    assert process.wait(timeout=30) == 0
    return seen.decode()


def test_a_terminal_gets_a_table_in_colours(sqlite: Place) -> None:
    seen = on_a_terminal(["--store", sqlite.address, "list"])
    assert "─" in seen
    assert "\x1b[33mwaiting" in seen
    for name in ("refund-7", "count-1", "counting"):
        assert name in re.sub(r"\x1b\[[0-9;]*m", "", seen)


def test_no_color_is_obeyed(sqlite: Place) -> None:
    seen = on_a_terminal(["--store", sqlite.address, "list"], NO_COLOR="1")
    assert "─" in seen
    assert "\x1b[33m" not in seen


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(name: str) -> None:
    done = ran(env={"_STEPWELL_COMPLETE": f"{name}_source"})
    if name == "bash" and "not supported for Bash versions" in done.stderr:
        pytest.skip("this bash is too old")
    assert done.returncode == 0, done.stderr
    assert "_STEPWELL_COMPLETE" in done.stdout
    word = "re" if name == "fish" else "1"  # fish gives the word itself, the others its place
    asked = {"_STEPWELL_COMPLETE": f"{name}_complete", "COMP_WORDS": "stepwell re", "COMP_CWORD": word}
    assert "requests" in ran(env=asked).stdout


LEAKY = [
    "postgresql://me:{secret}@127.0.0.1:1/runs",
    "postgresql://me:{secret}@nowhere.invalid/runs",
    "postgresql://me:{secret}@127.0.0.1:1/runs?nonsense=1",
    "postgresql://127.0.0.1:1/runs?user=me&password={secret}",
    "postgresql://me:{secret}@x@127.0.0.1:1/runs",
    "postgresql://me:x@{secret}@127.0.0.1:1/runs",
    "postgresql://me:{secret}/x@127.0.0.1:1/runs",
    "postgresql://me:{secret}@[::1/runs",
    "mysql://me:{secret}@host/runs",
    "postgresql:/me:{secret}@host/runs",
    "me:{secret}@127.0.0.1/runs",
]


@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["plain", "debug"])
@pytest.mark.parametrize("address", LEAKY)
def test_no_secret_of_an_address_is_ever_said(
    address: str, debug: list[str], tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address.format(secret=SECRET)
    monkeypatch.setattr(secrets, "_secrets", set())
    ways = [say(*debug, address), say(*debug, "list", "--store", address)]
    monkeypatch.setattr(secrets, "_secrets", set())
    ways.append(say(*debug, "list", env={"STEPWELL_STORE": address}))
    (tmp_path / "pyproject.toml").write_text(f'[tool.stepwell]\nstore = "{address}"\n')
    monkeypatch.setattr(secrets, "_secrets", set())
    ways.append(say(*debug, "list"))
    for done in ways:
        assert done.exit_code in (1, 2, 3)
        assert done.stderr
        assert SECRET not in done.output


def test_a_process_says_no_secret_either() -> None:
    address = LEAKY[0].format(secret=SECRET)
    for arguments in (["list", "--store", address], ["--debug", "list", "--store", address], [address]):
        done = ran(*arguments)
        assert done.returncode in (1, 2)
        assert "stepwell: " in done.stderr
        assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["plain", "debug"])
def test_a_password_that_is_refused_is_not_said(debug: list[str]) -> None:
    with own_server() as server:
        server.admit("local all guarded scram-sha-256")
        address = f"postgresql://guarded:{SECRET}@/postgres?host={server.socket.parent}"
        done = ran(*debug, "list", "--store", address)
    assert done.returncode == 1
    assert "cannot be used" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_store_that_is_read_is_not_told_with_its_password() -> None:
    with fresh_schema() as schema:
        done = ran("list", "--store", postgres_address(schema, password=SECRET))
    assert done.returncode == 3
    assert SECRET not in done.stdout + done.stderr


NOT_FOR_A_LIST = ("agents", "declarative", "graph", "kernel", "admin.", "orchestrations", "engine", "viz")
NOT_FOR_SQLITE = (
    "codec.codec",
    "storage.wire",
    "stores.files",
    "stores.memory",
    "stores.postgres",
    "workflows.builder",
)


def test_list_loads_what_it_needs_and_no_more(sqlite: Place) -> None:
    program = (
        "import sys\nfrom stepwell.cli.app import stepwell\n"
        f"try: stepwell.main(['--store', '{sqlite.address}', 'list', '--json'])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert '"count-1"' in done.stdout
    loaded = set(done.stderr.split())
    assert loaded.isdisjoint({"rich", "psycopg", "pydantic", "jsonschema", "yaml", "regex", "cryptography", "asyncio"})
    ours = {name.removeprefix("stepwell.") for name in loaded if name.startswith("stepwell.")}
    assert "stores.sqlite.store" in ours
    ours.discard("admin.phrases")  # how ages are written: it needs nothing else
    assert sorted(name for name in ours if name.startswith(NOT_FOR_A_LIST + NOT_FOR_SQLITE)) == []
    assert {name for name in ours if name.startswith("cli.commands.")} == {"cli.commands.list"}


def test_the_program_knows_the_first_sentence_of_each_command() -> None:
    for name, sentence in COMMANDS.items():
        command = import_module(f"stepwell.cli.commands.{name}").command
        assert command.help.partition("\n")[0] == sentence, name
