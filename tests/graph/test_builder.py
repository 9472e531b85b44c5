"""Saying a workflow: every way to add to it, every problem at once, and what was built stays as it was."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Never

import pytest

from stepwell import (
    Case,
    Default,
    DefinitionError,
    Executor,
    InMemoryCheckpointStorage,
    RoutingFailed,
    StepwellError,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    executor,
    handler,
)
from stepwell.workflows import DEFAULT_MAX_ITERATIONS


class Step(Executor):
    """Adds its id to what it gets, yields it, and sends it on."""

    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{message}{self.id}")
        await ctx.send_message(f"{message}{self.id}")


class Join(Executor):
    @handler
    async def take(self, messages: list[str], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"[{' '.join(messages)}]{self.id}")


class End(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{message}{self.id}")


class Numbers(Executor):
    @handler
    async def take(self, message: int, ctx: WorkflowContext[int]) -> None: ...


class NoHandler(Executor):
    pass


class BadHandler(Executor):
    @handler
    async def one(self, message: str) -> None: ...

    @handler
    async def two(self, message, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]


def is_long(message: str) -> bool:
    return len(message) > 3


async def is_short(message: str) -> bool:
    return not is_long(message)


def problems_of(builder: WorkflowBuilder) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        builder.build()
    return list(caught.value.problems)


def told(workflow: Workflow) -> Sequence[str]:
    return [edge.describe() for edge in workflow.edges]


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


def send_to(target: str | None, value: object = ">") -> Executor:
    @executor(id="s", input=Any)
    async def send(message, ctx) -> None:  # type: ignore[no-untyped-def]
        await ctx.send_message(value, target_id=target)

    return send


async def test_a_send_to_one_target_goes_along_the_edge_that_leads_there() -> None:
    builder = WorkflowBuilder(start_executor=send_to("y")).add_fan_out_edges("s", [End("x"), End("y")])
    assert await last_outputs(builder, "") == [">y"]


Unroutable = tuple[WorkflowBuilder, str]


def unroutable(**options: Any) -> dict[str, Unroutable]:
    def start(target: str | None = None, value: object = ">") -> WorkflowBuilder:
        return WorkflowBuilder(start_executor=send_to(target, value), **options)

    return {
        "no edge leaves": (start(), "'s' sent a str, but no edge leaves 's'"),
        "no edge to that target": (
            start("z").add_edge("s", Step("a")).add_edge("a", End("z")),
            "'s' sent a str to 'z', but its edges lead only to 'a'",
        ),
        "no handler": (
            start(value=1.5).add_edge("s", End("z")),
            "'s' sent a float, but no handler takes it: 'z' takes str",
        ),
    }


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


# every problem, one by one


def needs_an_argument(id: str) -> Executor:
    return Step(id)


async def forgotten(message: str, ctx: WorkflowContext[str]) -> None: ...


def start_of(**options: Any) -> WorkflowBuilder:
    return WorkflowBuilder(start_executor=Step("a"), **options)


PROBLEMS: dict[str, tuple[Callable[[], WorkflowBuilder], list[str]]] = {
    "no start": (
        lambda: WorkflowBuilder().add_edge(Step("a"), End("z")),
        ["no start executor: pass WorkflowBuilder(start_executor=...)"],
    ),
    "nothing at all": (lambda: WorkflowBuilder(), ["no start executor: pass WorkflowBuilder(start_executor=...)"]),
    "unknown start": (
        lambda: WorkflowBuilder(start_executor="ghost"),
        ["unknown start 'ghost': no executor has that id"],
    ),
    "unreachable": (
        lambda: start_of().add_edge(Step("b"), End("z")),
        ["'b' cannot be reached from the start, 'a'", "'z' cannot be reached from the start, 'a'"],
    ),
    "unknown target": (
        lambda: start_of().add_edge("a", "ghost"),
        ["unknown target 'ghost' in edge 'a -> ghost': no executor has that id"],
    ),
    "unknown source": (
        lambda: start_of().add_edge("a", End("z")).add_edge("ghost", "z"),
        ["unknown source 'ghost' in edge 'ghost -> z': no executor has that id"],
    ),
    "unknown in a group": (
        lambda: start_of().add_fan_out_edges("a", [Step("b"), "ghost"]),
        ["unknown target 'ghost' in edge 'a -> each of b, ghost': no executor has that id"],
    ),
    "duplicate executors": (
        lambda: start_of().add_edge("a", Step("same")).add_edge("same", End("same")),
        ["duplicate executor id: two different executors are called 'same'"],
    ),
    "duplicate edges": (
        lambda: start_of().add_edge("a", End("z")).add_edge("a", "z", is_long),
        ["duplicate edge from 'a' to 'z': once in 'a -> z' and again in 'a -> z if is_long'"],
    ),
    "duplicate edges across groups": (
        lambda: start_of().add_edge("a", Step("b")).add_fan_out_edges("a", ["b", End("z")]),
        ["duplicate edge from 'a' to 'b': once in 'a -> b' and again in 'a -> each of b, z'"],
    ),
    "twice in a group": (
        lambda: start_of().add_fan_out_edges("a", [End("z"), "z"]),
        ["'z' appears twice in edge 'a -> each of z, z'"],
    ),
    "types": (lambda: start_of().add_edge("a", Numbers("n")), ["'a' sends str, but 'n' takes only int"]),
    "types in a group": (
        lambda: start_of().add_fan_out_edges("a", [Numbers("n"), End("z")]),
        ["'a' sends str, but 'n' takes only int"],
    ),
    "types of a fan-in: no list": (
        lambda: start_of().add_edge("a", Step("b")).add_fan_in_edges(["a", "b"], End("z")),
        ["'a' sends list[str], but 'z' takes only str", "'b' sends list[str], but 'z' takes only str"],
    ),
    "types of a fan-in: another list": (
        lambda: (
            WorkflowBuilder(start_executor=Numbers("n"))
            .add_edge("n", Numbers("m"))
            .add_fan_in_edges(["n", "m"], Join("z"))
        ),
        ["'n' sends list[int], but 'z' takes only list[str]", "'m' sends list[int], but 'z' takes only list[str]"],
    ),
    "fan-in from one source": (
        lambda: start_of().add_fan_in_edges(["a"], Join("z")),
        ["the fan-in into 'z' has one source, 'a': use add_edge"],
    ),
    "fan-in from one source twice": (
        lambda: start_of().add_fan_in_edges(["a", "a"], Join("z")),
        ["'a' appears twice in edge 'all of a, a -> z'", "the fan-in into 'z' has one source, 'a': use add_edge"],
    ),
    "empty fan-in": (
        lambda: start_of().add_edge("a", End("z")).add_fan_in_edges([], "z"),
        ["the fan-in into 'z' names no executor"],
    ),
    "empty fan-out": (lambda: start_of().add_fan_out_edges("a", []), ["the fan-out from 'a' names no executor"]),
    "empty selection": (
        lambda: start_of().add_multi_selection_edge_group("a", [], lambda m, ids: ids),
        ["the selection from 'a' names no executor"],
    ),
    "a fan-out that is no list": (
        lambda: start_of().add_edge("a", End("abc")).add_fan_out_edges("a", "abc"),
        ["the fan-out from 'a' needs a list of executors, not 'abc'"],
    ),
    "chain of one": (lambda: start_of().add_chain(["a"]), ["a chain needs at least two executors, not only 'a'"]),
    "empty chain": (lambda: start_of().add_chain([]), ["a chain names no executor"]),
    "no default": (
        lambda: start_of().add_switch_case_edge_group("a", [Case(is_long, End("z"))]),
        ["the switch from 'a' has no Default(...); it needs exactly one"],
    ),
    "two defaults": (
        lambda: start_of().add_switch_case_edge_group("a", [Case(is_long, End("z")), Default("z"), Default("z")]),
        ["the switch from 'a' has 2 Default(...); it needs exactly one"],
    ),
    "no case": (
        lambda: start_of().add_switch_case_edge_group("a", [Default(End("z"))]),
        ["the switch from 'a' has no Case(...)"],
    ),
    "empty switch": (
        lambda: start_of().add_switch_case_edge_group("a", []),
        ["the switch from 'a' has no Default(...); it needs exactly one", "the switch from 'a' has no Case(...)"],
    ),
    "neither case nor default": (
        lambda: start_of().add_switch_case_edge_group("a", [Case(is_long, End("z")), Default("z"), "z"]),  # type: ignore[list-item]
        ["the switch from 'a' has 'z', which is neither Case(...) nor Default(...)"],
    ),
    "a condition that is no function": (
        lambda: start_of().add_edge("a", End("z"), condition="is_long"),  # type: ignore[arg-type]
        ["'is_long' in edge 'a -> z if str' is not callable: pass a function"],
    ),
    "a case that is no function": (
        lambda: start_of().add_switch_case_edge_group("a", [Case(True, End("z")), Default("z")]),  # type: ignore[arg-type]
        ["True in edge 'a -> first of z if bool, z otherwise' is not callable: pass a function"],
    ),
    "a selection that is no function": (
        lambda: start_of().add_multi_selection_edge_group("a", [End("z")], ["z"]),  # type: ignore[arg-type]
        ["['z'] in edge 'a -> those of z chosen by list' is not callable: pass a function"],
    ),
    "no handlers": (
        lambda: start_of().add_edge("a", NoHandler("n")),
        ["executor 'n' has no handler: mark a method with @handler"],
    ),
    "bad handlers": (
        lambda: start_of().add_edge("a", BadHandler("n")),
        [
            "executor 'n': handler 'BadHandler.one' must take (self, message, ctx), not (self, message)",
            "executor 'n': handler 'BadHandler.two' does not declare what it takes: annotate 'message', "
            "or pass input=... to its decorator",
        ],
    ),
    "unknown outputs": (
        lambda: start_of(output_from=["ghost", End("other")], intermediate_output_from=[Numbers]),
        [
            "unknown output in output_from: 'ghost' is not an executor of this workflow",
            "unknown output in output_from: <End 'other'> is not an executor of this workflow",
            f"unknown output in intermediate_output_from: {Numbers!r} is not an executor of this workflow",
        ],
    ),
    "overlapping outputs": (
        lambda: start_of(output_from=["a"], intermediate_output_from="all"),
        ["'a' stands in output_from and in intermediate_output_from"],
    ),
    "outputs from nobody": (
        lambda: start_of(output_from=[]),
        ["output_from and intermediate_output_from name no executor: the run would have no outputs"],
    ),
    "outputs that are no list": (
        lambda: start_of(output_from="a", intermediate_output_from="everyone"),
        [
            "output_from must be a list of executors or 'all', not 'a'",
            "intermediate_output_from must be a list of executors or 'all', not 'everyone'",
        ],
    ),
    "an output without a list": (
        lambda: start_of(output_from=(only := End("z"))).add_edge("a", only),
        ["output_from must be a list of executors or 'all', not <End 'z'>"],
    ),
    "no iterations": (lambda: start_of(max_iterations=0), ["max_iterations must be at least 1, not 0"]),
    "no number of iterations": (
        lambda: start_of().set_max_iterations("9"),  # type: ignore[arg-type]
        ["max_iterations must be at least 1, not '9'"],
    ),
    "a reducer that is no function": (
        lambda: start_of(reducers={"total": 3}),
        ["the reducer of state['total'] is 3, which is not callable"],
    ),
    "another way with the unroutable": (
        lambda: start_of(on_unroutable="ignore"),
        ['on_unroutable must be "fail" or "drop", not \'ignore\''],
    ),
    "no such storage": (
        lambda: start_of(checkpoint_storage="nowhere"),
        ["there is no storage called 'nowhere'; give a storage object, or one of ['default', 'memory']"],
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_problem_is_one_sentence(name: str) -> None:
    say, expected = PROBLEMS[name]
    assert problems_of(say()) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (42, "42 is not an executor"),
        (None, "None is not an executor"),
        (forgotten, "'forgotten' is an async function, not an executor: mark it with @executor"),
        (needs_an_argument, "'needs_an_argument' was called to make an executor and failed: TypeError"),
        (lambda: "text", "'<lambda>' was called to make an executor, but it made 'text'"),
        (dict, "'dict' was called to make an executor, but it made {}"),
        (object(), "is not an executor"),
    ],
)
def test_what_is_no_executor_is_a_problem_like_any_other(given: Any, words: str) -> None:
    found = problems_of(start_of(max_iterations=0).add_edge("a", given))
    assert words in found[0]
    assert found[-1] == "max_iterations must be at least 1, not 0"


def test_a_storage_without_the_six_methods_is_a_problem_like_any_other() -> None:
    (problem,) = problems_of(start_of().with_checkpointing(object()))  # type: ignore[arg-type]
    assert "is not a checkpoint storage: it has no save" in problem


def test_one_error_carries_every_problem() -> None:
    builder = (
        WorkflowBuilder(start_executor=(a := Step("a")), max_iterations=0, output_from=["nobody"])
        .add_edge(a, Numbers("n"))
        .add_edge(a, End("z"))
        .add_edge(a, "z")
        .add_edge(a, "ghost")
        .add_edge(a, Step("z"))
        .add_fan_in_edges([a], Join("j"))
        .add_switch_case_edge_group(a, [Case(is_long, NoHandler("h"))])
        .add_edge(BadHandler("bad"), "lost")
        .add_fan_out_edges(a, [])
        .add_chain([a])
    )
    found = problems_of(builder)
    for words in (
        "duplicate executor",
        "no Default",
        "fan-out from 'a' names no executor",
        "a chain needs",
        "'h' has no handler",
        "BadHandler.one",
        "BadHandler.two",
        "unknown target 'ghost'",
        "unknown target 'lost'",
        "duplicate edge from 'a' to 'z'",
        "the fan-in into 'j' has one source",
        "'a' sends str, but 'n' takes only int",
        "'bad' cannot be reached",
        "unknown output in output_from: 'nobody'",
        "max_iterations",
    ):
        assert any(words in problem for problem in found), words
    with pytest.raises(StepwellError) as caught:
        builder.build()
    assert all(f"- {problem}" in str(caught.value) for problem in found)


def test_types_that_cannot_meet_are_told_also_without_a_start() -> None:
    assert problems_of(WorkflowBuilder().add_edge(Step("a"), Numbers("n"))) == [
        "no start executor: pass WorkflowBuilder(start_executor=...)",
        "'a' sends str, but 'n' takes only int",
    ]


def test_no_problem_is_told_twice() -> None:
    found = problems_of(start_of().add_edge("a", 42).add_edge("a", 42))
    assert len(found) == len(set(found))


# types along an edge


def sending(*types: Any, id: str) -> Executor:
    @executor(id=id, input=Any, output=types[0] if types else None)
    async def send(message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    return send


def taking(*types: Any) -> Executor:
    class Taker(Executor):
        @handler(input=types[0])
        async def first(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

        if len(types) > 1:

            @handler(input=types[1])
            async def second(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    return Taker("taker")


@pytest.mark.parametrize(
    ("sent", "taken", "meet"),
    [
        (int, int, True),
        (bool, int, True),
        (int | str, str, True),
        (list[int], list, True),
        (list[int], list[int | str], True),
        (Literal["a"], str, True),
        (str, Literal["a"], True),
        (Any, int, True),
        (int, Any, True),
        (type(None), int | None, True),
        (int, str, False),
        (int | bytes, str, False),
        (list[int], list[str], False),
        (int, list[int], False),
        (Literal["a"], Literal["b"], False),
        (type(None), int, False),
    ],
)
def test_an_edge_is_refused_only_if_nothing_that_is_sent_can_be_taken(sent: Any, taken: Any, meet: bool) -> None:
    builder = WorkflowBuilder(start_executor="s").add_edge(sending(sent, id="s"), taking(taken))
    if meet:
        builder.build()
    else:
        assert len(problems_of(builder)) == 1


def test_a_source_that_declares_nothing_may_send_to_anyone() -> None:
    alone = WorkflowBuilder(start_executor="s").add_edge(sending(id="s"), Numbers("n")).build()
    builder = WorkflowBuilder(start_executor="s").add_edge("s", sending(id="s2"))
    joined = builder.add_fan_in_edges([sending(id="s"), "s2"], Join("z")).build()
    assert (len(alone.edges), len(joined.edges)) == (1, 2)


def test_a_fan_in_needs_one_handler_for_all_that_its_sources_send() -> None:
    def joined_by(taker: Executor) -> WorkflowBuilder:
        builder = WorkflowBuilder(start_executor="i").add_edge(sending(int, id="i"), sending(str, id="s"))
        return builder.add_fan_in_edges(["i", "s"], taker)

    joined_by(taking(list[int | str])).build()
    joined_by(taking(list)).build()
    joined_by(taking(list[int], list[Any])).build()
    assert problems_of(joined_by(taking(list[int]))) == ["'s' sends list[str], but 'taker' takes only list[int]"]
    assert problems_of(joined_by(taking(list[int], list[str]))) == [
        "the fan-in into 'taker' delivers list[int] | list[str] in one list, "
        "but no single handler takes them all: list[int] | list[str]"
    ]


# what was built


def test_building_twice_gives_two_workflows_of_one_shape() -> None:
    builder = start_of().add_edge("a", End("z"))
    first, second = builder.build(), builder.build()
    assert first is not second
    assert first.graph_signature == second.graph_signature
    assert first.name == second.name


def test_a_builder_that_could_not_build_can_be_mended() -> None:
    builder = start_of().add_edge("a", "z")
    assert problems_of(builder) == ["unknown target 'z' in edge 'a -> z': no executor has that id"]
    assert told(builder.add_edge(End("z"), "a").build()) == ["a -> z", "z -> a"]


def test_what_is_done_to_the_builder_later_does_not_change_what_was_built() -> None:
    reducers: dict[str, Any] = {"total": lambda old, new: old + new}
    builder = start_of(reducers=reducers, max_iterations=9).add_edge("a", Step("b"))
    workflow = builder.build()
    before = workflow.graph_signature
    builder.add_edge("b", End("z")).set_start_executor("b").set_max_iterations(3)
    reducers.clear()
    assert workflow.graph_signature == before
    assert workflow.max_iterations == 9
    assert list(workflow.executors) == ["a", "b"]
    assert workflow.start_executor_id == "a"


@pytest.mark.parametrize(
    "name", ["name", "description", "max_iterations", "start_executor_id", "executors", "edges", "graph_signature"]
)
def test_a_workflow_cannot_be_changed(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(start_of().build(), name, None)


def test_the_parts_of_a_workflow_cannot_be_changed() -> None:
    workflow = start_of().add_edge("a", End("z")).build()
    with pytest.raises(TypeError):
        workflow.executors["new"] = Step("new")  # type: ignore[index]
    with pytest.raises(AttributeError):
        workflow.edges[0].source = "z"  # type: ignore[misc, union-attr]
    workflow.graph_signature["edges"].clear()
    assert workflow.graph_signature["edges"] == ["a -> z"]


async def test_what_is_done_to_the_executors_one_can_look_at_does_not_reach_a_run() -> None:
    class Greeter(Executor):
        def __init__(self) -> None:
            super().__init__("greeter")
            self.words = ["hello"]

        @handler
        async def greet(self, name: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(" ".join([*self.words, name]))

    workflow = WorkflowBuilder(start_executor=Greeter()).build()
    seen: Any = workflow.executors["greeter"]
    seen.words.append("dear")
    assert [(await workflow.run("Ann")).get_outputs() for _ in range(2)] == [["hello Ann"], ["hello Ann"]]


async def test_what_is_done_to_an_instance_after_build_does_not_reach_later_runs() -> None:
    class Greeter(Executor):
        word = "hello"

        @handler
        async def greet(self, name: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(f"{self.word} {name}")

    one = Greeter()
    workflow = WorkflowBuilder(start_executor=one).build()
    await workflow.run("first")
    one.word = "goodbye"
    assert (await workflow.run("Ann")).get_outputs() == ["hello Ann"]
