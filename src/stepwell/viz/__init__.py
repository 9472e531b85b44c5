"""Drawings of workflows as Mermaid, DOT and text."""

from stepwell.viz.picture import WorkflowViz

__all__ = ["WorkflowViz"]
