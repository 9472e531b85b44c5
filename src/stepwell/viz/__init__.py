"""Drawings of workflows as Mermaid, DOT and text."""

from stepwell.viz.workflow_viz import WorkflowViz

__all__ = ["WorkflowViz"]
