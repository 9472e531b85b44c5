"""Drawings of workflows: SVG, Mermaid, DOT and text, all of one diagram and one layout.

Each name is imported from its module on first use. Type checkers read `__init__.pyi`.
"""

from stepwell.codec import modules as _modules

# A program that prints Mermaid does not load the layout.
_HOMES = {
    "Diagram": "viz.diagram",
    "Progress": "viz.progress",
    "WorkflowViz": "viz.workflow_viz",
    "diagram_of": "viz.workflow_diagram",
    "draw": "viz.svg",
    "progress_of": "viz.progress",
}

__getattr__, __dir__, __all__ = _modules.export_lazily(__name__, _HOMES)
