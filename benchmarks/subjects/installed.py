"""What a system costs before it does anything: the time of its import, and its size when installed."""

import resource
import statistics
import subprocess
import sys
import time
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import machine
from job import Job, Subject

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = {
    "stepwell": ("stepwell", "from stepwell import Executor, SQLiteCheckpointStorage, WorkflowBuilder, handler"),
    "maf": ("agent_framework", "from agent_framework import Executor, FileCheckpointStorage, WorkflowBuilder, handler"),
    "langgraph": (
        "langgraph",
        "from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver; from langgraph.graph import StateGraph",
    ),
    "dbos": ("dbos", "from dbos import DBOS"),
}
"""The package that is needed, and the imports of a program that defines a stored workflow."""
PACKAGES = {
    "stepwell": ("stepwell",),
    "maf": ("agent-framework-core",),
    "langgraph": ("langgraph",),
    "langgraph-sqlite": ("langgraph", "langgraph-checkpoint-sqlite"),
    "dbos": ("dbos",),
}


MAKES_RUNS = """
import asyncio, sys
from stepwell import SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, executor
@executor(id="echo")
async def echo(text: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(text)
async def main(path, runs):
    async with SQLiteCheckpointStorage(path) as storage:
        workflow = WorkflowBuilder(name="echo", start_executor=echo, checkpoint_storage=storage).build()
        for number in range(runs):
            await workflow.run("hello", run_id=f"run-{number}")
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


SCRIPT = "from stepwell.cli.main import main; main()"  # the same as the installed script


def time_command(job: Job) -> None:
    """Note the CPU time of a command from start to exit. The first call warms the caches and does not count."""
    store = job.folder / "runs.db"
    subprocess.run([sys.executable, "-I", "-c", MAKES_RUNS, str(store), str(job["runs"])], check=True)
    listing = ["-I", "-c", SCRIPT, "list", "--json", "--store", f"sqlite:///{store}"]
    taken = [(_used_by(listing), _used_by(["-I", "-c", "pass"])) for _ in range(job["starts"] + 1)][1:]
    for what, found in zip(("command_cpu_ms", "bare_cpu_ms"), zip(*taken, strict=True), strict=True):
        job.notes[what] = statistics.median(found) * 1000


def _used_by(arguments: list[str]) -> float:
    used = _used_by_children()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return _used_by_children() - used


def time_import(job: Job, code: str) -> None:
    """Note how much longer a process with the import takes. The first one warms the caches and does not count."""
    bare = [_started("pass") for _ in range(job["starts"] + 1)][1:]
    importing = [_started(code) for _ in range(job["starts"] + 1)][1:]
    for what, number in (("import_ms", 0), ("import_cpu_ms", 1)):
        before, after = (statistics.median(one[number] for one in found) for found in (bare, importing))
        job.notes[what] = (after - before) * 1000


def _started(code: str) -> tuple[float, float]:
    """Return the elapsed time and the CPU time of a process."""
    began, used = time.perf_counter(), _used_by_children()
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    return time.perf_counter() - began, _used_by_children() - used


def _used_by_children() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def weigh(job: Job, packages: tuple[str, ...]) -> None:
    """Install packages and their dependencies, in the measured versions, into an empty folder."""
    target, versions = job.folder / "target", job.folder / "versions.txt"
    others = [one for one in metadata.distributions() if one.name != "stepwell"]
    versions.write_text("".join(f"{one.name}=={one.version}\n" for one in others))
    wanted = [str(ROOT) if name == "stepwell" else name for name in packages]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    kept = ["--no-build-isolation", "--constraint", str(versions), "--target", str(target)]
    subprocess.run([*command, *kept, *wanted], check=True, stdout=sys.stderr)
    job.notes |= {"bytes": machine.bytes_in(target), "packages": len(list(target.glob("*.dist-info")))}


def _has(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _can_list() -> bool:
    return all(find_spec(needed) is not None for needed in ("stepwell", "click"))


SUBJECTS = [
    *(
        Subject("import", name, "none", partial(time_import, code=code))
        for name, (needed, code) in IMPORTS.items()
        if find_spec(needed) is not None
    ),
    *([Subject("command", "stepwell-sqlite", "sync", time_command)] if _can_list() else []),
    *(
        Subject("installed", name, "none", partial(weigh, packages=packages))
        for name, packages in PACKAGES.items()
        if all(map(_has, packages))
    ),
]
