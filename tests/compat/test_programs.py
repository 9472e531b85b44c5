"""Each program does the same on Agent Framework and on the door."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.compat.differences import DIFFERENCES, DIFFERENT
from tests.compat.kit import Program, namespaces, observe
from tests.compat.programs import definitions, graphs, requests, runs

MODULES: tuple[ModuleType, ...] = (definitions, graphs, requests, runs)


def programs() -> Iterator[Program]:
    """Yield every async function of the program modules."""
    for module in MODULES:
        for _, function in inspect.getmembers(module, inspect.iscoroutinefunction):
            if function.__module__ == module.__name__:
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
