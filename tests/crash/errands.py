"""A workflow with a bit of everything, whose every act is written down. Its output says which acts it is made of.

A run fans out to three (one with steps, one that sleeps for a while and is put aside, one in a thread), joins what they
bring, calls a sub-workflow, asks a question that another process answers, and yields the trail of all that.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from stepwell import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)
from stepwell.engine.durability import superstep_log as timers
from stepwell.engine.handler import context as context
from stepwell.model.log_keys import step_key
from stepwell.storage.built_in_storage import BuiltInStorage

from .ledger import Ledger, nonce

NAP = 0.06  # seconds
WORK = 0.004  # seconds that a handler takes, so that there is time to be killed in
ACTS = (
    *("begin", "plain", "first", "second", "steps", "set", "nap", "join"),
    *("enter", "inner", "leave", "ask", "answer", "answered", "end"),
)


def park_early() -> None:
    """In this process, even a nap is long enough to be put aside until it is over."""
    timers.WAITS_HERE = NAP / 4
    context.NOT_WORTH_LOGGING = 0.0  # type: ignore[attr-defined]  # the name that it has imported


@dataclass
class Errand:
    """What travels: each act that led here, and the word under which it was written down."""

    number: int
    trail: list[str] = field(default_factory=list)

    def after(self, act: str) -> Errand:
        return Errand(self.number, [*self.trail, act])


@dataclass
class Question:
    errand: Errand


class _Acts:
    """Writes down each act as it is done: which run, which delivery or step, under which key, and a word for it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def handled(self, name: str, ctx: WorkflowContext[Any, Any]) -> str:
        return self._done(name, ctx.run_id, ctx.delivery.id, ctx.idempotency_key)  # type: ignore[attr-defined]

    async def step(self, name: str, ctx: WorkflowContext[Any, Any]) -> str:
        place = step_key(ctx.delivery.id, name, 0)  # type: ignore[attr-defined]

        async def do(idempotency_key: str = "") -> str:
            word = self._done(name, ctx.run_id, place, idempotency_key)
            await asyncio.sleep(WORK)
            return word

        word: str = await ctx.step(name, do)
        return word

    def _done(self, name: str, run: str, place: str, key: str) -> str:
        word = nonce()
        self._ledger.write("ran", run, key=place, name=name, idempotency=key, word=word)
        return f"{name} {word}"


def build(storage: BuiltInStorage | None, ledger: Ledger) -> Workflow:
    acts = _Acts(ledger)
    begin, out = _relay("begin", acts), _Out("end", acts)
    branches = [_plain(acts), _steps(acts), _nap(acts)]
    join, ask = _join(acts), _Ask("ask", acts)
    builder = WorkflowBuilder(name="errands", start_executor=begin, checkpoint_storage=storage)
    builder.add_fan_out_edges(begin, branches).add_fan_in_edges(branches, join)
    return builder.add_chain([join, WorkflowExecutor(_inner(acts), "below"), ask, out]).build()


def _inner(acts: _Acts) -> Workflow:
    @executor(id="enter")
    async def enter(errand: Errand, ctx: WorkflowContext[Errand]) -> None:
        errand = errand.after(acts.handled("enter", ctx))
        await ctx.send_message(errand.after(await acts.step("inner", ctx)))

    return WorkflowBuilder(name="below", start_executor=enter).add_edge(enter, _Out("leave", acts)).build()


def _relay(name: str, acts: _Acts) -> Executor:
    @executor(id=name)
    async def relay(errand: Errand, ctx: WorkflowContext[Errand]) -> None:
        await ctx.send_message(errand.after(acts.handled(name, ctx)))

    return relay


def _plain(acts: _Acts) -> Executor:
    @executor(id="plain")
    def plain(errand: Errand, ctx: WorkflowContext[Errand]) -> None:
        ctx.send_message(errand.after(acts.handled("plain", ctx)))

    return plain


def _steps(acts: _Acts) -> Executor:
    @executor(id="steps")
    async def steps(errand: Errand, ctx: WorkflowContext[Errand]) -> None:
        for name in ("first", "second"):
            errand = errand.after(await acts.step(name, ctx))
        await ctx.send_message(errand.after(acts.handled("steps", ctx)))

    return steps


def _nap(acts: _Acts) -> Executor:
    @executor(id="nap")
    async def nap(errand: Errand, ctx: WorkflowContext[Errand]) -> None:
        errand = errand.after(await acts.step("set", ctx))
        await ctx.sleep(NAP)
        await ctx.send_message(errand.after(acts.handled("nap", ctx)))

    return nap


def _join(acts: _Acts) -> Executor:
    @executor(id="join")
    async def join(brought: list[Errand], ctx: WorkflowContext[Errand]) -> None:
        trail = brought[0].trail[:1]
        trail += [act for errand in brought for act in errand.trail[1:]]
        await ctx.send_message(Errand(brought[0].number, [*trail, acts.handled("join", ctx)]))

    return join


class _Ask(Executor):
    def __init__(self, id: str, acts: _Acts) -> None:
        super().__init__(id)
        self._acts = acts

    @handler
    async def ask(self, errand: Errand, ctx: WorkflowContext[Errand]) -> None:
        await ctx.request_info(Question(errand.after(self._acts.handled("ask", ctx))), str)

    @response_handler
    async def said(self, question: Question, answer: str, ctx: WorkflowContext[Errand]) -> None:
        errand = question.errand.after(f"answer {answer}")
        await ctx.send_message(errand.after(self._acts.handled("answered", ctx)))


class _Out(Executor):
    def __init__(self, id: str, acts: _Acts) -> None:
        super().__init__(id)
        self._acts = acts

    @handler
    async def out(self, errand: Errand, ctx: WorkflowContext[None, Errand]) -> None:
        await asyncio.sleep(WORK)
        await ctx.yield_output(errand.after(self._acts.handled(self.id, ctx)))
