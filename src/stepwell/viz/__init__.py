"""Pictures of workflows."""

from stepwell.viz.picture import WorkflowViz

__all__ = ["WorkflowViz"]
