"""Errors raised by runs of workflows of named agents."""

from __future__ import annotations

from stepwell.errors import RunError


class MissingInput(RunError):
    """A node reads a value that no earlier node has produced."""


class OutputRejected(RunError):
    """An agent's answer does not have the type its node declares.

    The message is also sent to the agent when it is asked again, so it is written for a model.
    """

    answer = ""  # the rejected text


class LoopLimit(RunError):
    """A loop would run a node more often than `max_iterations` allows."""


class WorkflowTimeout(RunError):
    """A run took longer than its workflow's timeout."""
