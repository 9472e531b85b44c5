"""The executor of a node: runs its agent with input, output, retries, limits and approval.

One run of a node is one turn of the agent, or several if its answer is rejected or an attempt
fails. What failed is recorded as a step, so a restart continues counting attempts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from time import perf_counter
from typing import Any, Self
from weakref import WeakKeyDictionary

from stepwell.agents.conversation import AgentContext, conversation_of
from stepwell.agents.executor import AgentExecutor, OpenTurn
from stepwell.agents.messages import AgentExecutorResponse, AgentResponse, Answer, Message
from stepwell.agents.turn import Turn
from stepwell.declarative.conditions.condition import evaluate
from stepwell.declarative.conductor import CONDUCTOR, RunValues, make_timeout_error, read_states, remaining_time
from stepwell.declarative.definition import Node, Retries
from stepwell.declarative.errors import OutputRejected, WorkflowTimeout
from stepwell.declarative.messages import NodeApprovalRequest, NodeApprovalResponse, NodeDone, ReportedOutcome, RunNode
from stepwell.declarative.node_graph import NodeGraph
from stepwell.declarative.node_input import build_prompt
from stepwell.declarative.node_output import parse_outputs
from stepwell.declarative.schedule import compute_progress, find_sources
from stepwell.declarative.transcripts import Threads
from stepwell.engine.handler.internal_context import internal
from stepwell.errors import DurabilityError, HandlerTimeout
from stepwell.graph.context import WorkflowContext
from stepwell.graph.handler import handler, response_handler
from stepwell.model.event import WorkflowEvent

NodeContext = WorkflowContext[NodeDone | AgentExecutorResponse, AgentResponse]


@dataclass(frozen=True, slots=True)
class NodeWork:
    """The stored state of a node that runs; with `outputs`, it waits for approval."""

    run: int
    before: int  # how many messages of the conversation are from earlier runs
    instead_of: str | None = None  # the failed node that it replaces
    outputs: Mapping[str, Any] | None = None
    seconds: float = field(default=0.0, compare=False)


class ConcurrencyLimit:
    """Limits the concurrent calls of a node, for each event loop; None means no limit."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        # A semaphore belongs to one event loop, and a workflow object may be used in several, one
        # after the other. Weak keys let closed loops go.
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def slot(self) -> AbstractAsyncContextManager[None]:
        """Return a context that waits for a free slot and holds it."""
        if self._limit is None:
            return nullcontext()
        return self._semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._limit))


