"""Saying a workflow: every way to add to it, every problem at once, and what was built stays as it was."""

from typing import Any, Never

import pytest

from stepwell import (
    Case,
    Default,
    Executor,
    InMemoryCheckpointStorage,
    RoutingFailed,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    executor,
    handler,
)
from stepwell.workflows import DEFAULT_MAX_ITERATIONS
from tests.graph.builder_samples import End, Join, Step, is_long, problems_of, send_to, told, unroutable


async def is_short(message: str) -> bool:
    return not is_long(message)


async def last_outputs(builder: WorkflowBuilder, message: str) -> list[str]:
    """What comes out where nothing goes on, in the order of the ends."""
    workflow = builder.build()
    ends = [id for id in workflow.executors if not any(id in edge.sources for edge in workflow.edges)]
    events = [event async for event in workflow.run(message, stream=True)]
    return [event.data for event in events if event.type == "output" and event.executor_id in ends]


# each way to add an edge


async def test_an_edge_carries_what_is_sent() -> None:
    builder = WorkflowBuilder(start_executor=(a := Step("a"))).add_edge(a, End("z"))
    assert told(builder.build()) == ["a -> z"]
    assert await last_outputs(builder, ">") == [">az"]


@pytest.mark.parametrize(("message", "outputs"), [("", ["ashort"]), ("____", ["____along"])])
async def test_a_conditional_edge_carries_what_its_condition_lets_pass_be_it_plain_or_async(
    message: str, outputs: list[str]
) -> None:
    builder = WorkflowBuilder(start_executor=(a := Step("a")))
    builder.add_edge(a, End("long"), condition=is_long).add_edge(a, End("short"), is_short)
    assert told(builder.build()) == ["a -> long if is_long", "a -> short if is_short"]
    assert await last_outputs(builder, message) == outputs


async def test_a_chain_is_an_edge_from_each_to_the_next() -> None:
    builder = WorkflowBuilder(start_executor="a").add_chain([Step("a"), Step("b"), End("z")])
    assert told(builder.build()) == ["a -> b", "b -> z"]
    assert await last_outputs(builder, ">") == [">abz"]


async def test_a_fan_out_goes_to_every_target() -> None:
    builder = WorkflowBuilder(start_executor=(a := Step("a"))).add_fan_out_edges(a, [End("x"), End("y")])
    assert told(builder.build()) == ["a -> each of x, y"]
    assert await last_outputs(builder, ">") == [">ax", ">ay"]


def test_a_fan_out_may_have_one_target() -> None:
    assert told(WorkflowBuilder(start_executor=Step("a")).add_fan_out_edges("a", [End("z")]).build()) == [
        "a -> each of z"
    ]


async def test_a_fan_in_delivers_one_list_in_the_order_of_its_sources() -> None:
    builder = WorkflowBuilder(start_executor=Step("a")).add_fan_out_edges("a", [Step("x"), Step("y")])
    builder.add_fan_in_edges(["y", "x"], Join("z"))
    assert told(builder.build()) == ["a -> each of x, y", "all of y, x -> z"]
    assert await last_outputs(builder, ">") == ["[>ay >ax]z"]


@pytest.mark.parametrize(("message", "outputs"), [("", ["ashort"]), ("____", ["____along"]), ("stop", ["stopaother"])])
async def test_a_switch_goes_to_the_first_case_that_holds_else_to_the_default(message: str, outputs: list[str]) -> None:
    def stops(message: str) -> bool:
        return message.startswith("stop")

    builder = WorkflowBuilder(start_executor=Step("a")).add_switch_case_edge_group(
        "a", [Default(End("other")), Case(stops, "other"), Case(is_short, End("short")), Case(is_long, End("long"))]
    )
    assert told(builder.build()) == [
        "a -> first of other if stops, short if is_short, long if is_long, other otherwise"
    ]
    assert await last_outputs(builder, message) == outputs


@pytest.mark.parametrize(("message", "outputs"), [("", []), ("x", ["xax"]), ("xyxy", ["xyxyax", "xyxyay"])])
async def test_a_selection_goes_to_those_whose_ids_it_returns(message: str, outputs: list[str]) -> None:
    def named(message: str, targets: list[str]) -> list[str]:
        return [target for target in targets if target in message]

    builder = WorkflowBuilder(start_executor=Step("a"))
    builder.add_multi_selection_edge_group("a", [End("x"), End("y")], named)
    assert told(builder.build()) == ["a -> those of x, y chosen by named"]
    assert await last_outputs(builder, message) == outputs


