"""Handlers that do steps in random trees of branches, all of one name, after waits that differ at each attempt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st

from stepwell import Executor, StepOptions, Workflow, WorkflowBuilder, WorkflowContext, handler


class Trouble(Exception):
    """The handler fails here, so that it runs again."""


@dataclass(frozen=True)
class Node:
    """A part: `step`, `wait`, `noise`, or parts in a `loop`, `gather`, `group`, `thread` or inside a step."""

    kind: str
    id: int = -1  # of a step
    parts: tuple[Node, ...] = ()
    right: bool = False  # which of two coroutine functions runs it, if it is a branch

    def steps(self) -> list[int]:
        """The steps that a call of the handler does, in order of the text."""
        own = [self.id] if self.kind in ("step", "inside") else []
        return [*own, *(id for part in self.parts for id in part.steps())]


def programs() -> st.SearchStrategy[Node]:
    leaf = st.sampled_from([Node("step"), Node("step"), Node("step"), Node("wait"), Node("noise")])

    def grown(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        some = st.lists(parts, min_size=1, max_size=4).map(tuple)
        kinds = st.sampled_from(["loop", "gather", "gather", "group", "inside"])
        compound = st.builds(lambda kind, parts, right: Node(kind, -1, parts, right), kinds, some, st.booleans())
        threads = st.lists(st.just(Node("step")), min_size=1, max_size=3).map(lambda p: Node("thread", -1, tuple(p)))
        return compound | threads

    return st.recursive(leaf, grown, max_leaves=14).map(_numbered)


def _numbered(node: Node) -> Node:
    ids = count()

    def number(node: Node) -> Node:
        id = next(ids) if node.kind in ("step", "inside") else -1
        return Node(node.kind, id, tuple(number(part) for part in node.parts), node.right)

    return number(node)


@dataclass
class World:
    """What happened, over all attempts at the handler."""

    program: Node
    bare: bool = False  # the steps are closures without arguments: nothing but their place tells them apart
    fails_after: list[int] = field(default_factory=list)  # so many steps, at each attempt
    changed: frozenset[int] = frozenset()  # steps that are now asked for with another argument
    stated: bool = False  # each step has a key
    done: list[tuple[int, str]] = field(default_factory=list)  # every call of a step's function, with its key
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def workflow(self, storage: Any) -> Workflow:
        return WorkflowBuilder(name="tree", start_executor=Doer(lambda: self), checkpoint_storage=storage).build()


class Doer(Executor):
    def __init__(self, world: Callable[[], World]) -> None:
        super().__init__("doer")
        self.world = world

    @handler
    async def do(self, text: str, ctx: WorkflowContext[None, dict[str, int]]) -> None:
        world = self.world()
        attempt = _Attempt(world, ctx, world.fails_after.pop(0) if world.fails_after else None)
        await attempt.run(world.program)
        await attempt.over()
        await ctx.yield_output({str(id): got for id, got in sorted(attempt.got.items())})


class _Attempt:
    """One call of the handler."""

    def __init__(self, world: World, ctx: Any, fails_after: int | None) -> None:
        self.world, self.ctx, self.left = world, ctx, fails_after
        self.got: dict[int, int] = {}  # what each step gave
        self.noise: list[asyncio.Task[None]] = []

    async def run(self, node: Node) -> None:
        match node.kind:
            case "step" | "inside":
                self.took(node.id, await self.step(node, self.ctx.step))
            case "wait":
                await self.wait()
            case "noise":
                if self.world.dice.random() < 0.5:  # a library that opens a line when it has none
                    self.noise.append(asyncio.create_task(self.hum()))
            case "loop":
                for part in node.parts:
                    await self.run(part)
            case "gather":
                results = await asyncio.gather(*(self.branch(part) for part in node.parts), return_exceptions=True)
                for error in results:
                    if error is not None:
                        raise error
            case "group":
                async with asyncio.TaskGroup() as group:
                    for part in node.parts:
                        group.create_task(self.branch(part))
            case "thread":
                await asyncio.to_thread(self.in_thread, node)

    def branch(self, node: Node) -> Any:
        return self.right(node) if node.right else self.run_later(node)

    async def run_later(self, node: Node) -> None:
        await self.wait()
        await self.run(node)

    async def right(self, node: Node) -> None:
        await self.wait()
        await self.run(node)

    def in_thread(self, node: Node) -> None:
        for part in node.parts:
            self.took(part.id, self.step(part, self.ctx.step_sync))

    def step(self, node: Node, do: Callable[..., Any]) -> Any:
        options = StepOptions("work", key=f"step {node.id}" if self.world.stated else None)
        if self.world.bare:
            return do(options, self.work(node))
        return do(options, self.work(node), node.id + 1000 * (node.id in self.world.changed))

    def work(self, node: Node) -> Callable[..., Any]:
        async def work(*args: int, idempotency_key: str) -> int:
            await self.wait()
            for part in node.parts:
                await self.run(part)
            self.world.done.append((node.id, idempotency_key))
            return node.id

        return work

    def took(self, id: int, result: int) -> None:
        self.got[id] = result
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Trouble

    async def wait(self) -> None:
        for _ in range(self.world.dice.randrange(5)):
            await asyncio.sleep(0)

    async def hum(self) -> None:
        await asyncio.sleep(0)

    async def over(self) -> None:
        await asyncio.gather(*self.noise)
