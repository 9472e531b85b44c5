"""`stepwell viz`: the picture of a workflow."""

from __future__ import annotations

import asyncio

import click

from stepwell.cli.code_loader import code_of
from stepwell.cli.settings import as_json, everywhere
from stepwell.cli.views.output import document, lines

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
    from stepwell.viz.picture import WorkflowViz

    found = asyncio.run(code_of(workflow).workflow())
    picture = getattr(WorkflowViz(found), FORMS[form])()
    if json:
        document(workflow=found.name, format=form, picture=picture)
    else:
        lines([picture])
