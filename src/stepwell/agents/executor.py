"""`AgentExecutor`: an agent as an executor of a workflow.

The agent itself keeps nothing between turns. Its conversation, its history and its usage live in the
state of the run, under `agents/<executor id>/`, and each call of its model and its tools is a step.
A turn that has to wait for people is stored as an `OpenTurn`, and taken again from its beginning when
the last response is there; the calls it has made until then return their stored results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self, get_args

from stepwell.agents.agent_types import agent_of, name_of_agent
from stepwell.agents.conversation import AgentContext, conversation_of, hear, length_of, say, send_on
from stepwell.agents.messages import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Answer,
    Message,
    Usage,
    messages_of,
    total,
    usage_key,
)
from stepwell.agents.requests import (
    RESPONSE_TYPES,
    AgentInputRequest,
    AgentInputResponse,
    BudgetKind,
    BudgetRequest,
    BudgetResponse,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolOutcomeRequest,
    ToolOutcomeResponse,
    TurnResponse,
)
from stepwell.agents.turn import Turn, handoff_answer
from stepwell.agents.turn_input import AgentRules, Budget, Past, TurnInput, tool_names
from stepwell.agents.turn_steps import give_way
from stepwell.engine.handler.internal_context import internal
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler, response_handler
from stepwell.graph.retry import RetryPolicy

# These stop the whole process, even if the turn also waits for people.
_PROCESS_EXITS = (KeyboardInterrupt, SystemExit)
ContextMode = Literal["full", "last_agent", "custom"]


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that is not over: it waits for responses."""

    id: str
    seen: int  # length of the part of the conversation that it answers
    usage: Usage  # of the agent before this turn
    asked: dict[str, str]  # places of the open requests, by request id
    replies: dict[str, TurnResponse] = field(default_factory=dict)  # by the place of the request
    again: bool = False  # more messages arrived meanwhile: another turn follows


@dataclass(frozen=True, slots=True)
class AgentProgress:
    """What is kept of an agent between its turns, besides its conversation and its history."""

    seen: int = 0  # length of the part of the conversation that it has answered
    state: Any = None  # `Answer.state` of its last turn
    raised: dict[str, float] = field(default_factory=dict)  # limits of its budget that people raised


