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
from stepwell.declarative.conductor import CONDUCTOR, RunValues, WorkflowBegun, make_timeout_error, remaining_time
from stepwell.declarative.definition import Node, Retries
from stepwell.declarative.errors import OutputRejected, WorkflowTimeout
from stepwell.declarative.messages import NodeApprovalRequest, NodeApprovalResponse, NodeDone, RunNode
from stepwell.declarative.node_input import build_prompt
from stepwell.declarative.node_output import parse_outputs
from stepwell.declarative.schedule import NodeGraph, NodeState, compute_progress, find_sources
from stepwell.declarative.transcripts import Threads
from stepwell.engine.handler_context import HandlerContext
from stepwell.errors import DurabilityError, HandlerTimeout
from stepwell.graph.context import WorkflowContext
from stepwell.graph.handler import handler, response_handler
from stepwell.model.event import WorkflowEvent

NodeContext = WorkflowContext[NodeDone | AgentExecutorResponse, AgentResponse]


@dataclass(frozen=True, slots=True)
class NodeWork:
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
        graph: NodeGraph,
        node: Node,
        agent: Any,
        types: Mapping[str, type],
        threads: Threads | None,
        handoffs: Mapping[str, str],
    ) -> None:
        super().__init__(agent, id=node.id, handoffs=handoffs)
        self.graph, self.node, self.types, self.threads = graph, node, types, threads
        self._gate = Gate(node.concurrency)

    def clone(self) -> NodeExecutor:
        twin = super().clone()
        assert isinstance(twin, NodeExecutor)
        for name in ("graph", "node", "types", "threads", "_gate"):
            setattr(twin, name, getattr(self, name))
        return twin

    @handler
    async def run_node(self, message: RunNode, ctx: NodeContext) -> None:
        """Run, once: what the node is told is put together from the values of the run."""
        node = self.node if message.instead_of is None else self._in_place_of(message.instead_of)
        prompt = build_prompt(node, RunValues(ctx), self._upstream(ctx), run_id=ctx.run_id)
        self.forget(ctx)
        if self.threads is not None:
            self.hear(await ctx.step("transcript", self.threads.read, _session(ctx), self.id), ctx)
        before = len(conversation_of(self.id, ctx))
        self.hear([Message("user", prompt)], ctx)
        ctx.set_state(self._key("working"), NodeWork(message.run, before, message.instead_of))
        await self.respond(ctx)

    def _upstream(self, ctx: NodeContext) -> dict[str, Any]:
        """What those gave that led here."""
        states = self._states(ctx)
        sources = find_sources(self.graph, states, self.id)
        return {id: states[id].outputs.get(self.graph.definition.node(id).gives) for id in sources}

    def _states(self, ctx: WorkflowContext[Any, Any]) -> dict[str, NodeState]:
        return {id: ctx.get_state(f"nodes/{id}", NodeState()) for id in self.graph.ids}

    def _in_place_of(self, failed: str) -> Node:
        """This node, told what the one that failed was told, unless it says itself what it wants."""
        if self.node.input_key is not None or self.node.input_template is not None:
            return self.node
        other = self.graph.definition.node(failed)
        return replace(self.node, input_key=other.input_key, input_template=other.input_template)

    async def _take(self, begun: OpenTurn, ctx: AgentContext) -> None:
        """Take a turn, and try again as often as the node may. What a failed attempt had done is not done again."""
        started, number, spent = perf_counter(), 0, 0
        while True:
            number += 1
            failure = await self._recall_failure(number, ctx)
            if failure is not None:  # before a restart: it goes on counting
                if failure["answer"] is not None:
                    begun = self._ask_again(begun, failure["answer"], failure["why"], ctx)
                spent = 0 if failure["final"] else spent + 1  # whoever resumes what was given up has all attempts again
                if not failure["final"]:
                    await ctx.sleep(_delay(self.node.retry, spent))
                continue
            try:
                async with self._gate.enter(), self._limit_time(ctx):
                    await super()._take(begun, ctx)
            except (DurabilityError, WorkflowTimeout):
                raise  # it is not the agent that failed
            except Exception as error:  # noqa: BLE001 - whatever an agent raises: the node says what follows from it
                spent += 1
                if spent >= self._most_attempts or not _is_worth_retrying(self.node.retry, error):
                    await self._give_up(error, number, started, ctx)
                    return
                await ctx.add_event(
                    WorkflowEvent("warning", f"attempt {spent} failed, trying again: {_describe_error(error)}")
                )
                if isinstance(error, OutputRejected):
                    begun = self._ask_again(begun, error.answer, str(error), ctx)
                    continue  # what it answered is known after a restart, too
                await self._record_failure(number, error, ctx)
                await ctx.sleep(_delay(self.node.retry, spent))
            else:
                answer, self._answer = self._answer, None
                if answer is not None:  # else it waits for somebody
                    await self._review(answer, ctx)
                return

    @property
    def _most_attempts(self) -> int:
        return 1 if self.node.retry is None else self.node.retry.attempts

    async def _recall_failure(self, number: int, ctx: AgentContext) -> dict[str, Any] | None:
        """What is known of the attempt of that number, if it failed before."""
        name = f"failed {number}"
        failure: dict[str, Any] | None = None
        if _here(ctx).steps.has_result(name):
            failure = await _here(ctx).named_step(name, _refuse)
        return failure

    async def _record_failure(self, number: int, error: Exception, ctx: AgentContext, *, final: bool = False) -> None:
        """Keep it that an attempt failed, for a process after this one."""
        answer = error.answer if isinstance(error, OutputRejected) else None

        async def note() -> dict[str, Any]:
            return {"why": str(error), "answer": answer, "final": final}

        await _here(ctx).named_step(f"failed {number}", note)

    def _ask_again(self, begun: OpenTurn, answer: str, why: str, ctx: AgentContext) -> OpenTurn:
        """Another turn, in which the agent is told what was wrong with its answer."""
        self.hear([Message("user", f"You answered:\n{answer}\n\n{why}")], ctx)
        return OpenTurn(f"{begun.id}+", len(conversation_of(self.id, ctx)), begun.usage, {})

    @asynccontextmanager
    async def _limit_time(self, ctx: AgentContext) -> AsyncIterator[None]:
        limit, left = self.node.timeout, remaining_time(self.graph.definition, ctx)
        scope = asyncio.timeout(min((seconds for seconds in (limit, left) if seconds is not None), default=None))
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            if limit is None or (left is not None and left < limit):
                raise make_timeout_error(self.graph, ctx) from error
            raise HandlerTimeout(
                f"{self.id!r} in run {ctx.run_id!r} was not done after {limit:g} s",
                run_id=ctx.run_id,
                executor_id=self.id,
            ) from error

    async def _give_up(self, error: Exception, number: int, started: float, ctx: AgentContext) -> None:
        """The node has failed: the run stops here, or goes on without it."""
        if self.node.on_error == "stop":
            await self._record_failure(number, error, ctx, final=True)
            raise error
        work: NodeWork = ctx.get_state(self._key("working"))
        self.forget(ctx)
        reason, seconds = _describe_error(error), work.seconds + perf_counter() - started
        done = NodeDone(self.id, work.run, "failed", reason=reason, seconds=seconds)
        await self._report(done, work, ctx, over=self.node.fallback is None)

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
            return parse_outputs(self.node, response, self.types, run_id=ctx.run_id)
        chosen = response.handoff
        target = self.node.default_target if chosen is None else handoff_tools(self.graph, self.id)[chosen]
        if target is None:
            offered = ", ".join(self.handoffs)
            raise OutputRejected(f"nobody was chosen: call one of {offered}", run_id=ctx.run_id)
        return self._handoff_outputs(target)

    def _handoff_outputs(self, target: str) -> dict[str, Any]:
        return {self.node.gives: target, "handoff": target}

    def _edit_outputs(self, output: Any, ctx: WorkflowContext[Any, Any]) -> dict[str, Any]:
        """What a person wants used instead. Raises OutputRejected if it is not what the node promises."""
        if self.node.output_mode != "handoff":
            return parse_outputs(self.node, AgentResponse((), value=output), self.types, run_id=ctx.run_id)
        targets = [route.target for route in self.graph.out_of(self.id)]
        if output not in targets:
            raise OutputRejected(f"{output!r} is none of {', '.join(map(repr, targets))}", run_id=ctx.run_id)
        return self._handoff_outputs(output)

    async def send_response(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """The agent has answered. What is done with it is no part of the attempt, and its failure not the agent's."""
        self._answer = response

    async def _review(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """A person looks at the answer if that is wanted, then it is published."""
        work: NodeWork = ctx.get_state(self._key("working"))
        outputs = self._outputs(response.agent_response, ctx)
        work = replace(work, outputs=outputs, seconds=response.agent_response.usage.seconds)
        approval = self.node.approval
        when = None if approval is None else approval.when
        if approval is None or (when is not None and not await evaluate(when, {**RunValues(ctx), **outputs})):
            await self._publish(work, ctx)
            return
        ctx.set_state(self._key("working"), work)
        request = NodeApprovalRequest(self.id, outputs[self.node.gives], approval.message)
        if not approval.timeout or approval.on_timeout == "suspend":  # no time at all: it may take days
            await ctx.request_info(request, NodeApprovalResponse)
            return
        late = f"nobody answered within {approval.timeout:g} s"
        default = NodeApprovalResponse(approval.on_timeout, reason=late)
        await ctx.request_info(
            request, NodeApprovalResponse, deadline=timedelta(seconds=approval.timeout), default=default
        )

    @response_handler
    async def apply_review(
        self, request: NodeApprovalRequest, response: NodeApprovalResponse, ctx: NodeContext
    ) -> None:
        work: NodeWork = ctx.get_state(self._key("working"))
        if response.decision == "deny":
            reason = f"denied: {response.reason}" if response.reason else "denied"
            done = NodeDone(self.id, work.run, "denied", reason=reason, seconds=work.seconds)
            await self._report(done, work, ctx)
        elif response.output is None:
            await self._publish(work, ctx)
        else:
            try:
                edited = self._edit_outputs(response.output, ctx)
            except OutputRejected as error:  # nobody shall have to begin anew because somebody mistyped
                await ctx.request_info(
                    replace(request, message=f"{request.message}\n\n{error}".strip()), NodeApprovalResponse
                )
                return
            await self._publish(replace(work, outputs=edited), ctx)

    async def _publish(self, work: NodeWork, ctx: WorkflowContext[Any, Any]) -> None:
        assert work.outputs is not None
        if self.threads is not None:
            messages = conversation_of(self.id, ctx)[work.before :]
            key = f"{ctx.run_id}/{self.id}/{work.run}"
            await ctx.step("keep transcript", self.threads.append, _session(ctx), self.id, key, messages)
        done = NodeDone(self.id, work.run, "succeeded", work.outputs, seconds=work.seconds)
        await self._report(done, work, ctx)

    async def _report(
        self, done: NodeDone, work: NodeWork, ctx: WorkflowContext[Any, Any], *, over: bool = True
    ) -> None:
        ctx.delete_state(self._key("working"))
        part = compute_progress(self.graph, self._states(ctx), work.instead_of or self.id, over=over)
        await ctx.send_message(replace(done, progress=part), target_id=CONDUCTOR)


def handoff_tools(graph: NodeGraph, id: str) -> dict[str, str]:
    """The nodes that a router hands over to, by the names of the tools for it: each has one of its own."""
    tools: dict[str, str] = {}
    for target in dict.fromkeys(route.target for route in graph.out_of(id)):
        plain = "".join(c if (c.isalnum() and c.isascii()) or c in "_-" else "_" for c in target)
        tool = f"handoff_to_{plain[:50]}"
        if plain != target or len(plain) > 50 or tool in tools:
            tool = f"handoff_to_{plain[:41]}_{sha256(target.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
        tools[tool] = target
    return tools


class Gate:
    """Lets so many in at once, of all runs of this process; each event loop has a gate of its own."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        if self._most is None:
            yield
            return
        gate = self._open.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._most))
        async with gate:
            yield


def _session(ctx: WorkflowContext[Any, Any]) -> str:
    begun: WorkflowBegun = ctx.get_state("begun")
    return begun.session


async def _refuse() -> Any:
    raise AssertionError("a note that is there is read, and not made")


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _is_worth_retrying(retry: Retries | None, error: Exception) -> bool:
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
