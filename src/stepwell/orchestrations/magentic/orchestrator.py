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
    MagenticGoOn,
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgressLedger,
    MagenticStand,
    Phase,
)

ORCHESTRATOR = "magentic_orchestrator"

_Context = WorkflowContext[Any, AgentResponse]


class _Managing:
    """Stands for the agent of the orchestrator, whose turns its manager takes."""

    name = ORCHESTRATOR
    description = "plans the work of the team and keeps an eye on it"

    async def take_turn(self, turn: Turn) -> Answer:
        raise NotImplementedError("the orchestrator takes its turns itself")


class MagenticOrchestrator(AgentExecutor):
    """Leads a team. A turn of it is one question to the manager: for a plan, for the progress, for the final answer.

    What everybody said is its conversation, in the state of the run; where the work is, is a `MagenticStand`.
    """

    manager: MagenticManagerBase

    def __init__(self, manager: MagenticManagerBase, descriptions: Mapping[str, str], *, plan_review: bool) -> None:
        super().__init__(_Managing())
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
        before = self._stand(ctx)
        if before is not None and before.phase != "over":
            raise RunError(
                f"run {ctx.run_id!r} works on a task, and was given another one; wait for the first to be done, or "
                f"start another run",
                run_id=ctx.run_id,
            )
        said = [message for message in messages if message.text.strip()]
        if not said:
            raise ValueError(f"a task is a text, and run {ctx.run_id!r} was given none: {list(messages)!r:.200}")
        task = said[0] if len(said) == 1 else Message("user", "\n\n".join(message.text for message in said))
        self._put("task", task, ctx)
        self._move(MagenticStand("plan", since=length_of(self.id, ctx)), ctx)

    @handler
    async def handle_request(self, request: AgentExecutorRequest, ctx: _Context) -> None:
        self.hear(request.messages, ctx)
        await self.respond(ctx)

    @handler
    async def handle_executor_response(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        """What a participant has done; or what an agent outside the team gives it to do."""
        if ctx.source_executor_ids:
            await self._worked(response, ctx)
        else:
            self.hear(response.agent_response.messages, ctx)
            await self.respond(ctx)

    @handler
    async def go_on(self, message: MagenticGoOn, ctx: _Context) -> None:
        await self.respond(ctx)

    @response_handler
    async def reviewed(
        self, asked: MagenticPlanReviewRequest, reply: MagenticPlanReviewResponse, ctx: _Context
    ) -> None:
        stand = self._where(ctx)
        if not reply.review:
            await self._begin_round(self._agreed(stand, asked.plan, ctx), ctx)
        else:
            hear(self.id, reply.review, ctx)
            self._move(replace(stand, phase="replan"), ctx)
        if self._where(ctx).phase != "over":
            await self.respond(ctx)

    async def _worked(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        said = [message for message in response.agent_response.messages if message.text and message.role != "tool"]
        hear(self.id, said, ctx)
        stand = self._where(ctx)
        if (stand.phase, stand.speaker) != ("working", response.executor_id):
            return  # one that says more than it was asked for is heard, but begins no round of its own
        knows = {**stand.heard, response.executor_id: length_of(self.id, ctx)}
        await self._begin_round(replace(stand, heard=knows), ctx)
        if self._where(ctx).phase != "over":
            await self.respond(ctx)

    # what the manager is asked, and what it came to

    async def take_turn(self, turn: Turn, ctx: _Context) -> Answer:
        phase = self._where(ctx).phase
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
        stand, result = self._where(ctx), response.agent_response.value
        if stand.phase == "progress":
            await self._weigh(stand, result, ctx)
        elif stand.phase == "final":
            await self._end(replace(response.agent_response, messages=[result], value=None), ctx)
        else:
            await self._planned(stand, result, ctx)

    async def _planned(self, stand: MagenticStand, plan: Message, ctx: _Context) -> None:
        kinds = MagenticOrchestratorEventType
        await self._tell(kinds.PLAN_CREATED if stand.phase == "plan" else kinds.REPLANNED, plan, ctx)
        self._put("ledger", plan, ctx)
        if not self.plan_review:
            await self._begin_round(self._agreed(stand, plan, ctx), ctx)
            await self._ask_later(ctx)
            return
        progress = ctx.get_state(self._at("progress")) if stand.is_stalled else None
        id = f"plan-review-{ctx.idempotency_key}"  # there is one question in a delivery, the same at every attempt
        request = MagenticPlanReviewRequest(plan, progress, stand.is_stalled, id)
        await ctx.request_info(request, MagenticPlanReviewResponse, request_id=id)
        self._move(replace(stand, phase="review"), ctx)

    def _agreed(self, stand: MagenticStand, plan: Message, ctx: _Context) -> MagenticStand:
        """The plan counts. After a reset everything before it is left behind, by the participants too."""
        if stand.is_stalled:
            stand = replace(stand, since=length_of(self.id, ctx), heard={}, is_stalled=False)
        hear(self.id, [replace(plan, data=None)], ctx)
        return stand

    async def _begin_round(self, stand: MagenticStand, ctx: _Context) -> None:
        most = self.manager.max_round_count
        if most is not None and stand.rounds >= most:
            await self._give_up(f"it was not done after {most} rounds, which is the limit", ctx)
        else:
            self._move(replace(stand, phase="progress", rounds=stand.rounds + 1), ctx)

    async def _weigh(self, stand: MagenticStand, ledger: MagenticProgressLedger | None, ctx: _Context) -> None:
        """Decide by what the manager says about the progress."""
        if ledger is None:
            await self._reset(stand, ctx)
            return
        await self._tell(MagenticOrchestratorEventType.PROGRESS_LEDGER_UPDATED, ledger, ctx)
        self._put("progress", ledger, ctx)
        if ledger.is_request_satisfied.answer:
            self._move(replace(stand, phase="final"), ctx)
            await self._ask_later(ctx)
            return
        stalled = bool(ledger.is_in_loop.answer) or not ledger.is_progress_being_made.answer
        stand = replace(stand, stalls=stand.stalls + 1 if stalled else max(0, stand.stalls - 1))
        if stand.stalls > self.manager.max_stall_count:
            await self._reset(stand, ctx)
        else:
            await self._instruct(stand, ledger, ctx)

    async def _instruct(self, stand: MagenticStand, ledger: MagenticProgressLedger, ctx: _Context) -> None:
        speaker = str(ledger.next_speaker.answer)
        if speaker not in self.descriptions:
            raise RunError(
                f"the manager of run {ctx.run_id!r} wants {speaker!r} to go on, who does not take part; "
                f"the participants are {', '.join(self.descriptions)}",
                run_id=ctx.run_id,
            )
        hear(self.id, [Message("user", str(ledger.instruction_or_question.answer), MANAGER)], ctx)
        conversation = conversation_of(self.id, ctx)
        *before, instruction = conversation[max(stand.since, stand.heard.get(speaker, 0)) :]
        said = [message for message in before if not _is_instruction(message)]  # to others
        afresh = stand.since > 0 and speaker not in stand.heard
        await ctx.send_message(AgentExecutorRequest([*said, instruction], afresh=afresh), speaker)
        knows = {**stand.heard, speaker: len(conversation)}
        self._move(replace(stand, phase="working", speaker=speaker, heard=knows), ctx)

    async def _reset(self, stand: MagenticStand, ctx: _Context) -> None:
        """The plan leads nowhere: another one is made, unless that happened too often."""
        most = self.manager.max_reset_count
        if most is not None and stand.resets >= most:
            await self._give_up(f"its plan led nowhere, and was made anew {most} times, which is the limit", ctx)
            return
        self._move(replace(stand, phase="replan", stalls=0, resets=stand.resets + 1, is_stalled=True), ctx)
        await self._ask_later(ctx)

    async def _give_up(self, why: str, ctx: _Context) -> None:
        await self._end(AgentResponse([Message("assistant", f"The task was given up: {why}.", MANAGER)]), ctx)

    async def _end(self, response: AgentResponse, ctx: _Context) -> None:
        hear(self.id, response.messages, ctx)
        self._move(replace(self._where(ctx), phase="over"), ctx)
        await ctx.yield_output(response)

    async def _ask_later(self, ctx: _Context) -> None:
        """The manager is asked once in a delivery: what it is asked next is asked in the next superstep."""
        if self._where(ctx).phase != "over":
            await ctx.send_message(MagenticGoOn(), self.id)

    # what it knows

    def _context(self, turn: Turn, ctx: _Context) -> MagenticContext:
        one_at_a_time = asyncio.Lock()  # in the order in which they are asked, also if they are asked at once

        async def call(agent: Agent, messages: Sequence[Message]) -> AgentResponse:
            async with one_at_a_time:
                answer = await turn.within(messages, agent.take_turn)
            return AgentResponse(answer.messages, value=answer.value)

        stand = self._where(ctx)
        return MagenticContext(
            ctx.get_state(self._at("task")),
            self.descriptions,
            call,
            turn.conversation[stand.since :],
            stand.rounds,
            stand.stalls,
            stand.resets,
            ctx.get_state(self._at("ledger")),
            ctx.get_state(self._at("progress")),
        )

    async def _tell(
        self, kind: MagenticOrchestratorEventType, content: Message | MagenticProgressLedger, ctx: _Context
    ) -> None:
        await ctx.add_event(WorkflowEvent(ORCHESTRATOR, MagenticOrchestratorEvent(kind, content)))

    def _stand(self, ctx: _Context) -> MagenticStand | None:
        found: MagenticStand | None = ctx.get_state(self._at("stand"))
        return found

    def _where(self, ctx: _Context) -> MagenticStand:
        stand = self._stand(ctx)
        assert stand is not None  # a task has come in
        return stand

    def _move(self, stand: MagenticStand, ctx: _Context) -> None:
        self._put("stand", stand, ctx)

    def _put(self, what: str, value: object, ctx: _Context) -> None:
        ctx.set_state(self._at(what), value)

    def _at(self, what: str) -> str:
        return f"magentic/{what}"


def _is_instruction(message: Message) -> bool:
    return message.role == "user" and message.author_name == MANAGER
