"""What `build()` refuses, one problem at a time and all at once, and what it makes."""

from collections.abc import Callable
from typing import Any, Literal, Never

import pytest

from stepwell import (
    Case,
    Default,
    Executor,
    StepwellError,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
)
from tests.graph.builder_samples import End, Join, Step, is_long, problems_of, told


class Numbers(Executor):
    @handler
    async def take(self, message: int, ctx: WorkflowContext[int]) -> None: ...


class NoHandler(Executor):
    pass


class BadHandler(Executor):
    @handler
    async def one(self, message: str, ctx: int) -> None: ...

    @handler
    async def two(self, message, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]


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
    "types": (lambda: start_of().add_edge("a", Numbers("n")), ["'a' sends str, but 'n' accepts only int"]),
    "types in a group": (
        lambda: start_of().add_fan_out_edges("a", [Numbers("n"), End("z")]),
        ["'a' sends str, but 'n' accepts only int"],
    ),
    "types of a fan-in: no list": (
        lambda: start_of().add_edge("a", Step("b")).add_fan_in_edges(["a", "b"], End("z")),
        ["'a' sends list[str], but 'z' accepts only str", "'b' sends list[str], but 'z' accepts only str"],
    ),
    "types of a fan-in: another list": (
        lambda: (
            WorkflowBuilder(start_executor=Numbers("n"))
            .add_edge("n", Numbers("m"))
            .add_fan_in_edges(["n", "m"], Join("z"))
        ),
        ["'n' sends list[int], but 'z' accepts only list[str]", "'m' sends list[int], but 'z' accepts only list[str]"],
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
            "executor 'n': handler 'BadHandler.one' annotates its context as int; it must be WorkflowContext[...]",
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
        [
            "there is no storage called 'nowhere'; pass a storage object, one of ['default', 'memory'], "
            "or a folder, such as './nowhere'"
        ],
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
        "'a' sends str, but 'n' accepts only int",
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
        "'a' sends str, but 'n' accepts only int",
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
    assert problems_of(joined_by(taking(list[int]))) == ["'s' sends list[str], but 'taker' accepts only list[int]"]
    assert problems_of(joined_by(taking(list[int], list[str]))) == [
        "the fan-in into 'taker' delivers list[int] | list[str] in one list, "
        "but no single handler accepts them all: list[int] | list[str]"
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