class NodeExecutor(AgentExecutor):
    """The executor of one node of a workflow of named agents."""

    # Set by `send_response` within an attempt, read and cleared right after it. An executor handles
    # one message at a time, so it never belongs to another attempt.
    _answer: AgentExecutorResponse | None = None

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
        self._concurrency = ConcurrencyLimit(node.concurrency)

    def clone(self) -> Self:
        clone = super().clone()
        # Shared with the clones of other runs, like the graph and the concurrency limit.
        clone.node, clone.types, clone.threads = self.node, self.types, self.threads
        return clone

    @handler
    async def run_node(self, message: RunNode, ctx: NodeContext) -> None:
        """Start the node: build its prompt from the values of the run and take a turn."""
        node = self.node
        if message.instead_of is not None and node.input_key is None and node.input_template is None:
            # A fallback that declares no input has that of the failed node.
            failed = self.graph.definition.node(message.instead_of)
            node = replace(node, input_key=failed.input_key, input_template=failed.input_template)
        states = read_states(self.graph, ctx)
        # The outputs of the nodes that led here.
        sources = map(self.graph.definition.node, find_sources(self.graph, states, self.id))
        upstream = {source.id: states[source.id].outputs.get(source.value_key) for source in sources}
        prompt = build_prompt(node, RunValues(ctx), upstream, run_id=ctx.run_id)
        # In a loop the node starts afresh. What it should remember comes from the transcript, read
        # as a step: a retry must see the same conversation, even if another run has added to it.
        self.forget(ctx)
        if self.threads is not None:
            self.hear(await ctx.step("transcript", self.threads.read, ctx.get_state("begun").session, self.id), ctx)
        before = len(conversation_of(self.id, ctx))
        self.hear([Message("user", prompt)], ctx)
        ctx.set_state(self._key("working"), NodeWork(message.run, before, message.instead_of))
        await self.respond(ctx)

    async def _take(self, open_turn: OpenTurn, ctx: AgentContext) -> None:
        """Take a turn, retrying as often as the node allows.

        Model and tool calls of a failed attempt are steps: the next attempt recalls their results.
        """
        # `number` counts all attempts and names their records; `spent` counts those that use up the
        # retries.
        started, number, spent, steps = perf_counter(), 0, 0, internal(ctx)
        while True:
            number += 1
            record = f"failed {number}"
            # The attempt failed before a restart: do not make it again, but continue counting.
            if steps.steps.has_result(record):
                # A step that has a result returns it without calling the function.
                failure = await steps.named_step(record, _never_called)
                if failure["answer"] is not None:
                    open_turn = self._ask_again(open_turn, failure["answer"], failure["why"], ctx)
                if failure["final"]:
                    spent = 0  # resuming a run that had failed for good grants all attempts again
                else:
                    spent += 1
                    await ctx.sleep(_delay(self.node.retry, spent))
                continue
            try:
                # Waiting for a free slot does not count as time of the agent.
                async with self._concurrency.slot(), self._limit_time(ctx):
                    await super()._take(open_turn, ctx)
            except (DurabilityError, WorkflowTimeout):
                # Not the agent's failure, so neither retries nor `on_error` apply.
                raise
            except Exception as error:  # noqa: BLE001 - an agent may raise anything; the node decides what follows
                spent += 1
                retry = self.node.retry
                if retry is None or spent >= retry.attempts or not _is_worth_retrying(retry, error):
                    await self._give_up(error, number, started, ctx)
                    return
                await ctx.add_event(
                    WorkflowEvent("warning", f"attempt {spent} failed, retrying: {_describe_error(error)}")
                )
                if isinstance(error, OutputRejected):
                    # Nothing to record: after a restart the turn recalls the same answer from its
                    # steps and rejects it again. No delay either: the agent is reachable.
                    open_turn = self._ask_again(open_turn, error.answer, str(error), ctx)
                    continue
                await self._record_failure(number, error, ctx)
                await ctx.sleep(_delay(self.node.retry, spent))
            else:
                answer, self._answer = self._answer, None
                # No answer: the turn has asked a person and waits.
                if answer is not None:
                    await self._review(answer, ctx)
                return

    async def _record_failure(self, number: int, error: Exception, ctx: AgentContext, *, final: bool = False) -> None:
        """Record a failed attempt as a step, for a process that resumes the run."""
        answer = error.answer if isinstance(error, OutputRejected) else None

        async def record() -> dict[str, Any]:
            return {"why": str(error), "answer": answer, "final": final}

        await internal(ctx).named_step(f"failed {number}", record)

    def _ask_again(self, open_turn: OpenTurn, answer: str, why: str, ctx: AgentContext) -> OpenTurn:
        """Open another turn that tells the agent what was wrong with its answer."""
        self.hear([Message("user", f"You answered:\n{answer}\n\n{why}")], ctx)
        # The suffix gives the steps of the new turn names of their own.
        return OpenTurn(f"{open_turn.id}+", len(conversation_of(self.id, ctx)), open_turn.usage, {})

    @asynccontextmanager
    async def _limit_time(self, ctx: AgentContext) -> AsyncIterator[None]:
        """Limit an attempt by the node's timeout or what is left of the run's, the shorter one."""
        limit, left = self.node.timeout, remaining_time(self.graph.definition, ctx)
        scope = asyncio.timeout(min((seconds for seconds in (limit, left) if seconds is not None), default=None))
        try:
            async with scope:
                yield
        except TimeoutError as error:
            # A TimeoutError of the agent's own is an ordinary failure.
            if not scope.expired():
                raise
            if limit is None or (left is not None and left < limit):
                raise make_timeout_error(self.graph, ctx) from error
            raise HandlerTimeout(
                f"{self.id!r} in run {ctx.run_id!r} did not finish within {limit:g} s",
                run_id=ctx.run_id,
                executor_id=self.id,
            ) from error

    async def _give_up(self, error: Exception, number: int, started: float, ctx: AgentContext) -> None:
        """Fail the node: raise if it stops the run, else report the failure to the conductor."""
        if self.node.on_error == "stop":
            await self._record_failure(number, error, ctx, final=True)
            raise error
        work: NodeWork = ctx.get_state(self._key("working"))
        self.forget(ctx)
        work = replace(work, seconds=work.seconds + perf_counter() - started)
        await self._report("failed", work, ctx, reason=_describe_error(error), over=self.node.fallback is None)

    async def take_turn(self, turn: Turn, ctx: AgentContext) -> Answer:
        """Take the turn, and check that the answer is what the node declares.

        Checked inside the turn, so that a rejected answer is not added to the conversation.
        """
        answer = await super().take_turn(turn, ctx)
        response = AgentResponse(answer.messages, value=answer.value, handoff=answer.handoff)
        try:
            self._outputs(response, ctx)
        except OutputRejected as error:
            error.answer = response.text
            raise
        return answer

    def _outputs(self, response: AgentResponse, ctx: WorkflowContext[Any, Any]) -> dict[str, Any]:
        """Return the outputs in an answer by key. Raises OutputRejected."""
        if self.node.output_mode != "handoff":
            return parse_outputs(self.node, response, self.types, run_id=ctx.run_id)
        chosen = response.handoff
        target = self.node.default_target if chosen is None else handoff_tools(self.graph, self.id)[chosen]
        if target is None:
            offered = ", ".join(self.handoffs)
            raise OutputRejected(f"no agent was chosen: call one of {offered}", run_id=ctx.run_id)
        return {self.node.value_key: target, "handoff": target}

    def _edit_outputs(self, output: Any, ctx: WorkflowContext[Any, Any]) -> dict[str, Any]:
        """Return outputs edited by a person.

        Raises OutputRejected if they are not of the declared type.
        """
        if self.node.output_mode != "handoff":
            return parse_outputs(self.node, AgentResponse((), value=output), self.types, run_id=ctx.run_id)
        targets = [route.target for route in self.graph.out_of(self.id)]
        if output not in targets:
            raise OutputRejected(f"{output!r} is not one of {', '.join(map(repr, targets))}", run_id=ctx.run_id)
        return {self.node.value_key: output, "handoff": output}

    async def send_response(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """Keep the answer for `_take`.

        It is published after the attempt, so that a failure to publish is not retried as a failure
        of the agent.
        """
        self._answer = response

    async def _review(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """Publish the answer, or request approval first if the node wants it."""
        work: NodeWork = ctx.get_state(self._key("working"))
        outputs = self._outputs(response.agent_response, ctx)
        work = replace(work, outputs=outputs, seconds=response.agent_response.usage.seconds)
        approval = self.node.approval
        when = None if approval is None else approval.when
        if approval is None or (when is not None and not await evaluate(when, {**RunValues(ctx), **outputs})):
            await self._publish(work, ctx)
            return
        ctx.set_state(self._key("working"), work)
        request = NodeApprovalRequest(self.id, outputs[self.node.value_key], approval.message)
        # A timeout of 0 means no deadline, like None.
        if not approval.timeout or approval.on_timeout == "suspend":
            await ctx.request_info(request, NodeApprovalResponse)
            return
        late = f"no response within {approval.timeout:g} s"
        default = NodeApprovalResponse(approval.on_timeout, reason=late)
        await ctx.request_info(
            request, NodeApprovalResponse, deadline=timedelta(seconds=approval.timeout), default=default
        )

    @response_handler
    async def apply_review(
        self, request: NodeApprovalRequest, response: NodeApprovalResponse, ctx: NodeContext
    ) -> None:
        """Publish the approved or edited output, or report the denial."""
        work: NodeWork = ctx.get_state(self._key("working"))
        if response.decision == "deny":
            reason = f"denied: {response.reason}" if response.reason else "denied"
            await self._report("denied", replace(work, outputs=None), ctx, reason=reason)
        elif response.output is None:
            await self._publish(work, ctx)
        else:
            try:
                edited = self._edit_outputs(response.output, ctx)
            except OutputRejected as error:
                # A typing mistake must not cost the run: ask again, with the problem in the
                # message.
                await ctx.request_info(
                    replace(request, message=f"{request.message}\n\n{error}".strip()), NodeApprovalResponse
                )
                return
            await self._publish(replace(work, outputs=edited), ctx)

    async def _publish(self, work: NodeWork, ctx: WorkflowContext[Any, Any]) -> None:
        if self.threads is not None:
            # The key makes the append idempotent: after a crash the same messages are added once.
            messages = conversation_of(self.id, ctx)[work.before :]
            session, key = ctx.get_state("begun").session, f"{ctx.run_id}/{self.id}/{work.run}"
            await ctx.step("keep transcript", self.threads.append, session, self.id, key, messages)
        await self._report("succeeded", work, ctx)

    async def _report(
        self,
        outcome: ReportedOutcome,
        work: NodeWork,
        ctx: WorkflowContext[Any, Any],
        *,
        reason: str = "",
        over: bool = True,
    ) -> None:
        """Send the result of the node to the conductor."""
        ctx.delete_state(self._key("working"))
        states, owner = read_states(self.graph, ctx), work.instead_of or self.id
        progress = compute_progress(self.graph, states, owner, over=over)
        done = NodeDone(
            self.id,
            work.run,
            outcome,
            outputs=work.outputs or {},
            reason=reason,
            progress=progress,
            seconds=work.seconds,
        )
        await ctx.send_message(done, target_id=CONDUCTOR)


def handoff_tools(graph: NodeGraph, id: str) -> dict[str, str]:
    """Return the targets of a router by the names of their handoff tools."""
    tools: dict[str, str] = {}
    for target in dict.fromkeys(route.target for route in graph.out_of(id)):
        # Model APIs allow letters, digits, "_" and "-" in tool names, 64 characters at most. A name
        # that had to be changed gets a digest, so that no two targets share a tool.
        plain = "".join(c if (c.isalnum() and c.isascii()) or c in "_-" else "_" for c in target)
        tool = f"handoff_to_{plain[:50]}"
        if plain != target or len(plain) > 50 or tool in tools:
            tool = f"handoff_to_{plain[:41]}_{sha256(target.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
        tools[tool] = target
    return tools


async def _never_called() -> dict[str, Any]:
    raise AssertionError("a recorded failure is recalled, not made again")


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _is_worth_retrying(retry: Retries, error: Exception) -> bool:
    # A rejected output is always worth asking again: `errors` is about failures of the agent.
    is_listed = not retry.errors or any(cls.__name__ in retry.errors for cls in type(error).__mro__)
    return is_listed or isinstance(error, OutputRejected)


def _delay(retry: Retries | None, number: int) -> float:
    """Return the seconds to wait after failure `number`, counted from 1."""
    assert retry is not None
    growth = 1 if retry.backoff == "constant" else number if retry.backoff == "linear" else 2 ** (number - 1)
    jitter = random.uniform(0.5, 1.5) if retry.backoff == "jittered" else 1
    return min(retry.initial_delay * growth * jitter, retry.max_delay)
