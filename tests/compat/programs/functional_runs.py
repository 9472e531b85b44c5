"""Programs: what runs of a function show, ask, keep and refuse, in both generations of that API."""

# A program's `af` is a module that is known only when it runs, and functions are annotated with its classes.
# mypy: ignore-errors

import asyncio
import threading
from dataclasses import dataclass

from tests.compat.scripted import agent


@dataclass
class Decision:
    approved: bool


def _runnable(definition):
    """Return what the first generation of the API ran: the decorated function itself, where that is possible."""
    return definition if hasattr(definition, "run") else definition.build()


async def the_stream_of_a_function(af, trace):
    @af.step
    async def double(n: int) -> int:
        return n * 2

    @af.workflow(name="twice")
    async def twice(n: int, ctx: af.RunContext) -> int:
        await ctx.add_event(af.WorkflowEvent("progress", data=ctx.is_streaming()))
        return await double(await double(n))

    for workflow in (_runnable(twice), twice.build()):
        await trace.stream(workflow.run(3, stream=True))
        result = await workflow.run(3, include_status_events=True)
        trace.note([event.type for event in result], [event.state for event in result.status_timeline()])


async def a_step_that_fails(af, trace):
    @af.step
    async def divide(n: int) -> float:
        return 1 / n

    @af.workflow
    async def divides(n: int) -> float:
        return await divide(n)

    workflow = divides.build()
    await trace.attempt(lambda: trace.stream(workflow.run(0, stream=True)))
    trace.note((await workflow.run(2)).get_outputs())


async def an_error_of_a_step_that_is_caught(af, trace):
    @af.step
    async def divide(n: int) -> float:
        return 1 / n

    @af.workflow
    async def divides(n: int) -> str:
        try:
            return str(await divide(n))
        except ZeroDivisionError:
            return "no number"

    trace.note([event.type for event in await divides.build().run(0)])


async def several_questions_of_a_function(af, trace):
    @af.workflow(name="asks")
    async def asks(item: str, ctx: af.RunContext) -> str:
        first = await ctx.request_info(f"{item}?", str)
        second = await ctx.request_info("how many?", int)
        return f"{item} {first} {second}"

    for workflow in (_runnable(asks), asks.build()):
        trace.result(await workflow.run("book"))
        trace.result(await workflow.run(responses={"auto::0": "red"}))
        trace.result(await workflow.run(responses={"auto::0": "red", "auto::1": 2}))
        await trace.attempt(lambda workflow=workflow: workflow.run(responses={"auto::1": 2}))


async def a_question_inside_a_step(af, trace):
    calls = []

    @af.step(replay_key=lambda doc: doc)
    async def draft(doc: str) -> str:
        calls.append(doc)
        return f"draft of {doc}"

    @af.step(replay_key=lambda doc: doc)
    async def review(ctx: af.RunContext, doc: str) -> str:
        return f"{doc}: {await ctx.request_info({'draft': doc}, str, request_id='review')}"

    @af.workflow(name="reviews")
    async def reviews(doc: str) -> str:
        return await review(await draft(doc))

    for storage in (None, af.InMemoryCheckpointStorage()):
        workflow = reviews.build(checkpoint_storage=storage)
        trace.result(await workflow.run("plan"))
        trace.result(await workflow.run(responses={"review": "good"}))
        trace.note(calls)
        calls.clear()


async def two_questions_at_once(af, trace):
    @af.workflow(name="both")
    async def both(item: str, ctx: af.RunContext) -> list:
        return list(await asyncio.gather(*(ctx.request_info(f"{item} {n}", int, request_id=str(n)) for n in (1, 2))))

    workflow = both.build()
    result = await workflow.run("x")
    trace.note(result.get_final_state(), len(result.get_outputs()))
    asked = {"1"}
    while (result := await workflow.run(responses={id: int(id) for id in asked})).get_request_info_events():
        asked |= {event.request_id for event in result.get_request_info_events()}
    trace.note(result.get_outputs())