async def test_an_executor_may_send_to_itself() -> None:
    class Counting(Executor):
        @handler
        async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
            await (ctx.send_message(number - 1) if number else ctx.yield_output(number))

    loop = Counting("loop")
    workflow = WorkflowBuilder(start_executor=loop).add_edge(loop, loop).build()
    assert (await workflow.run(3)).get_outputs() == [0]


async def test_a_fan_in_delivers_all_that_was_sent_in_the_order_of_the_sources() -> None:
    @executor(id="twice", output=str)
    async def twice(message: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(f"{message}1")
        await ctx.send_message(f"{message}2")

    builder = WorkflowBuilder(start_executor=Step("a")).add_fan_out_edges("a", [twice, Step("once")])
    builder.add_fan_in_edges(["once", "twice"], Join("z"))
    assert await last_outputs(builder, ">") == ["[>aonce >a1 >a2]z"]


async def test_a_send_to_one_target_goes_along_the_edge_that_leads_there() -> None:
    builder = WorkflowBuilder(start_executor=send_to("y")).add_fan_out_edges("s", [End("x"), End("y")])
    assert await last_outputs(builder, "") == [">y"]


@pytest.mark.parametrize("case", unroutable())
async def test_a_message_without_a_taker_fails_the_run_and_names_what_is_missing(case: str) -> None:
    builder, missing = unroutable()[case]
    with pytest.raises(RoutingFailed) as caught:
        await builder.build().run("")
    assert missing in str(caught.value)


@pytest.mark.parametrize("case", unroutable())
async def test_a_message_without_a_taker_is_a_warning_if_it_may_be_dropped(case: str) -> None:
    builder, missing = unroutable(on_unroutable="drop")[case]
    events = [event async for event in builder.build().run("", stream=True)]
    (warning,) = [event for event in events if event.type == "warning"]
    assert missing in str(warning.data)


async def test_an_executor_that_stands_alone_is_a_workflow() -> None:
    assert await last_outputs(WorkflowBuilder(start_executor=End("z")), ">") == [">z"]


# settings, and the older names for them


def test_settings_are_kept() -> None:
    workflow = WorkflowBuilder(7, "orders", "what it does", start_executor=Step("a")).build()
    assert (workflow.max_iterations, workflow.name, workflow.description) == (7, "orders", "what it does")
    assert workflow.start_executor_id == "a"
    assert workflow.input_types == [str]
    assert workflow.output_types == [str]


def test_settings_have_defaults() -> None:
    workflow = WorkflowBuilder(start_executor=Step("a")).build()
    assert (workflow.max_iterations, workflow.description) == (DEFAULT_MAX_ITERATIONS, None)


async def test_the_older_names_say_the_same() -> None:
    storage = InMemoryCheckpointStorage()
    builder = WorkflowBuilder(name="older")
    assert builder.set_start_executor(a := Step("a")) is builder
    assert builder.add_edge(a, End("z")) is builder
    assert builder.set_max_iterations(5) is builder
    workflow = builder.with_checkpointing(storage).build()
    assert (workflow.start_executor_id, workflow.max_iterations) == ("a", 5)
    await workflow.run(">")
    assert len(await storage.list_checkpoints(workflow_name="older")) == 3


async def test_a_storage_given_to_the_builder_is_used() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=End("z"), checkpoint_storage=storage, name="kept").build()
    await workflow.run(">")
    kept = await storage.get_latest(workflow_name="kept")
    assert isinstance(kept, WorkflowCheckpoint)


@pytest.mark.parametrize(
    ("options", "outputs", "intermediate"),
    [
        ({}, [">a", ">ab", ">abz"], []),
        ({"output_from": ["z"]}, [">abz"], []),
        ({"output_from": "all"}, [">a", ">ab", ">abz"], []),
        ({"output_from": ["z"], "intermediate_output_from": ["a"]}, [">abz"], [">a"]),
        ({"output_from": ["z"], "intermediate_output_from": "all_other"}, [">abz"], [">a", ">ab"]),
        ({"intermediate_output_from": "all"}, [], [">a", ">ab", ">abz"]),
    ],
)
async def test_what_is_yielded_is_an_output_intermediate_or_not_told(
    options: dict[str, Any], outputs: list[str], intermediate: list[str]
) -> None:
    builder = WorkflowBuilder(start_executor="a", **options).add_chain([Step("a"), Step("b"), End("z")])
    result = await builder.build().run(">")
    assert (result.get_outputs(), result.get_intermediate_outputs()) == (outputs, intermediate)


