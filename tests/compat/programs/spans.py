"""Programs: what OpenTelemetry is told."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

import pytest

from tests.compat.scripted import agent
from tests.support.observing import Watching, id_of, parent_of, use

_EDGES = "edge_group.process"


async def spans_of_a_run(af, trace):
    spans = await _watch(lambda: _join(af))
    trace.note(*_shapes(span for span in spans if not span.name.startswith(_EDGES)))
    trace.note(len({span.context.trace_id for span in spans if span.name != "workflow.build"}))


async def spans_of_a_loop(af, trace):
    class Counts(af.Executor):
        @af.handler
        async def count(self, number: int, ctx: af.WorkflowContext[int, int]) -> None:
            await (ctx.send_message(number + 1) if number < 4 else ctx.yield_output(number))

    async def run():
        ping, pong = Counts("ping"), Counts("pong")
        await af.WorkflowBuilder(start_executor=ping).add_edge(ping, pong).add_edge(pong, ping).build().run(0)

    trace.note(*_shapes(span for span in await _watch(run) if not span.name.startswith(_EDGES)))


async def spans_of_a_failure(af, trace):
    class Fails(af.Executor):
        @af.handler
        async def fail(self, message: str, ctx: af.WorkflowContext) -> None:
            raise ValueError("no")

    async def run():
        await trace.attempt(lambda: af.WorkflowBuilder(start_executor=Fails("fails")).build().run("go"))

    for span in await _watch(run):
        if not span.name.startswith(_EDGES):
            trace.note(span.name, span.status.status_code, [event.name for event in span.events])


async def spans_of_a_team(af, trace):
    async def run():
        await af.teams.SequentialBuilder(participants=[agent("one", "first"), agent("two", "second")]).build().run("hi")

    trace.note(*_shapes(span for span in await _watch(run) if not span.name.startswith(_EDGES)))


async def the_span_of_a_build_names_the_workflow(af, trace):
    with pytest.MonkeyPatch.context() as patch:
        watching = Watching()
        use(watching, patch)
        workflow = af.WorkflowBuilder(start_executor=_passing(af, "only"), name="named").build()
        about = watching.span("workflow.build").attributes
        trace.note(about["workflow.id"] == workflow.id, about["workflow.definition"] == workflow.to_json())
        watching.close()


async def spans_of_edges(af, trace):
    spans = await _watch(lambda: _join(af))
    trace.note(any(span.name.startswith(_EDGES) for span in spans))


def _passing(af, id):
    class Passes(af.Executor):
        @af.handler
        async def on(self, message: str, ctx: af.WorkflowContext[str]) -> None:
            await ctx.send_message(f"{message} {self.id}")

    return Passes(id)


async def _join(af):
    class Joins(af.Executor):
        @af.handler
        async def join(self, messages: list[str], ctx: af.WorkflowContext) -> None: ...

    first, left, right, last = _passing(af, "first"), _passing(af, "left"), _passing(af, "right"), Joins("last")
    builder = af.WorkflowBuilder(start_executor=first).add_fan_out_edges(first, [left, right])
    await builder.add_fan_in_edges([left, right], last).build().run("go")


async def _watch(call):
    """Make a call and return the spans that ended in it."""
    with pytest.MonkeyPatch.context() as patch:
        watching = Watching()
        use(watching, patch)
        await call()
        watching.close()
        return watching.spans()


def _shapes(spans):
    """Return of each span its name, that of its parent, and where the spans that it has links to were emitted."""
    by_id = {id_of(span): span for span in spans}
    return sorted(
        (span.name, _name(by_id, parent_of(span)), sorted(_emitter(by_id, link) for link in span.links))
        for span in by_id.values()
    )


def _name(by_id, id):
    return by_id[id].name if id in by_id else ""


def _emitter(by_id, link):
    return _name(by_id, parent_of(by_id[link.context.span_id]))
