"""Programs that show intended differences: where Stepwell's promises win. See `tests/compat/differences.py`."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

import asyncio
import threading
from typing import Any, Never

from tests.compat.programs.graphs import collector, forwarder, sender
from tests.compat.programs.requests import asker
from tests.compat.scripted import agent


def _both(af, *executors, **options):
    start = sender(af, "start", "x")
    return af.WorkflowBuilder(start_executor=start, **options).add_fan_out_edges(start, list(executors)).build()


def _writer(af, id):
    class Writer(af.Executor):
        @af.handler
        async def write(self, message: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            ctx.set_state("key", self.id)

    return Writer(id)


async def two_writers_of_one_key(af, trace):
    trace.result(await _both(af, _writer(af, "a"), _writer(af, "b")).run("go"))


async def a_sibling_reads_what_another_wrote(af, trace):
    class Reader(af.Executor):
        @af.handler
        async def read(self, message: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            await asyncio.sleep(0.01)
            await ctx.yield_output(ctx.get_state("key"))

    trace.result(await _both(af, _writer(af, "a"), Reader("b")).run("go"))


async def a_message_changed_after_it_was_sent(af, trace):
    class Changes(af.Executor):
        @af.handler
        async def send(self, message: str, ctx: af.WorkflowContext[list]) -> None:
            items = [1]
            await ctx.send_message(items)
            items.append(2)

    start, end = Changes("start"), collector(af, "end", list)
    trace.result(await af.WorkflowBuilder(start_executor=start).add_edge(start, end).build().run("go"))


async def a_value_that_cannot_be_stored(af, trace):
    start, end = sender(af, "start", threading.Lock()), collector(af, "end", Any)
    storage = af.InMemoryCheckpointStorage()
    builder = af.WorkflowBuilder(start_executor=start, checkpoint_storage=storage).add_edge(start, end)
    await trace.attempt(lambda: builder.build().run("go"))


async def a_storage_that_fails(af, trace):
    class Own:
        async def save(self, checkpoint):
            raise OSError("disk full")

        async def list_checkpoints(self, *, workflow_name):
            return []

        load = delete = get_latest = list_checkpoint_ids = list_checkpoints

    workflow = af.WorkflowBuilder(start_executor=collector(af, "end"), checkpoint_storage=Own()).build()
    await trace.attempt(lambda: workflow.run("go"))
    trace.note(workflow.status)


async def keyword_arguments_after_a_restart(af, trace):
    storage = af.InMemoryCheckpointStorage()
    workflow = af.WorkflowBuilder(name="kw", start_executor=agent("one", "ok"), checkpoint_storage=storage).build()
    await workflow.run("go", function_invocation_kwargs={"token": "secret"})
    checkpoints = await storage.list_checkpoints(workflow_name="kw")
    trace.note("secret" in str([checkpoint.state for checkpoint in checkpoints]))


async def supersteps_are_counted_from_the_last_answer(af, trace):
    class Asks(af.Executor):
        @af.handler
        async def ask(self, message: str, ctx: af.WorkflowContext) -> None:
            await ctx.request_info(message, str)

        @af.response_handler
        async def answered(self, asked: str, response: str, ctx: af.WorkflowContext) -> None:
            await ctx.request_info(response, str)

    workflow = af.WorkflowBuilder(3, start_executor=Asks("asks")).build()
    result = await workflow.run("go")
    for n in range(4):
        (event,) = result.get_request_info_events()
        result = await workflow.run(responses={event.request_id: str(n)})
    trace.result(result)


async def several_messages_to_a_fan_in(af, trace):
    start, a, b = sender(af, "start", "x", "y"), forwarder(af, "a"), forwarder(af, "b", str.upper)
    end = collector(af, "end", list[str])
    builder = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [a, b]).add_fan_in_edges([a, b], end)
    trace.result(await builder.build().run("go"))


async def a_sibling_of_a_failed_handler(af, trace):
    finished = []

    class Slow(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            await asyncio.sleep(0.02)
            finished.append(message)

    class Fails(af.Executor):
        @af.handler
        async def fail(self, message: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            raise ValueError("no")

    await trace.attempt(lambda: _both(af, Slow("slow"), Fails("fails")).run("go"))
    trace.note(finished)


async def a_finished_sibling_is_not_run_again(af, trace):
    calls, broken = [], [True]

    class Works(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            calls.append(self.id)
            await ctx.yield_output(self.id)

    class Fails(Works):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            await asyncio.sleep(0.01)
            if broken[0]:
                raise ConnectionError("down")
            await ctx.yield_output(self.id)

    def build():
        return _both(af, Works("works"), Fails("fails"), name="siblings", checkpoint_storage=storage)

    storage = af.InMemoryCheckpointStorage()
    await trace.attempt(lambda: build().run("go"))
    broken[0] = False
    latest = await storage.get_latest(workflow_name="siblings")
    result = await build().run(checkpoint_id=latest.checkpoint_id)
    trace.note(calls, sorted(result.get_outputs()))


async def the_same_checkpoint_in_two_processes(af, trace):
    started, gate = asyncio.Event(), asyncio.Event()

    class Waits(af.Executor):
        @af.handler
        async def wait(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            started.set()
            await gate.wait()

    def build():
        start = forwarder(af, "start")
        builder = af.WorkflowBuilder(name="twice", start_executor=start, checkpoint_storage=storage)
        return builder.add_edge(start, Waits("waits")).build()

    storage = af.InMemoryCheckpointStorage()
    running = asyncio.ensure_future(build().run("go"))
    await started.wait()
    latest = await storage.get_latest(workflow_name="twice")
    second = asyncio.ensure_future(build().run(checkpoint_id=latest.checkpoint_id))
    done, _ = await asyncio.wait([second], timeout=1)
    trace.note([type(task.exception()).__name__ for task in done])
    gate.set()
    await asyncio.gather(running, second, return_exceptions=True)


async def int_keys_come_back_as_they_were(af, trace):
    storage = af.FileCheckpointStorage(af.folder)
    made = af.WorkflowCheckpoint("keys", "hash", state={"by number": {1: "one"}})
    await storage.save(made)
    trace.note((await storage.load(made.checkpoint_id)).state["by number"])


async def a_class_of_ones_own_in_a_file(af, trace):
    storage = af.FileCheckpointStorage(af.folder)
    workflow = af.WorkflowBuilder(name="own", start_executor=asker(af, "asks", "a"), checkpoint_storage=storage).build()
    await workflow.run("x")
    latest = await storage.get_latest(workflow_name="own")
    trace.note(len(latest.pending_request_info_events))


async def cancelling_a_request(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "a")).build()
    (event,) = (await workflow.run("x")).get_request_info_events()
    trace.result(await workflow.cancel_pending_requests([event.request_id]))


async def a_message_that_leads_nowhere(af, trace):
    start = sender(af, "start", "lost")
    result = await af.WorkflowBuilder(start_executor=start).build().run("go")
    trace.note([event.type for event in result])


async def events_of_a_handler(af, trace):
    class Emits(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            await ctx.yield_output("first")
            await ctx.add_event(af.WorkflowEvent.warning("second"))

    trace.note([event.type for event in await af.WorkflowBuilder(start_executor=Emits("e")).build().run("go")])
