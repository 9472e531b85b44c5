"""Messages between the conductor and the nodes, and the approval request of a node.

Instances are stored in runs: class names (see `codec.stored_names`) and field names are part of the
storage format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stepwell.declarative.schedule import Decision

ReportedOutcome = Literal["succeeded", "failed", "denied"]


@dataclass(frozen=True, slots=True)
class BeginWorkflow:
    """The input of a run. It carries the definition, so resuming the run needs only the agents."""

    input: Any
    definition: str  # JSON text; empty if the definition cannot be exported
    session: str  # the conversation session


@dataclass(frozen=True, slots=True)
class RunNode:
    """The conductor starts a node."""

    node: str
    run: int  # how often the node has run, this run included
    layer: int  # nodes started in the same superstep share a layer
    upstream: tuple[str, ...] = ()  # the nodes that led to it
    instead_of: str | None = None  # the failed node that this one replaces
    # Events are computed from messages, so the decision travels in one of them: the first node that
    # starts carries it, or else `NodesDecided` or the outcome.
    decided: Decision | None = None


@dataclass(frozen=True, slots=True)
class NodesDecided:
    """A decision that starts no node.

    Sent only so that its events can be computed from the commit.
    """

    decision: Decision


@dataclass(frozen=True, slots=True)
class NodeDone:
    """A node reports its result to the conductor."""

    node: str
    run: int
    outcome: ReportedOutcome
    outputs: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""  # the error, or why it was denied
    progress: float = 0.0  # the share of nodes that are settled, this one included
    # Times differ between a run and its repetition after a crash, so they take no part in
    # comparisons.
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class AgentWorkflowOutcome:
    """The result of a completed run."""

    output: Any  # of the last node; if there are several, a mapping by node id
    values: Mapping[str, Any]
    succeeded: tuple[str, ...]
    failed: Mapping[str, str]  # node id to reason
    skipped: Mapping[str, str]  # node id to reason
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
    """A person is asked whether the output of a node may be used."""

    node: str
    output: Any
    message: str = ""

    def approve(self, output: Any = None) -> NodeApprovalResponse:
        """Approve the output; with `output`, use that instead."""
        return NodeApprovalResponse("approve", output=output)

    def deny(self, reason: str = "") -> NodeApprovalResponse:
        """Deny the output: the node counts as skipped, and so does what depends on it."""
        return NodeApprovalResponse("deny", reason=reason)
