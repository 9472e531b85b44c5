"""A node: an agent with an input, an output under a key, limits, and perhaps a person who looks at it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from ..agents.executor import AgentExecutor, OpenTurn
from ..agents.hearing import AgentContext, conversation_of
from ..agents.replies import Answer
from ..agents.turn import Turn
from ..agents.values import AgentExecutorResponse, AgentResponse, Message
from ..core.errors import DurabilityError, HandlerTimeout
from ..graph.context import WorkflowContext
from ..graph.handlers import handler, response_handler
from ..runtime.context import HandlerContext
from .conductor import CONDUCTOR, Begun, Values
from .deciding import SETTLED, Stand
from .definition import Definition, Node, Retries
from .errors import OutputRejected
from .inputs import prompt_of
from .messages import Done, Go, NodeApprovalRequest, NodeApprovalResponse
from .outputs import outputs_of
from .transcripts import Threads

NodeContext = WorkflowContext[Done | AgentExecutorResponse, AgentResponse]


@dataclass(frozen=True, slots=True)
class Working:
    """What a node is doing: it began, and perhaps its output waits to be looked at."""

    run: int
    before: int  # how much of the conversation is from earlier runs
    outputs: Mapping[str, Any] | None = None
    seconds: float = field(default=0.0, compare=False)


class NodeExecutor(AgentExecutor):
    """One agent of a workflow of named agents."""

    def __init__(
        self,
        definition: Definition,
        node: Node,
        agent: Any,
        types: Mapping[str, type],
        threads: Threads | None,
        handoffs: Mapping[str, str],
    ) -> None:
        super().__init__(agent, id=node.id, handoffs=handoffs)
        self.definition, self.node, self.types, self.threads = definition, node, types, threads
        self._gate = Gate(node.concurrency)

    def clone(self) -> NodeExecutor:
        twin = super().clone()
        assert isinstance(twin, NodeExecutor)
        for name in ("definition", "node", "types", "threads", "_gate"):
            setattr(twin, name, getattr(self, name))
        return twin

    @handler
    async def go(self, go: Go, ctx: NodeContext) -> None:
        """Run, once: what the node is told is put together from the values of the run."""
        node = self.node if go.instead_of is None else self._in_place_of(go.instead_of)
        given = {id: ctx.get_state(f"nodes/{id}", Stand()).outputs for id in go.upstream}
        upstream = {id: outputs.get(self.definition.node(id).gives) for id, outputs in given.items()}
        prompt = prompt_of(node, Values(ctx), upstream, run_id=ctx.run_id)
        self.forget(ctx)
        if self.threads is not None:
            self.hear(await ctx.step("transcript", self.threads.read, _session(ctx), self.id), ctx)
        before = len(conversation_of(self.id, ctx))
        self.hear([Message("user", prompt)], ctx)
        ctx.set_state(self._key("working"), Working(go.run, before))
        await self.respond(ctx)

    def _in_place_of(self, failed: str) -> Node:
        """This node, told what the one that failed was told, unless it says itself what it wants."""
        if self.node.input_key is not None or self.node.input_template is not None:
            return self.node
        other = self.definition.node(failed)
        return replace(self.node, input_key=other.input_key, input_template=other.input_template)

    async def _take(self, begun: OpenTurn, ctx: AgentContext) -> None:
        """Take a turn, and try again as often as the node may. What a failed attempt had done is not done again."""
        began, number = perf_counter(), await self._attempts_before(ctx)
        while True:
            try:
                async with self._gate.entered(), self._in_time(ctx):
                    await super()._take(begun, ctx)
                break
            except OutputRejected as error:
                if number >= self._most_attempts:
                    await self._give_up(error, began, ctx)
                    break
                begun = self._asked_again(begun, error, ctx)
            except DurabilityError:
                raise  # it is not the agent that failed
            except Exception as error:  # noqa: BLE001 - whatever an agent raises: the node says what follows from it
                if number >= self._most_attempts or not _worth_it(self.node.retry, error):
                    await self._give_up(error, began, ctx)
                    break
                await self._failed(number, error, ctx)
            number += 1

    @property
    def _most_attempts(self) -> int:
        return 1 if self.node.retry is None else self.node.retry.attempts

    async def _attempts_before(self, ctx: AgentContext) -> int:
        """The number of the next attempt, once it is due. Failures are noted: a restart goes on counting."""
        here, number = _here(ctx), 1
        while here.has_step(f"failed {number}"):
            await ctx.sleep(_delay(self.node.retry, number))
            number += 1
        return number

    async def _failed(self, number: int, error: Exception, ctx: AgentContext) -> None:
        async def note() -> str:
            return f"{type(error).__name__}: {error}"

        await _here(ctx).named_step(f"failed {number}", note)
        await ctx.sleep(_delay(self.node.retry, number))

    def _asked_again(self, begun: OpenTurn, error: OutputRejected, ctx: AgentContext) -> OpenTurn:
        """Another turn, in which the agent is told what was wrong with its answer."""
        self.hear([Message("user", f"You answered:\n{error.answer}\n\n{error}")], ctx)
        return OpenTurn(f"{begun.id}+", len(conversation_of(self.id, ctx)), begun.usage, {})

    @asynccontextmanager
    async def _in_time(self, ctx: AgentContext) -> AsyncIterator[None]:
        limit = self.node.timeout
        try:
            async with asyncio.timeout(limit) as scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise HandlerTimeout(
                f"{self.id!r} in run {ctx.run_id!r} was not done after {limit:g} s",
                run_id=ctx.run_id,
                executor_id=self.id,
            ) from error

    async def _give_up(self, error: Exception, began: float, ctx: AgentContext) -> None:
        """The node has failed: the run stops here, or goes on without it."""
        if self.node.on_error == "stop":
            raise error
        working: Working = ctx.get_state(self._key("working"))
        self.forget(ctx)
        reason, seconds = f"{type(error).__name__}: {error}", working.seconds + perf_counter() - began
        await self._report(Done(self.id, working.run, "failed", reason=reason, seconds=seconds), ctx)

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
        target = self.node.default_target if response.handoff is None else target_of(self, response.handoff)
        if target is None:
            offered = ", ".join(self.handoffs)
            raise OutputRejected(f"nobody was chosen: call one of {offered}", run_id=ctx.run_id)
        return {self.node.gives: target, "handoff": target}

    async def responded(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """The agent has answered: a person looks at it if that is wanted, then it is published."""
        working: Working = ctx.get_state(self._key("working"))
        outputs = self._outputs(response.agent_response, ctx)
        working = replace(working, outputs=outputs, seconds=response.agent_response.usage.seconds)
        approval = self.node.approval
        if approval is None or (approval.when is not None and not approval.when.holds({**Values(ctx), **outputs})):
            await self._publish(working, ctx)
            return
        ctx.set_state(self._key("working"), working)
        request = NodeApprovalRequest(self.id, outputs[self.node.gives], approval.message)
        if approval.timeout is None or approval.on_timeout == "suspend":
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
            await self._report(Done(self.id, working.run, "denied", reason=reason, seconds=working.seconds), ctx)
        elif said.output is None:
            await self._publish(working, ctx)
        else:
            edited = outputs_of(self.node, AgentResponse((), value=said.output), self.types, run_id=ctx.run_id)
            await self._publish(replace(working, outputs=edited), ctx)

    async def _publish(self, working: Working, ctx: WorkflowContext[Any, Any]) -> None:
        assert working.outputs is not None
        if self.threads is not None:
            said = conversation_of(self.id, ctx)[working.before :]
            key = f"{ctx.run_id}/{self.id}/{working.run}"
            await ctx.step("keep transcript", self.threads.append, _session(ctx), self.id, key, said)
        done = Done(self.id, working.run, "succeeded", working.outputs, seconds=working.seconds)
        await self._report(done, ctx)

    async def _report(self, done: Done, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.delete_state(self._key("working"))
        others = [node.id for node in self.definition.nodes if node.id != self.id]
        settled = sum(ctx.get_state(f"nodes/{id}", Stand()).status in SETTLED for id in others)
        await ctx.send_message(replace(done, progress=(settled + 1) / (len(others) + 1)), target_id=CONDUCTOR)


def tool_for(target: str) -> str:
    """The name of the tool by which an agent hands over to a node."""
    return "handoff_to_" + "".join(c if (c.isalnum() and c.isascii()) or c in "_-" else "_" for c in target)[:50]


def target_of(node: NodeExecutor, tool: str) -> str:
    """The node that such a tool hands over to."""
    targets = {way.target for way in node.definition.ways() if way.source == node.id}
    return next(target for target in targets if tool_for(target) == tool)


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


def _worth_it(retry: Retries | None, error: Exception) -> bool:
    if retry is None or not retry.errors:
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
