"""Each program does the same on Agent Framework and on the door."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.compat.differences import DIFFERENCES, DIFFERENT, PAGE, table
from tests.compat.kit import Program, namespaces, observe
from tests.compat.programs import (
    agents,
    checkpoints,
    definitions,
    functional,
    functional_runs,
    graphs,
    nested,
    promises,
    requests,
    runs,
    spans,
    teams,
)

# The framework says so of workflows as functions.
pytestmark = pytest.mark.filterwarnings("ignore:.* is experimental")

MODULES: tuple[ModuleType, ...] = (
    agents,
    checkpoints,
    definitions,
    functional,
    functional_runs,
    graphs,
    nested,
    promises,
    requests,
    runs,
    spans,
    teams,
)


def programs() -> Iterator[Program]:
    """Yield every async function of the program modules."""
    for module in MODULES:
        for _, function in inspect.getmembers(module, inspect.iscoroutinefunction):
            if function.__module__ == module.__name__ and not function.__name__.startswith("_"):
                yield function


@pytest.mark.parametrize("program", list(programs()), ids=lambda program: program.__name__)
async def test_a_program_does_the_same(program: Program, tmp_path: Path) -> None:
    theirs, ours = namespaces(tmp_path)
    here, there = await observe(program, ours), await observe(program, theirs)
    if program.__name__ in DIFFERENT:
        assert here != there, f"no difference any more: {DIFFERENT[program.__name__].here}"
    else:
        assert here == there


def test_the_table_of_differences_is_short_and_names_programs() -> None:
    assert len(DIFFERENCES) <= 25
    assert set(DIFFERENT) <= {program.__name__ for program in programs()}
    assert table() in PAGE.read_text()


def test_the_kit_has_at_least_150_programs() -> None:
    assert len(list(programs())) >= 150
