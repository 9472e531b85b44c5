"""Programs: requests to people, and responses."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

from dataclasses import dataclass
from typing import Any, Never

from tests.compat.programs.graphs import collector, forwarder, sender


@dataclass
class Question:
    text: str


@dataclass
class Verdict:
    ok: bool
    why: str = ""


def asker(af, id, *questions, answer=str):
    """Return an executor that asks these questions and yields each answer."""

    class Asker(af.Executor):
        @af.handler
        async def ask(self, message: str, ctx: af.WorkflowContext[str]) -> None:
            for question in questions:
                await ctx.request_info(Question(f"{question} {message}"), answer)

        @af.response_handler
        async def answered(self, asked: Question, response: answer, ctx: af.WorkflowContext[str, Any]) -> None:
            await ctx.yield_output((asked.text, response))
            await ctx.send_message(f"{asked.text}: {response}")

    return Asker(id)


async def ask_and_respond(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "age of")).build()
    result = await workflow.run("Ann")
    trace.result(result)
    (event,) = result.get_request_info_events()
    trace.note(event.request_type is Question, event.response_type is str, workflow.status)
    trace.result(await workflow.run(responses={event.request_id: "41"}))
    trace.note(workflow.status)


async def stream_a_request(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "age of")).build()
    result = await trace.stream(workflow.run("Ann", stream=True))
    (event,) = result.get_request_info_events()
    await trace.stream(workflow.run(responses={event.request_id: "41"}, stream=True))


async def several_requests_answered_one_by_one(af, trace):
    asks, end = asker(af, "asks", "age of", "name of"), collector(af, "end")
    workflow = af.WorkflowBuilder(start_executor=asks).add_edge(asks, end).build()
    events = (await workflow.run("Ann")).get_request_info_events()
    for event in events:
        trace.result(await workflow.run(responses={event.request_id: "x"}))


async def several_requests_answered_at_once(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "a", "b", "c")).build()
    events = (await workflow.run("Ann")).get_request_info_events()
    trace.result(await workflow.run(responses={event.request_id: event.data.text for event in events}))


async def chosen_request_id(af, trace):
    class Asker(af.Executor):
        @af.handler
        async def ask(self, message: str, ctx: af.WorkflowContext) -> None:
            await ctx.request_info(Question(message), str, request_id="mine")

        @af.response_handler
        async def answered(self, asked: Question, response: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output((ctx.request_id, response))

    workflow = af.WorkflowBuilder(start_executor=Asker("asks")).build()
    trace.note([event.request_id for event in (await workflow.run("Ann")).get_request_info_events()])
    trace.result(await workflow.run(responses={"mine": "yes"}))


async def responses_are_coerced(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "may I", answer=Verdict)).build()
    for response in ({"ok": True, "why": "so"}, Verdict(False)):
        (event,) = (await workflow.run("go")).get_request_info_events()
        trace.result(await workflow.run(responses={event.request_id: response}))


async def wrong_type_of_response(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "may I", answer=Verdict)).build()
    (event,) = (await workflow.run("go")).get_request_info_events()
    await trace.attempt(lambda: workflow.run(responses={event.request_id: 7}))
    trace.result(await workflow.run(responses={event.request_id: Verdict(True)}))


async def unknown_request_id(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "may I")).build()
    await workflow.run("go")
    await trace.attempt(lambda: workflow.run(responses={"nobody": "x"}))


async def responses_without_requests(af, trace):
    workflow = af.WorkflowBuilder(start_executor=collector(af, "end")).build()
    await trace.attempt(lambda: workflow.run(responses={"nobody": "x"}))
    await workflow.run("go")
    await trace.attempt(lambda: workflow.run(responses={"nobody": "x"}))


async def response_given_twice(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "may I")).build()
    (event,) = (await workflow.run("go")).get_request_info_events()
    await workflow.run(responses={event.request_id: "yes"})
    await trace.attempt(lambda: workflow.run(responses={event.request_id: "no"}))


async def response_handlers_by_type(af, trace):
    class Asker(af.Executor):
        @af.handler
        async def ask(self, message: str, ctx: af.WorkflowContext) -> None:
            await ctx.request_info(Question("text"), str)
            await ctx.request_info(Question("number"), int)
            await ctx.request_info({"a": 1}, bool)

        @af.response_handler
        async def text(self, asked: Question, response: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output(("text", response))

        @af.response_handler
        async def number(self, asked: Question, response: int, ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output(("number", response))

        @af.response_handler
        async def flag(self, asked: dict, response: bool, ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output(("flag", asked, response))

    executor = Asker("asks")
    supported = [executor.is_request_supported(*pair) for pair in ((Question, str), (Question, bytes), (dict, bool))]
    trace.note(supported, executor.is_request_response_capable)
    workflow = af.WorkflowBuilder(start_executor=executor).build()
    events = (await workflow.run("go")).get_request_info_events()
    answers = {"text": "t", "number": 5}
    responses = {e.request_id: answers[e.data.text] if isinstance(e.data, Question) else True for e in events}
    trace.result(await workflow.run(responses=responses))


async def explicit_response_types(af, trace):
    class Asker(af.Executor):
        @af.handler(input=str)
        async def ask(self, message, ctx):
            await ctx.request_info(Question(message), str)

        @af.response_handler(request=Question, response=str, workflow_output=str)
        async def answered(self, asked, response, ctx):
            await ctx.yield_output(response)

    workflow = af.WorkflowBuilder(start_executor=Asker("asks")).build()
    (event,) = (await workflow.run("go")).get_request_info_events()
    trace.result(await workflow.run(responses={event.request_id: "yes"}))


async def requests_of_parallel_executors(af, trace):
    start, asks = sender(af, "start", "go"), [asker(af, id, id) for id in ("one", "two")]
    end = collector(af, "end", list[str])
    builder = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, asks).add_fan_in_edges(asks, end)
    workflow = builder.build()
    result = await workflow.run("go")
    trace.note(sorted(event.data.text for event in result.get_request_info_events()))
    events = sorted(result.get_request_info_events(), key=lambda event: event.data.text)
    trace.result(await workflow.run(responses={events[0].request_id: "1"}))
    trace.result(await workflow.run(responses={events[1].request_id: "2"}))


async def a_request_while_others_go_on(af, trace):
    start, asks, work = sender(af, "start", "go"), asker(af, "asks", "may I"), forwarder(af, "work", str.upper)
    end = collector(af, "end")
    builder = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [asks, work]).add_edge(work, end)
    workflow = builder.build()
    result = await trace.stream(workflow.run("go", stream=True))
    (event,) = result.get_request_info_events()
    await trace.stream(workflow.run(responses={event.request_id: "yes"}, stream=True))


async def asking_again_in_a_response_handler(af, trace):
    class Asker(af.Executor):
        @af.handler
        async def ask(self, message: str, ctx: af.WorkflowContext) -> None:
            await ctx.request_info(Question("first"), str)

        @af.response_handler
        async def answered(self, asked: Question, response: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            if asked.text == "first":
                await ctx.request_info(Question("second"), str)
            else:
                await ctx.yield_output(response)

    workflow = af.WorkflowBuilder(start_executor=Asker("asks")).build()
    result = await workflow.run("go")
    for response in ("one", "two"):
        (event,) = result.get_request_info_events()
        result = await workflow.run(responses={event.request_id: response})
        trace.result(result)


async def a_new_message_while_a_request_is_open(af, trace):
    workflow = af.WorkflowBuilder(start_executor=asker(af, "asks", "age of")).build()
    (first,) = (await workflow.run("Ann")).get_request_info_events()
    result = await workflow.run("Bob")
    trace.result(result)
    (second,) = result.get_request_info_events()
    trace.result(await workflow.run(responses={first.request_id: "1", second.request_id: "2"}))


async def a_request_without_a_response_handler(af, trace):
    class Asker(af.Executor):
        @af.handler
        async def ask(self, message: str, ctx: af.WorkflowContext) -> None:
            await ctx.request_info(Question(message), str)

    workflow = af.WorkflowBuilder(start_executor=Asker("asks")).build()
    trace.result(await workflow.run("go"))


async def response_handler_that_raises(af, trace):
    class Asker(af.Executor):
        @af.handler
        async def ask(self, message: str, ctx: af.WorkflowContext) -> None:
            await ctx.request_info(Question(message), str)

        @af.response_handler
        async def answered(self, asked: Question, response: str, ctx: af.WorkflowContext) -> None:
            raise LookupError(response)

    workflow = af.WorkflowBuilder(start_executor=Asker("asks")).build()
    (event,) = (await workflow.run("go")).get_request_info_events()
    await trace.stream(workflow.run(responses={event.request_id: "boom"}, stream=True))
