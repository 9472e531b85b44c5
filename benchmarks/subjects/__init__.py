"""The systems that are measured, one module each. A measurement loads only the module of its system."""

from importlib import import_module, metadata

from job import Subject

SYSTEMS = {
    "stepwell": None,
    "operations": None,
    "maf": "agent-framework-core",
    "langgraph": "langgraph-checkpoint-sqlite",
    "dbos": "dbos",
    "raw": None,
    "installed": None,
}
"""Modules, and the package that each needs."""


def installed() -> list[str]:
    return [system for system, needed in SYSTEMS.items() if needed is None or is_there(needed)]


def is_there(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def of(system: str) -> list[Subject]:
    return list(import_module(f"subjects.{system}").SUBJECTS)
