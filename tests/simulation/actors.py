"""Executors that do what the plan says, and workflows made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from operator import add
from typing import Any, Protocol

from stepwell import (
    Case,
    Default,
    Executor,
    RetryPolicy,
    StepOptions,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    persistent,
    response_handler,
    step,
    timer_handler,
)
from stepwell.engine.handler.internal_context import internal
from tests.simulation.plan import Edge, Graph, Node
from tests.simulation.script import Act, Due, Question, Seen, Token, acts_of, default_of, twin_of, waits_for

Ctx = WorkflowContext[Token, Token]


class ScriptedFailure(Exception):
    """What the plan wants to go wrong."""


class Surroundings(Protocol):
    """What executors meet in a world."""

    def called(self, node: Node, seen: Seen, ctx: Ctx) -> None: ...
    def about_to_return(self, node: Node, seen: Seen) -> None:
        """Raises ScriptedFailure if it is to fail."""

    def step(self, node: Node, seen: Seen, number: int, key: str) -> None: ...
    def stepped(self, node: Node, seen: Seen, number: int, result: str) -> None:
        """The result of a step is known to the handler."""

    def asked_for(self, edge: Edge, token: Token) -> None: ...
    def used(self, question: Question, answer: int) -> None:
        """A handler has the answer to a question."""


WORLD: ContextVar[Surroundings] = ContextVar("world")


class Actor(Executor):
    """Its handlers are async."""

    count = persistent(0)

    def __init__(self, node: Node, has_edges: bool) -> None:
        policy = RetryPolicy(max_attempts=node.attempts, initial_interval=node.backoff, max_interval=1000)
        super().__init__(node.name, retry=policy if node.attempts > 1 else None)
        self.has_edges = has_edges
        self._part: Callable[[], Node] = lambda: node  # a function is not copied with each clone

    @property
    def node(self) -> Node:
        return self._part()

    @handler
    async def one(self, token: Token, ctx: Ctx) -> None:
        await self._act(Seen.of(self.node, token, None), ctx)

    @handler
    async def many(self, tokens: list[Token], ctx: Ctx) -> None:
        await self._act(Seen.of(self.node, tokens, None), ctx)

    @response_handler
    async def replied(self, original_request: Question, response: int, ctx: Ctx) -> None:
        _use(self.node, original_request, response, ctx)
        await self._act(Seen.of(self.node, response, original_request), ctx)

    @timer_handler
    async def reminded(self, name: str, ctx: Ctx) -> None:
        await self._act(Seen.of(self.node, Due(name), None), ctx)

    async def _act(self, seen: Seen, ctx: Ctx) -> None:
        for waits in play(self, seen, ctx):
            await waits()


class PlainActor(Actor):
    """Its handlers are plain functions."""

    @handler
    def one(self, token: Token, ctx: Ctx) -> None:  # type: ignore[override]
        self._do(Seen.of(self.node, token, None), ctx)

    @handler
    def many(self, tokens: list[Token], ctx: Ctx) -> None:  # type: ignore[override]
        self._do(Seen.of(self.node, tokens, None), ctx)

    @response_handler
    def replied(self, original_request: Question, response: int, ctx: Ctx) -> None:  # type: ignore[override]
        _use(self.node, original_request, response, ctx)
        self._do(Seen.of(self.node, response, original_request), ctx)

    @timer_handler
    def reminded(self, name: str, ctx: Ctx) -> None:  # type: ignore[override]
        self._do(Seen.of(self.node, Due(name), None), ctx)

    def _do(self, seen: Seen, ctx: Ctx) -> None:
        for waits in play(self, seen, ctx):
            waits()


class StrictActor(Actor):
    """Must reach the steps that it made before."""

    _is_durable_function = True


class StrictPlainActor(PlainActor):
    _is_durable_function = True


def play(actor: Actor, seen: Seen, ctx: Ctx) -> Iterator[Callable[[], Any]]:
    """One handler call; what it yields is to be waited for."""
    node, world = actor.node, WORLD.get()
    world.called(node, seen, ctx)
    if node.plain or node.branches == 1:
        for n in range(node.steps):
            results: list[str] = []
            yield partial(_take_step, results, world, node, seen, n, ctx)
            world.stepped(node, seen, n, results[0])
    else:
        yield lambda: asyncio.gather(*(_branch(world, node, seen, b, ctx) for b in range(node.branches)))
    if (question := waits_for(node, seen)) is not None:
        answers: list[int] = []
        yield partial(_hear, answers, node, question, ctx)
        seen.heard = answers[0]
        world.used(question, seen.heard)
    if node.sleep and not seen.is_reply:
        yield lambda: ctx.sleep(node.sleep)
    for _ in range(0 if node.plain else node.ticks):
        yield lambda: asyncio.sleep(0)
    actor.count += 1
    seen.count = actor.count
    seen.listed = len(ctx.get_state("log", ()))
    seen.kept = ctx.get_state(f"last {node.name}") is not None
    for act in acts_of(node, seen, actor.has_edges):
        _do(act, node, ctx)
    if node.strict:
        internal(ctx).steps.check_replay()
    world.about_to_return(node, seen)


def _use(node: Node, question: Question, answer: int, ctx: Ctx) -> None:
    """An answer has arrived: it may withdraw the question to another person, if that is open."""
    WORLD.get().used(question, answer)
    if node.withdraws:
        with suppress(UnknownRequest):
            ctx.withdraw(twin_of(question).trail)


async def _branch(world: Surroundings, node: Node, seen: Seen, branch: int, ctx: Ctx) -> None:
    """Does its steps, which have the same name as those of the others, after waits that differ each time."""
    dice = asyncio.get_running_loop().dice  # type: ignore[attr-defined]
    for n in range(node.steps):
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(0)
        number = branch * node.steps + n
        world.stepped(node, seen, number, await _asked_step(world, node, seen, number, ctx))


def _asked_step(world: Surroundings, node: Node, seen: Seen, number: int, ctx: Ctx) -> Any:
    policy = RetryPolicy(max_attempts=node.step_fails + 1, initial_interval=0.5)
    if node.strict:
        work = step(name="work", retry=policy)(_step(world, node, seen, number))
        return work.sync() if node.plain else work()
    take = ctx.step_sync if node.plain else ctx.step
    return take(StepOptions("work", retry=policy), _step(world, node, seen, number))


def _hear(answers: list[int], node: Node, question: Question, ctx: Ctx) -> Any:
    """Ask, and keep the answer."""
    if node.plain:
        return answers.append(ctx.ask_sync(question, int, **_limit(node, question)))

    async def wait() -> None:
        answers.append(await ctx.ask(question, int, **_limit(node, question)))

    return wait()


def _limit(node: Node, question: Question) -> dict[str, Any]:
    if not node.deadline:
        return {}
    return {"deadline": timedelta(seconds=node.deadline), "default": default_of(question)}


def _take_step(results: list[str], world: Surroundings, node: Node, seen: Seen, number: int, ctx: Ctx) -> Any:
    return _take(results, _asked_step(world, node, seen, number, ctx))


def _take(results: list[str], given: Any) -> Any:
    """Keep what a step gives; a plain handler has it already."""
    if isinstance(given, str):
        results.append(given)
        return None

    async def wait() -> None:
        results.append(await given)

    return wait()


def _step(world: Surroundings, node: Node, seen: Seen, number: int) -> Callable[..., Any]:
    def plainly(idempotency_key: str) -> str:
        world.step(node, seen, number, idempotency_key)
        return result_of(seen, number)

    async def work(idempotency_key: str) -> str:
        for _ in range(node.ticks % 4):
            await asyncio.sleep(0)
        return plainly(idempotency_key)

    return plainly if node.plain_steps else work


def result_of(seen: Seen, number: int) -> str:
    """What a step gives: the same whenever it is done, and for no other step."""
    return f"{seen.trail}/{number}"


def _do(act: Act, node: Node, ctx: Ctx) -> None:
    match act.kind:
        case "send":
            ctx.send_message(act.value)
        case "yield":
            ctx.yield_output(act.value)
        case "ask":
            chosen = {"request_id": act.value.trail} if node.withdraws else {}
            ctx.request_info(act.value, int, **chosen, **_limit(node, act.value))
        case "remind":
            ctx.set_timer(act.value, node.reminds)
        case "append":
            ctx.append_state("log", act.value)
        case "set":
            ctx.set_state(f"last {node.name}", act.value)
        case "delete":
            ctx.delete_state(f"last {node.name}")
        case "add":
            ctx.set_state("sum", act.value)


def build(graph: Graph) -> Workflow:
    """The workflow of a graph."""
    made = {node.name: _executor(graph, node) for node in graph.nodes}
    builder = WorkflowBuilder(name=graph.name, start_executor=made[graph.start.name], reducers={"sum": add})
    for edge in graph.edges:
        _add(builder, edge, [made[name] for name in edge.sources], [made[name] for name in edge.targets])
    return builder.build()


def _executor(graph: Graph, node: Node) -> Executor:
    sends = graph.sends(node.name)
    if node.child is not None:
        return WorkflowExecutor(build(node.child), node.name, allow_direct_output=not sends)
    if node.strict:
        return (StrictPlainActor if node.plain else StrictActor)(node, sends)
    return (PlainActor if node.plain else Actor)(node, sends)


def _add(builder: WorkflowBuilder, edge: Edge, sources: list[Executor], targets: list[Executor]) -> None:
    match edge.kind:
        case "direct":
            builder.add_edge(sources[0], targets[0])
        case "when":
            builder.add_edge(sources[0], targets[0], _asked(edge, lambda token: edge.says_yes(token.trail, token.hops)))
        case "fan out":
            builder.add_fan_out_edges(sources[0], targets)
        case "fan in":
            builder.add_fan_in_edges(sources, targets[0])
        case "switch":
            cases = [Case(_asked(edge, _is_case(edge, n)), target) for n, target in enumerate(targets[:-1])]
            builder.add_switch_case_edge_group(sources[0], [*cases, Default(targets[-1])])
        case "select":
            builder.add_multi_selection_edge_group(sources[0], targets, _selecting(edge))


def _is_case(edge: Edge, number: int) -> Callable[[Token], bool]:
    return lambda token: edge.case(token.trail) == number


def _selecting(edge: Edge) -> Callable[[Token, list[str]], list[str]]:
    def selected(token: Token, targets: list[str]) -> list[str]:
        WORLD.get().asked_for(edge, token)
        return edge.selected(token.trail)

    return selected


def _asked(edge: Edge, verdict: Callable[[Token], bool]) -> Callable[[Token], Any]:
    def condition(token: Token) -> bool:
        WORLD.get().asked_for(edge, token)
        return verdict(token)

    async def slow_condition(token: Token) -> bool:
        await asyncio.sleep(0.05)  # longer than the last outcome of a superstep waits for its commit
        return condition(token)

    return slow_condition if edge.slow else condition
