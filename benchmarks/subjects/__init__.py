"""What is measured: one module per system. A process that measures loads only the module of its own."""

from importlib import import_module
from importlib.util import find_spec

from job import Subject

SYSTEMS = {
    "holdfast": "holdfast",
    "maf": "agent_framework",
    "langgraph": "langgraph",
    "dbos": "dbos",
    "raw": "json",
    "installed": "json",
}
"""The module of a system, and what must be installed for it."""


def installed() -> list[str]:
    return [system for system, needed in SYSTEMS.items() if find_spec(needed) is not None]


def of(system: str) -> list[Subject]:
    return list(import_module(f"subjects.{system}").SUBJECTS)
