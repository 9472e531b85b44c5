"""Programs: workflows as functions, run as they are and after `build()`."""

# A program's `af` is a module that is known only when it runs, and functions are annotated with its classes.
# mypy: ignore-errors

import asyncio

from tests.compat.programs.graphs import Order


async def a_function_is_a_workflow(af, trace):
    @af.step
    async def double(n: int) -> int:
        return n * 2

    @af.workflow
    async def work(n: int) -> int:
        return await double(await double(n))

    # The first generation of this API ran the decorated function as it is.
    for workflow in (work if hasattr(work, "run") else work.build(), work.build()):
        result = await workflow.run(3)
        trace.note([event.type for event in result], result.get_outputs(), result.get_final_state())


async def steps_outside_a_workflow(af, trace):
    @af.step(name="shout")
    async def shout(text: str) -> str:
        return text.upper()

    trace.note(await shout("hi"), shout.name)


async def concurrent_steps(af, trace):
    @af.step
    async def double(n: int) -> int:
        return n * 2

    @af.workflow(name="many", description="doubles")
    async def many(count: int) -> list:
        return list(await asyncio.gather(*(double(n) for n in range(count))))

    workflow = many.build()
    trace.note(workflow.name, workflow.description, (await workflow.run(4)).get_outputs())


async def a_function_that_asks(af, trace):
    calls = []

    @af.step(replay_key=lambda item: item)
    async def price(item: str) -> int:
        calls.append(item)
        return len(item)

    @af.workflow(name="shop")
    async def shop(item: str, ctx: af.RunContext) -> str:
        cost = await price(item)
        answer = await ctx.request_info(f"buy for {cost}?", str, request_id="buy")
        return f"{item}: {answer}"

    workflow = shop.build()
    result = await workflow.run("book")
    trace.note([event.data for event in result.get_request_info_events()], result.get_final_state())
    trace.note((await workflow.run(responses={"buy": "yes"})).get_outputs(), calls)


async def a_function_in_checkpoints(af, trace):
    calls = []

    def build():
        @af.step(replay_key=lambda item: item)
        async def price(item: str) -> int:
            calls.append(item)
            return len(item)

        @af.workflow(name="shop")
        async def shop(item: str, ctx: af.RunContext) -> str:
            ctx.set_state("item", item)
            cost = await price(item)
            answer = await ctx.request_info(f"buy for {cost}?", str, request_id="buy")
            return f"{ctx.get_state('item')}: {answer}"

        return shop.build(checkpoint_storage=storage)

    for storage in (af.InMemoryCheckpointStorage(), af.FileCheckpointStorage(af.folder)):
        await build().run("book")
        latest = await storage.get_latest(workflow_name="shop")
        result = await build().run(checkpoint_id=latest.checkpoint_id, responses={"buy": "yes"})
        trace.note(result.get_outputs(), calls)
        calls.clear()


async def a_function_that_fails(af, trace):
    @af.workflow
    async def fails(n: int) -> int:
        raise LookupError(n)

    await trace.attempt(lambda: fails.build().run(1))


async def a_function_as_an_agent(af, trace):
    @af.workflow(name="echo")
    async def echo(messages: list) -> str:
        return "echo " + str(messages[-1].text if hasattr(messages[-1], "text") else messages[-1])

    await trace.attempt(lambda: _answer(trace, echo.build().as_agent("echo")))


async def _answer(trace, agent):
    trace.note(await agent.run("hi"))


async def mistakes_of_functions(af, trace):
    def two():
        @af.workflow
        async def work(a: int, b: int) -> int: ...

    def plain():
        @af.step
        def work(a: int) -> int: ...

    for mistake in (two, plain):
        await trace.attempt(mistake)
    trace.note(af.get_run_context(), Order(1))
