"""`WorkflowViz`: draws a workflow as SVG, Mermaid, DOT or plain text, without any dependency."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Literal, get_args

from stepwell.viz import dot, mermaid, text
from stepwell.viz.placed_diagram import place
from stepwell.viz.svg import draw
from stepwell.viz.workflow_diagram import Graph, diagram_of

FileFormat = Literal["svg", "png", "pdf", "dot", "mermaid", "text"]
_EXTENSIONS = {"mermaid": "mmd", "text": "txt"}  # of a file, if it is not the name of the format


class WorkflowViz:
    """Draws a workflow, with its sub-workflows in boxes of their own.

    A workflow of named agents is drawn with its own nodes and conditions.
    """

    def __init__(self, workflow: Graph) -> None:
        self._diagram = diagram_of(workflow)

    def to_mermaid(self) -> str:
        """Return a Mermaid flowchart."""
        return mermaid.to_mermaid(self._diagram)

    def to_digraph(self) -> str:
        """Return a DOT graph, for Graphviz."""
        return dot.to_dot(self._diagram)

    def to_text(self) -> str:
        """Return one line per edge; sub-workflows are indented."""
        return text.to_text(self._diagram)

    def to_svg(self, *, title: str = "Workflow") -> str:
        """Return an SVG that needs no script, no font and no network, and follows the reader's light or dark."""
        return draw(self._diagram, title=title)

    def to_layout(self) -> dict[str, Any]:
        """Return the drawing as plain JSON data: boxes by their centre and size, arrows by their points."""
        return place(self._diagram).to_data()

    def export(self, format: FileFormat = "svg", filename: str | os.PathLike[str] | None = None) -> str:
        """Write the drawing to a file and return its path; without a file name, to a new temporary file.

        PNG and PDF are drawn by Graphviz: its program `dot` must be on the PATH. Raises RuntimeError
        if it is not, or if it fails.
        """
        if format not in get_args(FileFormat):
            raise ValueError(f"format must be one of {', '.join(get_args(FileFormat))}, not {format!r}")
        writers = {"svg": self.to_svg, "dot": self.to_digraph, "mermaid": self.to_mermaid, "text": self.to_text}
        data = writers[format]().encode() if format in writers else _run_graphviz(format, self.to_digraph())
        if filename is not None:
            Path(filename).write_bytes(data)
            return str(filename)
        handle, path = tempfile.mkstemp(suffix=f".{_EXTENSIONS.get(format, format)}", prefix="workflow-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return path

    def _repr_svg_(self) -> str:
        return self.to_svg()


def _run_graphviz(format: str, graph: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise RuntimeError(
            f"drawing a {format.upper()} needs Graphviz, and its program `dot` is not on the PATH: "
            f"install Graphviz, or export an svg, which needs nothing"
        )
    done = subprocess.run([program, f"-T{format}"], input=graph.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Graphviz could not draw the workflow: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
