"""Random small graphs with random messages do the same on both engines."""

# The namespace of a generated program is a module that is known only when it runs.
# mypy: ignore-errors

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compat.kit import namespaces, plain

KINDS = ("edge", "condition", "fan_out", "switch", "select")


@dataclass(frozen=True)
class Token:
    value: int
    hops: int


@dataclass(frozen=True)
class Word:
    text: str
    hops: int


def worker(af, id, sends, takes_words):
    """Return an executor that yields what it gets and sends what `sends` says: (step, word?, target?)."""

    async def work(self, message, ctx):
        await ctx.yield_output((self.id, message))
        ctx.set_state(f"count/{self.id}", ctx.get_state(f"count/{self.id}", 0) + 1)
        for step, as_word in sends if message.hops else ():
            if as_word:
                await ctx.send_message(Word(f"{self.id}{step}", message.hops - 1))
            else:
                value = message.value + step if isinstance(message, Token) else step
                await ctx.send_message(Token(value, message.hops - 1))

    methods = {"on_token": af.handler(input=Token, output=Any, workflow_output=Any)(work)}
    if takes_words:

        async def on_word(self, message, ctx):
            await work(self, message, ctx)

        methods["on_word"] = af.handler(input=Word, output=Any, workflow_output=Any)(on_word)
    return type(f"Worker{id}", (af.Executor,), methods)(id)


def build(af, nodes, edges, storage=None):
    executors = [worker(af, f"n{n}", *node) for n, node in enumerate(nodes)]
    builder = af.WorkflowBuilder(30, "random", start_executor=executors[0], checkpoint_storage=storage)
    # Every executor must be reached: a chain, unless the edge is drawn anyway.
    drawn = set()
    for kind, source, targets, modulus in edges:
        free = [target for target in dict.fromkeys(targets) if (source, target) not in drawn]
        if not free or (len(free) < 2 and kind not in ("edge", "condition")):
            continue
        free = free[:1] if kind in ("edge", "condition") else free
        drawn |= {(source, target) for target in free}
        _add(af, builder, kind, executors[source], [executors[target] for target in free], modulus)
    for n in range(1, len(nodes)):
        if (n - 1, n) not in drawn:
            builder.add_edge(executors[n - 1], executors[n])
    return builder.build()


def _add(af, builder, kind, source, targets, modulus):
    def applies(message):
        return isinstance(message, Token) and message.value % modulus == 0

    match kind:
        case "edge":
            builder.add_edge(source, targets[0])
        case "condition":
            builder.add_edge(source, targets[0], applies)
        case "fan_out":
            builder.add_fan_out_edges(source, targets)
        case "switch":
            cases = [af.Case(applies, target) for target in targets[:-1]]
            builder.add_switch_case_edge_group(source, [*cases, af.Default(targets[-1])])
        case "select":
            builder.add_multi_selection_edge_group(
                source, targets, lambda message, ids: [id for n, id in enumerate(ids) if (message.hops + n) % modulus]
            )


async def observe(af, nodes, edges, messages):
    """Return what each run yields, how often each executor was called, and what the run stores."""
    storage = af.InMemoryCheckpointStorage()
    workflow = build(af, nodes, edges, storage)
    seen = []
    for message in messages:
        try:
            result = await workflow.run(message)
        except af.WorkflowConvergenceException as error:
            seen.append(plain(error))
            break
        outputs = sorted(map(repr, result.get_outputs()))
        calls = Counter(event.executor_id for event in result if event.type == "executor_invoked")
        seen.append((outputs, calls, result.get_final_state().name))
    latest = await storage.get_latest(workflow_name="random")
    seen.append({key: value for key, value in latest.state.items() if not key.startswith("_")})
    return seen


SENDS = st.lists(st.tuples(st.integers(-2, 3), st.booleans()), max_size=2)
NODES = st.lists(st.tuples(SENDS, st.booleans()), min_size=2, max_size=5)


@st.composite
def graphs(draw):
    nodes = draw(NODES)
    ids = st.integers(0, len(nodes) - 1)
    edge = st.tuples(st.sampled_from(KINDS), ids, st.lists(ids, min_size=1, max_size=3), st.integers(1, 3))
    return nodes, draw(st.lists(edge, max_size=5))


TOKENS = st.lists(st.builds(Token, st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), messages=TOKENS)
def test_a_random_graph_does_the_same(graph, messages) -> None:
    theirs, ours = namespaces(Path())
    assert asyncio.run(observe(ours, *graph, messages)) == asyncio.run(observe(theirs, *graph, messages))


@settings(max_examples=30, deadline=None)
@given(
    layers=st.lists(st.lists(st.integers(1, 3), min_size=2, max_size=3), min_size=1, max_size=2), start=st.integers()
)
def test_a_random_join_does_the_same(layers, start) -> None:
    """Branches of different lengths start together, and a fan-in waits for all of them."""
    theirs, ours = namespaces(Path())
    assert asyncio.run(_observe_joins(ours, layers, start)) == asyncio.run(_observe_joins(theirs, layers, start))


async def _observe_joins(af, layers, start):
    class Adds(af.Executor):
        @af.handler
        async def add(self, n: int, ctx: af.WorkflowContext[int, Any]) -> None:
            await ctx.send_message(n + len(self.id))

    class Joins(af.Executor):
        @af.handler
        async def join(self, numbers: list[int], ctx: af.WorkflowContext[int, Any]) -> None:
            await ctx.yield_output((self.id, numbers, ctx.source_executor_ids))
            await ctx.send_message(sum(numbers))

    first = before = Adds("start")
    builder = af.WorkflowBuilder(name="joins", start_executor=first)
    for layer, lengths in enumerate(layers):
        chains = [[Adds(f"{layer}/{n}/{m}") for m in range(length)] for n, length in enumerate(lengths)]
        builder.add_fan_out_edges(before, [chain[0] for chain in chains])
        for chain in chains:
            if len(chain) > 1:
                builder.add_chain(chain)
        after = Joins(f"join{layer}")
        builder.add_fan_in_edges([chain[-1] for chain in chains], after)
        before = after
    workflow = builder.build()
    return [(await workflow.run(n)).get_outputs() for n in (start, start + 1)]
