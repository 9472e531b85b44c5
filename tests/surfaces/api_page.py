"""Writes docs/api.md: every public name with the first sentence of its docstring.

`python -m tests.surfaces.api_page` writes the page anew; `test_docs` fails while it is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from tools.site.pages import PACKAGES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
TOP = """# Every public name

For developers who look for a name. The names are grouped by the package to import them from.
Anything that is not on this page is internal and may change, except the names of Agent Framework in
`stepwell.compat.agent_framework`, which [that framework defines](coming-from-agent-framework.md).
This page is generated from the docstrings.
"""


def page() -> str:
    return "\n".join([TOP, *(section(package, about) for package, about in PACKAGES.items())])


def section(package: str, about: str) -> str:
    module = import_module(package)
    rows = [f"| `{name}` | {first_sentence(module, name)} |" for name in sorted(module.__all__, key=str.lower)]
    return "\n".join([f"## {package}: {about}", "", "| name | what it is |", "|---|---|", *rows, ""])


def first_sentence(module: Any, name: str) -> str:
    value = getattr(module, name)
    own = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        own = documented_constant(module, name)
    assert own, f"{name} has no docstring"
    text = " ".join(inspect.cleandoc(own).split("\n\n")[0].split())
    sentence = re.match(r".*?\.(?=\s|$)", text)
    return (sentence[0] if sentence else text).replace("|", "\\|")


def home_of(package: Any, name: str) -> str:
    """The module that a package exports a name from."""
    if hasattr(package, "_HOMES"):
        return f"stepwell.{package._HOMES[name]}"
    imports = [line for line in ast.parse(inspect.getsource(package)).body if isinstance(line, ast.ImportFrom)]
    return next(str(line.module) for line in imports for alias in line.names if alias.name == name)


def documented_constant(module: Any, name: str) -> str | None:
    """The string that follows the assignment of a constant in the module that defines it."""
    body = ast.parse(inspect.getsource(sys.modules[home_of(module, name)])).body
    for statement, after in pairwise(body):
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else getattr(statement, "targets", [])
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return str(after.value.value)
    return None


if __name__ == "__main__":
    PAGE.write_text(page())
