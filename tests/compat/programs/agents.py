"""Programs: agents in workflows, and workflows as agents."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

from typing import Any, Never

from tests.compat.programs.graphs import collector, forwarder
from tests.compat.programs.requests import asker
from tests.compat.scripted import Echo, agent, call


def _pair(af, *agents, **options):
    return af.WorkflowBuilder(name="pair", start_executor=agents[0], **options).add_chain(list(agents)).build()


async def agents_in_a_chain(af, trace):
    one, two = agent("one", "first answer"), agent("two", "second answer")
    workflow = _pair(af, one, two)
    trace.result(await workflow.run("hello"))
    trace.note(one.client.requests, two.client.requests)


async def pieces_of_an_answer_are_outputs(af, trace):
    workflow = _pair(af, agent("one", "first answer"), agent("two", "a longer answer"))
    result = await trace.stream(workflow.run("hello", stream=True))
    trace.note(result.get_outputs())


async def agents_of_ones_own(af, trace):
    workflow = _pair(af, Echo(name="a"), Echo(name="b"))
    trace.result(await workflow.run("hello"))
    await trace.stream(workflow.run("again", stream=True))


async def an_agent_keeps_its_session(af, trace):
    one = agent("one", "first", "second", "third")
    workflow = af.WorkflowBuilder(start_executor=one).build()
    for word in ("a", "b", "c"):
        trace.note((await workflow.run(word)).get_outputs())
    trace.note(one.client.requests)


async def inputs_of_an_agent(af, trace):
    for message in ("text", af.Message("user", ["hi"]), ["a", af.Message("user", ["b"])],
                    af.AgentExecutorRequest(messages=[af.Message("user", ["r"])])):  # fmt: skip
        one = agent("one", "answer")
        trace.result(await af.WorkflowBuilder(start_executor=one).build().run(message))
        trace.note(one.client.requests)


async def an_agent_that_only_listens(af, trace):
    one = agent("one", "answer")
    workflow = af.WorkflowBuilder(start_executor=one).build()
    quiet = af.AgentExecutorRequest(messages=[af.Message("user", ["remember"])], should_respond=False)
    trace.result(await workflow.run(quiet))
    trace.result(await workflow.run("now"))
    trace.note(one.client.requests)


async def context_modes(af, trace):
    for options in ({}, {"context_mode": "last_agent"},
                    {"context_mode": "custom", "context_filter": lambda messages: messages[:1]}):  # fmt: skip
        one, two = agent("one", "first"), agent("two", "second")
        workflow = _pair(af, af.AgentExecutor(one), af.AgentExecutor(two, **options))
        await workflow.run("hello")
        trace.note(two.client.requests)
    await trace.attempt(lambda: af.AgentExecutor(agent("x", "y"), context_mode="odd"))


async def what_an_agent_sends(af, trace):
    class Reads(af.Executor):
        @af.handler
        async def read(self, response: af.AgentExecutorResponse, ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output((response.executor_id, response.agent_response.text, response.full_conversation))

    trace.result(await _pair(af, agent("one", "said"), Reads("reads")).run("hello"))


async def tools(af, trace):
    seen = []

    def look(what: str) -> str:
        """Look at something."""
        seen.append(what)
        return f"saw {what}"

    one = agent("one", [call("look", what="sea")], "it is blue", tools=[af.tool(look)])
    trace.result(await af.WorkflowBuilder(start_executor=one).build().run("hello"))
    trace.note(seen, one.client.requests)


def _approving(af, **options):
    paid = []

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    tool = af.tool(pay, approval_mode="always_require")
    one = agent("one", [call("pay", amount=5)], "done", tools=[tool])
    return af.WorkflowBuilder(name="approving", start_executor=one, **options).build(), paid, one


async def tool_approval(af, trace):
    for approved in (True, False):
        workflow, paid, one = _approving(af)
        result = await workflow.run("pay 5")
        trace.result(result)
        (event,) = result.get_request_info_events()
        trace.note(event.data.type, event.data.function_call, paid)
        response = event.data.to_function_approval_response(approved)
        trace.result(await workflow.run(responses={event.request_id: response}))
        trace.note(paid, len(one.client.requests))


async def tool_approval_in_a_stream(af, trace):
    workflow, paid, _ = _approving(af)
    result = await trace.stream(workflow.run("pay 5", stream=True))
    (event,) = result.get_request_info_events()
    response = event.data.to_function_approval_response(True)
    await trace.stream(workflow.run(responses={event.request_id: response}, stream=True))
    trace.note(paid)


async def tool_approval_after_a_restart(af, trace):
    storage = af.InMemoryCheckpointStorage()
    workflow, paid, _ = _approving(af, checkpoint_storage=storage)
    (event,) = (await workflow.run("pay 5")).get_request_info_events()
    latest = await storage.get_latest(workflow_name="approving")
    workflow, paid, _ = _approving(af, checkpoint_storage=storage)
    result = await workflow.run(checkpoint_id=latest.checkpoint_id)
    (again,) = result.get_request_info_events()
    response = again.data.to_function_approval_response(True)
    trace.result(await workflow.run(responses={event.request_id: response}))
    trace.note(paid)


async def cancelled_approval(af, trace):
    workflow, paid, one = _approving(af)
    (event,) = (await workflow.run("pay 5")).get_request_info_events()
    result = await workflow.cancel_pending_requests([event.request_id])
    trace.note(result.get_outputs(), result.get_final_state())
    trace.note(paid, len(one.client.requests), workflow.status)
    await trace.attempt(lambda: workflow.cancel_pending_requests([""]))


async def cancelled_request_of_an_executor(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "a", "b")).build()
    first, second = (await workflow.run("x")).get_request_info_events()
    result = await workflow.cancel_pending_requests([first.request_id])
    trace.note(result.get_outputs(), result.get_request_info_events(), result.get_final_state())
    trace.result(await workflow.run(responses={second.request_id: "yes"}))


async def agents_in_checkpoints(af, trace):
    def build():
        return _pair(af, agent("one", "first"), agent("two", "second"), checkpoint_storage=storage)

    for storage in (af.InMemoryCheckpointStorage(), af.FileCheckpointStorage(af.folder)):
        trace.note((await build().run("hello")).get_outputs())
        for checkpoint in sorted(await storage.list_checkpoints(workflow_name="pair"), key=lambda c: c.timestamp)[:2]:
            trace.result(await build().run(checkpoint_id=checkpoint.checkpoint_id))


async def keyword_arguments_for_tools(af, trace):
    seen = []

    def look(what: str, ctx: af.FunctionInvocationContext) -> str:
        """Look at something."""
        seen.append((what, dict(ctx.kwargs)))
        return "seen"

    def build():
        names = ("one", "two")
        return _pair(af, *(agent(name, [call("look", what=name)], "ok", tools=[af.tool(look)]) for name in names))

    for given in (
        {"user": "ann"},
        {"one": {"user": "ann"}, "two": {"user": "bob"}},
        af.WorkflowInvocationKwargs({"user": "all"}, {"two": {"user": "bob", "more": 1}}),
    ):
        await build().run("go", function_invocation_kwargs=given)
        trace.note(seen)
        seen.clear()


async def keyword_arguments_for_clients(af, trace):
    one = agent("one", "ok")
    workflow = af.WorkflowBuilder(start_executor=one).build()
    await workflow.run("go", client_kwargs={"extra": 1})
    await workflow.run("go")
    trace.note([options.get("extra") for options in one.client.options])


async def runtime_tools(af, trace):
    seen = []

    def extra() -> str:
        """Do more."""
        seen.append("called")
        return "done"

    one = agent("one", [call("extra")], "ok")
    workflow = af.WorkflowBuilder(start_executor=one).build()
    trace.result(await workflow.run("go", tools=[af.tool(extra)]))
    trace.note(seen)


async def a_session_of_ones_own(af, trace):
    one = agent("one", "first", "second")
    session = af.AgentSession()
    await one.run("before", session=session)
    executor = af.AgentExecutor(one, session=session, id="me")
    trace.result(await af.WorkflowBuilder(start_executor=executor).build().run("now"))
    trace.note(one.client.requests, executor.id, af.resolve_agent_id(one))


async def an_agent_that_fails(af, trace):
    class Broken(Echo):
        def run(self, messages=None, *, stream=False, session=None, **kwargs):
            raise ConnectionError("no model")

    workflow = af.WorkflowBuilder(start_executor=Broken(name="broken")).build()
    await trace.attempt(lambda: workflow.run("go"))


async def two_agents_of_one_name(af, trace):
    await trace.attempt(lambda: _pair(af, agent("one", "a"), agent("one", "b")))


# ---------------------------------------------------------------------------------- workflows as agents


async def a_workflow_as_an_agent(af, trace):
    workflow = _pair(af, agent("one", "first"), agent("two", "second"))
    as_agent = workflow.as_agent("team", description="works")
    trace.note(as_agent.name, as_agent.description)
    trace.note(await as_agent.run("hello"))
    trace.note(await as_agent.run([af.Message("user", ["again"])]))


async def a_workflow_as_a_streaming_agent(af, trace):
    as_agent = _pair(af, agent("one", "first answer"), agent("two", "second answer")).as_agent()
    stream = as_agent.run("hello", stream=True)
    trace.note([update async for update in stream])
    trace.note(await stream.get_final_response())


async def a_session_of_a_workflow_agent(af, trace):
    one = agent("one", "first", "second")
    as_agent = af.WorkflowBuilder(start_executor=one).build().as_agent()
    session = as_agent.create_session()
    for word in ("a", "b"):
        trace.note(await as_agent.run(word, session=session))
    trace.note(one.client.requests)


async def a_start_executor_gets_the_history(af, trace):
    class Reads(af.Executor):
        @af.handler
        async def read(self, messages: list[af.Message], ctx: af.WorkflowContext[Never, Any]) -> None:
            trace.note([message.text for message in messages])
            await ctx.yield_output(af.AgentResponse(messages=[af.Message("assistant", [f"{len(messages)} heard"])]))

    as_agent = af.WorkflowBuilder(start_executor=Reads("reads")).build().as_agent()
    session = as_agent.create_session()
    for word in ("a", "b"):
        trace.note(await as_agent.run(word, session=session))


async def intermediate_outputs_of_an_agent(af, trace):
    one, two = agent("one", "first"), agent("two", "second")
    workflow = _pair(af, one, two, output_from=[two], intermediate_output_from=[one])
    trace.note(await workflow.as_agent().run("hello"))


async def a_workflow_agent_that_asks(af, trace):
    class Start(af.Executor):
        @af.handler
        async def start(self, messages: list[af.Message], ctx: af.WorkflowContext[str]) -> None:
            await ctx.send_message(messages[-1].text)

    start, asks = Start("start"), asker(af, "asks", "age of")
    as_agent = af.WorkflowBuilder(start_executor=start).add_edge(start, asks).build().as_agent()
    response = await as_agent.run("Ann")
    trace.note(response, [content.type for message in response.messages for content in message.contents])


async def a_workflow_that_is_no_agent(af, trace):
    class Numbers(af.Executor):
        @af.handler
        async def take(self, n: int, ctx: af.WorkflowContext[Never, int]) -> None: ...

    await trace.attempt(lambda: af.WorkflowBuilder(start_executor=Numbers("n")).build().as_agent())


async def a_workflow_agent_inside_a_workflow(af, trace):
    inner = _pair(af, agent("one", "first"), agent("two", "second")).as_agent("inner")
    trace.result(await _pair(af, inner, agent("three", "third")).run("hello"))


async def agents_and_executors(af, trace):
    class Ask(af.Executor):
        @af.handler
        async def ask(self, text: str, ctx: af.WorkflowContext[af.AgentExecutorRequest]) -> None:
            messages = [af.Message("user", [text.upper()])]
            await ctx.send_message(af.AgentExecutorRequest(messages=messages, should_respond=True))

    ask, one = Ask("ask"), agent("one", "said")
    end = collector(af, "end", af.AgentExecutorResponse)
    trace.result(await af.WorkflowBuilder(start_executor=ask).add_edge(ask, one).add_edge(one, end).build().run("hi"))
    trace.note(one.client.requests, forwarder(af, "x").id)
