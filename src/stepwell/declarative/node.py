"""A node: an agent with an input, an output under a key, limits, and perhaps a person who looks at it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from stepwell.agents.conversation import AgentContext, conversation_of
from stepwell.agents.executor import AgentExecutor, OpenTurn
from stepwell.agents.messages import AgentExecutorResponse, AgentResponse, Message
from stepwell.agents.replies import Answer
from stepwell.agents.turn import Turn
from stepwell.declarative.conditions.evaluation import evaluate
from stepwell.declarative.conductor import CONDUCTOR, Begun, Values, time_left, took_too_long
from stepwell.declarative.definition import Node, Retries
from stepwell.declarative.errors import OutputRejected, WorkflowTimeout
from stepwell.declarative.messages import Done, Go, NodeApprovalRequest, NodeApprovalResponse
from stepwell.declarative.node_input import prompt_of
from stepwell.declarative.node_output import outputs_of
from stepwell.declarative.schedule import Plan, Stand, led_by, progress
from stepwell.declarative.transcripts import Threads
from stepwell.engine.handler_context import HandlerContext
from stepwell.errors import DurabilityError, HandlerTimeout
from stepwell.graph.context import WorkflowContext
from stepwell.graph.handler import handler, response_handler
from stepwell.model.event import WorkflowEvent

NodeContext = WorkflowContext[Done | AgentExecutorResponse, AgentResponse]


@dataclass(frozen=True, slots=True)
class Working:
    """What a node is doing: it began, and perhaps its output waits to be looked at."""

    run: int
    before: int  # how much of the conversation is from earlier runs
    instead_of: str | None = None  # whose place it takes
    outputs: Mapping[str, Any] | None = None
    seconds: float = field(default=0.0, compare=False)


class NodeExecutor(AgentExecutor):
    """One agent of a workflow of named agents."""

    _answer: AgentExecutorResponse | None = None  # of the attempt that was just made

    def __init__(
        self,
        plan: Plan,
        node: Node,
        agent: Any,
        types: Mapping[str, type],
        threads: Threads | None,
        handoffs: Mapping[str, str],
    ) -> None:
        super().__init__(agent, id=node.id, handoffs=handoffs)
        self.plan, self.node, self.types, self.threads = plan, node, types, threads
        self._gate = Gate(node.concurrency)

    def clone(self) -> NodeExecutor:
        twin = super().clone()
        assert isinstance(twin, NodeExecutor)
        for name in ("plan", "node", "types", "threads", "_gate"):
            setattr(twin, name, getattr(self, name))
        return twin

    @handler
    async def go(self, go: Go, ctx: NodeContext) -> None:
        """Run, once: what the node is told is put together from the values of the run."""
        node = self.node if go.instead_of is None else self._in_place_of(go.instead_of)
        prompt = prompt_of(node, Values(ctx), self._upstream(ctx), run_id=ctx.run_id)
        self.forget(ctx)
        if self.threads is not None:
            self.hear(await ctx.step("transcript", self.threads.read, _session(ctx), self.id), ctx)
        before = len(conversation_of(self.id, ctx))
        self.hear([Message("user", prompt)], ctx)
        ctx.set_state(self._key("working"), Working(go.run, before, go.instead_of))
        await self.respond(ctx)

    def _upstream(self, ctx: NodeContext) -> dict[str, Any]:
        """What those gave that led here."""
        stands = self._stands(ctx)
        led = led_by(self.plan, stands, self.id)
        return {id: stands[id].outputs.get(self.plan.definition.node(id).gives) for id in led}

    def _stands(self, ctx: WorkflowContext[Any, Any]) -> dict[str, Stand]:
        return {id: ctx.get_state(f"nodes/{id}", Stand()) for id in self.plan.ids}

    def _in_place_of(self, failed: str) -> Node:
        """This node, told what the one that failed was told, unless it says itself what it wants."""
        if self.node.input_key is not None or self.node.input_template is not None:
            return self.node
        other = self.plan.definition.node(failed)
        return replace(self.node, input_key=other.input_key, input_template=other.input_template)

    async def _take(self, begun: OpenTurn, ctx: AgentContext) -> None:
        """Take a turn, and try again as often as the node may. What a failed attempt had done is not done again."""
        began, number, spent = perf_counter(), 0, 0
        while True:
            number += 1
            if (noted := await self._noted(number, ctx)) is not None:  # before a restart: it goes on counting
                if noted["answer"] is not None:
                    begun = self._asked_again(begun, noted["answer"], noted["why"], ctx)
                spent = 0 if noted["final"] else spent + 1  # whoever resumes what was given up has all attempts again
                if not noted["final"]:
                    await ctx.sleep(_delay(self.node.retry, spent))
                continue
            try:
                async with self._gate.entered(), self._in_time(ctx):
                    await super()._take(begun, ctx)
            except (DurabilityError, WorkflowTimeout):
                raise  # it is not the agent that failed
            except Exception as error:  # noqa: BLE001 - whatever an agent raises: the node says what follows from it
                spent += 1
                if spent >= self._most_attempts or not _worth_it(self.node.retry, error):
                    await self._give_up(error, number, began, ctx)
                    return
                await ctx.add_event(WorkflowEvent("warning", f"attempt {spent} failed, trying again: {_named(error)}"))
                if isinstance(error, OutputRejected):
                    begun = self._asked_again(begun, error.answer, str(error), ctx)
                    continue  # what it answered is known after a restart, too
                await self._note(number, error, ctx)
                await ctx.sleep(_delay(self.node.retry, spent))
            else:
                answer, self._answer = self._answer, None
                if answer is not None:  # else it waits for somebody
                    await self._look_at(answer, ctx)
                return

    @property
    def _most_attempts(self) -> int:
        return 1 if self.node.retry is None else self.node.retry.attempts

    async def _noted(self, number: int, ctx: AgentContext) -> dict[str, Any] | None:
        """What is known of the attempt of that number, if it failed before."""
        name = f"failed {number}"
        found: dict[str, Any] | None = None
        if _here(ctx).steps.has_result(name):
            found = await _here(ctx).named_step(name, _never)
        return found

    async def _note(self, number: int, error: Exception, ctx: AgentContext, *, final: bool = False) -> None:
        """Keep it that an attempt failed, for a process after this one."""
        answer = error.answer if isinstance(error, OutputRejected) else None

        async def note() -> dict[str, Any]:
            return {"why": str(error), "answer": answer, "final": final}

        await _here(ctx).named_step(f"failed {number}", note)

    def _asked_again(self, begun: OpenTurn, answer: str, why: str, ctx: AgentContext) -> OpenTurn:
        """Another turn, in which the agent is told what was wrong with its answer."""
        self.hear([Message("user", f"You answered:\n{answer}\n\n{why}")], ctx)
        return OpenTurn(f"{begun.id}+", len(conversation_of(self.id, ctx)), begun.usage, {})

    @asynccontextmanager
    async def _in_time(self, ctx: AgentContext) -> AsyncIterator[None]:
        limit, left = self.node.timeout, time_left(self.plan.definition, ctx)
        scope = asyncio.timeout(min((one for one in (limit, left) if one is not None), default=None))
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            if limit is None or (left is not None and left < limit):
                raise took_too_long(self.plan, ctx) from error
            raise HandlerTimeout(
                f"{self.id!r} in run {ctx.run_id!r} was not done after {limit:g} s",
                run_id=ctx.run_id,
                executor_id=self.id,
            ) from error

    async def _give_up(self, error: Exception, number: int, began: float, ctx: AgentContext) -> None:
        """The node has failed: the run stops here, or goes on without it."""
        if self.node.on_error == "stop":
            await self._note(number, error, ctx, final=True)
            raise error
        working: Working = ctx.get_state(self._key("working"))
        self.forget(ctx)
        reason, seconds = _named(error), working.seconds + perf_counter() - began
        done = Done(self.id, working.run, "failed", reason=reason, seconds=seconds)
        await self._report(done, working, ctx, over=self.node.fallback is None)

    async def take_turn(self, turn: Turn, ctx: AgentContext) -> Answer:
        answer = await super().take_turn(turn, ctx)
        response = AgentResponse(answer.messages, value=answer.value, handoff=answer.handoff)
        try:
            self._outputs(response, ctx)
        except OutputRejected as error:
            error.answer = response.text
            raise
        return answer

    def _outputs(self, response: AgentResponse, ctx: WorkflowContext[Any, Any]) -> dict[str, Any]:
        if self.node.output_mode != "handoff":
            return outputs_of(self.node, response, self.types, run_id=ctx.run_id)
        chosen = response.handoff
        target = self.node.default_target if chosen is None else tools_of(self.plan, self.id)[chosen]
        if target is None:
            offered = ", ".join(self.handoffs)
            raise OutputRejected(f"nobody was chosen: call one of {offered}", run_id=ctx.run_id)
        return self._chosen(target)

    def _chosen(self, target: str) -> dict[str, Any]:
        return {self.node.gives: target, "handoff": target}

    def _edited(self, output: Any, ctx: WorkflowContext[Any, Any]) -> dict[str, Any]:
        """What a person wants used instead. Raises OutputRejected if it is not what the node promises."""
        if self.node.output_mode != "handoff":
            return outputs_of(self.node, AgentResponse((), value=output), self.types, run_id=ctx.run_id)
        targets = [way.target for way in self.plan.out_of(self.id)]
        if output not in targets:
            raise OutputRejected(f"{output!r} is none of {', '.join(map(repr, targets))}", run_id=ctx.run_id)
        return self._chosen(output)

    async def responded(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """The agent has answered. What is done with it is no part of the attempt, and its failure not the agent's."""
        self._answer = response

    async def _look_at(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """A person looks at the answer if that is wanted, then it is published."""
        working: Working = ctx.get_state(self._key("working"))
        outputs = self._outputs(response.agent_response, ctx)
        working = replace(working, outputs=outputs, seconds=response.agent_response.usage.seconds)
        approval = self.node.approval
        when = None if approval is None else approval.when
        if approval is None or (when is not None and not await evaluate(when, {**Values(ctx), **outputs})):
            await self._publish(working, ctx)
            return
        ctx.set_state(self._key("working"), working)
        request = NodeApprovalRequest(self.id, outputs[self.node.gives], approval.message)
        if not approval.timeout or approval.on_timeout == "suspend":  # no time at all: it may take days
            await ctx.request_info(request, NodeApprovalResponse)
            return
        late = f"nobody answered within {approval.timeout:g} s"
        default = NodeApprovalResponse(approval.on_timeout == "approve", reason=late)
        await ctx.request_info(
            request, NodeApprovalResponse, deadline=timedelta(seconds=approval.timeout), default=default
        )

    @response_handler
    async def looked_at(self, asked: NodeApprovalRequest, said: NodeApprovalResponse, ctx: NodeContext) -> None:
        working: Working = ctx.get_state(self._key("working"))
        if not said.approved:
            reason = f"denied: {said.reason}" if said.reason else "denied"
            done = Done(self.id, working.run, "denied", reason=reason, seconds=working.seconds)
            await self._report(done, working, ctx)
        elif said.output is None:
            await self._publish(working, ctx)
        else:
            try:
                edited = self._edited(said.output, ctx)
            except OutputRejected as error:  # nobody shall have to begin anew because somebody mistyped
                await ctx.request_info(
                    replace(asked, message=f"{asked.message}\n\n{error}".strip()), NodeApprovalResponse
                )
                return
            await self._publish(replace(working, outputs=edited), ctx)

    async def _publish(self, working: Working, ctx: WorkflowContext[Any, Any]) -> None:
        assert working.outputs is not None
        if self.threads is not None:
            said = conversation_of(self.id, ctx)[working.before :]
            key = f"{ctx.run_id}/{self.id}/{working.run}"
            await ctx.step("keep transcript", self.threads.append, _session(ctx), self.id, key, said)
        done = Done(self.id, working.run, "succeeded", working.outputs, seconds=working.seconds)
        await self._report(done, working, ctx)

    async def _report(self, done: Done, working: Working, ctx: WorkflowContext[Any, Any], *, over: bool = True) -> None:
        ctx.delete_state(self._key("working"))
        part = progress(self.plan, self._stands(ctx), working.instead_of or self.id, over=over)
        await ctx.send_message(replace(done, progress=part), target_id=CONDUCTOR)


def tools_of(plan: Plan, id: str) -> dict[str, str]:
    """The nodes that a router hands over to, by the names of the tools for it: each has one of its own."""
    found: dict[str, str] = {}
    for target in dict.fromkeys(way.target for way in plan.out_of(id)):
        plain = "".join(c if (c.isalnum() and c.isascii()) or c in "_-" else "_" for c in target)
        tool = f"handoff_to_{plain[:50]}"
        if plain != target or len(plain) > 50 or tool in found:
            tool = f"handoff_to_{plain[:41]}_{sha256(target.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
        found[tool] = target
    return found


class Gate:
    """Lets so many in at once, of all runs of this process; each event loop has a gate of its own."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        if self._most is None:
            yield
            return
        gate = self._open.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._most))
        async with gate:
            yield


def _session(ctx: WorkflowContext[Any, Any]) -> str:
    begun: Begun = ctx.get_state("begun")
    return begun.session


async def _never() -> Any:
    raise AssertionError("a note that is there is read, and not made")


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _worth_it(retry: Retries | None, error: Exception) -> bool:
    if retry is None or not retry.errors or isinstance(error, OutputRejected):
        return retry is not None
    return any(cls.__name__ in retry.errors for cls in type(error).__mro__)


def _delay(retry: Retries | None, number: int) -> float:
    """Seconds to wait after the attempt of that number has failed."""
    assert retry is not None
    match retry.backoff:
        case "constant":
            wait = retry.initial_delay
        case "linear":
            wait = retry.initial_delay * number
        case "exponential":
            wait = retry.initial_delay * 2 ** (number - 1)
        case "jittered":
            wait = retry.initial_delay * 2 ** (number - 1) * random.uniform(0.5, 1.5)
    return min(wait, retry.max_delay)


def _here(ctx: WorkflowContext[Any, Any]) -> HandlerContext:
    assert isinstance(ctx, HandlerContext)
    return ctx
