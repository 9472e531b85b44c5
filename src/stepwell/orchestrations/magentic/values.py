"""What a managed team plans, keeps an eye on, tells and asks: plain values that can be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from stepwell.agents.messages import Message, MessagesLike, messages_of

MANAGER = "magentic_manager"
"""Who says what the manager says."""


@dataclass(frozen=True, slots=True)
class MagenticTaskLedger:
    """What is known about a task, and how it is to be done."""

    facts: Message
    plan: Message


@dataclass(frozen=True, slots=True)
class MagenticProgressLedgerItem:
    """One thing the manager found out about the progress, and why it thinks so."""

    reason: str
    answer: str | bool


@dataclass(frozen=True, slots=True)
class MagenticProgressLedger:
    """Where a task stands, and who is to do what next."""

    is_request_satisfied: MagenticProgressLedgerItem
    is_in_loop: MagenticProgressLedgerItem
    is_progress_being_made: MagenticProgressLedgerItem
    next_speaker: MagenticProgressLedgerItem
    instruction_or_question: MagenticProgressLedgerItem


class MagenticOrchestratorEventType(StrEnum):
    """What the orchestrator tells."""

    PLAN_CREATED = "plan_created"
    REPLANNED = "replanned"
    PROGRESS_LEDGER_UPDATED = "progress_ledger_updated"


@dataclass(frozen=True, slots=True)
class MagenticOrchestratorEvent:
    """What the manager came to: the data of a `magentic_orchestrator` event."""

    event_type: MagenticOrchestratorEventType
    content: Message | MagenticProgressLedger


@dataclass(frozen=True, slots=True)
class MagenticPlanReviewResponse:
    """What a person says to a plan: nothing, and it counts; or something, and another plan is made."""

    review: Sequence[Message] = ()

    @staticmethod
    def approve() -> MagenticPlanReviewResponse:
        """The plan counts."""
        return MagenticPlanReviewResponse()

    @staticmethod
    def revise(feedback: MessagesLike) -> MagenticPlanReviewResponse:
        """Another plan is made, in view of this. Raises ValueError if nothing is said."""
        messages = messages_of(feedback)
        if not any(message.text.strip() for message in messages):
            raise ValueError("nothing is said about the plan: say what to change, or let it count with approve()")
        return MagenticPlanReviewResponse(messages)


@dataclass(frozen=True, slots=True)
class MagenticPlanReviewRequest:
    """May the team work by this plan?"""

    plan: Message
    current_progress: MagenticProgressLedger | None = None  # why the plan before it was given up
    is_stalled: bool = False  # it takes the place of a plan that led nowhere
    request_id: str = ""  # what to answer to

    def approve(self) -> MagenticPlanReviewResponse:
        """It may."""
        return MagenticPlanReviewResponse.approve()

    def revise(self, feedback: MessagesLike) -> MagenticPlanReviewResponse:
        """Not yet: the manager is told this, makes another plan and asks again."""
        return MagenticPlanReviewResponse.revise(feedback)


Phase = Literal["plan", "replan", "review", "progress", "working", "final", "over"]
"""What is being waited for: the manager, a person, a participant, or nothing more."""


@dataclass(frozen=True, slots=True)
class MagenticProgress:
    """Where the work on a task is."""

    phase: Phase
    since: int = 0  # which message of the conversation is the first that counts: a reset leaves the others behind
    rounds: int = 0
    stalls: int = 0
    resets: int = 0
    is_stalled: bool = False  # the plan led nowhere, and the next one does not count yet
    speaker: str = ""  # who was told to do something last
    heard: Mapping[str, int] = field(default_factory=dict)  # up to where each participant knows the conversation


@dataclass(frozen=True, slots=True)
class MagenticContinue:
    """What the orchestrator sends to itself: the manager is asked in a superstep of its own."""
