"""What a system costs before it does anything: the time of its import, its size when installed, and its source."""

import ast
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import machine
from job import Job, Subject

from subjects import is_there

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
    "stepwell": (),
    "maf": ("agent-framework-core",),
    "langgraph": ("langgraph",),
    "langgraph-sqlite": ("langgraph", "langgraph-checkpoint-sqlite"),
    "dbos": ("dbos",),
}
"""What is installed; nothing: this checkout."""


def time_import(job: Job, code: str) -> None:
    """Note how much longer a process with the import takes. The first one warms the caches and does not count."""
    bare, importing = ([_start(text) for _ in range(job["starts"] + 1)][1:] for text in ("pass", code))
    for number, note in enumerate(("import_ms", "import_cpu_ms")):
        before, after = (statistics.median(one[number] for one in taken) for taken in (bare, importing))
        job.notes[note] = (after - before) * 1000


def _start(code: str) -> tuple[float, float]:
    """Return the elapsed time and the CPU time of a process."""
    began, used = time.perf_counter(), machine.used_by_children()
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
    return time.perf_counter() - began, machine.used_by_children() - used


def weigh(job: Job, packages: tuple[str, ...]) -> None:
    """Install packages and their dependencies, in the measured versions, into an empty folder."""
    target, versions = job.folder / "target", job.folder / "versions.txt"
    others = [one for one in metadata.distributions() if one.name != "stepwell"]
    versions.write_text("".join(f"{one.name}=={one.version}\n" for one in others))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    kept = ["--no-build-isolation", "--constraint", str(versions), "--target", str(target)]
    subprocess.run([*command, *kept, *(packages or [str(ROOT)])], check=True, stdout=sys.stderr)
    job.notes |= {"bytes": machine.bytes_in(target), "packages": len(list(target.glob("*.dist-info")))}


def read_source(job: Job) -> None:
    """Note lines from `def` to the end of the function, lines of a file, and `ast.stmt` nodes of all files."""
    spec = find_spec("stepwell")
    assert spec is not None
    (folder,) = spec.submodule_search_locations or ()
    texts = [path.read_text() for path in Path(folder).rglob("*.py")]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    job.notes |= {
        "longest_function": max(_function_lengths(nodes)),
        "longest_file": max(len(text.splitlines()) for text in texts),
        "statements": sum(isinstance(node, ast.stmt) for node in nodes),
    }


def _function_lengths(nodes: list[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


SUBJECTS = [
    *(
        Subject("import", name, "none", partial(time_import, code=code))
        for name, (needed, code) in IMPORTS.items()
        if find_spec(needed) is not None
    ),
    Subject("source", "stepwell", "none", read_source),
    *(
        Subject("installed", name, "none", partial(weigh, packages=packages))
        for name, packages in PACKAGES.items()
        if all(map(is_there, packages))
    ),
]
