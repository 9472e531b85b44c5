"""The middle of a managed team: asks the manager, lets people look at plans, and tells participants what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from stepwell.agents.agent import Agent
from stepwell.agents.conversation import conversation_of, hear, length_of
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import AgentExecutorRequest, AgentExecutorResponse, AgentResponse, Message
from stepwell.agents.replies import Answer
from stepwell.agents.turn import Turn
from stepwell.errors import RunError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.handler import handler, response_handler
from stepwell.model.event import WorkflowEvent
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

ORCHESTRATOR = "magentic_orchestrator"

_Context = WorkflowContext[Any, AgentResponse]


class _ManagerPlaceholder:
    """Stands for the agent of the orchestrator, whose turns its manager takes."""

    name = ORCHESTRATOR
    description = "plans the work of the team and keeps an eye on it"

    async def take_turn(self, turn: Turn) -> Answer:
        raise NotImplementedError("the orchestrator takes its turns itself")


class MagenticOrchestrator(AgentExecutor):
    """Leads a team. A turn of it is one question to the manager: for a plan, for the progress, for the final answer.

    What everybody said is its conversation, in the state of the run; where the work is, is a `MagenticProgress`.
    """

    manager: MagenticManagerBase

    def __init__(self, manager: MagenticManagerBase, descriptions: Mapping[str, str], *, plan_review: bool) -> None:
        super().__init__(_ManagerPlaceholder())
        self.manager, self.descriptions, self.plan_review = manager, dict(descriptions), plan_review
        self.rules = manager.rules

    def clone(self) -> Self:
        twin: Any = super().clone()
        twin.manager = self.manager.clone()
        return twin  # type: ignore[no-any-return]

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return self.manager.on_checkpoint_save()

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.manager.on_checkpoint_restore(state)

    # what comes in

    def hear(self, messages: Sequence[Message], ctx: _Context) -> None:
        """A task comes in."""
        before = self._find_progress(ctx)
        if before is not None and before.phase != "over":
            raise RunError(
                f"run {ctx.run_id!r} works on a task, and was given another one; wait for the first to be done, or "
                f"start another run",
                run_id=ctx.run_id,
            )
        texts = [message for message in messages if message.text.strip()]
        if not texts:
            raise ValueError(f"a task is a text, and run {ctx.run_id!r} was given none: {list(messages)!r:.200}")
        task = texts[0] if len(texts) == 1 else Message("user", "\n\n".join(message.text for message in texts))
        self._store("task", task, ctx)
        self._set_progress(MagenticProgress("plan", since=length_of(self.id, ctx)), ctx)

    @handler
    async def handle_request(self, request: AgentExecutorRequest, ctx: _Context) -> None:
        self.hear(request.messages, ctx)
        await self.respond(ctx)

    @handler
    async def handle_executor_response(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        """What a participant has done; or what an agent outside the team gives it to do."""
        if ctx.source_executor_ids:
            await self._receive_work(response, ctx)
        else:
            self.hear(response.agent_response.messages, ctx)
            await self.respond(ctx)

    @handler
    async def continue_work(self, message: MagenticContinue, ctx: _Context) -> None:
        await self.respond(ctx)

    @response_handler
    async def apply_review(
        self, request: MagenticPlanReviewRequest, response: MagenticPlanReviewResponse, ctx: _Context
    ) -> None:
        progress = self._require_progress(ctx)
        if not response.review:
            await self._begin_round(self._adopt_plan(progress, request.plan, ctx), ctx)
        else:
            hear(self.id, response.review, ctx)
            self._set_progress(replace(progress, phase="replan"), ctx)
        if self._require_progress(ctx).phase != "over":
            await self.respond(ctx)

    async def _receive_work(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        messages = [message for message in response.agent_response.messages if message.text and message.role != "tool"]
        hear(self.id, messages, ctx)
        progress = self._require_progress(ctx)
        if (progress.phase, progress.speaker) != ("working", response.executor_id):
            return  # one that says more than it was asked for is heard, but begins no round of its own
        heard = {**progress.heard, response.executor_id: length_of(self.id, ctx)}
        await self._begin_round(replace(progress, heard=heard), ctx)
        if self._require_progress(ctx).phase != "over":
            await self.respond(ctx)

    # what the manager is asked, and what it came to

    async def take_turn(self, turn: Turn, ctx: _Context) -> Answer:
        phase = self._require_progress(ctx).phase
        questions: dict[Phase, Any] = {
            "plan": self.manager.plan,
            "replan": self.manager.replan,
            "progress": self.manager.create_progress_ledger,
            "final": self.manager.prepare_final_answer,
        }
        context = self._context(turn, ctx)

        async def ask() -> list[Any]:
            return [await questions[phase](context), self.manager.on_checkpoint_save(), turn.usage]

        # if the answer is recalled, the manager was not asked: what it remembers and what that cost is recalled, too
        result, saved, turn.usage = await turn.step(phase, ask)
        self.manager.on_checkpoint_restore(saved)
        return Answer(value=result)

    async def send_response(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        progress, result = self._require_progress(ctx), response.agent_response.value
        if progress.phase == "progress":
            await self._evaluate_progress(progress, result, ctx)
        elif progress.phase == "final":
            await self._end(replace(response.agent_response, messages=[result], value=None), ctx)
        else:
            await self._present_plan(progress, result, ctx)

    async def _present_plan(self, progress: MagenticProgress, plan: Message, ctx: _Context) -> None:
        kinds = MagenticOrchestratorEventType
        await self._emit(kinds.PLAN_CREATED if progress.phase == "plan" else kinds.REPLANNED, plan, ctx)
        self._store("ledger", plan, ctx)
        if not self.plan_review:
            await self._begin_round(self._adopt_plan(progress, plan, ctx), ctx)
            await self._ask_in_next_superstep(ctx)
            return
        ledger = ctx.get_state(self._state_key("progress")) if progress.is_stalled else None
        id = f"plan-review-{ctx.idempotency_key}"  # there is one question in a delivery, the same at every attempt
        request = MagenticPlanReviewRequest(plan, ledger, progress.is_stalled, id)
        await ctx.request_info(request, MagenticPlanReviewResponse, request_id=id)
        self._set_progress(replace(progress, phase="review"), ctx)

    def _adopt_plan(self, progress: MagenticProgress, plan: Message, ctx: _Context) -> MagenticProgress:
        """The plan counts. After a reset everything before it is left behind, by the participants too."""
        if progress.is_stalled:
            progress = replace(progress, since=length_of(self.id, ctx), heard={}, is_stalled=False)
        hear(self.id, [replace(plan, data=None)], ctx)
        return progress

    async def _begin_round(self, progress: MagenticProgress, ctx: _Context) -> None:
        limit = self.manager.max_round_count
        if limit is not None and progress.rounds >= limit:
            await self._give_up(f"it was not done after {limit} rounds, which is the limit", ctx)
        else:
            self._set_progress(replace(progress, phase="progress", rounds=progress.rounds + 1), ctx)

    async def _evaluate_progress(
        self, progress: MagenticProgress, ledger: MagenticProgressLedger | None, ctx: _Context
    ) -> None:
        """Decide by what the manager says about the progress."""
        if ledger is None:
            await self._reset(progress, ctx)
            return
        await self._emit(MagenticOrchestratorEventType.PROGRESS_LEDGER_UPDATED, ledger, ctx)
        self._store("progress", ledger, ctx)
        if ledger.is_request_satisfied.answer:
            self._set_progress(replace(progress, phase="final"), ctx)
            await self._ask_in_next_superstep(ctx)
            return
        stalled = bool(ledger.is_in_loop.answer) or not ledger.is_progress_being_made.answer
        progress = replace(progress, stalls=progress.stalls + 1 if stalled else max(0, progress.stalls - 1))
        if progress.stalls > self.manager.max_stall_count:
            await self._reset(progress, ctx)
        else:
            await self._instruct(progress, ledger, ctx)

    async def _instruct(self, progress: MagenticProgress, ledger: MagenticProgressLedger, ctx: _Context) -> None:
        speaker = str(ledger.next_speaker.answer)
        if speaker not in self.descriptions:
            raise RunError(
                f"the manager of run {ctx.run_id!r} wants {speaker!r} to go on, who does not take part; "
                f"the participants are {', '.join(self.descriptions)}",
                run_id=ctx.run_id,
            )
        hear(self.id, [Message("user", str(ledger.instruction_or_question.answer), MANAGER)], ctx)
        conversation = conversation_of(self.id, ctx)
        *before, instruction = conversation[max(progress.since, progress.heard.get(speaker, 0)) :]
        messages = [message for message in before if not _is_instruction(message)]  # to others
        afresh = progress.since > 0 and speaker not in progress.heard
        await ctx.send_message(AgentExecutorRequest([*messages, instruction], afresh=afresh), speaker)
        heard = {**progress.heard, speaker: len(conversation)}
        self._set_progress(replace(progress, phase="working", speaker=speaker, heard=heard), ctx)

    async def _reset(self, progress: MagenticProgress, ctx: _Context) -> None:
        """The plan leads nowhere: another one is made, unless that happened too often."""
        limit = self.manager.max_reset_count
        if limit is not None and progress.resets >= limit:
            await self._give_up(f"its plan led nowhere, and was made anew {limit} times, which is the limit", ctx)
            return
        self._set_progress(
            replace(progress, phase="replan", stalls=0, resets=progress.resets + 1, is_stalled=True), ctx
        )
        await self._ask_in_next_superstep(ctx)

    async def _give_up(self, why: str, ctx: _Context) -> None:
        await self._end(AgentResponse([Message("assistant", f"The task was given up: {why}.", MANAGER)]), ctx)

    async def _end(self, response: AgentResponse, ctx: _Context) -> None:
        hear(self.id, response.messages, ctx)
        self._set_progress(replace(self._require_progress(ctx), phase="over"), ctx)
        await ctx.yield_output(response)

    async def _ask_in_next_superstep(self, ctx: _Context) -> None:
        """The manager is asked once in a delivery: what it is asked next is asked in the next superstep."""
        if self._require_progress(ctx).phase != "over":
            await ctx.send_message(MagenticContinue(), self.id)

    # what it knows

    def _context(self, turn: Turn, ctx: _Context) -> MagenticContext:
        one_at_a_time = asyncio.Lock()  # in the order in which they are asked, also if they are asked at once

        async def call(agent: Agent, messages: Sequence[Message]) -> AgentResponse:
            async with one_at_a_time:
                answer = await turn.within(messages, agent.take_turn)
            return AgentResponse(answer.messages, value=answer.value)

        progress = self._require_progress(ctx)
        return MagenticContext(
            ctx.get_state(self._state_key("task")),
            self.descriptions,
            call,
            turn.conversation[progress.since :],
            progress.rounds,
            progress.stalls,
            progress.resets,
            ctx.get_state(self._state_key("ledger")),
            ctx.get_state(self._state_key("progress")),
        )

    async def _emit(
        self, kind: MagenticOrchestratorEventType, content: Message | MagenticProgressLedger, ctx: _Context
    ) -> None:
        await ctx.add_event(WorkflowEvent(ORCHESTRATOR, MagenticOrchestratorEvent(kind, content)))

    def _find_progress(self, ctx: _Context) -> MagenticProgress | None:
        progress: MagenticProgress | None = ctx.get_state(self._state_key("stand"))
        return progress

    def _require_progress(self, ctx: _Context) -> MagenticProgress:
        progress = self._find_progress(ctx)
        assert progress is not None  # a task has come in
        return progress

    def _set_progress(self, progress: MagenticProgress, ctx: _Context) -> None:
        self._store("stand", progress, ctx)

    def _store(self, what: str, value: object, ctx: _Context) -> None:
        ctx.set_state(self._state_key(what), value)

    def _state_key(self, what: str) -> str:
        return f"magentic/{what}"


def _is_instruction(message: Message) -> bool:
    return message.role == "user" and message.author_name == MANAGER