async def responses_of_other_types(af, trace):
    @af.workflow(name="types")
    async def types(kind: str, ctx: af.RunContext) -> str:
        wanted = {"int": int, "decision": Decision, "content": af.Content}[kind]
        return repr(type(await ctx.request_info(kind, wanted, request_id="it")).__name__)

    for kind, response in (
        ("int", "three"),
        ("int", 3),
        ("decision", {"approved": True}),
        ("decision", Decision(True)),
        ("content", "words"),
        ("int", None),
    ):
        workflow = types.build()
        await workflow.run(kind)
        result = await trace.attempt(lambda workflow=workflow, it=response: workflow.run(responses={"it": it}))
        trace.note(kind, result and result.get_outputs())


async def responses_nobody_asked_for(af, trace):
    @af.workflow(name="asks")
    async def asks(item: str, ctx: af.RunContext) -> str:
        return await ctx.request_info(item, str, request_id="it")

    first, second = asks.build(), asks.build()
    await trace.attempt(lambda: first.run(responses={"it": "x"}))
    await first.run("a")
    await trace.attempt(lambda: second.run(responses={"it": "x"}))
    await trace.attempt(lambda: first.run(responses={"that": "x"}))
    trace.note((await first.run(responses={"it": "x"})).get_outputs())
    await trace.attempt(lambda: first.run(responses={"it": "x"}))


async def a_new_message_while_a_function_waits(af, trace):
    @af.workflow(name="asks")
    async def asks(item: str, ctx: af.RunContext) -> str:
        return item + await ctx.request_info(item, str, request_id="it")

    workflow = asks.build()
    await workflow.run("a")
    trace.result(await workflow.run("b"))
    trace.note((await workflow.run(responses={"it": "x"})).get_outputs())


async def state_that_steps_have_written(af, trace):
    @af.step
    async def seed(ctx: af.RunContext) -> str:
        ctx.set_state("marker", "from a step")
        return "seeded"

    @af.workflow(name="seeds")
    async def seeds(item: str, ctx: af.RunContext) -> str:
        seeded = await seed()
        answer = await ctx.request_info("question", str, request_id="it")
        return f"{ctx.get_state('marker', 'missing')} {seeded} {answer}"

    for storage in (None, af.InMemoryCheckpointStorage()):
        workflow = seeds.build(checkpoint_storage=storage)
        await workflow.run("x")
        trace.note((await workflow.run(responses={"it": "ok"})).get_outputs())


async def state_of_a_function(af, trace):
    @af.workflow
    async def keeps(n: int, ctx: af.RunContext) -> list:
        before = ctx.get_state("n", "nothing")
        ctx.set_state("n", n)
        return [before, ctx.get_state("n")]

    @af.workflow
    async def reserved(n: int, ctx: af.RunContext) -> None:
        ctx.set_state("_n", n)

    workflow = keeps.build()
    for n in (1, 2):
        trace.note((await workflow.run(n)).get_outputs())
    await trace.attempt(lambda: reserved.build().run(1))


async def contexts_of_functions(af, trace):
    @af.step
    async def inside(n: int) -> str:
        return type(af.get_run_context()).__name__ != "NoneType"

    @af.workflow
    async def untyped(n: int, ctx) -> list:
        return [await inside(n), af.get_run_context() is ctx, isinstance(ctx, af.RunContext)]

    @af.workflow
    async def only_context(ctx: af.RunContext) -> str:
        return "no message"

    trace.note((await untyped.build().run(1)).get_outputs())
    await trace.attempt(lambda: only_context.build().run("message"))
    await trace.attempt(lambda: untyped.build().run())
    await trace.attempt(lambda: untyped.build().run(1, responses={"a": 1}))
    await trace.attempt(lambda: untyped.build().run(1, checkpoint_id="a"))
    await trace.attempt(lambda: untyped.build().run(checkpoint_id="a"))
    await trace.attempt(lambda: untyped.build(checkpoint_storage=af.InMemoryCheckpointStorage()).run(checkpoint_id="a"))


