"""Programs: the shapes of graphs, and how messages travel."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

from dataclasses import dataclass
from typing import Any, Never


@dataclass
class Order:
    id: int
    total: float = 0.0
    note: str = ""


def sender(af, id, *messages, takes=str):
    """Return an executor that sends these messages, whatever it gets."""

    class Sender(af.Executor):
        @af.handler
        async def send(self, message: takes, ctx: af.WorkflowContext[Any]) -> None:
            for each in messages:
                await ctx.send_message(each)

    return Sender(id)


def collector(af, id, takes=str):
    """Return an executor that yields what it gets, with its id."""

    class Collector(af.Executor):
        @af.handler
        async def collect(self, message: takes, ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output((self.id, message))

    return Collector(id)


def forwarder(af, id, change=lambda text: text, takes=str):
    """Return an executor that passes on what it gets."""

    class Forwarder(af.Executor):
        @af.handler
        async def forward(self, message: takes, ctx: af.WorkflowContext[takes, takes]) -> None:
            await ctx.send_message(change(message))

    return Forwarder(id)


async def chain_of_three(af, trace):
    a, b, c = forwarder(af, "a", str.upper), forwarder(af, "b", lambda text: text + "!"), collector(af, "c")
    workflow = af.WorkflowBuilder(start_executor=a).add_edge(a, b).add_edge(b, c).build()
    trace.result(await workflow.run("hi"))
    await trace.stream(workflow.run("again", stream=True))


async def chain_method(af, trace):
    nodes = [forwarder(af, "a"), forwarder(af, "b"), collector(af, "c")]
    workflow = af.WorkflowBuilder(start_executor=nodes[0]).add_chain(nodes).build()
    trace.result(await workflow.run("hi"))


async def one_executor(af, trace):
    workflow = af.WorkflowBuilder(start_executor=collector(af, "only")).build()
    result = await workflow.run("hi", include_status_events=True)
    trace.result(result)
    trace.note(result.get_outputs(), result.status_timeline())


async def function_executors(af, trace):
    @af.executor(id="upper")
    async def upper(text: str, ctx: af.WorkflowContext[str]) -> None:
        await ctx.send_message(text.upper())

    @af.executor
    async def finish(text: str, ctx: af.WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(text + "!")

    trace.note(upper.id, finish.id, upper.type, upper.input_types, upper.output_types, finish.workflow_output_types)
    workflow = af.WorkflowBuilder(start_executor=upper).add_edge(upper, finish).build()
    trace.result(await workflow.run("hi"))


async def plain_function_executor(af, trace):
    seen = []

    @af.executor(id="keep")
    def keep(text: str) -> None:
        seen.append(text)

    workflow = af.WorkflowBuilder(start_executor=keep).build()
    trace.result(await workflow.run("hi"))
    trace.note(seen)


async def return_values_are_not_sent(af, trace):
    class Returns(af.Executor):
        @af.handler
        async def work(self, text: str, ctx: af.WorkflowContext[str]) -> str:
            return text

    start, end = Returns("start"), collector(af, "end")
    workflow = af.WorkflowBuilder(start_executor=start).add_edge(start, end).build()
    trace.result(await workflow.run("hi"))


async def fan_out(af, trace):
    start, ends = sender(af, "start", "x"), [collector(af, id) for id in "abc"]
    workflow = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, ends).build()
    trace.result(await workflow.run("go"))


async def fan_in(af, trace):
    start, mids, end = sender(af, "start", "x"), [forwarder(af, id) for id in "abc"], collector(af, "end", list[str])
    builder = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, mids).add_fan_in_edges(mids, end)
    trace.result(await builder.build().run("go"))


async def fan_in_waits_for_its_slowest_source(af, trace):
    start, fast, slow = sender(af, "start", "x"), forwarder(af, "fast"), forwarder(af, "slow")
    later, end = forwarder(af, "later", str.upper), collector(af, "end", list[str])
    builder = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [fast, slow])
    trace.result(await builder.add_edge(slow, later).add_fan_in_edges([fast, later], end).build().run("go"))


async def fan_in_that_never_completes(af, trace):
    start, a, b, end = sender(af, "start", "x"), forwarder(af, "a"), forwarder(af, "b"), collector(af, "end", list[str])
    builder = af.WorkflowBuilder(start_executor=start)
    builder.add_edge(start, a).add_edge(start, b, condition=lambda _: False).add_fan_in_edges([a, b], end)
    trace.result(await builder.build().run("go"))


async def conditions(af, trace):
    start, even, odd = sender(af, "start", 1, 2, 3), collector(af, "even", int), collector(af, "odd", int)
    builder = af.WorkflowBuilder(start_executor=start)
    builder.add_edge(start, even, condition=lambda n: n % 2 == 0).add_edge(start, odd, condition=lambda n: n % 2)
    trace.result(await builder.build().run("go"))


async def async_condition(af, trace):
    async def is_long(text):
        return len(text) > 1

    start, end = sender(af, "start", "a", "bb"), collector(af, "end")
    trace.result(await af.WorkflowBuilder(start_executor=start).add_edge(start, end, is_long).build().run("go"))


async def condition_that_raises(af, trace):
    start, end = sender(af, "start", "a"), collector(af, "end")
    workflow = af.WorkflowBuilder(start_executor=start).add_edge(start, end, lambda text: text.missing).build()
    await trace.stream(workflow.run("go", stream=True))


async def condition_is_not_asked_about_foreign_types(af, trace):
    start = sender(af, "start", "text", Order(1, 5.0))
    texts, orders = collector(af, "texts"), collector(af, "orders", Order)
    builder = af.WorkflowBuilder(start_executor=start).add_edge(start, texts)
    trace.result(await builder.add_edge(start, orders, lambda order: order.total > 1).build().run("go"))


async def switch_case(af, trace):
    start = sender(af, "start", 1, 50, 500)
    small, large, huge = (collector(af, id, int) for id in ("small", "large", "huge"))
    cases = [af.Case(lambda n: n < 10, small), af.Case(lambda n: n < 100, large), af.Default(huge)]
    workflow = af.WorkflowBuilder(start_executor=start).add_switch_case_edge_group(start, cases).build()
    trace.result(await workflow.run("go"))


async def multi_selection(af, trace):
    start, targets = sender(af, "start", "ab", "c", ""), [collector(af, id) for id in "abc"]

    def choose(text, ids):
        return [id for id in ids if id in text]

    builder = af.WorkflowBuilder(start_executor=start).add_multi_selection_edge_group(start, targets, choose)
    trace.result(await builder.build().run("go"))


async def selection_of_a_stranger(af, trace):
    start, targets = sender(af, "start", "x"), [collector(af, id) for id in "ab"]
    builder = af.WorkflowBuilder(start_executor=start)
    builder.add_multi_selection_edge_group(start, targets, lambda text, ids: ["nobody"])
    await trace.stream(builder.build().run("go", stream=True))


async def loop(af, trace):
    class Counter(af.Executor):
        @af.handler
        async def count(self, n: int, ctx: af.WorkflowContext[int, str]) -> None:
            if n < 5:
                await ctx.send_message(n + 1)
            else:
                await ctx.yield_output(f"reached {n}")

    counter, back = Counter("counter"), forwarder(af, "back", lambda n: n, int)
    workflow = af.WorkflowBuilder(start_executor=counter).add_edge(counter, back).add_edge(back, counter).build()
    trace.result(await workflow.run(0))


async def self_loop(af, trace):
    class Counter(af.Executor):
        @af.handler
        async def count(self, n: int, ctx: af.WorkflowContext[int, int]) -> None:
            await (ctx.send_message(n + 1) if n < 3 else ctx.yield_output(n))

    counter = Counter("counter")
    trace.result(await af.WorkflowBuilder(start_executor=counter).add_edge(counter, counter).build().run(0))


async def endless_loop(af, trace):
    a, b = forwarder(af, "a"), forwarder(af, "b")
    workflow = af.WorkflowBuilder(4, start_executor=a).add_edge(a, b).add_edge(b, a).build()
    await trace.attempt(lambda: workflow.run("x"))
    trace.note(workflow.status)


async def targeted_messages(af, trace):
    class Chooser(af.Executor):
        @af.handler
        async def choose(self, text: str, ctx: af.WorkflowContext[str]) -> None:
            await ctx.send_message("for b", target_id="b")
            await ctx.send_message("for all")
            await ctx.send_message("for nobody", target_id="nobody")

    start, ends = Chooser("start"), [collector(af, id) for id in "ab"]
    workflow = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, ends).build()
    trace.result(await workflow.run("go"))


async def target_outside_a_selection(af, trace):
    class Chooser(af.Executor):
        @af.handler
        async def choose(self, text: str, ctx: af.WorkflowContext[str]) -> None:
            await ctx.send_message("one", target_id="a")
            await ctx.send_message("two", target_id="b")

    start, ends = Chooser("start"), [collector(af, id) for id in "ab"]
    builder = af.WorkflowBuilder(start_executor=start)
    builder.add_multi_selection_edge_group(start, ends, lambda text, ids: ["b"])
    trace.result(await builder.build().run("go"))


async def messages_without_an_edge(af, trace):
    start = sender(af, "start", "lost", "lost too")
    trace.result(await af.WorkflowBuilder(start_executor=start).build().run("go"))


async def messages_that_nobody_takes(af, trace):
    start, end = sender(af, "start", 1, "text", 2.5), collector(af, "end")
    trace.result(await af.WorkflowBuilder(start_executor=start).add_edge(start, end).build().run("go"))


async def several_messages_keep_their_order(af, trace):
    start, mid, end = sender(af, "start", "1", "2", "3"), forwarder(af, "mid"), collector(af, "end")
    trace.result(await af.WorkflowBuilder(start_executor=start).add_chain([start, mid, end]).build().run("go"))


async def handlers_by_type(af, trace):
    class Many(af.Executor):
        @af.handler
        async def text(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(f"text {message}")

        @af.handler
        async def number(self, message: int | float, ctx: af.WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(f"number {message}")

        @af.handler
        async def order(self, message: Order, ctx: af.WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(f"order {message.id}")

    start, end = sender(af, "start", "a", 1, 2.5, Order(7)), Many("end")
    trace.result(await af.WorkflowBuilder(start_executor=start).add_edge(start, end).build().run("go"))
    trace.note(end.input_types)


async def explicit_handler_types(af, trace):
    class Explicit(af.Executor):
        @af.handler(input=str, output=int, workflow_output="str | int")
        async def work(self, message, ctx):
            await ctx.send_message(len(message))
            await ctx.yield_output(message)

    start, end = Explicit("start"), collector(af, "end", int)
    trace.note(start.input_types, start.output_types, sorted(map(str, start.workflow_output_types)))
    trace.result(await af.WorkflowBuilder(start_executor=start).add_edge(start, end).build().run("abc"))


async def inherited_handlers(af, trace):
    class Base(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(self.say(message))

        def say(self, message):
            return message

    class Loud(Base):
        def say(self, message):
            return message.upper()

    trace.result(await af.WorkflowBuilder(start_executor=Loud("loud")).build().run("hi"))


async def sources_of_a_message(af, trace):
    class Asks(af.Executor):
        @af.handler
        async def one(self, message: str, ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output((ctx.source_executor_ids, ctx.get_source_executor_id()))

        @af.handler
        async def many(self, message: list[str], ctx: af.WorkflowContext[Never, Any]) -> None:
            await ctx.yield_output(ctx.source_executor_ids)
            ctx.get_source_executor_id()

    start, mids, end = sender(af, "start", "x"), [forwarder(af, id) for id in "ab"], Asks("end")
    builder = af.WorkflowBuilder(start_executor=start).add_fan_out_edges(start, mids).add_fan_in_edges(mids, end)
    await trace.attempt(lambda: builder.build().run("go"))
    alone = Asks("alone")
    trace.result(await af.WorkflowBuilder(start_executor=alone).build().run("go"))


async def what_a_handler_has_done(af, trace):
    class Looks(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[str, str]) -> None:
            await ctx.send_message("sent")
            await ctx.yield_output("yielded")
            trace.note(ctx.get_sent_messages(), ctx.get_yielded_outputs(), ctx.is_streaming(), ctx.request_id)

    workflow = af.WorkflowBuilder(start_executor=Looks("looks")).build()
    await workflow.run("go")
    await trace.stream(workflow.run("go", stream=True))


async def dataclass_messages(af, trace):
    start, end = sender(af, "start", Order(1, 2.5, "a"), [Order(2)], {"k": Order(3)}), collector(af, "end", Any)
    trace.result(await af.WorkflowBuilder(start_executor=start).add_edge(start, end).build().run("go"))


async def diamond_with_two_edges_into_one(af, trace):
    start, a, b, end = sender(af, "start", "x"), forwarder(af, "a"), forwarder(af, "b", str.upper), collector(af, "end")
    builder = af.WorkflowBuilder(start_executor=start).add_edge(start, a).add_edge(start, b)
    trace.result(await builder.add_edge(a, end).add_edge(b, end).build().run("go"))


async def custom_events(af, trace):
    class Emits(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            await ctx.add_event(af.WorkflowEvent.warning("careful"))
            await ctx.add_event(af.WorkflowEvent.error(ValueError("odd")))
            await ctx.add_event(af.WorkflowEvent("data", data={"progress": 1}, executor_id=self.id))
            await ctx.yield_output("done")

    await trace.stream(af.WorkflowBuilder(start_executor=Emits("emits")).build().run("go", stream=True))


async def reserved_events(af, trace):
    class Emits(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            for type in ("output", "intermediate", "started", "status", "failed"):
                await ctx.add_event(af.WorkflowEvent(type, data="mine"))

    await trace.stream(af.WorkflowBuilder(start_executor=Emits("emits")).build().run("go", stream=True))
