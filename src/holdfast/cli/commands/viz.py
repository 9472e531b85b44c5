"""`holdfast viz`: the picture of a workflow."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from ..failing import NOT_FOUND, USAGE, CommandFailed
from ..output import document, lines
from ..settings import as_json, everywhere

if TYPE_CHECKING:
    from ...workflow.workflow import Workflow

FORMS = {"mermaid": "to_mermaid", "dot": "to_digraph", "text": "to_text"}


@click.command("viz")
@click.argument("workflow", metavar="MODULE:WORKFLOW")
@click.option("--format", "form", type=click.Choice(list(FORMS)), default="mermaid", show_default=True)
@as_json
@everywhere
def command(workflow: str, form: str, json: bool) -> None:
    """The picture of a workflow: Mermaid, DOT, or one line in words for each edge.

    WORKFLOW is a workflow, a builder, or a function without arguments that gives one. MODULE is looked for in the
    working directory, too. Importing it runs its code.
    """
    from ...viz import WorkflowViz

    found = _found(workflow)
    picture = getattr(WorkflowViz(found), FORMS[form])()
    if json:
        document(workflow=found.name, format=form, picture=picture)
    else:
        lines([picture])


def _found(name: str) -> Workflow:
    from ...workflow.builder import WorkflowBuilder
    from ...workflow.workflow import Workflow

    module, divider, path = name.partition(":")
    if not divider or not module or not path:
        raise CommandFailed(f"{name!r} is not of the form MODULE:WORKFLOW", "for example: shop.orders:workflow", USAGE)
    with redirect_stdout(sys.stderr):  # what the module prints is no data of ours
        found = _attribute(_imported(module), module, path)
        if not isinstance(found, (Workflow, WorkflowBuilder)) and callable(found):
            found = _called(found, name)
        if isinstance(found, WorkflowBuilder):
            found = found.build()
    if not isinstance(found, Workflow):
        raise CommandFailed(f"{name} is no workflow but of class {type(found).__name__}", code=USAGE)
    return found


def _imported(module: str) -> Any:
    from importlib import import_module

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise CommandFailed(f"module {module!r} needs {missing.name!r}, which is not installed") from missing
        hint = "it is looked for in the working directory and where Python looks"
        raise CommandFailed(f"there is no module {module!r}", hint, NOT_FOUND) from None
    except Exception as error:
        told = f"importing {module!r} raised {type(error).__name__}: {error}"
        raise CommandFailed(told, "--debug shows where it happened") from error


def _attribute(found: Any, module: str, path: str) -> Any:
    for part in path.split("."):
        if not hasattr(found, part):
            raise CommandFailed(f"module {module!r} has no {path!r}", code=NOT_FOUND)
        found = getattr(found, part)
    return found


def _called(function: Any, name: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise CommandFailed(f"calling {name} raised {type(error).__name__}: {error}") from error
