"""The executor at the centre of a Magentic team: it asks the manager, has plans reviewed, and instructs participants.

Its handlers move a `MagenticProgress` through its phases: plan, (review,) progress, working, progress,
... , final, over; replan takes the place of plan after a stall or a review. A turn of this executor is
one question to the manager, so that each answer is durable before the next question is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

from stepwell.agents.agent_types import Agent
from stepwell.agents.conversation import conversation_of, hear, length_of
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import AgentExecutorRequest, AgentExecutorResponse, AgentResponse, Answer, Message
from stepwell.agents.turn import Turn
from stepwell.errors import RunError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.handler import handler, response_handler
from stepwell.model.event import WorkflowEvent
from stepwell.orchestrations.group_chat.orchestrator import Interface
from stepwell.orchestrations.group_chat.values import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatResponseMessage,
)
from stepwell.orchestrations.magentic.managers import MagenticContext, MagenticManagerBase
from stepwell.orchestrations.magentic.values import (
    MANAGER,
    MagenticContinue,
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgress,
    MagenticProgressLedger,
    Phase,
)
from stepwell.orchestrations.participants import AbsentAgent

ORCHESTRATOR = "magentic_orchestrator"

# State keys. They are part of stored runs: the progress is under "stand", the progress ledger under
# "progress", and the message with the plan under "ledger".
_TASK, _PLAN = "magentic/task", "magentic/ledger"
_PROGRESS, _PROGRESS_LEDGER = "magentic/stand", "magentic/progress"

_Context = WorkflowContext[Any, AgentResponse]


class MagenticOrchestrator(AgentExecutor):
    """Leads a team. Each turn is one question to the manager: for a plan, the progress or the final answer.

    Its conversation, in the state of the run, holds the messages of all participants.
    """

    manager: MagenticManagerBase
    # How each participant is addressed, and which of those that are not agents are sent the messages of others.
    interfaces: Mapping[str, Interface | None] = MappingProxyType({})
    listeners: AbstractSet[str] = frozenset()

    def __init__(self, manager: MagenticManagerBase, descriptions: Mapping[str, str], *, plan_review: bool) -> None:
        super().__init__(AbsentAgent(ORCHESTRATOR, "plans the work of the team and tracks its progress"))
        self.manager, self.descriptions, self.plan_review = manager, dict(descriptions), plan_review
        self.rules = manager.rules

    def clone(self) -> Self:
        clone = super().clone()
        # A manager may keep state, which belongs to one run.
        clone.manager = self.manager.clone()
        return clone

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return self.manager.on_checkpoint_save()

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.manager.on_checkpoint_restore(state)

    # Input: tasks, contributions of participants, reviews of plans

    def hear(self, messages: Sequence[Message], ctx: _Context) -> None:
        """Start work on a task. Raises RunError if there is one already, ValueError if it is empty."""
        before: MagenticProgress | None = ctx.get_state(_PROGRESS)
        if before is not None and before.phase != "over":
            raise RunError(
                f"run {ctx.run_id!r} is already working on a task and cannot take another one; wait until it is done, "
                f"or start another run",
                run_id=ctx.run_id,
            )
        tasks = [message for message in messages if message.text.strip()]
        if not tasks:
            raise ValueError(f"run {ctx.run_id!r} has no task: its input contains no text: {list(messages)!r:.200}")
        # A message from outside may consist of several; the manager sees one task.
        task = tasks[0] if len(tasks) == 1 else Message("user", "\n\n".join(message.text for message in tasks))
        ctx.set_state(_TASK, task)
        # A run may get a second task when the first is done; the conversation before it does not count.
        ctx.set_state(_PROGRESS, MagenticProgress("plan", since=length_of(self.id, ctx)))

    @handler
    async def handle_request(self, request: AgentExecutorRequest, ctx: _Context) -> None:
        self.hear(request.messages, ctx)
        await self.respond(ctx)

    @handler
    async def handle_executor_response(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        """Receive a participant's contribution, or a task from an agent outside the team."""
        # A message from outside the run has no source.
        if not ctx.source_executor_ids:
            self.hear(response.agent_response.messages, ctx)
            await self.respond(ctx)
            return
        messages = [message for message in response.agent_response.messages if message.text and message.role != "tool"]
        hear(self.id, messages, ctx)
        progress = self._progress(ctx)
        if (progress.phase, progress.speaker) != ("working", response.executor_id):
            # A participant that was not asked: its message is kept, but does not start a round.
            return
        heard = {**progress.heard, response.executor_id: length_of(self.id, ctx)}
        await self._begin_round(replace(progress, heard=heard), ctx)
        if self._progress(ctx).phase != "over":
            await self.respond(ctx)

    @handler
    async def handle_contribution(self, contribution: GroupChatResponseMessage, ctx: _Context) -> None:
        """Receive the contribution of a participant that is not an agent."""
        source = ctx.get_source_executor_id() or ""
        message = replace(contribution.message, author_name=contribution.message.author_name or source)
        await self.handle_executor_response(AgentExecutorResponse(source, AgentResponse([message])), ctx)

    @handler
    async def continue_work(self, message: MagenticContinue, ctx: _Context) -> None:
        await self.respond(ctx)

    @response_handler
    async def apply_review(
        self, request: MagenticPlanReviewRequest, response: MagenticPlanReviewResponse, ctx: _Context
    ) -> None:
        progress = self._progress(ctx)
        if not response.review:
            await self._begin_round(self._adopt_plan(progress, request.plan, ctx), ctx)
        else:
            # The review joins the conversation, where the manager finds it when it replans.
            hear(self.id, response.review, ctx)
            ctx.set_state(_PROGRESS, replace(progress, phase="replan"))
        if self._progress(ctx).phase != "over":
            await self.respond(ctx)

    # Questions to the manager, and what follows from its answers

    async def take_turn(self, turn: Turn, ctx: _Context) -> Answer:
        phase = self._progress(ctx).phase
        questions: dict[Phase, Any] = {
            "plan": self.manager.plan,
            "replan": self.manager.replan,
            "progress": self.manager.create_progress_ledger,
            "final": self.manager.prepare_final_answer,
        }
        context = self._context(turn, ctx)

        async def ask() -> list[Any]:
            return [await questions[phase](context), self.manager.on_checkpoint_save(), turn.usage]

        # If the answer is recalled, the manager was not asked. Its own state and the usage of the calls
        # inside are therefore part of the step.
        result, saved, turn.usage = await turn.step(phase, ask)
        self.manager.on_checkpoint_restore(saved)
        return Answer(value=result)

    async def send_response(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        progress = self._progress(ctx)
        result: Any = response.agent_response.value
        if progress.phase == "progress":
            await self._evaluate_progress(progress, result, ctx)
        elif progress.phase == "final":
            await self._end(replace(response.agent_response, messages=[result], value=None), ctx)
        else:
            await self._present_plan(progress, result, ctx)

    async def _present_plan(self, progress: MagenticProgress, plan: Message, ctx: _Context) -> None:
        kinds = MagenticOrchestratorEventType
        kind = kinds.PLAN_CREATED if progress.phase == "plan" else kinds.REPLANNED
        await ctx.add_event(WorkflowEvent(ORCHESTRATOR, MagenticOrchestratorEvent(kind, plan)))
        ctx.set_state(_PLAN, plan)
        if not self.plan_review:
            await self._begin_round(self._adopt_plan(progress, plan, ctx), ctx)
            await self._ask_in_next_superstep(ctx)
            return
        ledger = ctx.get_state(_PROGRESS_LEDGER) if progress.is_stalled else None
        # Derived from the delivery, which makes one request: every attempt uses the same id.
        id = f"plan-review-{ctx.idempotency_key}"
        request = MagenticPlanReviewRequest(plan, ledger, progress.is_stalled, id)
        await ctx.request_info(request, MagenticPlanReviewResponse, request_id=id)
        ctx.set_state(_PROGRESS, replace(progress, phase="review"))

    def _adopt_plan(self, progress: MagenticProgress, plan: Message, ctx: _Context) -> MagenticProgress:
        """Put a plan into effect. After a stall the conversation before it no longer counts."""
        if progress.is_stalled:
            progress = replace(progress, since=length_of(self.id, ctx), heard={}, is_stalled=False)
        # Without the ledger as data, which is stored under its own key: the text says it all.
        hear(self.id, [replace(plan, data=None)], ctx)
        return progress

    async def _begin_round(self, progress: MagenticProgress, ctx: _Context) -> None:
        limit = self.manager.max_round_count
        if limit is not None and progress.rounds >= limit:
            await self._give_up(f"it was not done within the limit of {limit} rounds", ctx)
        else:
            ctx.set_state(_PROGRESS, replace(progress, phase="progress", rounds=progress.rounds + 1))

    async def _evaluate_progress(
        self, progress: MagenticProgress, ledger: MagenticProgressLedger | None, ctx: _Context
    ) -> None:
        """Decide what happens next by the manager's assessment of the progress."""
        # A manager that cannot assess the progress cannot follow this plan: try another one.
        if ledger is None:
            await self._reset(progress, ctx)
            return
        event = MagenticOrchestratorEvent(MagenticOrchestratorEventType.PROGRESS_LEDGER_UPDATED, ledger)
        await ctx.add_event(WorkflowEvent(ORCHESTRATOR, event))
        ctx.set_state(_PROGRESS_LEDGER, ledger)
        if ledger.is_request_satisfied.answer:
            ctx.set_state(_PROGRESS, replace(progress, phase="final"))
            await self._ask_in_next_superstep(ctx)
            return
        stalled = bool(ledger.is_in_loop.answer) or not ledger.is_progress_being_made.answer
        # A good round makes up for one bad round, it does not erase all of them.
        progress = replace(progress, stalls=progress.stalls + 1 if stalled else max(0, progress.stalls - 1))
        if progress.stalls > self.manager.max_stall_count:
            await self._reset(progress, ctx)
        else:
            await self._instruct(progress, ledger, ctx)

    async def _instruct(self, progress: MagenticProgress, ledger: MagenticProgressLedger, ctx: _Context) -> None:
        speaker = str(ledger.next_speaker.answer)
        if speaker not in self.descriptions:
            raise RunError(
                f"the manager of run {ctx.run_id!r} chose {speaker!r} as the next speaker, which is not a participant; "
                f"the participants are {', '.join(self.descriptions)}",
                run_id=ctx.run_id,
            )
        hear(self.id, [Message("user", str(ledger.instruction_or_question.answer), MANAGER)], ctx)
        # The speaker receives what is new since it last spoke, without instructions to others.
        conversation = conversation_of(self.id, ctx)
        *before, instruction = conversation[max(progress.since, progress.heard.get(speaker, 0)) :]
        messages = [message for message in before if (message.role, message.author_name) != ("user", MANAGER)]
        # After a reset a participant must also forget its own part of the abandoned conversation.
        afresh = progress.since > 0 and speaker not in progress.heard
        if self.interfaces.get(speaker) == "executor":
            if speaker in self.listeners and messages:
                await ctx.send_message(GroupChatParticipantMessage(messages), speaker)
            await ctx.send_message(GroupChatRequestMessage(instruction.text), speaker)
        else:
            await ctx.send_message(AgentExecutorRequest([*messages, instruction], afresh=afresh), speaker)
        heard = {**progress.heard, speaker: len(conversation)}
        ctx.set_state(_PROGRESS, replace(progress, phase="working", speaker=speaker, heard=heard))

    async def _reset(self, progress: MagenticProgress, ctx: _Context) -> None:
        """Make another plan, or give up if the limit of resets is reached."""
        limit = self.manager.max_reset_count
        if limit is not None and progress.resets >= limit:
            await self._give_up(f"the work stalled, and the limit of {limit} new plans is reached", ctx)
            return
        ctx.set_state(
            _PROGRESS, replace(progress, phase="replan", stalls=0, resets=progress.resets + 1, is_stalled=True)
        )
        await self._ask_in_next_superstep(ctx)

    async def _give_up(self, why: str, ctx: _Context) -> None:
        await self._end(AgentResponse([Message("assistant", f"The task was given up: {why}.", MANAGER)]), ctx)

    async def _end(self, response: AgentResponse, ctx: _Context) -> None:
        hear(self.id, response.messages, ctx)
        ctx.set_state(_PROGRESS, replace(self._progress(ctx), phase="over"))
        await ctx.yield_output(response)

    async def _ask_in_next_superstep(self, ctx: _Context) -> None:
        """Send a message to this executor, so that the manager's next question is asked then."""
        # One question per delivery: each answer is committed before the next question is asked.
        if self._progress(ctx).phase != "over":
            await ctx.send_message(MagenticContinue(), self.id)

    # State

    def _context(self, turn: Turn, ctx: _Context) -> MagenticContext:
        # Turn.within serves one call at a time. asyncio.Lock is fair, so calls that a manager makes side
        # by side still get the same places each time.
        one_at_a_time = asyncio.Lock()

        async def call(agent: Agent, messages: Sequence[Message], answer_type: Any = None, /) -> AgentResponse:
            async with one_at_a_time:
                answer = await turn.within(messages, agent.take_turn, answer_type)
            return AgentResponse(answer.messages, value=answer.value)

        progress = self._progress(ctx)
        return MagenticContext(
            ctx.get_state(_TASK),
            self.descriptions,
            call=call,
            chat_history=turn.conversation[progress.since :],
            round_count=progress.rounds,
            stall_count=progress.stalls,
            reset_count=progress.resets,
            plan_message=ctx.get_state(_PLAN),
            progress_ledger=ctx.get_state(_PROGRESS_LEDGER),
        )

    def _progress(self, ctx: _Context) -> MagenticProgress:
        progress: MagenticProgress = ctx.get_state(_PROGRESS)  # set when a task arrives
        return progress
