"""What is measured: one module per system. A process that measures loads only the module of its own."""

from importlib import import_module, metadata

from job import Subject

SYSTEMS = {
    "stepwell": "stepwell",
    "maf": "agent-framework-core",
    "langgraph": "langgraph-checkpoint-sqlite",
    "dbos": "dbos",
    "raw": None,
    "installed": None,
}
"""The module of a system, and the package that must be installed for it."""


def installed() -> list[str]:
    return [system for system, needed in SYSTEMS.items() if needed is None or _is_there(needed)]


def _is_there(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def of(system: str) -> list[Subject]:
    return list(import_module(f"subjects.{system}").SUBJECTS)
