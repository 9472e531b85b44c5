"""Programs: workflows inside workflows."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

from typing import Any, Never

from tests.compat.programs.definitions import yielder
from tests.compat.programs.graphs import collector, forwarder
from tests.compat.programs.requests import Question, asker


def _inner(af, *executors):
    executors = executors or (forwarder(af, "first", str.upper), yielder(af, "last"))
    builder = af.WorkflowBuilder(name="inner", start_executor=executors[0])
    return (builder.add_chain(executors) if len(executors) > 1 else builder).build()


def _outer(af, nested, *after, **options):
    start = forwarder(af, "start")
    builder = af.WorkflowBuilder(name="outer", start_executor=start, **options).add_edge(start, nested)
    for executor in after:
        builder.add_edge(nested, executor)
    return builder.build()


async def outputs_become_messages(af, trace):
    nested = af.WorkflowExecutor(_inner(af), "nested")
    workflow = _outer(af, nested, collector(af, "end"))
    await trace.stream(workflow.run("hi", stream=True))
    trace.note(sorted(map(str, nested.input_types)), sorted(map(str, nested.output_types)), nested.type)


async def outputs_are_yielded(af, trace):
    workflow = _outer(af, af.WorkflowExecutor(_inner(af), "nested", allow_direct_output=True))
    trace.result(await workflow.run("hi"))
    trace.result(await workflow.run("again"))


async def intermediate_outputs_pass(af, trace):
    one, two = yielder(af, "one"), yielder(af, "two")
    inner = af.WorkflowBuilder(start_executor=one, output_from=[two], intermediate_output_from=[one]).add_edge(one, two)
    workflow = _outer(af, af.WorkflowExecutor(inner.build(), "nested", allow_direct_output=True))
    trace.result(await workflow.run("hi"))


async def a_nested_failure(af, trace):
    class Fails(af.Executor):
        @af.handler
        async def fail(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            raise ArithmeticError(message)

    workflow = _outer(af, af.WorkflowExecutor(_inner(af, Fails("fails")), "nested", allow_direct_output=True))
    await trace.stream(workflow.run("hi", stream=True))


async def requests_are_propagated(af, trace):
    nested = af.WorkflowExecutor(
        _inner(af, asker(af, "asks", "age of")), "nested", allow_direct_output=True, propagate_request=True
    )
    workflow = _outer(af, nested)
    result = await trace.stream(workflow.run("Ann", stream=True))
    (event,) = result.get_request_info_events()
    await trace.stream(workflow.run(responses={event.request_id: "41"}, stream=True))


async def requests_become_messages(af, trace):
    class Answers(af.Executor):
        @af.handler
        async def answer(
            self, request: af.SubWorkflowRequestMessage, ctx: af.WorkflowContext[af.SubWorkflowResponseMessage]
        ) -> None:
            trace.note(request.executor_id, request.source_event.data, request.source_event.response_type)
            await trace.attempt(lambda: request.create_response(5))
            await ctx.send_message(request.create_response("from the outer"), target_id=request.executor_id)

        @af.handler
        async def output(self, message: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output(message)

    class Start(af.Executor):
        @af.handler
        async def go(self, message: str, ctx: af.WorkflowContext[str]) -> None:
            await ctx.send_message(message)

    class Finishing(af.Executor):
        @af.handler
        async def finish(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(message)

    asks = asker(af, "asks", "age of")
    nested, answers = af.WorkflowExecutor(_inner(af, asks, Finishing("f")), "nested"), Answers("answers")
    start = Start("start")
    builder = af.WorkflowBuilder(start_executor=start).add_edge(start, nested)
    workflow = builder.add_edge(nested, answers).add_edge(answers, nested).build()
    trace.result(await workflow.run("Ann"))


async def three_levels(af, trace):
    middle = _outer(af, af.WorkflowExecutor(_inner(af), "inner", allow_direct_output=True))
    workflow = _outer(af, af.WorkflowExecutor(middle, "middle", allow_direct_output=True))
    trace.result(await workflow.run("hi"))


async def nested_requests_after_a_restart(af, trace):
    def build():
        inner = _inner(af, asker(af, "asks", "age of"))
        nested = af.WorkflowExecutor(inner, "nested", allow_direct_output=True, propagate_request=True)
        return _outer(af, nested, checkpoint_storage=storage)

    storage = af.InMemoryCheckpointStorage()
    (event,) = (await build().run("Ann")).get_request_info_events()
    latest = await storage.get_latest(workflow_name="outer")
    workflow = build()
    result = await workflow.run(checkpoint_id=latest.checkpoint_id)
    trace.result(result)
    trace.result(await workflow.run(responses={event.request_id: "41"}))
    trace.result(await build().run(checkpoint_id=latest.checkpoint_id, responses={event.request_id: "42"}))


async def nested_executors_keep_their_attributes(af, trace):
    class Counts(af.Executor):
        calls = 0

        @af.handler
        async def count(self, message: str, ctx: af.WorkflowContext[Never, int]) -> None:
            self.calls += 1
            await ctx.yield_output(self.calls)

    workflow = _outer(af, af.WorkflowExecutor(_inner(af, Counts("counts")), "nested", allow_direct_output=True))
    for _ in range(3):
        trace.note((await workflow.run("go")).get_outputs())


async def nested_state_is_separate(af, trace):
    class Writes(af.Executor):
        @af.handler
        async def write(self, message: str, ctx: af.WorkflowContext[str, Any]) -> None:
            before = ctx.get_state("k")
            ctx.set_state("k", self.id)
            await ctx.yield_output((self.id, before))
            await ctx.send_message(message)

    start = Writes("start")
    nested = af.WorkflowExecutor(_inner(af, Writes("inside")), "nested", allow_direct_output=True)
    workflow = af.WorkflowBuilder(start_executor=start).add_edge(start, nested).build()
    for _ in range(2):
        trace.note((await workflow.run("go")).get_outputs())


async def a_caller_that_answers_its_sub_workflow_from_checkpoints(af, trace):
    class Answers(af.Executor):
        def __init__(self, id):
            super().__init__(id)
            self.waiting = {}

        @af.handler
        async def answer(
            self, request: af.SubWorkflowRequestMessage, ctx: af.WorkflowContext[af.SubWorkflowResponseMessage]
        ) -> None:
            question = request.source_event.data
            if len(question.text) < 9:
                await ctx.send_message(request.create_response(len(question.text)))
                return
            self.waiting[question.text] = request
            await ctx.request_info(question, int, request_id="out")

        @af.response_handler
        async def answered(
            self, question: Question, response: int, ctx: af.WorkflowContext[af.SubWorkflowResponseMessage]
        ) -> None:
            await ctx.send_message(self.waiting.pop(question.text).create_response(response))

        async def on_checkpoint_save(self):
            return {"waiting": self.waiting}

        async def on_checkpoint_restore(self, state):
            self.waiting = state["waiting"]

    def build(storage):
        asks, end = asker(af, "asks", "of", answer=int), collector(af, "end")
        inner = af.WorkflowBuilder(name="inner", start_executor=asks).add_edge(asks, end).build()
        nested = af.WorkflowExecutor(inner, "nested", allow_direct_output=True)
        answers = Answers("answers")
        builder = af.WorkflowBuilder(name="outer", start_executor=nested, checkpoint_storage=storage)
        return builder.add_edge(nested, answers).add_edge(answers, nested).build()

    for name in ("Ann", "Alexander"):
        storage = af.InMemoryCheckpointStorage()
        result = await build(storage).run(name)
        trace.note(result.get_outputs(), [event.data for event in result.get_request_info_events()])
        if result.get_request_info_events():
            latest, workflow = await storage.get_latest(workflow_name="outer"), build(storage)
            await workflow.run(checkpoint_id=latest.checkpoint_id)
            trace.note((await workflow.run(responses={"out": 40})).get_outputs())
