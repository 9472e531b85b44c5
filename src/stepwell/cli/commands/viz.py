"""`stepwell viz`: draw the graph of a workflow."""

from __future__ import annotations

import asyncio
import json as json_text

import click

import stepwell
from stepwell.cli.code_loader import load_code
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.views.output import print_document, print_lines

# Methods of `WorkflowViz`, by name so that the class is loaded only when the command runs.
FORMS = {
    "mermaid": "to_mermaid",
    "dot": "to_digraph",
    "text": "to_text",
    "svg": "to_svg",
    "layout": "to_layout",
}


@click.command("viz")
@click.argument("workflow", metavar="MODULE:WORKFLOW")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMS)),
    default="mermaid",
    show_default=True,
    help="Mermaid, DOT, one line of text per edge, a drawing (SVG), or its coordinates as JSON.",
)
@json_option
@common_options
def command(workflow: str, form: str, json: bool) -> None:
    """Draw the graph of a workflow.

    WORKFLOW is a workflow, a builder, or a function without arguments that returns one. MODULE is
    also searched in the working directory. Importing it runs its code. A workflow of named agents
    is drawn with its own nodes and conditions.
    """
    built = asyncio.run(load_code(workflow).build_workflow())
    picture = getattr(stepwell.WorkflowViz(built), FORMS[form])()
    if json:
        print_document(workflow=built.name, format=form, picture=picture)
    else:
        print_lines([picture if isinstance(picture, str) else json_text.dumps(picture)])
