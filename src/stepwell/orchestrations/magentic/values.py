"""The ledgers, events, reviews and progress of a Magentic team: plain values that can be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from stepwell.agents.messages import Message, MessagesLike, messages_of

MANAGER = "magentic_manager"
"""The author name of the manager's messages."""


@dataclass(frozen=True, slots=True)
class MagenticTaskLedger:
    """The facts about a task, and the plan for it."""

    facts: Message
    plan: Message


@dataclass(frozen=True, slots=True)
class MagenticProgressLedgerItem:
    """One answer of the manager about the progress, with its reason."""

    reason: str
    answer: str | bool


@dataclass(frozen=True, slots=True)
class MagenticProgressLedger:
    """The manager's assessment of the progress: the state of the task, and who does what next."""

    is_request_satisfied: MagenticProgressLedgerItem
    is_in_loop: MagenticProgressLedgerItem
    is_progress_being_made: MagenticProgressLedgerItem
    next_speaker: MagenticProgressLedgerItem
    instruction_or_question: MagenticProgressLedgerItem


class MagenticOrchestratorEventType(StrEnum):
    """The kinds of `magentic_orchestrator` event."""

    PLAN_CREATED = "plan_created"
    REPLANNED = "replanned"
    PROGRESS_LEDGER_UPDATED = "progress_ledger_updated"


@dataclass(frozen=True, slots=True)
class MagenticOrchestratorEvent:
    """The data of a `magentic_orchestrator` event: a plan or a progress ledger of the manager."""

    event_type: MagenticOrchestratorEventType
    content: Message | MagenticProgressLedger


@dataclass(frozen=True, slots=True)
class MagenticPlanReviewResponse:
    """A person's review of a plan: an empty one approves it, any message asks for another plan."""

    review: Sequence[Message] = ()

    @staticmethod
    def approve() -> MagenticPlanReviewResponse:
        """Approve the plan."""
        return MagenticPlanReviewResponse()

    @staticmethod
    def revise(feedback: MessagesLike) -> MagenticPlanReviewResponse:
        """Ask for another plan that takes the feedback into account. Raises ValueError if it is empty."""
        messages = messages_of(feedback)
        if not any(message.text.strip() for message in messages):
            raise ValueError("the feedback is empty: say what to change, or accept the plan with approve()")
        return MagenticPlanReviewResponse(messages)


@dataclass(frozen=True, slots=True)
class MagenticPlanReviewRequest:
    """May the team work by this plan?"""

    plan: Message
    current_progress: MagenticProgressLedger | None = None  # why the previous plan was abandoned
    is_stalled: bool = False  # whether it replaces a plan with which the work stalled
    request_id: str = ""  # the id to respond to

    def approve(self) -> MagenticPlanReviewResponse:
        """Approve the plan."""
        return MagenticPlanReviewResponse.approve()

    def revise(self, feedback: MessagesLike) -> MagenticPlanReviewResponse:
        """Ask the manager for another plan, which is reviewed again."""
        return MagenticPlanReviewResponse.revise(feedback)


Phase = Literal["plan", "replan", "review", "progress", "working", "final", "over"]
"""What the work waits for: the manager, a person (review), a participant (working), or nothing (over)."""


@dataclass(frozen=True, slots=True)
class MagenticProgress:
    """The state of the work on a task."""

    phase: Phase
    since: int = 0  # index of the first message that still counts; a reset moves it
    rounds: int = 0
    stalls: int = 0
    resets: int = 0
    is_stalled: bool = False  # the plan has failed, and the next one is not in effect yet
    speaker: str = ""  # the participant instructed last
    heard: Mapping[str, int] = field(default_factory=dict)  # how many messages each participant has received


@dataclass(frozen=True, slots=True)
class MagenticContinue:
    """The orchestrator's message to itself: ask the manager the next question in a new superstep."""
