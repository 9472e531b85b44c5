"""Random durable functions, by a seed: steps, branches, loops, questions, sleeps, errors, clean-up, other functions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from stepwell import RunContext, step, workflow
from stepwell.functional import DurableFunction
from stepwell.testing import Ledger

Part = tuple[Any, ...]


@dataclass
class Program:
    """A durable function that does what a seed says, with its effects in a ledger."""

    seed: int
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.parts = self._make_parts(depth=0)

    @property
    def function(self) -> DurableFunction[None, Any]:
        """The function; it returns what all its parts returned."""

        @workflow(name=f"program-{self.seed}")
        async def program(ctx: RunContext) -> Any:
            return await self._do_all(self.parts, ctx)

        return program

    def _make_parts(self, depth: int) -> list[Part]:
        return [self._make_part(depth) for _ in range(self._random.randint(1, 4 if depth == 0 else 2))]

    def _make_part(self, depth: int) -> Part:
        kinds = ["step", "step", "plain", "sleep", "park", "caught", "remembered", "ask"]
        if depth == 0:
            # Beside other branches that have recorded steps, a decision is the careful one.
            kinds += ["patch"]
        if depth < 2:
            kinds += ["gather", "gather", "group", "loop", "inside", "child", "held"]
        kind = self._random.choice(kinds)
        if kind in ("gather", "group"):
            return kind, [self._make_parts(depth + 1) for _ in range(self._random.randint(2, 3))]
        if kind in ("loop", "inside", "child", "held"):
            return kind, self._make_parts(depth + 1)
        return kind, self._random.choice("abc")

    async def _do_all(self, parts: list[Part], ctx: RunContext) -> list[Any]:
        return [await self._do(part, ctx) for part in parts]

    async def _do(self, part: Part, ctx: RunContext) -> Any:
        kind, what = part
        match kind:
            case "gather":
                return await asyncio.gather(*(self._do_all(parts, ctx) for parts in what))
            case "group":
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._do_all(parts, ctx)) for parts in what]
                return [task.result() for task in tasks]
            case "loop":
                return [await self._do_all(what, ctx) for _ in range(2)]
            case "sleep" | "park":
                await ctx.sleep(0.001 if kind == "sleep" else 3600)
                return kind
            case "patch":
                return await ctx.patched(what)
            case "ask":
                return await self._ask(what, ctx)
            case "child":
                return await self._child(what)()
            case "caught":
                try:
                    return await self._step(what, fails=True)
                except ConnectionError:
                    return await self._step("after an error")
            case "remembered":
                try:
                    return await self._step(what, fails=True, remember=ConnectionError)
                except ConnectionError as error:
                    return str(error)
            case "held":
                return await self._hold(what, ctx)
            case "inside":
                return await ctx.step("inside", self._inside, what)
            case _:
                return await self._step(what, plain=kind == "plain")

    async def _hold(self, parts: list[Part], ctx: RunContext) -> list[Any]:
        """Do something between two steps, the second of which says whether it comes after what it should."""
        await self._step("lock")
        is_done = False
        try:
            results = await self._do_all(parts, ctx)
            is_done = True
            return results
        finally:
            await self._step(f"unlock, done: {is_done}")

    async def _ask(self, what: str, ctx: RunContext) -> Any:
        return await ctx.ask(f"{what}?", str)

    async def _inside(self, parts: list[Part]) -> list[Any]:
        """Do what may be done inside a step: other steps."""
        return [await self._step(f"inside {kind}") for kind, _ in parts]

    def _child(self, parts: list[Part]) -> DurableFunction[None, Any]:
        @workflow(name=f"child-{self.seed}")
        async def child(ctx: RunContext) -> Any:
            return await self._do_all(parts, ctx)

        return child

    def _step(self, what: str, *, plain: bool = False, fails: bool = False, remember: Any = ()) -> Awaitable[str]:
        def effect(idempotency_key: str = "") -> str:
            self.ledger.do(idempotency_key, what)
            if fails:
                raise ConnectionError(what)
            return what

        async def act(idempotency_key: str = "") -> str:
            await asyncio.sleep(0)
            return effect(idempotency_key)

        function: Callable[..., Any] = effect if plain else act
        made: Awaitable[str] = step(name=what, remember=remember)(function)()
        return made
