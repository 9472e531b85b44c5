"""An agent as an executor: its conversation lives in the state of the run, and each of its calls is made once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal, get_args

from stepwell.agents.agent_types import agent_of, name_of_agent
from stepwell.agents.budget import Budget
from stepwell.agents.conversation import AgentContext, conversation_of, hear, length_of, say, send_on
from stepwell.agents.messages import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Message,
    Usage,
    messages_of,
    total,
    usage_key,
)
from stepwell.agents.replies import Answer
from stepwell.agents.requests import (
    ANSWERED_BY,
    AgentInputRequest,
    AgentInputResponse,
    BudgetKind,
    BudgetRequest,
    BudgetResponse,
    Question,
    Reply,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolOutcomeRequest,
    ToolOutcomeResponse,
)
from stepwell.agents.turn import Turn, give_way
from stepwell.agents.turn_input import Past, Rules, TurnInput, tool_names
from stepwell.engine.handler_context import HandlerContext
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler, response_handler
from stepwell.graph.retry import RetryPolicy

STOPS = (KeyboardInterrupt, SystemExit)  # meant for the whole process, not for one turn
ContextMode = Literal["full", "last_agent", "custom"]
_Context = AgentContext


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that is not over: it waits for answers."""

    id: str
    seen: int  # how many messages of the conversation it answers
    usage: Usage  # of the agent before it
    asked: dict[str, str]  # the open questions: their places, by request id
    replies: dict[str, Reply] = field(default_factory=dict)  # by the places of the questions
    again: bool = False  # it was asked to respond once more meanwhile


@dataclass(frozen=True, slots=True)
class AgentProgress:
    """Where an agent is between its turns."""

    seen: int = 0  # how many messages of the conversation it has answered
    state: Any = None  # what it keeps for itself
    raised: dict[str, float] = field(default_factory=dict)  # limits of its budget that people raised


