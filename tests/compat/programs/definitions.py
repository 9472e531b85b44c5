"""Programs: mistakes, validation, output designation and introspection."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

import json
from typing import Any, Never

from tests.compat.programs.graphs import collector, forwarder, sender
from tests.compat.programs.requests import asker


def yielder(af, id):
    class Yielder(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[str, str]) -> None:
            await ctx.yield_output(f"{self.id}: {message}")
            await ctx.send_message(message)

    return Yielder(id)


async def mistakes_of_executors(af, trace):
    class Empty(af.Executor):
        pass

    class Fine(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext) -> None: ...

    def wrong_arity():
        class Wrong(af.Executor):
            @af.handler
            async def work(self, message: str) -> None: ...

    def no_annotation():
        class Wrong(af.Executor):
            @af.handler
            async def work(self, message, ctx: af.WorkflowContext) -> None: ...

    def wrong_context():
        class Wrong(af.Executor):
            @af.handler
            async def work(self, message: str, ctx: int) -> None: ...

    def twice():
        class Wrong(af.Executor):
            @af.handler
            async def one(self, message: str, ctx: af.WorkflowContext) -> None: ...

            @af.handler
            async def two(self, message: str, ctx: af.WorkflowContext) -> None: ...

        Wrong("wrong")

    def no_input():
        class Wrong(af.Executor):
            @af.handler(output=str)
            async def work(self, message, ctx) -> None: ...

    def response_arity():
        class Wrong(af.Executor):
            @af.response_handler
            async def answered(self, response: str, ctx: af.WorkflowContext) -> None: ...

    for mistake in (
        lambda: Empty("e"),
        lambda: Fine(""),
        wrong_arity,
        no_annotation,
        wrong_context,
        twice,
        no_input,
        response_arity,
    ):
        await trace.attempt(mistake)
    executor = Fine("fine")
    trace.note(executor.id, executor.type, executor.to_dict(), Fine("f", type="other").type)
    trace.note(Fine("f", defer_discovery=True).id)


async def mistakes_of_function_executors(af, trace):
    async def none() -> None: ...
    async def three(a: str, b: af.WorkflowContext, c: int) -> None: ...
    async def bare(a, ctx: af.WorkflowContext) -> None: ...

    for function in (none, three, bare, staticmethod(none)):
        await trace.attempt(lambda function=function: af.executor(function))
        await trace.attempt(lambda function=function: af.FunctionExecutor(function))


async def mistakes_of_edges(af, trace):
    for make in (
        lambda: af.Edge("", "b"),
        lambda: af.FanOutEdgeGroup("a", ["b"]),
        lambda: af.FanInEdgeGroup(["a"], "b"),
        lambda: af.SwitchCaseEdgeGroup("a", []),
    ):
        await trace.attempt(make)
    edge = af.Edge("a", "b", lambda value: value > 1)
    trace.note(edge.id, edge.to_dict(), await edge.should_route(2), await edge.should_route(0))
    trace.note(af.SingleEdgeGroup("a", "b", id="g").to_dict())


async def duplicate_ids(af, trace):
    a, b, other = forwarder(af, "a"), collector(af, "b"), collector(af, "b")
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=a).add_edge(a, b).add_edge(a, other))


async def duplicate_edges(af, trace):
    a, b = forwarder(af, "a"), collector(af, "b")
    builder = af.WorkflowBuilder(start_executor=a).add_edge(a, b).add_edge(a, b)
    error = await trace.attempt(builder.build)
    try:
        builder.build()
    except af.WorkflowValidationError as raised:
        error = raised
    trace.note(error.validation_type, isinstance(error, af.EdgeDuplicationError))


async def types_that_do_not_meet(af, trace):
    a, b = forwarder(af, "a"), collector(af, "b", int)
    await trace.attempt(af.WorkflowBuilder(start_executor=a).add_edge(a, b).build)


async def unreachable_executors(af, trace):
    a, b, c = forwarder(af, "a"), forwarder(af, "b"), collector(af, "c")
    await trace.attempt(af.WorkflowBuilder(start_executor=a).add_edge(b, c).build)


async def short_chain(af, trace):
    a = forwarder(af, "a")
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=a).add_chain([a]))


async def things_that_are_not_executors(af, trace):
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor="a"))
    a = forwarder(af, "a")
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=a).add_edge(a, 5))


async def few_targets(af, trace):
    a, b = forwarder(af, "a"), collector(af, "b")
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=a).add_fan_out_edges(a, [b]))
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=a).add_fan_in_edges([a], b))
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=a).add_switch_case_edge_group(a, [af.Default(b)]))


def _team(af, **options):
    a, b, c = (yielder(af, id) for id in "abc")
    chosen = {name: [{"a": a, "b": b, "c": c}[id] for id in ids] if isinstance(ids, list) else ids
              for name, ids in options.items()}  # fmt: skip
    return af.WorkflowBuilder(start_executor=a, **chosen).add_chain([a, b, c])


async def output_from(af, trace):
    for options in (
        {},
        {"output_from": "all"},
        {"output_from": ["c"]},
        {"output_from": ["a", "b"]},
        {"intermediate_output_from": "all"},
        {"output_from": ["c"], "intermediate_output_from": "all_other"},
        {"output_from": ["b"], "intermediate_output_from": ["a"]},
        {"output_from": [], "intermediate_output_from": "all_other"},
    ):
        workflow = _team(af, **options).build()
        result = await workflow.run("go")
        trace.note(sorted(options), result.get_outputs(), result.get_intermediate_outputs())
        trace.result(result)
        outputs, others = workflow.get_output_executors(), workflow.get_intermediate_executors()
        trace.note(sorted(e.id for e in outputs), sorted(e.id for e in others))
        trace.note([workflow.is_terminal_executor(id) for id in "abc"])
        trace.note([workflow.is_intermediate_executor(id) for id in "abc"])


async def wrong_output_from(af, trace):
    for options in (
        {"output_from": []},
        {"output_from": "some"},
        {"intermediate_output_from": "some"},
        {"output_from": ["a", "a"]},
        {"output_from": ["a"], "intermediate_output_from": ["a"]},
    ):
        await trace.attempt(lambda options=options: _team(af, **options).build())
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=yielder(af, "a"), output_from=["a"]))
    a, b = yielder(af, "a"), collector(af, "b")
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=a, output_from=[b]).build())
    silent = forwarder(af, "s")
    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=silent, output_from=[silent]).build().run("x"))


async def an_output_from_that_never_yields(af, trace):
    start, end = sender(af, "start", "x"), collector(af, "end")
    builder = af.WorkflowBuilder(start_executor=start, output_from=[start]).add_edge(start, end)
    await trace.attempt(builder.build)


async def introspection(af, trace):
    a, b, asks = forwarder(af, "a"), collector(af, "b"), asker(af, "asks", "may I")
    builder = af.WorkflowBuilder(7, "shop", "sells", start_executor=a).add_edge(a, b, lambda _: True).add_edge(a, asks)
    workflow = builder.build()
    trace.note(workflow.name, workflow.description, workflow.max_iterations, workflow.start_executor_id)
    trace.note(workflow.get_start_executor() is a, [e.id for e in workflow.get_executors_list()])
    trace.note(workflow.input_types, sorted(map(str, workflow.output_types)))
    described = workflow.to_dict()
    for group in described["edge_groups"]:
        group.pop("id")
    described.pop("id")
    trace.note(described, json.loads(workflow.to_json())["name"])
    trace.note(workflow.graph_signature, workflow.graph_signature_hash, type(workflow).__name__)
    trace.note([type(group).__name__ for group in workflow.edge_groups], workflow.get_last_checkpoint_id())


async def default_names(af, trace):
    a = collector(af, "a")
    trace.note(af.WorkflowBuilder(start_executor=a).build().name, af.DEFAULT_MAX_ITERATIONS, af.INTERNAL_SOURCE_ID("a"))


async def pictures(af, trace):
    start, mids, end = sender(af, "start", "x"), [forwarder(af, id) for id in "ab"], collector(af, "end", list[str])
    builder = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, mids).add_fan_in_edges(mids, end)
    viz = af.WorkflowViz(builder.build())
    trace.note(sorted(viz.to_mermaid().splitlines()))
    trace.note(sorted(viz.to_digraph().splitlines()))


async def event_factories(af, trace):
    event = af.WorkflowEvent
    details = af.WorkflowErrorDetails("ValueError", "no")
    for made in (
        event.started(), event.status(af.WorkflowRunState.IDLE), event.failed(details), event.warning("w"),
        event.error(ValueError("e")), event.superstep_started(1), event.superstep_completed(2),
        event.executor_invoked("a", 1), event.executor_completed("a", [1]), event.executor_failed("a", details),
        event.executor_bypassed("a", 5), event.request_info("r", "a", "data", str),
    ):  # fmt: skip
        trace.note(made, made.origin)
    await trace.attempt(lambda: event.started().request_id)


async def generics(af, trace):
    trace.note(str(af.WorkflowEvent[int]).rpartition(".")[2], str(af.AgentResponse[Any]).rpartition(".")[2])

    class Typed(af.Executor):
        @af.handler
        async def work(self, message: list[dict[str, int]], ctx: af.WorkflowContext[Never, dict[str, int]]) -> None:
            await ctx.yield_output(message[0])

    workflow = af.WorkflowBuilder(start_executor=Typed("typed")).build()
    trace.result(await workflow.run([{"a": 1}]))
    await trace.attempt(lambda: workflow.run([{"a": "text"}]))
