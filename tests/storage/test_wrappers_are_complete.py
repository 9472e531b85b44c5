"""A wrapper that forgets a method of what it wraps is a type error: no call goes past it unnoticed."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import stepwell
from stepwell.storage import integrity, port
from stepwell.testing.faults import wrapped_store

WRAPPERS = [(integrity, "VerifiedStore"), (wrapped_store, "WrappedStore")]
PORT = [name for name in dir(port.Store) if inspect.isfunction(getattr(port.Store, name)) and not name.startswith("_")]


def without(source: str, wrapper: str, method: str | None) -> str:
    """The source of a wrapper without one of its methods, and with a use of it as a store."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == wrapper and method is not None:
            (definition,) = [each for each in node.body if getattr(each, "name", None) == method]
            lines[definition.lineno - 1 : definition.end_lineno] = []
    use = f"def use(wrapper: {wrapper}) -> __port.Store:\n    return wrapper\n"
    return "\n".join([*lines, "import stepwell.storage.port as __port", use])


@pytest.mark.process
@pytest.mark.long
def test_a_wrapper_without_a_method_is_a_type_error(tmp_path: Path) -> None:
    assert {"append", "renew", "close"} <= set(PORT)
    expected: dict[str, list[str]] = {}
    for module, wrapper in WRAPPERS:
        for method in [None, *PORT]:
            copy = tmp_path / f"{wrapper}_{method}.py"
            copy.write_text(without(inspect.getsource(module), wrapper, method))
            expected[copy.name] = [] if method is None else [method]
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
    lines = done.stdout.splitlines()
    for line, following in pairwise(lines):
        if 'is missing following "Store" protocol member' in line:
            missing[line.partition(":")[0]].append(following.rpartition("note:")[2].strip())
    assert missing == expected, done.stdout + done.stderr
