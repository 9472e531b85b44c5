"""The names of `stepwell.viz` as type checkers see them.

`__init__.py` loads the same names lazily.
"""

from stepwell.viz.diagram import Diagram
from stepwell.viz.progress import Progress, progress_of
from stepwell.viz.svg import draw
from stepwell.viz.workflow_diagram import diagram_of
from stepwell.viz.workflow_viz import WorkflowViz

__all__ = ["Diagram", "Progress", "WorkflowViz", "diagram_of", "draw", "progress_of"]