async def test_outputs_can_be_named_by_instance_class_or_factory() -> None:
    def make_b() -> Executor:
        return Step("b")

    a = Step("a")
    builder = WorkflowBuilder(start_executor=a, output_from=[End, make_b], intermediate_output_from=[a])
    result = await builder.add_chain([a, make_b, End]).build().run(">")
    assert (result.get_outputs(), result.get_intermediate_outputs()) == ([">ab", ">abEnd"], [">a"])


# executors as instances, classes, factories and ids


def test_an_instance_is_one_executor_however_often_it_is_named() -> None:
    a, b = Step("a"), Step("b")
    workflow = WorkflowBuilder(start_executor=a).add_edge(a, b).add_edge(b, a).add_edge(b, b).build()
    assert list(workflow.executors) == ["a", "b"]


def test_a_class_is_one_executor_however_often_it_is_named() -> None:
    workflow = WorkflowBuilder(start_executor=Step).add_edge(Step, Step).add_edge(Step, End).build()
    assert told(workflow) == ["Step -> Step", "Step -> End"]


def test_a_factory_is_one_executor_however_often_it_is_named() -> None:
    def make() -> Executor:
        return Step("made")

    workflow = WorkflowBuilder(start_executor=make).add_edge(make, End).add_edge(make, make).build()
    assert told(workflow) == ["made -> End", "made -> made"]


def test_a_method_that_makes_executors_is_one_factory() -> None:
    class Plant:
        def make(self) -> Executor:
            return Step("made")

    plant = Plant()
    assert told(WorkflowBuilder(start_executor=plant.make).add_edge(plant.make, End).build()) == ["made -> End"]
    assert any(
        "duplicate executor" in p
        for p in problems_of(WorkflowBuilder(start_executor=plant.make).add_edge(Plant().make, End))
    )


def test_an_id_stands_for_an_executor_that_is_named_before_or_after() -> None:
    workflow = (
        WorkflowBuilder(start_executor="a").add_edge("a", "z").add_edge(Step("a"), End("y")).add_edge("y", End("z"))
    )
    assert told(workflow.build()) == ["a -> z", "a -> y", "y -> z"]


async def test_every_run_gets_its_own_executor_from_a_class_or_a_factory() -> None:
    made = []

    class Stateful(Executor):
        def __init__(self) -> None:
            super().__init__("stateful")
            self.seen: list[str] = []
            made.append(self)

        @handler
        async def take(self, message: str, ctx: WorkflowContext[Never, list[str]]) -> None:
            self.seen.append(message)
            await ctx.yield_output(self.seen)

    for given in (Stateful, lambda: Stateful()):
        workflow = WorkflowBuilder(start_executor=given).build()
        made.clear()
        assert [(await workflow.run(text)).get_outputs() for text in "ab"] == [[["a"]], [["b"]]]
        assert len(made) == 2


async def test_a_factory_that_always_gives_the_same_instance_does_not_mix_runs() -> None:
    class Stateful(Executor):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        @handler
        async def take(self, message: str, ctx: WorkflowContext[Never, list[str]]) -> None:
            self.seen.append(message)
            await ctx.yield_output(self.seen)

    only = Stateful()
    workflow = WorkflowBuilder(start_executor=lambda: only).build()
    assert [(await workflow.run(text)).get_outputs() for text in "ab"] == [[["a"]], [["b"]]]


async def test_the_first_run_plays_the_very_instance_and_the_others_clones_of_it_as_it_was_built() -> None:
    class Stateful(Executor):
        count = 0

        @handler
        async def take(self, message: str, ctx: WorkflowContext[Never, int]) -> None:
            self.count += 1
            await ctx.yield_output(self.count)

    one = Stateful()
    workflow = WorkflowBuilder(start_executor=one).build()
    assert [(await workflow.run(">")).get_outputs() for _ in range(3)] == [[1], [1], [1]]
    assert one.count == 1
