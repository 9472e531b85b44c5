"""Programs: runs, their results, their state and their errors."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

import asyncio
from typing import Any, Never

from tests.compat.programs.graphs import collector, forwarder, sender


def failing(af, id, error):
    class Failing(af.Executor):
        @af.handler
        async def fail(self, message: str, ctx: af.WorkflowContext[str, str]) -> None:
            raise error

    return Failing(id)


async def handler_error_is_raised_as_it_is(af, trace):
    workflow = af.WorkflowBuilder(start_executor=failing(af, "bad", KeyError("k"))).build()
    await trace.attempt(lambda: workflow.run("go"))
    trace.note(workflow.status)


async def handler_error_in_a_stream(af, trace):
    start, bad = forwarder(af, "start"), failing(af, "bad", ValueError("no"))
    await trace.stream(af.WorkflowBuilder(start_executor=start).add_edge(start, bad).build().run("go", stream=True))


async def run_again_after_an_error(af, trace):
    class Sometimes(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            if message == "bad":
                raise ValueError(message)
            await ctx.yield_output(message)

    workflow = af.WorkflowBuilder(start_executor=Sometimes("start")).build()
    await trace.attempt(lambda: workflow.run("bad"))
    trace.result(await workflow.run("good"))


async def wrong_input_type(af, trace):
    workflow = af.WorkflowBuilder(start_executor=collector(af, "end")).build()
    await trace.attempt(lambda: workflow.run(5))
    await trace.stream(workflow.run(5.5, stream=True))


async def wrong_arguments_of_run(af, trace):
    workflow = af.WorkflowBuilder(start_executor=collector(af, "end")).build()
    await trace.attempt(lambda: workflow.run())
    await trace.attempt(lambda: workflow.run("a", responses={"r": 1}))
    await trace.attempt(lambda: workflow.run("a", checkpoint_id="c"))
    await trace.attempt(lambda: workflow.run(checkpoint_id="c"))


async def state_is_shared(af, trace):
    class Writes(af.Executor):
        @af.handler
        async def write(self, message: str, ctx: af.WorkflowContext[str]) -> None:
            ctx.set_state("words", [*ctx.get_state("words", []), message])
            await ctx.send_message(message)

    class Reads(af.Executor):
        @af.handler
        async def read(self, message: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output((ctx.get_state("words"), ctx.get_state("missing"), ctx.get_state("missing", 5)))
            await ctx.yield_output((ctx.state.has("words"), ctx.state.has("missing")))

    start, end = Writes("writes"), Reads("reads")
    workflow = af.WorkflowBuilder(start_executor=start).add_edge(start, end).build()
    for word in ("one", "two"):
        trace.result(await workflow.run(word))


async def state_can_be_deleted(af, trace):
    class Deletes(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[str, Any]) -> None:
            if message == "set":
                ctx.set_state("k", 1)
            else:
                ctx.state.delete("k")
            await ctx.yield_output(ctx.state.has("k"))

    workflow = af.WorkflowBuilder(start_executor=Deletes("d")).build()
    for message in ("set", "delete", "delete"):
        await trace.attempt(lambda message=message: workflow.run(message))
    trace.note(workflow.status)


async def state_values_are_copies(af, trace):
    class Mutates(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            ctx.set_state("list", [1])
            ctx.get_state("list").append(2)
            await ctx.yield_output(ctx.get_state("list"))

    trace.result(await af.WorkflowBuilder(start_executor=Mutates("m")).build().run("go"))


async def executors_keep_their_attributes(af, trace):
    class Counts(af.Executor):
        def __init__(self, id):
            super().__init__(id)
            self.calls = 0

        @af.handler
        async def count(self, message: str, ctx: af.WorkflowContext[Never, int]) -> None:
            self.calls += 1
            await ctx.yield_output(self.calls)

    counts = Counts("counts")
    workflow = af.WorkflowBuilder(start_executor=counts).build()
    for _ in range(3):
        trace.note((await workflow.run("go")).get_outputs())
    trace.note(counts.calls, workflow.executors["counts"] is counts)


async def workflows_of_one_builder_share_executors(af, trace):
    class Counts(af.Executor):
        calls = 0

        @af.handler
        async def count(self, message: str, ctx: af.WorkflowContext[Never, int]) -> None:
            self.calls += 1
            await ctx.yield_output(self.calls)

    builder = af.WorkflowBuilder(start_executor=Counts("counts"))
    first, second = builder.build(), builder.build()
    trace.note(first.id != second.id, first.name == second.name)
    for workflow in (first, second, first):
        trace.note((await workflow.run("go")).get_outputs())


async def one_run_at_a_time(af, trace):
    workflow = af.WorkflowBuilder(start_executor=collector(af, "end")).build()
    stream = workflow.run("one", stream=True)
    await trace.attempt(lambda: workflow.run("two"))
    await trace.stream(stream)
    trace.result(await workflow.run("three"))


async def a_stream_that_is_left(af, trace):
    a, b, c = forwarder(af, "a"), forwarder(af, "b"), collector(af, "c")
    workflow = af.WorkflowBuilder(start_executor=a).add_chain([a, b, c]).build()
    async for event in workflow.run("one", stream=True):
        if event.type == "superstep_completed":
            break
    await asyncio.sleep(0)
    await trace.attempt(lambda: workflow.run("two"))


async def results(af, trace):
    start, end = forwarder(af, "start"), collector(af, "end")
    workflow = af.WorkflowBuilder(start_executor=start).add_edge(start, end).build()
    result = await workflow.run("go")
    trace.note(len(result), isinstance(result, list), [event.type for event in result])
    trace.note(result.get_outputs(), result.get_intermediate_outputs(), result.get_request_info_events())
    trace.note([event.state for event in result.status_timeline()], result.get_final_state())


async def final_response_of_a_stream(af, trace):
    workflow = af.WorkflowBuilder(start_executor=collector(af, "end")).build()
    result = await workflow.run("go", stream=True).get_final_response()
    trace.result(result)


async def origins(af, trace):
    start, end = forwarder(af, "start"), collector(af, "end")
    workflow = af.WorkflowBuilder(start_executor=start).add_edge(start, end).build()
    trace.note(sorted({(event.type, event.origin) for event in await workflow.run("go")}, key=repr))


async def parallel_failure(af, trace):
    start, good, bad = sender(af, "start", "x"), collector(af, "good"), failing(af, "bad", ValueError("no"))
    workflow = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [good, bad]).build()
    await trace.attempt(lambda: workflow.run("go"))
    trace.note(workflow.status)


async def cancelling_nothing(af, trace):
    workflow = af.WorkflowBuilder(start_executor=collector(af, "end")).build()
    trace.result(await workflow.cancel_pending_requests([]))
    await workflow.run("go")
    trace.result(await workflow.cancel_pending_requests(["nothing"]))


async def status_of_a_workflow(af, trace):
    seen = []

    class Looks(af.Executor):
        @af.handler
        async def look(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            seen.append(workflow.status)

    workflow = af.WorkflowBuilder(start_executor=Looks("looks")).build()
    trace.note(workflow.status)
    await workflow.run("go")
    trace.note(seen, workflow.status)


async def a_workflow_message_as_input(af, trace):
    workflow = af.WorkflowBuilder(start_executor=collector(af, "end")).build()
    trace.result(await workflow.run(af.WorkflowMessage(data="inside", source_id="me")))


async def cancellation(af, trace):
    started = asyncio.Event()

    class Waits(af.Executor):
        @af.handler
        async def wait(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            started.set()
            await asyncio.sleep(60)

    workflow = af.WorkflowBuilder(start_executor=Waits("waits")).build()
    running = asyncio.ensure_future(workflow.run("go"))
    await started.wait()
    running.cancel()
    trace.note(isinstance((await asyncio.gather(running, return_exceptions=True))[0], asyncio.CancelledError))


async def successive_event_loops(af, trace):
    workflow = af.WorkflowBuilder(start_executor=collector(af, "end")).build()
    for word in ("one", "two"):
        trace.note(await asyncio.to_thread(_run_in_a_loop, workflow, word))


def _run_in_a_loop(workflow, word):
    async def run():
        return (await workflow.run(word)).get_outputs()

    return asyncio.run(run())
