"""What `import stepwell` brings with it: what is asked for, nothing optional, and not a word."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import stepwell

pytestmark = pytest.mark.process

OPTIONAL = ("opentelemetry", "pydantic", "psycopg", "click", "rich", "jsonschema_rs")
NOTHING_OPTIONAL = f"from stepwell import {', '.join(set(stepwell.__all__) - {'PostgresCheckpointStorage'})}"
SLOW = ("asyncio", "dataclasses", "inspect", "logging", "msgspec", "pathlib", "sqlite3")
SAY_WHAT_IS_LOADED = "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"


def printed(program: str) -> str:
    """What a program prints, on either stream, in a process of its own."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def packages_after(statement: str) -> set[str]:
    """Packages that are not of the standard library, and loaded once the statement has run."""
    loaded = set(printed(statement + SAY_WHAT_IS_LOADED).split())
    # How Python was built is in a module that is named after the machine.
    return {name for name in loaded - sys.stdlib_module_names if not name.startswith("_sysconfigdata_")}


def test_no_name_but_that_of_the_postgresql_storage_loads_anything_optional() -> None:
    assert packages_after(NOTHING_OPTIONAL).isdisjoint(OPTIONAL)
    assert packages_after("from stepwell import PostgresCheckpointStorage").intersection(OPTIONAL) == {"psycopg"}


def test_the_other_names_load_no_package_but_msgspec_and_what_that_loads() -> None:
    assert packages_after(NOTHING_OPTIONAL) - packages_after("import msgspec") == {"stepwell"}


def test_without_the_driver_every_name_is_there_and_a_postgresql_storage_says_what_to_install() -> None:
    program = """
import sys; sys.modules["psycopg"] = None
from stepwell import *
try:
    PostgresCheckpointStorage("postgresql:///runs")
except ImportError as error:
    print(error)
"""
    needed = "PostgresCheckpointStorage needs the driver psycopg; run: pip install 'stepwell[postgres]'"
    assert printed(program) == needed + "\n"


def test_the_import_alone_loads_nothing_that_takes_time() -> None:
    assert set(printed("import stepwell" + SAY_WHAT_IS_LOADED).split()).isdisjoint(SLOW)


def test_a_name_loads_no_store_and_no_agents_unless_it_is_one() -> None:
    say = "import sys; print(*(name for name in sys.modules if name.startswith('stepwell')))"
    loaded = printed(
        f"from stepwell import Executor, SQLiteCheckpointStorage; from stepwell.storage import RunInfo; {say}"
    ).split()
    assert "stepwell.stores.sqlite.store" in loaded
    not_needed = (
        "stepwell.stores.files.store",
        "stepwell.stores.postgres.storage",
        "stepwell.agents",
        "stepwell.engine",
    )
    assert [name for name in loaded if name.startswith(not_needed)] == []


def test_a_workflow_without_agents_loads_nothing_of_them() -> None:
    define = """
import sys
from stepwell import WorkflowBuilder, WorkflowContext, executor
@executor(id="echo")
async def echo(said: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(said)
workflow = WorkflowBuilder(start_executor=echo, checkpoint_storage="memory").build()
assert workflow.run_sync("hello").get_outputs() == ["hello"]
no_need = ("stepwell.agents", "stepwell.stores.files", "stepwell.stores.sqlite", "stepwell.stores.postgres")
print(*(name for name in sys.modules if name.startswith(no_need)))
"""
    assert printed(define) == "\n"


@pytest.mark.parametrize("room", ["stepwell", "stepwell.admin", "stepwell.storage", "stepwell.workflows"])
def test_type_checkers_and_python_are_told_the_same_names(room: str) -> None:
    module: Any = import_module(room)
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    told = {one.name: line.module for line in stub.body if isinstance(line, ast.ImportFrom) for one in line.names}
    (names,) = (ast.literal_eval(line.value) for line in stub.body if isinstance(line, ast.Assign))
    assert told == {name: f"stepwell.{home}" for name, home in module._HOMES.items()}
    assert names == module.__all__ == sorted(told, key=names.index)
    assert [name for name in names if not hasattr(module, name)] == []


def test_every_name_is_there_and_no_other() -> None:
    assert set(stepwell.__all__) <= set(dir(stepwell))
    for name in stepwell.__all__:
        assert getattr(stepwell, name) is getattr(stepwell, name)
    with pytest.raises(AttributeError, match="module 'stepwell' has no attribute 'Nobody'"):
        stepwell.Nobody  # type: ignore[attr-defined]  # noqa: B018


def test_threads_may_ask_for_names_at_once() -> None:
    ask = """
import sys, threading, stepwell
sys.setswitchinterval(1e-6)
names, together, failed = list(stepwell.__all__), threading.Barrier(8), []
def take(first):
    together.wait()
    try:
        for name in names[first:] + names[:first]: getattr(stepwell, name)
    except BaseException as error: failed.append(error)
threads = [threading.Thread(target=take, args=(9 * n,)) for n in range(8)]
for one in threads: one.start()
for one in threads: one.join()
print(failed)
"""
    assert printed(ask) == "[]\n"


def test_a_value_of_ours_is_read_by_a_program_that_has_not_loaded_its_class() -> None:
    from stepwell.agents.requests import AgentInputRequest
    from stepwell.codec.codec import DEFAULT_CODEC

    stored = DEFAULT_CODEC.encode([stepwell.Message("user", "hello"), AgentInputRequest("clerk", 7)])
    read = f"""
import sys
from stepwell.codec.codec import DEFAULT_CODEC
assert "stepwell.agents.messages" not in sys.modules
print(DEFAULT_CODEC.decode({stored!r}))
"""
    assert printed(read) == f"{DEFAULT_CODEC.decode(stored)}\n"


def test_looking_for_someone_who_watches_a_run_loads_nothing() -> None:
    look = (
        "from stepwell.engine.events.telemetry import create_observer\n"
        "assert create_observer('orders', 'run-1', None, False) is None"
    )
    assert packages_after(look).isdisjoint(OPTIONAL)


def test_the_import_prints_nothing() -> None:
    assert printed("from stepwell import *") == ""


def test_what_the_library_logs_is_not_printed_unless_the_program_asks_for_it() -> None:
    load = "import logging\nfrom stepwell import Workflow\n"
    log = load + "{asked}\nlogging.getLogger('stepwell').warning('a lease was lost')"
    assert printed(log.format(asked="")) == ""
    assert printed(log.format(asked="logging.basicConfig(format='%(message)s')")) == "a lease was lost\n"


def test_the_import_leaves_the_programs_own_logging_alone() -> None:
    program = "import logging\nfrom stepwell import *\nprint(logging.getLogger().handlers, logging.raiseExceptions)"
    assert printed(program) == "[] True\n"
