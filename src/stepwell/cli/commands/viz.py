"""`stepwell viz`: draw the graph of a workflow."""

from __future__ import annotations

import asyncio
import json as json_text
from typing import TYPE_CHECKING

import click

import stepwell
from stepwell.cli.code_loader import load_code
from stepwell.cli.definition_file import EXTENSIONS, read_definition
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.views.output import print_document, print_lines

if TYPE_CHECKING:
    from stepwell.viz.workflow_diagram import Graph

# Methods of `WorkflowViz`, by name so that the class is loaded only when the command runs.
FORMS = {
    "mermaid": "to_mermaid",
    "dot": "to_digraph",
    "text": "to_text",
    "svg": "to_svg",
    "layout": "to_layout",
}


@click.command("viz")
@click.argument("workflow", metavar="MODULE:WORKFLOW|FILE")
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
    is drawn with its own nodes and conditions; FILE is a JSON or YAML definition of one, and needs no
    agents for that.
    """
    name, graph = _load_graph(workflow)
    picture = getattr(stepwell.WorkflowViz(graph), FORMS[form])()
    if json:
        print_document(workflow=name, format=form, picture=picture)
    else:
        print_lines([picture if isinstance(picture, str) else json_text.dumps(picture)])


def _load_graph(name: str) -> tuple[str, Graph]:
    """Return the name of a workflow, and what is drawn of it."""
    if not name.endswith(EXTENSIONS):
        built = asyncio.run(load_code(name).build_workflow())
        return built.name, built
    from stepwell.declarative.diagram import diagram_of_nodes  # lazy: 60 ms
    from stepwell.declarative.node_graph import NodeGraph  # lazy: 60 ms

    definition = read_definition(name)
    return definition.name, diagram_of_nodes(NodeGraph(definition))
