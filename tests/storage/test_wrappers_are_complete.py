"""A wrapper that forgets a method of what it wraps is a type error: no call goes past it unnoticed."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

import stepwell
from stepwell.engine.durability import deferred_archive
from stepwell.storage import archive, integrity, port
from stepwell.testing.faults import wrapped_store

# The module and the class of each wrapper, and those of the protocol it implements.
WRAPPERS: list[tuple[ModuleType, str, ModuleType, str]] = [
    (integrity, "VerifiedStore", port, "Store"),
    (wrapped_store, "WrappedStore", port, "Store"),
    (deferred_archive, "DeferredArchive", archive, "Archive"),
]


def members(protocol: type) -> list[str]:
    return [
        name
        for name, member in inspect.getmembers(protocol)
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    ]


def without(source: str, wrapper: str, member: str | None) -> str:
    """The source of a module whose wrapper lacks one of its members."""
    lines = source.splitlines()
    (definition,) = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == wrapper
    ]
    for node in reversed(definition.body):
        names = (
            {target.id for target in node.targets if isinstance(target, ast.Name)}
            if isinstance(node, ast.Assign)
            else set()
        )
        if member is not None and member in {getattr(node, "name", None), *names}:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
            lines[first - 1 : node.end_lineno] = ["    pass"]
    return "\n".join(lines)


def use_as(wrapper: str, module: ModuleType, protocol: str) -> str:
    """A function that type-checks only if the wrapper implements the protocol."""
    signature = f"def use(wrapper: {wrapper}) -> wrapped.{protocol}:"
    return f"\nimport {module.__name__} as wrapped\n{signature}\n    return wrapper\n"


@pytest.mark.process
@pytest.mark.long
def test_a_wrapper_without_a_method_is_a_type_error(tmp_path: Path) -> None:
    expected: dict[str, list[str]] = {}
    for module, wrapper, wrapped, protocol in WRAPPERS:
        every = members(getattr(wrapped, protocol))
        assert len(every) > 20
        for member in [None, *every]:
            copy = tmp_path / f"{wrapper}_{member}.py"
            copy.write_text(without(inspect.getsource(module), wrapper, member) + use_as(wrapper, wrapped, protocol))
            expected[copy.name] = [] if member is None else [member]
    options = ["--strict", "--follow-imports=silent", "--config-file=", "--cache-dir=cache"]
    environment = os.environ | {"MYPYPATH": str(Path(stepwell.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *expected],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    missing: dict[str, list[str]] = {name: [] for name in expected}
    for line, following in pairwise(done.stdout.splitlines()):
        if "is missing following" in line and "protocol member" in line:
            missing[line.partition(":")[0]].append(following.rpartition("note:")[2].strip())
    assert missing == expected, done.stdout + done.stderr