async def one_run_of_a_function_at_a_time(af, trace):
    @af.workflow
    async def slow(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    workflow = slow.build()
    stream = workflow.run(1, stream=True)
    await trace.attempt(lambda: workflow.run(2, stream=True))
    trace.note((await stream.get_final_response()).get_outputs(), (await workflow.run(3)).get_outputs())


async def a_stream_of_a_function_that_is_left(af, trace):
    @af.workflow
    async def work(n: int) -> int:
        return n

    workflow = work.build()
    stream = workflow.run(1, stream=True)
    async for event in stream:
        trace.note(event.type)
        break
    del stream, event
    await asyncio.sleep(0.01)
    trace.note((await workflow.run(2)).get_outputs())


async def keys_of_steps(af, trace):
    @af.step(replay_key=lambda n: "")
    async def empty(n: int) -> int: ...

    @af.step(replay_key=lambda n: "same")
    async def same(n: int) -> int:
        return n

    @af.step(replay_key=lambda lock, n: str(n))
    async def opaque(lock, n: int) -> int:
        return n

    @af.workflow
    async def keys(which: str) -> list:
        match which:
            case "empty":
                return [await empty(1)]
            case "same":
                return [await same(1), await same(2)]
        return list(await asyncio.gather(*(opaque(threading.Lock(), n) for n in (1, 2))))

    for which in ("empty", "same", "opaque"):
        await trace.attempt(lambda which=which: _outputs(trace, keys.build().run(which)))


async def _outputs(trace, running):
    trace.note((await running).get_outputs())


async def functions_inside_functions(af, trace):
    @af.step
    async def double(n: int) -> int:
        return n * 2

    @af.workflow
    async def inner(n: int) -> int:
        return await double(n)

    built = inner.build()

    @af.step(replay_key=str)
    async def call(n: int) -> int:
        return (await built.run(n)).get_outputs()[0]

    @af.workflow
    async def outer(n: int) -> int:
        return await call(n) + 1

    workflow = outer.build(checkpoint_storage=af.InMemoryCheckpointStorage())
    for n in (1, 2, 3):
        trace.result(await workflow.run(n))


async def an_agent_inside_a_function(af, trace):
    poet = agent("poet", "a poem")

    @af.step(replay_key=lambda topic: topic)
    async def write(topic: str) -> str:
        return (await poet.run(topic)).text

    @af.workflow
    async def writes(topic: str) -> str:
        return await write(topic)

    trace.result(await writes.build(checkpoint_storage=af.InMemoryCheckpointStorage()).run("spring"))


async def a_function_inside_an_executor(af, trace):
    @af.workflow
    async def double(n: int) -> int:
        return n * 2

    built = double.build()

    class Calls(af.Executor):
        @af.handler
        async def call(self, n: int, ctx: af.WorkflowContext[int, int]) -> None:
            await ctx.yield_output((await built.run(n)).get_outputs()[0])

    storage = af.InMemoryCheckpointStorage()
    trace.result(await af.WorkflowBuilder(start_executor=Calls("calls"), checkpoint_storage=storage).build().run(4))


async def a_function_that_asks_as_an_agent(af, trace):
    @af.workflow(name="asks", description="asks one question")
    async def asks(topic: str, ctx: af.RunContext) -> str:
        return "got " + await ctx.request_info({"need": topic}, str, request_id="it")

    for workflow in (_runnable(asks), asks.build()):
        answering = workflow.as_agent("asker")
        trace.note(answering.id, answering.name, answering.description, isinstance(answering, af.SupportsAgentRun))
        response = await answering.run("topic")
        trace.note([content.type for message in response.messages for content in message.contents])
        trace.note(sorted(answering.pending_requests))
        trace.note((await answering.run(responses={"it": "x"})).text)
        updates = [update async for update in answering.run("again", stream=True)]
        trace.note([content.type for update in updates for content in update.contents])


async def a_function_that_failed_in_checkpoints(af, trace):
    calls = []

    @af.step(replay_key=str)
    async def first(n: int) -> int:
        calls.append("first")
        return n + 10

    @af.step(replay_key=str)
    async def second(n: int) -> int:
        calls.append("second")
        if calls.count("second") == 1:
            raise LookupError("not yet")
        return n * 2

    @af.workflow(name="fails")
    async def fails(n: int) -> int:
        return await second(await first(n))

    storage = af.InMemoryCheckpointStorage()
    await trace.attempt(lambda: fails.build(checkpoint_storage=storage).run(5))
    latest = await storage.get_latest(workflow_name="fails")
    trace.note((await fails.build(checkpoint_storage=storage).run(checkpoint_id=latest.checkpoint_id)).get_outputs())
    trace.note(calls)


async def a_function_that_asked_in_its_first_checkpoint(af, trace):
    @af.workflow(name="asks")
    async def asks(item: str, ctx: af.RunContext) -> str:
        return item + await ctx.request_info(item, str, request_id="it")

    storage = af.InMemoryCheckpointStorage()
    await asks.build(checkpoint_storage=storage).run("a")
    first, *_ = await storage.list_checkpoints(workflow_name="asks")
    resumed = asks.build(checkpoint_storage=storage)
    trace.note((await resumed.run(checkpoint_id=first.checkpoint_id, responses={"it": "x"})).get_outputs())


async def a_checkpoint_of_another_function(af, trace):
    @af.workflow(name="own")
    async def own(item: str) -> str:
        return item

    storage = af.InMemoryCheckpointStorage()
    made = af.WorkflowCheckpoint("own", "another hash", state={"_original_message": "a", "_step_cache": {}})
    id = await storage.save(made)
    try:
        await own.build(checkpoint_storage=storage).run(checkpoint_id=id)
    except ValueError as error:
        trace.note("compatible" in str(error))


# ---------------------------------------------------------------- intended differences


async def a_completed_function_in_checkpoints(af, trace):
    @af.step
    async def double(n: int) -> int:
        return n * 2

    @af.workflow(name="doubles")
    async def doubles(n: int) -> int:
        return await double(n)

    storage = af.InMemoryCheckpointStorage()
    await doubles.build(checkpoint_storage=storage).run(5)
    ids = await storage.list_checkpoint_ids(workflow_name="doubles")
    again = await doubles.build(checkpoint_storage=storage).run(checkpoint_id=ids[-1])
    trace.note(again.get_outputs(), [event.type for event in again])


async def a_step_with_captured_variables(af, trace):
    calls = []

    @af.step
    async def note(n: int) -> int:
        calls.append(n)
        return n

    @af.workflow
    async def notes(n: int) -> list:
        return list(await asyncio.gather(note(n), note(n + 1)))

    await trace.attempt(lambda: _outputs(trace, notes.build(checkpoint_storage=af.InMemoryCheckpointStorage()).run(1)))


async def a_function_whose_code_has_changed(af, trace):
    storage, calls = af.InMemoryCheckpointStorage(), []

    @af.step(name="price", replay_key=lambda item: item)
    async def price(item: str) -> int:
        calls.append(item)
        return len(item)

    @af.workflow(name="shop")
    async def shop(item: str, ctx: af.RunContext) -> str:
        return f"{await price(item)} {await ctx.request_info('buy?', str, request_id='buy')}"

    @af.workflow(name="shop")
    async def edited(item: str, ctx: af.RunContext) -> str:
        return f"{await price(item)} euros: {await ctx.request_info('buy?', str, request_id='buy')}"

    await shop.build(checkpoint_storage=storage).run("book")
    latest = await storage.get_latest(workflow_name="shop")
    resumed = edited.build(checkpoint_storage=storage)
    await trace.attempt(
        lambda: _outputs(trace, resumed.run(checkpoint_id=latest.checkpoint_id, responses={"buy": "yes"}))
    )
    trace.note(calls)


async def earlier_answers_of_a_function(af, trace):
    @af.workflow(name="asks")
    async def asks(item: str, ctx: af.RunContext) -> str:
        return await ctx.request_info("a", str, request_id="a") + await ctx.request_info("b", str, request_id="b")

    workflow = asks.build()
    await workflow.run("x")
    await workflow.run(responses={"a": "1"})
    trace.note((await workflow.run(responses={"b": "2"})).get_outputs())