class AgentExecutor(Executor):
    """An agent in a workflow: it adds incoming messages to its conversation, and sends its answer on.

    `agent` is an object with `name` and `take_turn`, an agent of a supported library, or an async
    function. From another agent it receives that agent's whole conversation, or only its last answer
    (`context_mode="last_agent"`), or what `context_filter` makes of the conversation.

    Calls of the tools in `approve` need a person's approval. The tools in `unsafe` must not be
    repeated: if one of them may have run, a person is asked what happened. A `budget` makes the agent
    wait for a person when it is exhausted; `price` computes the cost of usage that has none.
    """

    _streams_updates = True
    _keeps_conversation = True
    _state_key_patterns: ClassVar[tuple[str, ...]] = ("agents/{id}/",)

    def __init__(
        self,
        agent: Any,
        *,
        id: str | None = None,
        context_mode: ContextMode = "full",
        context_filter: Callable[[list[Message]], list[Message]] | None = None,
        approve: Iterable[str] = (),
        unsafe: Iterable[str] = (),
        budget: Budget | None = None,
        price: Callable[[Usage], float] | None = None,
        handoffs: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        idle_timeout: float | timedelta | None = None,
    ) -> None:
        self.agent = agent_of(agent)
        super().__init__(id or name_of_agent(self.agent), retry=retry, timeout=timeout, idle_timeout=idle_timeout)
        if context_mode not in ("full", "last_agent", "custom"):
            raise ValueError(f"context_mode must be 'full', 'last_agent' or 'custom', not {context_mode!r}")
        if (context_mode == "custom") != (context_filter is not None):
            raise ValueError("context_filter and context_mode='custom' belong together: pass both or neither")
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(
                f"the budget of {self.id!r} must be a Budget, as in Budget(calls=20), or None, not {budget!r:.80}"
            )
        for option, function in (("context_filter", context_filter), ("price", price)):
            if function is not None and not callable(function):
                raise TypeError(f"{option} of {self.id!r} must be a function, not {function!r:.80}")
        if handoffs is not None and not isinstance(handoffs, Mapping):
            raise TypeError(f"handoffs of {self.id!r} must map tool names to descriptions, not {handoffs!r:.80}")
        self.context_mode, self.context_filter = context_mode, context_filter
        self.rules = AgentRules(tool_names(approve, "approve"), tool_names(unsafe, "unsafe"), budget, price)
        self.handoffs = dict(handoffs or {})

    @property
    def description(self) -> str | None:  # type: ignore[override]
        """The agent's own description of what it is for."""
        description = getattr(self.agent, "description", None)
        return description if isinstance(description, str) else None

    def clone(self) -> Self:
        clone = super().clone()
        # Runs share the agent, with its clients and connections: it keeps nothing of a run.
        clone.agent = self.agent
        return clone

    @handler
    async def handle_request(self, request: AgentExecutorRequest, ctx: AgentContext) -> None:
        if request.afresh:
            self.forget(ctx)
        self.hear(request.messages, ctx)
        if request.should_respond:
            await self.respond(ctx)

    @handler
    async def handle_executor_response(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        self.hear(self._from_other(response, ctx), ctx)
        await self.respond(ctx)

    @handler
    async def handle_agent_response(self, response: AgentResponse, ctx: AgentContext) -> None:
        """Answer the output of a team of agents, a sub-workflow of this one."""
        self.hear(response.messages, ctx)
        await self.respond(ctx)

    @handler
    async def handle_messages(self, messages: str | Message | list[str | Message], ctx: AgentContext) -> None:
        self.hear(messages_of(messages), ctx)
        await self.respond(ctx)

    @response_handler
    async def handle_approval(
        self, request: ToolApprovalRequest, reply: ToolApprovalResponse, ctx: AgentContext
    ) -> None:
        waiting: OpenTurn | None = ctx.get_state(self._key("turn"))
        # Whether the turn requested this approval, not the agent's library, which checks it itself.
        of_turn = waiting is not None and waiting.asked.get(ctx.request_id or "", "").startswith("approve ")
        if reply.decision == "approve" and reply.arguments is None and of_turn:
            # The approval is for the arguments the person saw, even if the agent, whose turn is taken
            # again, now comes to others.
            reply = replace(reply, arguments=request.arguments)
        await self._apply_reply(reply, ctx)

    @response_handler
    async def handle_outcome(self, request: ToolOutcomeRequest, reply: ToolOutcomeResponse, ctx: AgentContext) -> None:
        await self._apply_reply(reply, ctx)

    @response_handler
    async def handle_budget(self, request: BudgetRequest, reply: BudgetResponse, ctx: AgentContext) -> None:
        progress: AgentProgress = ctx.get_state(self._key("stand"), AgentProgress())
        # Kept beyond the turn: nobody wants to be asked for the same limit in the next one.
        raised = {**progress.raised, _limit_of(request.budget, request.whole_run): reply.limit}
        ctx.set_state(self._key("stand"), replace(progress, raised=raised))
        await self._apply_reply(reply, ctx)

    @response_handler
    async def handle_input(self, request: AgentInputRequest, reply: AgentInputResponse, ctx: AgentContext) -> None:
        await self._apply_reply(reply, ctx)

    def _from_other(self, response: AgentExecutorResponse, ctx: AgentContext) -> Sequence[Message]:
        if self.context_mode == "last_agent":
            return response.agent_response.messages
        conversation = response.full_conversation(ctx)
        return conversation if self.context_filter is None else self.context_filter(conversation)

    def hear(self, messages: Sequence[Message], ctx: AgentContext) -> None:
        """Append messages to the conversation, except those it already has."""
        hear(self.id, messages, ctx)

    async def respond(self, ctx: AgentContext) -> None:
        """Take a turn; if one already waits for responses, take another when that one ends."""
        waiting: OpenTurn | None = ctx.get_state(self._key("turn"))
        if waiting is not None:
            ctx.set_state(self._key("turn"), replace(waiting, again=True))
            return
        usage = ctx.get_state(usage_key(self.id), Usage())
        await self._take(OpenTurn(internal(ctx).delivery.id, length_of(self.id, ctx), usage, {}), ctx)

    async def _apply_reply(self, reply: TurnResponse, ctx: AgentContext) -> None:
        waiting: OpenTurn | None = ctx.get_state(self._key("turn"))
        if waiting is None or ctx.request_id not in waiting.asked:
            return  # the conversation was deleted meanwhile, and the turn with it
        place = waiting.asked[ctx.request_id]
        remaining = {id: at for id, at in waiting.asked.items() if id != ctx.request_id}
        updated = replace(waiting, asked=remaining, replies={**waiting.replies, place: reply})
        # The turn is taken again only when all of its requests have responses: continuing with some
        # of them would request the others once more.
        if remaining:
            ctx.set_state(self._key("turn"), updated)
        else:
            await self._take(updated, ctx)

    async def _take(self, open_turn: OpenTurn, ctx: AgentContext) -> None:
        progress: AgentProgress = ctx.get_state(self._key("stand"), AgentProgress())
        # Messages that arrived while the turn waited belong to the next one: this one must see the
        # same input each time it is taken.
        conversation = conversation_of(self.id, ctx)[: open_turn.seen]
        unseen = conversation[progress.seen :]
        turn_input = TurnInput(
            id=open_turn.id,
            # Without its own.
            messages=[each for each in unseen if (each.role, each.author_name) != ("assistant", self.id)],
            conversation=conversation,
            history=ctx.get_state(self._key("history"), []),
            state=progress.state,
            handoffs=self.handoffs,
            # A follow-up turn in the same handler call has a "+" more in its id (see _finish).
            prefix="+" * open_turn.id.count("+"),
        )
        turn = Turn(internal(ctx), turn_input, self.rules, self._past(open_turn, progress, ctx))
        answer: Answer | None = None
        try:
            await give_way()
            answer = await self.take_turn(turn, ctx)
        except BaseException as error:
            # Agent libraries wrap or replace Interrupted, some with a cancellation of their own task.
            # So the turn itself knows whether it was interrupted, and the kind of error does not matter.
            if not turn.interrupted or isinstance(error, _PROCESS_EXITS) or _is_being_stopped():
                raise
        ctx.set_state(usage_key(self.id), open_turn.usage + turn.usage)
        if turn.requests:
            await self._wait(open_turn, turn, ctx)
            return
        if answer is None:  # a handoff that the agent did not turn into an answer itself
            answer = handoff_answer(turn, state=progress.state)
        await self._finish(open_turn, progress, turn, answer, ctx)

    async def take_turn(self, turn: Turn, ctx: AgentContext) -> Answer:
        """Return the agent's answer. It may be called again for the same turn, which then recalls its calls."""
        return await self.agent.take_turn(turn)

    def forget(self, ctx: AgentContext) -> None:
        """Delete the conversation, the history and an open turn. Usage and raised limits stay."""
        raised = ctx.get_state(self._key("stand"), AgentProgress()).raised
        for key in ("conversation", "history", "turn", "done"):
            self._drop(key, ctx)
        ctx.set_state(self._key("stand"), AgentProgress(raised=raised))

    def _drop(self, key: str, ctx: AgentContext) -> None:
        if ctx.get_state(self._key(key)) is not None:
            ctx.delete_state(self._key(key))

    def _past(self, open_turn: OpenTurn, progress: AgentProgress, ctx: AgentContext) -> Past:
        done = dict(ctx.get_state(self._key("done"), []))
        spent, raised = open_turn.usage, dict(progress.raised)
        if self.rules.budget is not None and self.rules.budget.whole_run:
            for other in (progress, *self._others("stand", ctx)):
                for kind in get_args(BudgetKind):
                    if (limit := other.raised.get(_limit_of(kind, whole_run=True))) is not None:
                        raised[kind] = max(limit, raised.get(kind, limit))
            spent = total([spent, *self._others("usage", ctx)])
        return Past(done, open_turn.replies, spent, raised)

    def _others(self, what: str, ctx: AgentContext) -> list[Any]:
        """Return what the other agents of the run keep under that name."""
        keys = [key for key in internal(ctx).state_keys() if key.startswith("agents/") and key.endswith(f"/{what}")]
        return [ctx.get_state(key) for key in keys if key != self._key(what)]

    async def _wait(self, open_turn: OpenTurn, turn: Turn, ctx: AgentContext) -> None:
        """Send the turn's requests, and keep what it has done so far."""
        places = dict(open_turn.asked)
        for place, request in turn.requests.items():
            places[await ctx.request_info(request, RESPONSE_TYPES[type(request)])] = place
        # The superstep log is dropped by the commit, but the turn outlives its superstep: its results
        # move to the state until it ends.
        ctx.append_state(self._key("done"), *([name, result] for name, result in turn.done.items()))
        current: OpenTurn | None = ctx.get_state(self._key("turn"))
        again = current is not None and current.again
        updated = replace(open_turn, asked=places, replies=dict(turn.responses), again=again or open_turn.again)
        ctx.set_state(self._key("turn"), updated)

    async def _finish(
        self, open_turn: OpenTurn, progress: AgentProgress, turn: Turn, answer: Answer, ctx: AgentContext
    ) -> None:
        before = length_of(self.id, ctx)
        messages = say(self.id, answer.messages, ctx)
        if answer.history:
            ctx.append_state(self._key("history"), *answer.history)
        # Messages that arrived during the turn stand before the answer and are not answered yet, so
        # the next turn starts at them. Without any, it starts after the answer.
        seen = open_turn.seen if before > open_turn.seen else open_turn.seen + len(messages)
        ctx.set_state(self._key("stand"), replace(progress, seen=seen, state=answer.state))
        self._drop("turn", ctx)
        self._drop("done", ctx)
        response = AgentResponse(messages, turn.usage, answer.value, answer.handoff)
        await self.send_response(AgentExecutorResponse(self.id, response, before), ctx)
        # After a handoff the next agent has the whole conversation, so it answers those messages.
        if open_turn.again and answer.handoff is None:
            usage = ctx.get_state(usage_key(self.id), Usage())
            await self._take(OpenTurn(f"{open_turn.id}+", before + len(messages), usage, {}), ctx)

    async def send_response(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """Yield the agent's answer as an output, and send it to the executors after the agent."""
        await send_on(response, ctx)

    def _key(self, what: str) -> str:
        # These names are part of stored runs: "stand" holds the AgentProgress, "turn" the OpenTurn.
        return f"agents/{self.id}/{what}"


def _is_being_stopped() -> bool:
    """Say whether the handler's task is being cancelled, as opposed to a task inside the agent."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _limit_of(kind: BudgetKind, whole_run: bool) -> str:
    """Return the key of a raised limit; limits of one agent and of the whole run are kept apart."""
    return f"{kind} of the run" if whole_run else kind
