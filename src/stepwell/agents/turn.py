"""`Turn`: one turn of an agent, and the methods through which it calls its model and its tools.

An agent is a loop in somebody else's code, which cannot be stored in its middle. After a crash, or once a person has
responded, the turn is therefore taken again from its beginning. Each call made through the turn is a step of the run,
known by its place in the turn, and a call that was already made returns its stored result.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from stepwell.agents.call_summaries import summarise_reply, summarise_tool
from stepwell.agents.messages import (
    CURRENT_TOOL_CALL,
    AgentResponseUpdate,
    Answer,
    CurrentToolCall,
    Message,
    ModelReply,
    ToolCall,
    Usage,
)
from stepwell.agents.requests import (
    AgentInputRequest,
    AgentInputResponse,
    BudgetRequest,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolOutcomeRequest,
    ToolOutcomeResponse,
    TurnRequest,
    TurnResponse,
    denial,
)
from stepwell.agents.turn_input import AgentRules, Past, TurnInput
from stepwell.agents.turn_steps import ToolDone, TurnSteps
from stepwell.engine.handler.internal_context import InternalContext
from stepwell.error_ids import ErrorId
from stepwell.errors import RunError
from stepwell.model.event import WorkflowEvent
from stepwell.model.timing import CallSummary
from stepwell.storage.ids import idempotency_key
from stepwell.storage.response_types import NotOfType, answer_as, schema_of
from stepwell.storage.step_calls import describe_value

RunTool = Callable[[dict[str, Any]], Awaitable[Any]]
"""Calls a tool with these arguments, and returns data."""
TakeTurn = Callable[["Turn"], Awaitable[Answer]]


class Interrupted(BaseException):
    """The turn stops here, because a person is asked or another agent takes over.

    It is not an Exception, so that `except Exception` in an agent lets it through.
    """

    id = ErrorId.Interrupted


class Turn:
    """One turn of an agent: its input, and the calls it makes."""

    def __init__(self, ctx: InternalContext, turn_input: TurnInput, rules: AgentRules, past: Past) -> None:
        self._ctx, self._input, self._rules, self._past = ctx, turn_input, rules, past
        self._steps, self.usage = TurnSteps(ctx, turn_input.prefix, past.done), Usage()
        self._requests: dict[str, TurnRequest] = {}
        self._calls: Counter[str] = Counter()  # successful model calls, by the part of the turn
        self._current_call, self._emitted = 1, set[int]()  # the model call whose text is emitted; those that had some
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
        """The messages since the agent's last turn, to be answered now."""
        return list(self._input.messages)

    @property
    def conversation(self) -> list[Message]:
        """All messages, the new ones included."""
        return list(self._input.conversation)

    @property
    def history(self) -> list[Any]:
        """What the agent has returned as `Answer.history` so far."""
        return list(self._input.history)

    @property
    def state(self) -> Any:
        """What the agent returned as `Answer.state` last time; None at first."""
        return self._input.state

    @property
    def handoffs(self) -> Mapping[str, str]:
        """Descriptions of the handoff tools to offer to the model, by name; calling one ends the turn."""
        return self._input.handoffs

    @property
    def private(self) -> Mapping[str, Any]:
        """The `private` argument of `run`; never stored."""
        return self._ctx.private

    @property
    def streaming(self) -> bool:
        """Whether the run is streamed, so that `delta` has an effect."""
        return self._ctx.is_streaming()

    @property
    def rules(self) -> AgentRules:
        """The agent's rules, for adapters that cannot enforce them and must refuse them."""
        return self._rules

    def warn(self, text: str) -> None:
        """Emit a `warning` event."""
        self._ctx.add_event(WorkflowEvent("warning", text))

    def delta(self, text: str) -> None:
        """Emit a piece of the text that the model is producing."""
        if text:
            self._emitted.add(self._current_call)
            self._ctx.emit_update(AgentResponseUpdate(text, self.executor_id, self._current_call))

    async def step(self, name: str, function: Callable[[], Awaitable[Any]], *, within: str | None = None) -> Any:
        """Call `function` once, and recall its result whenever the turn is taken again.

        `within` means the same as in `model`.
        """
        return (await self._steps.run_once(self._steps.next(f"step {name}", within), function))[0]

    async def model(self, call: Callable[[], Awaitable[ModelReply]], *, within: str | None = None) -> ModelReply:
        """Call the model once, and return its reply.

        `call` emits the text with `delta` while it arrives; the text of a recalled reply is emitted in
        one piece. The tool calls in the reply are checked before any of them is made, so that all
        approvals are requested together. Raises Interrupted, which the agent must let through, if a
        person is asked or another agent takes over.

        Calls are identified by the branch that makes them (a task of the turn, by the order in which
        tasks were created), and within it by their order. `within` names the part of the turn
        instead, for a library that creates tasks in no fixed order.
        """
        part = self._steps.part(within)
        # Counted by success: a call that fails and is replaced by another, perhaps of a fallback
        # model, must not shift the calls after it.
        number = self._calls[part] + 1
        name = f"model {part} {number}" if part else f"model {number}"
        self._current_call = number
        # A recalled reply costs nothing, so it is returned even if the budget is exhausted by now.
        if not self._steps.is_done(name):
            self._check_budget(number)
        reply: ModelReply
        reply, how = await self._steps.run_once(name, lambda: self._timed_reply(call, number))
        self._calls[part] = number
        self._steps.summarise(name, summarise_reply(reply))
        # A reply that was committed earlier was emitted in the drive that committed it.
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
        """Call a tool once, and return its result, which must be data.

        People's decisions apply: a denied call returns the denial, an answered one the answer, an
        edited one is made with the edited arguments. Exceptions in `errors` are meant for the agent:
        they are stored like results, and raised as `as_error(text)`.
        """
        # A call that no reply of the model requested comes from the agent's own code.
        place = self._steps.of_call(call) or self._check_calls([call], 0, None)[0]
        # The agent may have caught the first Interrupted; the tool must not run all the same.
        if self._requests.keys() & {f"approve {place}", f"outcome {place}"}:
            raise Interrupted
        match self._past.responses.get(f"approve {place}"):
            case ToolApprovalResponse(decision="deny", reason=reason):
                return denial(reason)
            case ToolApprovalResponse(decision="answer", result=result):
                return result
            case ToolApprovalResponse(arguments=dict() as arguments) if arguments != call.arguments:
                # Edited by the person, or the agent now comes to other arguments than were approved.
                call = replace(call, arguments=arguments)
        match self._past.responses.get(f"outcome {place}"):
            case ToolOutcomeResponse(happened="ran", result=result):
                return result
        name = f"tool {place} {call.name}"
        if call.name in self._rules.unsafe and not self._steps.is_done(name):
            await self._mark_started(place, name, call)
        # Results that an earlier commit holds were announced then.
        is_new = not self._steps.is_committed(name)
        if is_new:
            self._emit_tool_update("tool_called", call, call.arguments)
        description = f"{call.name}({describe_value(call.arguments, self._ctx.scope.codec)})"
        outcome, _ = await self._steps.run_once(name, lambda: self._run_tool(name, call, run, errors), description)
        self._steps.summarise(name, summarise_tool(call.arguments, outcome.value, outcome.error))
        self.usage += Usage(tool_calls=1, seconds=outcome.seconds)
        if is_new:
            self._emit_tool_update("tool_returned", call, outcome.error if outcome.error is not None else outcome.value)
        if outcome.error is not None:
            raise as_error(outcome.error)
        return outcome.value

    async def within(self, messages: Sequence[Message], take_turn: TakeTurn, answer_type: Any = None) -> Answer:
        """Let another agent answer just these messages as part of this turn; one such call at a time."""
        outer, rules = self._input, self._rules
        self._input = TurnInput(outer.id, messages, messages, prefix=outer.prefix)
        self._rules = replace(rules, answer_type=answer_type)
        try:
            return await take_turn(self)
        finally:
            self._input, self._rules = outer, rules

    async def ask(self, name: str, data: Any, response_type: Any, *, within: str | None = None) -> Any:
        """Ask a person a question of the agent's own, and return the response.

        Raises Interrupted until there is one. `within` means the same as in `model`.
        """
        place = self._steps.next(f"ask {name}", within)
        request = AgentInputRequest(self.executor_id, data, json.loads(schema_of(response_type)))
        reply = self._past.responses.get(place)
        if isinstance(reply, AgentInputResponse):
            try:
                return answer_as(reply.value, [response_type])
            except NotOfType as problem:
                # Ask once more and say why, rather than fail a run over a typing mistake.
                request = replace(request, problem=str(problem))
        self._requests[place] = request
        raise Interrupted

    async def approvals(self, requests: Sequence[ToolApprovalRequest]) -> list[ToolApprovalResponse]:
        """Return people's decisions about tool calls that the agent's own library holds back.

        For libraries that stop by themselves. Raises Interrupted until all responses are there.
        """
        part = self._steps.next("approval", "")
        places = [f"{part}/{n}" for n in range(len(requests))]
        past = [self._past.responses.get(place) for place in places]
        responses = [response for response in past if isinstance(response, ToolApprovalResponse)]
        if len(responses) == len(requests):
            return responses
        self._requests |= dict(zip(places, requests, strict=True))
        raise Interrupted

    # The rest of the public part is for AgentExecutor, not for agents.

    @property
    def requests(self) -> Mapping[str, TurnRequest]:
        """The requests that need a response before the turn can continue, by their places."""
        return self._requests

    @property
    def done(self) -> Mapping[str, Any]:
        """The results in the superstep log that belong to this turn, by the name of the step."""
        return self._steps.logged()

    @property
    def responses(self) -> Mapping[str, TurnResponse]:
        """The responses of people that still hold, by the places of the requests."""
        # "It did not run" is out of date once the tool has been started again.
        began = f"{self._input.prefix}began "
        outdated = {f"outcome {name.removeprefix(began)}" for name in self.done if name.startswith(began)}
        return {place: response for place, response in self._past.responses.items() if place not in outdated}

    @property
    def interrupted(self) -> bool:
        """Whether the turn ended with requests or a handoff."""
        return bool(self._requests) or self.handoff is not None

    async def _timed_reply(self, call: Callable[[], Awaitable[ModelReply]], number: int) -> ModelReply:
        began = perf_counter()
        try:
            reply = await call()
        except BaseException:
            # Watchers have seen text of a reply that will never be: retract it.
            if number in self._emitted:
                self._ctx.emit_withdrawal(number)
                self._emitted.discard(number)
            raise
        usage = replace(reply.usage, seconds=perf_counter() - began)
        if self._rules.price is not None and usage.cost is None:
            usage = replace(usage, cost=self._rules.price(usage))
        return replace(reply, usage=usage)

    async def _run_tool(self, name: str, call: ToolCall, run: RunTool, errors: tuple[type[Exception], ...]) -> ToolDone:
        key = self._idempotency_key(name)
        token = CURRENT_TOOL_CALL.set(CurrentToolCall(self.run_id, self.executor_id, call.name, call.id, key))
        began = perf_counter()
        try:
            return ToolDone(await run(call.arguments), seconds=perf_counter() - began)
        except errors as error:
            return ToolDone(error=str(error), seconds=perf_counter() - began)
        finally:
            CURRENT_TOOL_CALL.reset(token)

    def _idempotency_key(self, name: str) -> str:
        # Derived from the turn, not from the delivery: a turn that waited goes through several
        # deliveries, and the key of a call must be the same in all of them.
        return idempotency_key(self.run_id, self._ctx.scope.epoch, f"{self._input.id}/{name}")

    def _check_calls(self, calls: Sequence[ToolCall], number: int, within: str | None) -> list[str]:
        """Return the places of tool calls. Raises Interrupted if one is a handoff or somebody must be asked first."""
        ids = [call.id for call in calls]
        if len(set(ids)) < len(ids):
            raise RunError(
                f"the model of {self.executor_id!r} in run {self.run_id!r} used one id for two tool calls ({ids}); "
                f"each tool call needs its own id",
                run_id=self.run_id,
            )
        places = self._steps.add_calls(calls, number, within)
        # A handoff comes first: it ends the turn, and the other calls of the reply are not made, so
        # nobody needs to approve them.
        for call in calls:
            if call.name in self.handoffs:
                self.handoff = call.name
                raise Interrupted
        for call, place in zip(calls, places, strict=True):
            needs_approval = call.needs_approval or call.name in self._rules.approve
            if needs_approval and f"approve {place}" not in self._past.responses:
                self._requests[f"approve {place}"] = ToolApprovalRequest(
                    self.executor_id, call.name, call.arguments, call.id, call.description, call.parameters
                )
            name = f"tool {place} {call.name}"
            if call.name in self._rules.unsafe and self._may_have_run(place) and not self._steps.is_done(name):
                self._ask_outcome(place, name, call)
        if self._requests:
            raise Interrupted
        return places

    def _ask_outcome(self, place: str, name: str, call: ToolCall) -> None:
        self._requests[f"outcome {place}"] = ToolOutcomeRequest(
            self.executor_id, call.name, call.arguments, call.id, self._idempotency_key(name)
        )

    def _may_have_run(self, place: str) -> bool:
        """Say whether a tool was started and nobody has said since what became of it."""
        name = f"began {place}"
        is_unclear = self._steps.is_committed(name) and f"outcome {place}" not in self._past.responses
        return is_unclear or self._steps.is_logged(name)

    async def _mark_started(self, place: str, name: str, call: ToolCall) -> None:
        """Store that an unsafe tool is about to be called."""
        # The first call failed, and the agent itself tries again within the same turn.
        if self._may_have_run(place):
            self._ask_outcome(place, name, call)
            raise Interrupted

        # The step does nothing. That it is in the log is what matters: it is durable before the tool
        # runs, so after a crash the turn knows that the tool may have run.
        async def begin() -> None:
            return None

        await self._ctx.named_step(f"{self._input.prefix}began {place}", begin)
        self._steps.summarise(f"began {place}", CallSummary())

    def _check_budget(self, number: int) -> None:
        budget = self._rules.budget
        if budget is None:
            return
        so_far = self._past.spent + self.usage
        if budget.cost is not None and so_far.calls and so_far.cost is None:
            raise RunError(
                f"{self.executor_id!r} in run {self.run_id!r} has a cost budget of {budget.cost:g}, but the cost of "
                f"its calls is unknown: pass AgentExecutor(..., price=...), or limit tokens or calls instead",
                run_id=self.run_id,
            )
        for kind, limit, spent in budget.find_exhausted(so_far, self._past.raised):
            # The place is never looked up: the response raises the limit, which is checked above.
            place = f"budget {kind} {number}"
            self._requests[place] = BudgetRequest(self.executor_id, kind, limit, spent, budget.whole_run)
        if self._requests:
            raise Interrupted

    def _emit_tool_update(self, kind: Any, call: ToolCall, data: Any) -> None:
        details = {"kind": kind, "tool": call.name, "tool_call_id": call.id, "data": data}
        self._ctx.emit_update(AgentResponseUpdate("", self.executor_id, self._current_call, **details))


def handoff_answer(turn: Turn, history: Sequence[Any] = (), state: Any = None) -> Answer:
    """Return the answer of an agent whose model called a handoff tool: what the model said with the call."""
    text = turn.last_reply.text if turn.last_reply is not None else ""
    return Answer([Message("assistant", text)] if text else [], history, state, handoff=turn.handoff)