class AgentExecutor(Executor):
    """An agent in a workflow: what it is told it adds to its conversation, and sends its answer on.

    `agent` is anything with `name` and `take_turn`, an agent of a library that Stepwell knows, or an async function.
    What it hears from another agent is that one's whole conversation, or only its last answer
    (`context_mode="last_agent"`), or what `context_filter` makes of the conversation.

    Calls of the tools in `approve` are asked about first. The tools in `unsafe` must not be repeated: if one of
    them may have run and nobody knows, a person is asked. A `budget` stops the agent where it is; `price` says what
    usage costs, where the agent does not know.
    """

    streams_updates = True
    state_key_patterns: ClassVar[tuple[str, ...]] = ("agents/{id}/",)

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
            raise ValueError(f"context_mode is full, last_agent or custom, not {context_mode!r}")
        if (context_mode == "custom") != (context_filter is not None):
            raise ValueError("context_filter and context_mode='custom' go together: give both or neither")
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(
                f"the budget of {self.id!r} is a Budget, as in Budget(calls=20), or None, not {budget!r:.80}"
            )
        for what, function in (("context_filter", context_filter), ("price", price)):
            if function is not None and not callable(function):
                raise TypeError(f"{what} of {self.id!r} is a function, not {function!r:.80}")
        if handoffs is not None and not isinstance(handoffs, Mapping):
            raise TypeError(f"handoffs of {self.id!r} are descriptions by the names of tools, not {handoffs!r:.80}")
        self.context_mode, self.context_filter = context_mode, context_filter
        self.rules = Rules(tool_names(approve, "approve"), tool_names(unsafe, "unsafe"), budget, price)
        self.handoffs = dict(handoffs or {})

    @property
    def description(self) -> str | None:  # type: ignore[override]
        """What the agent says it is for."""
        description = getattr(self.agent, "description", None)
        return description if isinstance(description, str) else None

    def clone(self) -> AgentExecutor:
        twin = super().clone()
        twin.agent = self.agent  # an agent keeps nothing of a run: what it must know is given to it each turn
        return twin

    @handler
    async def handle_request(self, request: AgentExecutorRequest, ctx: _Context) -> None:
        if request.afresh:
            self.forget(ctx)
        self.hear(request.messages, ctx)
        if request.should_respond:
            await self.respond(ctx)

    @handler
    async def handle_executor_response(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        self.hear(self._from_other(response, ctx), ctx)
        await self.respond(ctx)

    @handler
    async def handle_agent_response(self, response: AgentResponse, ctx: _Context) -> None:
        """What a team of agents, a workflow inside this one, came to."""
        self.hear(response.messages, ctx)
        await self.respond(ctx)

    @handler
    async def handle_text(self, text: str, ctx: _Context) -> None:
        self.hear(messages_of(text), ctx)
        await self.respond(ctx)

    @handler
    async def handle_message(self, message: Message, ctx: _Context) -> None:
        self.hear([message], ctx)
        await self.respond(ctx)

    @handler
    async def handle_messages(self, messages: list[str | Message], ctx: _Context) -> None:
        self.hear(messages_of(messages), ctx)
        await self.respond(ctx)

    @response_handler
    async def handle_approval(self, request: ToolApprovalRequest, reply: ToolApprovalResponse, ctx: _Context) -> None:
        if reply.decision == "approve" and reply.arguments is None and self._is_ours(ctx):
            reply = replace(reply, arguments=request.arguments)  # those, whatever the agent says the next time
        await self._apply_reply(reply, ctx)

    @response_handler
    async def handle_outcome(self, request: ToolOutcomeRequest, reply: ToolOutcomeResponse, ctx: _Context) -> None:
        await self._apply_reply(reply, ctx)

    @response_handler
    async def handle_budget(self, request: BudgetRequest, reply: BudgetResponse, ctx: _Context) -> None:
        progress: AgentProgress = ctx.get_state(self._key("stand"), AgentProgress())
        raised = {**progress.raised, _limit_of(request.budget, request.whole_run): reply.limit}
        ctx.set_state(self._key("stand"), replace(progress, raised=raised))
        await self._apply_reply(reply, ctx)

    @response_handler
    async def handle_input(self, request: AgentInputRequest, reply: AgentInputResponse, ctx: _Context) -> None:
        await self._apply_reply(reply, ctx)

    def _from_other(self, response: AgentExecutorResponse, ctx: _Context) -> Sequence[Message]:
        if self.context_mode == "last_agent":
            return response.agent_response.messages
        conversation = response.full_conversation(ctx)
        return conversation if self.context_filter is None else self.context_filter(conversation)

    def hear(self, messages: Sequence[Message], ctx: _Context) -> None:
        """Add to the conversation what is new in it."""
        hear(self.id, messages, ctx)

    async def respond(self, ctx: _Context) -> None:
        """Take a turn; if one waits for answers, take another when it is over."""
        waiting: OpenTurn | None = ctx.get_state(self._key("turn"))
        if waiting is not None:
            ctx.set_state(self._key("turn"), replace(waiting, again=True))
            return
        usage = ctx.get_state(usage_key(self.id), Usage())
        await self._take(OpenTurn(_here(ctx).delivery.id, length_of(self.id, ctx), usage, {}), ctx)

    def _is_ours(self, ctx: _Context) -> bool:
        """Whether the turn itself asked for an approval, and not the library of the agent, which makes the call."""
        waiting: OpenTurn | None = ctx.get_state(self._key("turn"))
        return waiting is not None and waiting.asked.get(ctx.request_id or "", "").startswith("approve ")

    async def _apply_reply(self, reply: Reply, ctx: _Context) -> None:
        waiting: OpenTurn | None = ctx.get_state(self._key("turn"))
        if waiting is None or ctx.request_id not in waiting.asked:
            return  # the turn was forgotten meanwhile
        place = waiting.asked[ctx.request_id]
        remaining = {id: at for id, at in waiting.asked.items() if id != ctx.request_id}
        updated = replace(waiting, asked=remaining, replies={**waiting.replies, place: reply})
        if remaining:
            ctx.set_state(self._key("turn"), updated)
        else:
            await self._take(updated, ctx)

    async def _take(self, open_turn: OpenTurn, ctx: _Context) -> None:
        progress: AgentProgress = ctx.get_state(self._key("stand"), AgentProgress())
        conversation = conversation_of(self.id, ctx)[: open_turn.seen]
        history = ctx.get_state(self._key("history"), [])
        new = [message for message in conversation[progress.seen :] if not self._is_own(message)]
        turn_input = TurnInput(
            id=open_turn.id,
            messages=new,
            conversation=conversation,
            history=history,
            state=progress.state,
            handoffs=self.handoffs,
            prefix="+" * open_turn.id.count("+"),
        )
        turn = Turn(_here(ctx), turn_input, self.rules, self._past(open_turn, progress, ctx))
        answer: Answer | None = None
        try:
            await give_way()
            answer = await self.take_turn(turn, ctx)
        except BaseException as error:
            if not turn.interrupted or isinstance(error, STOPS) or _is_being_stopped():
                raise
        ctx.set_state(usage_key(self.id), open_turn.usage + turn.usage)
        if turn.questions:
            await self._wait(open_turn, turn, ctx)
            return
        if answer is None:  # it let go of the turn when it handed over
            last = turn.last_reply.text if turn.last_reply is not None else ""
            answer = Answer([Message("assistant", last)] if last else [], state=progress.state, handoff=turn.handoff)
        await self._finish(open_turn, progress, turn, answer, ctx)

    async def take_turn(self, turn: Turn, ctx: _Context) -> Answer:
        """Come to an answer. It may be called again for the same turn: what was done through the turn is recalled."""
        return await self.agent.take_turn(turn)

    def forget(self, ctx: _Context) -> None:
        """Begin anew, with nothing said so far. What it used up stays, and so do limits that were raised."""
        raised = ctx.get_state(self._key("stand"), AgentProgress()).raised
        for key in ("conversation", "history", "turn", "done"):
            self._drop(key, ctx)
        ctx.set_state(self._key("stand"), AgentProgress(raised=raised))

    def _drop(self, key: str, ctx: _Context) -> None:
        if ctx.get_state(self._key(key)) is not None:
            ctx.delete_state(self._key(key))

    def _past(self, open_turn: OpenTurn, progress: AgentProgress, ctx: _Context) -> Past:
        done = dict(ctx.get_state(self._key("done"), []))
        spent, raised = open_turn.usage, dict(progress.raised)
        if self.rules.budget is not None and self.rules.budget.whole_run:
            for other in (progress, *self._others("stand", ctx)):
                for kind in get_args(BudgetKind):
                    if (limit := other.raised.get(_limit_of(kind, whole_run=True))) is not None:
                        raised[kind] = max(limit, raised.get(kind, limit))
            spent = total([spent, *self._others("usage", ctx)])
        return Past(done, open_turn.replies, spent, raised)

    def _others(self, what: str, ctx: _Context) -> list[Any]:
        """What the other agents of the run keep under that name."""
        keys = [key for key in _here(ctx).state_keys() if key.startswith("agents/") and key.endswith(f"/{what}")]
        return [ctx.get_state(key) for key in keys if key != self._key(what)]

    async def _wait(self, open_turn: OpenTurn, turn: Turn, ctx: _Context) -> None:
        """Ask, and keep what the turn has come to."""
        places = dict(open_turn.asked)
        for place, question in turn.questions.items():
            places[await self._ask(question, ctx)] = place
        ctx.append_state(self._key("done"), *([name, result] for name, result in turn.done.items()))
        current: OpenTurn | None = ctx.get_state(self._key("turn"))
        again = current is not None and current.again
        updated = replace(open_turn, asked=places, replies=dict(turn.replies), again=again or open_turn.again)
        ctx.set_state(self._key("turn"), updated)

    async def _ask(self, question: Question, ctx: _Context) -> str:
        return await ctx.request_info(question, ANSWERED_BY[type(question)])

    async def _finish(
        self, open_turn: OpenTurn, progress: AgentProgress, turn: Turn, answer: Answer, ctx: _Context
    ) -> None:
        before = length_of(self.id, ctx)
        messages = say(self.id, answer.messages, ctx)
        if answer.history:
            ctx.append_state(self._key("history"), *answer.history)
        seen = open_turn.seen if before > open_turn.seen else open_turn.seen + len(messages)
        ctx.set_state(self._key("stand"), replace(progress, seen=seen, state=answer.state))
        self._drop("turn", ctx)
        self._drop("done", ctx)
        response = AgentResponse(messages, turn.usage, answer.value, answer.handoff)
        await self.send_response(AgentExecutorResponse(self.id, response, before), ctx)
        if open_turn.again and answer.handoff is None:  # whoever is handed over to has heard it, and goes on
            usage = ctx.get_state(usage_key(self.id), Usage())
            await self._take(OpenTurn(f"{open_turn.id}+", before + len(messages), usage, {}), ctx)

    async def send_response(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        """The agent has answered: its answer is an output, and goes to whoever comes after it."""
        await send_on(response, ctx)

    def _is_own(self, message: Message) -> bool:
        return message.role == "assistant" and message.author_name == self.id

    def _key(self, what: str) -> str:
        return f"agents/{self.id}/{what}"


def _here(ctx: WorkflowContext[Any, Any]) -> HandlerContext:
    assert isinstance(ctx, HandlerContext)
    return ctx


def _is_being_stopped() -> bool:
    """Whether somebody outside wants the handler to stop; otherwise a cancellation is the agent's own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _limit_of(kind: BudgetKind, whole_run: bool) -> str:
    """What a limit that was raised is known by: what an agent alone may use up says nothing about the whole run."""
    return f"{kind} of the run" if whole_run else kind
