"""What the conductor and the nodes say to each other. Their names are stored, and stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stepwell.declarative.schedule import Decision


@dataclass(frozen=True, slots=True)
class BeginWorkflow:
    """A run begins. The definition travels with it: whoever resumes it needs nothing else but the agents."""

    input: Any
    definition: str  # as JSON text
    session: str  # whose conversation it is


@dataclass(frozen=True, slots=True)
class RunNode:
    """A node is to run."""

    node: str
    run: int  # how often it has run, this time included
    layer: int  # those that begin together
    upstream: tuple[str, ...] = ()  # the nodes that led to it
    instead_of: str | None = None  # whose place it takes
    decided: Decision | None = None  # what led to this; said once, to the first that begins


@dataclass(frozen=True, slots=True)
class NodesDecided:
    """What was decided, where nobody begins."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class NodeDone:
    """What came of a node."""

    node: str
    run: int
    outcome: Literal["succeeded", "failed", "denied"]
    outputs: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""  # what it failed with, or why it was denied
    progress: float = 0.0  # the part of all nodes that is done or skipped, this one included
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class AgentWorkflowOutcome:
    """What a run came to."""

    output: Any  # of the last node; of several, by their ids
    values: Mapping[str, Any]
    succeeded: tuple[str, ...]
    failed: Mapping[str, str]  # with the reasons
    skipped: Mapping[str, str]
    decided: Decision = field(default_factory=Decision)
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class NodeApprovalResponse:
    """Whether the output of a node may be used, perhaps after a change.

    As JSON: `{"decision": "approve"}`, `{"decision": "approve", "output": ...}` or
    `{"decision": "deny", "reason": ...}`.
    """

    decision: Literal["approve", "deny"]
    output: Any = None  # replaces the node's output; None keeps it
    reason: str = ""  # of a denial


@dataclass(frozen=True, slots=True)
class NodeApprovalRequest:
    """May this be used?"""

    node: str
    output: Any
    message: str = ""

    def approve(self, output: Any = None) -> NodeApprovalResponse:
        """Approve the output; with `output`, use that instead."""
        return NodeApprovalResponse("approve", output=output)

    def deny(self, reason: str = "") -> NodeApprovalResponse:
        """Deny the output: the node counts as skipped, and so does what depends on it."""
        return NodeApprovalResponse("deny", reason=reason)
