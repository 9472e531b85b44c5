"""One turn of an agent: what it is given, and the hands through which its model and its tools are called.

Each call is a step of the run. If the turn has to be taken again, after a crash or because a person was asked in
the middle, what was done is recalled by its place in the turn.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from stepwell.agents.messages import AgentResponseUpdate, Message, Usage
from stepwell.agents.replies import Answer, ModelReply, ToolCall
from stepwell.agents.requests import (
    AgentInputRequest,
    AgentInputResponse,
    BudgetRequest,
    Question,
    Reply,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolOutcomeRequest,
    ToolOutcomeResponse,
)
from stepwell.agents.tool_call_context import _CURRENT, CurrentToolCall
from stepwell.agents.turn_input import Past, Rules, TurnInput
from stepwell.agents.turn_places import TurnPlaces
from stepwell.engine.handler_context import HandlerContext
from stepwell.errors import RunError
from stepwell.model.event import WorkflowEvent
from stepwell.storage.ids import idempotency_key
from stepwell.storage.response_types import NotOfType, answer_as, schema_of
from stepwell.storage.step_calls import describe_value

RunTool = Callable[[dict[str, Any]], Awaitable[Any]]
"""Really calls a tool, with these arguments; gives data."""


class Interrupted(BaseException):
    """The turn ends here: a person is asked, or somebody else goes on. Not an Exception: no agent shall catch it."""


@dataclass(slots=True)
class ToolDone:
    """What a tool gave; or an error that the agent is to see."""

    value: Any = None
    error: str | None = None
    seconds: float = 0.0


async def give_way() -> None:
    """Let what siblings have finished be handed to the store before code of others runs.

    The first call of a model builds a client and imports what that needs: the event loop may stand still for a while.
    """
    await asyncio.sleep(0)


class Turn:
    """One turn of an agent."""

    def __init__(self, ctx: HandlerContext, turn_input: TurnInput, rules: Rules, past: Past) -> None:
        self._ctx, self._input, self._rules, self._past = ctx, turn_input, rules, past
        self._places = TurnPlaces(ctx.steps)
        self._questions: dict[str, Question] = {}
        self._under_way: set[str] = set()
        self._calls: Counter[str] = Counter()  # of the model that were answered, by the part of the turn
        self._speaking = 1  # the call whose text is told
        self._emitted: set[int] = set()
        self.usage = Usage()
        self.handoff: str | None = None
        self.last_reply: ModelReply | None = None

    @property
    def run_id(self) -> str:
        return self._ctx.run_id

    @property
    def executor_id(self) -> str:
        return self._ctx.executor_id

    @property
    def messages(self) -> list[Message]:
        """What was said since the agent's last turn, and is to be answered."""
        return list(self._input.messages)

    @property
    def conversation(self) -> list[Message]:
        """Everything that was said, the new messages included."""
        return list(self._input.conversation)

    @property
    def history(self) -> list[Any]:
        """What the agent gave as `Answer.history` so far."""
        return list(self._input.history)

    @property
    def state(self) -> Any:
        """What the agent gave as `Answer.state` last time; None at first."""
        return self._input.state

    @property
    def handoffs(self) -> Mapping[str, str]:
        """Tools to offer to the model beside the agent's own, by name, with descriptions: calling one ends the turn."""
        return self._input.handoffs

    @property
    def private(self) -> Mapping[str, Any]:
        """What `run(private={...})` was given; never stored."""
        return self._ctx.private

    @property
    def streaming(self) -> bool:
        """True if somebody watches: then pieces of text are worth telling."""
        return self._ctx.is_streaming()

    @property
    def rules(self) -> Rules:
        """What goes for the agent; for those whose calls cannot be looked at one by one, and who must say so."""
        return self._rules

    def warn(self, text: str) -> None:
        """Tell those who watch what they had better know."""
        self._ctx.add_event(WorkflowEvent("warning", text))

    def delta(self, text: str) -> None:
        """Tell a piece of what the model is saying right now."""
        if text:
            self._emitted.add(self._speaking)
            self._ctx.emit_update(AgentResponseUpdate(text, self.executor_id, self._speaking))

    async def step(self, name: str, function: Callable[[], Awaitable[Any]], *, within: str | None = None) -> Any:
        """Do something once, and recall it whenever the turn is taken again. `within` is that of `model`."""
        return (await self._once(self._places.next(f"step {name}", within), function))[0]

    async def model(self, call: Callable[[], Awaitable[ModelReply]], *, within: str | None = None) -> ModelReply:
        """Call the model once. While it speaks, `delta` tells it; a reply that is recalled is told in one piece.

        Tool calls in the reply are looked at before they are made: what needs approval is asked about here, all
        at once. Raises Interrupted, which must be let through, if somebody is asked or handed over to. Calls are
        distinguished by the branch that makes them (a task of the turn, by the order in which its tasks were created),
        and there by their order. `within` names the part of the turn instead, for a library whose tasks come and go.
        """
        part = self._places.part(within)
        number = self._calls[part] + 1  # by success: a call that failed, and was made in another way, has no place
        name = f"model {part} {number}" if part else f"model {number}"
        self._speaking = number
        if not self._is_done(name):
            self._check_budget(number)
        reply: ModelReply
        reply, how = await self._once(name, lambda: self._timed_reply(call, number))
        self._calls[part] = number
        if how == "recalled" and number not in self._emitted:
            self.delta(reply.text)
        self.usage += reply.usage
        self.last_reply = reply
        self._check_calls(reply.calls, number, within)
        return reply

    async def tool(
        self,
        call: ToolCall,
        run: RunTool,
        *,
        errors: tuple[type[Exception], ...] = (),
        as_error: Callable[[str], Exception] = RuntimeError,
    ) -> Any:
        """Call a tool once, with the arguments that count; gives what it gave, which must be data.

        What people said about the call is done: a call that was denied gives the denial, one that was answered the
        answer. `errors` are those that the agent is to see: they are results too, raised again as `as_error(text)`.
        """
        if self._places.of_call(call) is None:  # no reply asked for it: the agent itself does
            self._check_calls([call], 0, None)
        place = self._place_of(call)
        if self._questions.keys() & {f"approve {place}", f"outcome {place}"}:
            raise Interrupted  # again: the agent did not let the first one through
        match self._past.replies.get(f"approve {place}"):
            case ToolApprovalResponse(decision="deny", reason=reason):
                return denial(reason)
            case ToolApprovalResponse(decision="answer", result=result):
                return result
            case ToolApprovalResponse(arguments=dict() as arguments) if arguments != call.arguments:
                call = replace(call, arguments=arguments)  # edited, or the agent now says something else
        match self._past.replies.get(f"outcome {place}"):
            case ToolOutcomeResponse(happened="ran", result=result):
                return result
        name = f"tool {place} {call.name}"
        if call.name in self._rules.unsafe and not self._is_done(name):
            await self._begin(place, name, call)
        is_new = self._input.prefix + name not in self._past.done
        if is_new:
            self._emit_tool_update("tool_called", call, call.arguments)
        description = f"{call.name}({describe_value(call.arguments, self._ctx.scope.codec)})"
        outcome, _ = await self._once(name, lambda: self._run_tool(name, call, run, errors), description)
        self.usage += Usage(tool_calls=1, seconds=outcome.seconds)
        if is_new:
            self._emit_tool_update("tool_returned", call, outcome.error if outcome.error is not None else outcome.value)
        if outcome.error is not None:
            raise as_error(outcome.error)
        return outcome.value

    async def within(self, messages: Sequence[Message], take_turn: Callable[[Turn], Awaitable[Answer]]) -> Answer:
        """Let an agent answer these messages, and nothing else, as a part of this turn; one such call at a time."""
        outer = self._input
        self._input = TurnInput(outer.id, messages, messages, prefix=outer.prefix)
        try:
            return await take_turn(self)
        finally:
            self._input = outer

    async def ask(self, name: str, data: Any, response_type: Any, *, within: str | None = None) -> Any:
        """Ask a person something of the agent's own, and give the answer. Raises Interrupted until it is there.

        `within` is that of `model`.
        """
        place = self._places.next(f"ask {name}", within)
        request = AgentInputRequest(self.executor_id, data, json.loads(schema_of(response_type)))
        reply = self._past.replies.get(place)
        if isinstance(reply, AgentInputResponse):
            try:
                return answer_as(reply.value, [response_type])
            except NotOfType as problem:
                request = replace(request, problem=str(problem))
        self._questions[place] = request
        raise Interrupted

    async def approvals(self, wanted: Sequence[ToolApprovalRequest]) -> list[ToolApprovalResponse]:
        """What a person says about tool calls that the agent's own library holds back, all asked about at once.

        For libraries that stop by themselves. Raises Interrupted until all answers are there.
        """
        part = self._places.next("approval", "")
        places = [f"{part}/{n}" for n in range(len(wanted))]
        replies = [self._past.replies.get(place) for place in places]
        responses = [reply for reply in replies if isinstance(reply, ToolApprovalResponse)]
        if len(responses) == len(wanted):
            return responses
        self._questions |= dict(zip(places, wanted, strict=True))
        raise Interrupted

    # for the executor

    @property
    def questions(self) -> Mapping[str, Question]:
        """What a person is to answer before the turn can go on, by the place of the question."""
        return self._questions

    @property
    def done(self) -> Mapping[str, Any]:
        """The steps of this turn that are noted and go with the superstep. All of them: an attempt that died may have
        come further than this one. As they are noted: whoever got a result may have changed it."""
        kinds = tuple(f"{self._input.prefix}{kind} " for kind in ("model", "tool", "step", "began"))
        return {
            name: self._ctx.steps.get_result(name) for name in self._ctx.steps.list_names() if name.startswith(kinds)
        }

    @property
    def replies(self) -> Mapping[str, Reply]:
        """What people answered and still holds: a tool that was called since may have run, whatever was said of it."""
        began = f"{self._input.prefix}began "
        outdated = {f"outcome {name.removeprefix(began)}" for name in self.done if name.startswith(began)}
        return {place: reply for place, reply in self._past.replies.items() if place not in outdated}

    @property
    def interrupted(self) -> bool:
        return bool(self._questions) or self.handoff is not None

    async def _once(
        self, name: str, function: Callable[[], Awaitable[Any]], call: str | None = None
    ) -> tuple[Any, str]:
        """What came of a step, and how: done now, recalled, or of a part of the turn that was committed."""
        name = self._input.prefix + name
        if name in self._past.done:
            return self._past.done[name], "committed"
        if name in self._under_way:
            raise RunError(
                f"{self.executor_id!r} in run {self.run_id!r} asks for {name!r} twice at the same time; make one call "
                f"after the other, or name the parts of the turn that call side by side: turn.model(..., within=...)",
                run_id=self.run_id,
            )
        how = "recalled"

        async def do() -> Any:
            nonlocal how
            how = "done"
            await give_way()
            return await function()

        self._under_way.add(name)
        try:
            result = await self._ctx.named_step(name, do, call)
        finally:
            self._under_way.discard(name)
        return result, how

    def _is_done(self, name: str) -> bool:
        name = self._input.prefix + name
        return name in self._past.done or self._ctx.steps.has_result(name)

    async def _timed_reply(self, call: Callable[[], Awaitable[ModelReply]], number: int) -> ModelReply:
        began = perf_counter()
        try:
            reply = await call()
        except BaseException:
            if number in self._emitted:
                self._ctx.emit_withdrawal(number)
                self._emitted.discard(number)
            raise
        usage = replace(reply.usage, seconds=perf_counter() - began)
        if self._rules.price is not None and usage.cost is None:
            usage = replace(usage, cost=self._rules.price(usage))
        return replace(reply, usage=usage)

    async def _run_tool(
        self,
        name: str,
        call: ToolCall,
        run: RunTool,
        errors: tuple[type[Exception], ...],
    ) -> ToolDone:
        token = _CURRENT.set(CurrentToolCall(self.run_id, self.executor_id, call.name, call.id, self._key(name)))
        began = perf_counter()
        try:
            return ToolDone(await run(call.arguments), seconds=perf_counter() - began)
        except errors as error:
            return ToolDone(error=str(error), seconds=perf_counter() - began)
        finally:
            _CURRENT.reset(token)

    def _key(self, name: str) -> str:
        scope = self._ctx.scope
        return idempotency_key(scope.run_id, scope.epoch, f"{self._input.id}/{name}")

    def _check_calls(self, calls: Sequence[ToolCall], number: int, within: str | None) -> None:
        ids = [call.id for call in calls]
        if len(set(ids)) < len(ids):
            raise RunError(
                f"the model of {self.executor_id!r} in run {self.run_id!r} called two tools under one id ({ids}); "
                f"each tool call needs an id of its own",
                run_id=self.run_id,
            )
        self._places.add_calls(calls, number, within)
        for call in calls:
            if call.name in self.handoffs:
                self.handoff = call.name
                raise Interrupted
        for call in calls:
            self._check_approval(call)
            self._check_outcome(call)
        if self._questions:
            raise Interrupted

    def _place_of(self, call: ToolCall) -> str:
        place = self._places.of_call(call)
        assert place is not None  # it was looked at
        return place

    def _check_approval(self, call: ToolCall) -> None:
        place = f"approve {self._place_of(call)}"
        if (call.needs_approval or call.name in self._rules.approve) and place not in self._past.replies:
            self._questions[place] = ToolApprovalRequest(
                self.executor_id, call.name, call.arguments, call.id, call.description, call.parameters
            )

    def _check_outcome(self, call: ToolCall) -> None:
        place = self._place_of(call)
        name = f"tool {place} {call.name}"
        if call.name in self._rules.unsafe and self._has_begun(place) and not self._is_done(name):
            self._ask_outcome(place, name, call)

    def _ask_outcome(self, place: str, name: str, call: ToolCall) -> None:
        self._questions[f"outcome {place}"] = ToolOutcomeRequest(
            self.executor_id, call.name, call.arguments, call.id, self._key(name)
        )

    def _has_begun(self, place: str) -> bool:
        name = f"{self._input.prefix}began {place}"
        committed = name in self._past.done and f"outcome {place}" not in self._past.replies
        return committed or self._ctx.steps.has_result(name)

    async def _begin(self, place: str, name: str, call: ToolCall) -> None:
        """Note that a tool that must not be repeated is called now."""
        if self._has_begun(place):  # the agent itself tries it again
            self._ask_outcome(place, name, call)
            raise Interrupted

        async def begin() -> None:
            return None

        await self._ctx.named_step(f"{self._input.prefix}began {place}", begin)

    def _check_budget(self, number: int) -> None:
        budget = self._rules.budget
        if budget is None:
            return
        so_far = self._past.spent + self.usage
        if budget.cost is not None and so_far.calls and so_far.cost is None:
            raise RunError(
                f"{self.executor_id!r} in run {self.run_id!r} may cost {budget.cost:g}, and nobody knows what its "
                f"calls cost: give AgentExecutor(..., price=...), or limit tokens or calls",
                run_id=self.run_id,
            )
        for kind, limit, spent in budget.used_up(so_far, self._past.raised):
            place = f"budget {kind} {number}"
            self._questions[place] = BudgetRequest(self.executor_id, kind, limit, spent, budget.whole_run)
        if self._questions:
            raise Interrupted

    def _emit_tool_update(self, kind: Any, call: ToolCall, data: Any) -> None:
        details = {"kind": kind, "tool": call.name, "tool_call_id": call.id, "data": data}
        self._ctx.emit_update(AgentResponseUpdate("", self.executor_id, self._speaking, **details))


def denial(reason: str) -> str:
    """What an agent is told in place of the result of a tool call that was denied."""
    return f"The call was denied: {reason}" if reason else "The call was denied."
