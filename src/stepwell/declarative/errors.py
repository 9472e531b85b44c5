"""What goes wrong in a workflow of named agents."""

from __future__ import annotations

from stepwell.errors import RunError


class MissingInput(RunError):
    """A node wants a value that nobody has given."""


class OutputRejected(RunError):
    """What an agent answered is not what its node promises. The message is fit for the agent to read."""

    answer = ""  # what it said


class LoopLimit(RunError):
    """A loop would run once more than it may."""


class WorkflowTimeout(RunError):
    """A run took longer than it may."""
