"""What a handler takes and gives: annotations evaluated where they stand. The postponed ones: the file beside this."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from threading import get_ident
from typing import Any, Generic, List, Literal, Never, Optional, TypeVar, Union  # noqa: UP035 - older ways to write it

import pytest

from stepwell import DefinitionError, Executor, WorkflowBuilder, WorkflowContext, executor, handler
from stepwell.graph.retry import NO_LIMITS, Limits, RetryPolicy
from stepwell.workflows import FunctionExecutor

T = TypeVar("T")


@dataclass
class Order:
    total: int = 0


@dataclass
class RushOrder(Order):
    hours: int = 1


class Colour(Enum):
    RED = "red"


class Box(Generic[T]):
    pass


def taken_by(annotation: Any) -> list[object]:
    """The message types of a handler whose message is annotated so."""

    class Taker(Executor):
        @handler
        async def take(self, message: annotation, ctx: WorkflowContext) -> None: ...

    return problem_free(Taker()).input_types


def given_by(annotation: Any) -> tuple[list[object], list[object]]:
    """What a handler sends and what it yields, if its context is annotated so."""

    class Giver(Executor):
        @handler
        async def give(self, message: int, ctx: annotation) -> None: ...

    return problem_free(Giver()).output_types, Giver().workflow_output_types


def problem_free(one: Executor) -> Executor:
    assert one._handler_table.problems == []
    return one


def the_problem(one: Executor) -> str:
    (problem,) = one._handler_table.problems
    return problem


def name_chosen(one: Executor, value: object) -> str | None:
    spec = one._handler_table.choose(value)
    return None if spec is None else spec.name


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, [int]),
        (Order, [Order]),
        (Colour, [Colour]),
        (None, [type(None)]),
        (Any, [Any]),
        (object, [object]),
        (int | str, [int, str]),
        (Union[int, str], [int, str]),  # noqa: UP007
        (Optional[Order], [Order, type(None)]),  # noqa: UP045
        (list[Order], [list[Order]]),
        (List[Order], [List[Order]]),  # noqa: UP006
        (dict[str, int], [dict[str, int]]),
        (list[int | str] | None, [list[int | str], type(None)]),
        (Literal["go", "stop"], [Literal["go", "stop"]]),
        (Box, [Box]),
        (Box[int], [Box[int]]),
        (Callable[[int], str], [Callable[[int], str]]),
        ("Order", [Order]),
        ("Order | None", [Order, type(None)]),
        ("list['Order']", [list[Order]]),
        (list["Order"], [list[Order]]),
        (List["Order"], [List[Order]]),  # noqa: UP006
        ("None", [type(None)]),
    ],
)
def test_the_annotation_of_the_message_says_what_a_handler_takes(annotation: Any, expected: list[object]) -> None:
    assert taken_by(annotation) == expected


@pytest.mark.parametrize(
    ("annotation", "sends", "yields"),
    [
        (WorkflowContext, [], []),
        (Any, [], []),
        (WorkflowContext[int], [int], []),
        (WorkflowContext[None], [type(None)], []),
        (WorkflowContext[int, str], [int], [str]),
        (WorkflowContext[Never, str], [], [str]),
        (WorkflowContext[Never, Never], [], []),
        (WorkflowContext[int, Never], [int], []),
        (WorkflowContext[int | Order, str | None], [int, Order], [str, type(None)]),
        (WorkflowContext[Any], [Any], []),
        (WorkflowContext[Any, Any], [Any], [Any]),
        (WorkflowContext[list[Order]], [list[Order]], []),
        (WorkflowContext["Order"], [Order], []),
        ("WorkflowContext[Order, str]", [Order], [str]),
    ],
)
def test_the_annotation_of_the_context_says_what_is_sent_and_what_is_yielded(
    annotation: Any, sends: list[object], yields: list[object]
) -> None:
    assert given_by(annotation) == (sends, yields)


def test_a_context_need_not_be_annotated() -> None:
    class Quiet(Executor):
        @handler
        async def take(self, message: int, ctx) -> None: ...  # type: ignore[no-untyped-def]

    assert problem_free(Quiet()).input_types == [int]


def test_what_is_returned_is_sent_and_counts_as_declared() -> None:
    class Doubler(Executor):
        @handler
        def double(self, message: int, ctx: WorkflowContext[str]) -> int | None: ...

    assert problem_free(Doubler()).output_types == [str, int]


def test_types_given_in_the_decorator_need_no_annotation() -> None:
    class Explicit(Executor):
        @handler(input=int | Order, output=str, workflow_output=list[str])
        async def take(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    one = problem_free(Explicit())
    assert (one.input_types, one.output_types, one.workflow_output_types) == ([int, Order], [str], [list[str]])


def test_types_given_in_the_decorator_may_be_strings_looked_up_where_the_method_stands() -> None:
    @dataclass
    class Local:
        pass

    class Explicit(Executor):
        @handler(input="Order | Local", output="list[Local]", workflow_output="Optional[Order]")
        async def take(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    one = problem_free(Explicit())
    assert one.input_types == [Order, Local]
    assert one.output_types == [list[Local]]
    assert one.workflow_output_types == [Order, type(None)]


def test_a_string_inside_a_type_given_in_the_decorator_is_looked_up_too() -> None:
    class Explicit(Executor):
        @handler(input=list["Order"])
        async def take(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    assert problem_free(Explicit()).input_types == [list[Order]]


def test_the_decorator_may_say_one_type_and_the_annotations_the_others() -> None:
    class Mixed(Executor):
        @handler(input=Order)
        async def take(self, message: object, ctx: WorkflowContext[int, str]) -> None: ...

    one = problem_free(Mixed())
    assert (one.input_types, one.output_types, one.workflow_output_types) == ([Order], [int], [str])


def test_an_annotation_that_cannot_be_found_does_not_matter_if_the_decorator_says_the_type() -> None:
    class Explicit(Executor):
        @handler(input=Order, output=int, workflow_output=str)
        async def take(self, message: "Missing", ctx: "AlsoMissing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    one = problem_free(Explicit())
    assert (one.input_types, one.output_types) == ([Order], [int])


def test_a_class_inside_the_executor_can_be_named_by_a_string() -> None:
    class Outer(Executor):
        class Job:
            pass

        @handler
        async def take(self, message: "Job", ctx: WorkflowContext) -> None: ...

    assert problem_free(Outer()).input_types == [Outer.Job]


def test_a_name_means_what_it_means_where_the_handler_stands_not_what_it_means_to_a_caller() -> None:
    def made() -> Executor:
        class Taker(Executor):
            @handler
            async def take(self, message: "RushOrder", ctx: WorkflowContext) -> None: ...

        return Taker()

    def caller() -> Executor:
        RushOrder = int  # noqa: F841
        return made()

    assert caller().input_types == [RushOrder]


def test_a_type_that_cannot_be_found_is_named_and_so_is_the_handler() -> None:
    class Lost(Executor):
        @handler
        async def take(self, message: "Missing", ctx: WorkflowContext) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert "Lost.take" in the_problem(Lost())
    assert "'Missing'" in the_problem(Lost())


def no_context(self: Executor, message: int) -> None: ...
def on_class(cls: type[Executor], message: int) -> None: ...
def too_many(self: Executor, message: int, ctx: WorkflowContext, more: int) -> None: ...
def anything(self: Executor, *args: int) -> None: ...
def by_keyword(self: Executor, message: int, *, ctx: WorkflowContext) -> None: ...


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (no_context, "'no_context' must take (self, message, ctx), not (self, message)"),
        (too_many, "'too_many' must take (self, message, ctx), not (self, message, ctx, more)"),
        (anything, "'anything' must take (self, message, ctx), not (self, *args)"),
        (by_keyword, "'by_keyword' must take (self, message, ctx), not (self, message, *, ctx)"),
        (staticmethod(no_context), "'no_context' must be a method of an instance, not a staticmethod"),
        (classmethod(on_class), "'on_class' must be a method of an instance, not a classmethod"),
    ],
)
def test_a_handler_takes_itself_a_message_and_a_context_or_its_decorator_raises(method: Any, words: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        handler(method)
    assert words in str(caught.value)


class ByClass(Executor):
    @classmethod
    @handler
    async def take(cls, message: int, ctx: WorkflowContext) -> None: ...


def test_a_handler_that_was_made_a_class_method_is_refused_by_build() -> None:
    assert "must be a method of an instance, not a classmethod" in the_problem(ByClass())


def test_options_by_keyword_do_not_count_as_parameters() -> None:
    class Optioned(Executor):
        @handler
        async def take(self, message: int, ctx: WorkflowContext, *, loud: bool = False) -> None: ...

    assert problem_free(Optioned()).input_types == [int]


def test_a_message_without_annotation_is_a_problem() -> None:
    class Silent(Executor):
        @handler
        async def take(self, message, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]

    assert "annotate 'message', or pass input=..." in the_problem(Silent())


@pytest.mark.parametrize("annotation", [T, list[T], dict[str, list[T]], T | None, Box[T]])  # type: ignore[valid-type]
def test_a_type_variable_is_refused_as_message(annotation: Any) -> None:
    with pytest.raises(AssertionError, match="type variable ~T; name the type itself"):
        taken_by(annotation)


@pytest.mark.parametrize("annotation", [WorkflowContext[T], WorkflowContext[int, list[T]]])  # type: ignore[valid-type]
def test_a_type_variable_is_refused_in_the_context(annotation: Any) -> None:
    with pytest.raises(AssertionError, match="type variable ~T; name the type itself"):
        given_by(annotation)


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "annotates its context as int; it must be WorkflowContext"),
        (dict[str, int], r"annotates its context as dict\[str, int\]"),
        (Optional[WorkflowContext[int]], "annotates its context as"),  # noqa: UP045
        (WorkflowContext[int, str, bool], "at most two types, not 3"),  # type: ignore[misc]
    ],
)
def test_a_context_must_be_annotated_as_one(annotation: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        given_by(annotation)


def test_a_list_of_types_is_no_type() -> None:
    class Listed(Executor):
        @handler(input=(int, str))
        async def take(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    assert "which is not a type" in the_problem(Listed())


def test_a_generator_cannot_be_a_handler() -> None:
    async def later(self: Executor, message: int, ctx: WorkflowContext) -> AsyncIterator[int]:
        yield message

    def now(self: Executor, message: int, ctx: WorkflowContext) -> Iterator[int]:
        yield message

    for method in (later, now):
        with pytest.raises(DefinitionError, match="is a generator"):
            handler(method)


def test_a_type_given_to_the_decorator_without_its_keyword_is_refused_at_once() -> None:
    with pytest.raises(DefinitionError, match=r"@handler\(input=...\)"):
        handler(Order)


def test_two_handlers_of_one_type_are_a_problem_that_names_both() -> None:
    class Torn(Executor):
        @handler
        async def one(self, message: int | str, ctx: WorkflowContext) -> None: ...

        @handler
        async def other(self, message: int, ctx: WorkflowContext) -> None: ...

    assert the_problem(Torn()) == "handlers 'one' and 'other' both accept int"


class ByDegrees(Executor):
    """The wide ones first in the alphabet and in the source: neither order may decide."""

    @handler
    async def a_anything(self, message: Any, ctx: WorkflowContext) -> None: ...

    @handler
    async def b_order(self, message: Order, ctx: WorkflowContext) -> None: ...

    @handler
    async def c_rush_order(self, message: RushOrder, ctx: WorkflowContext) -> None: ...

    @handler
    async def d_list(self, message: list, ctx: WorkflowContext) -> None: ...  # type: ignore[type-arg]

    @handler
    async def e_list_of_int(self, message: list[int], ctx: WorkflowContext) -> None: ...

    @handler
    async def f_str(self, message: str, ctx: WorkflowContext) -> None: ...

    @handler
    async def g_stop(self, message: Literal["stop"], ctx: WorkflowContext) -> None: ...

    @handler
    async def h_nothing(self, message: None, ctx: WorkflowContext) -> None: ...

    @handler
    async def i_int_or_bytes(self, message: int | bytes, ctx: WorkflowContext) -> None: ...

    @handler
    async def j_bool(self, message: bool, ctx: WorkflowContext) -> None: ...


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        (Order(), "b_order"),
        (RushOrder(), "c_rush_order"),
        ([1, 2], "e_list_of_int"),
        (["a"], "d_list"),
        ("go", "f_str"),
        ("stop", "g_stop"),
        (None, "h_nothing"),
        (7, "i_int_or_bytes"),
        (b"7", "i_int_or_bytes"),
        (True, "j_bool"),
        (1.5, "a_anything"),
        (Colour.RED, "a_anything"),
    ],
)
def test_the_most_specific_handler_takes_the_message(value: object, chosen: str) -> None:
    assert name_chosen(ByDegrees(), value) == chosen


def test_among_plain_classes_too_the_most_specific_handler_wins_however_often_it_is_asked() -> None:
    class Plain(Executor):
        @handler
        async def a_order(self, message: Order, ctx: WorkflowContext) -> None: ...

        @handler
        async def b_rush_order(self, message: RushOrder, ctx: WorkflowContext) -> None: ...

    one = Plain()
    assert [name_chosen(one, v) for v in (RushOrder(), Order(), RushOrder(), 1, 1)] == [
        *("b_rush_order", "a_order", "b_rush_order"),
        *(None, None),
    ]


def test_a_message_that_no_handler_takes_finds_none() -> None:
    class Numbers(Executor):
        @handler
        async def take(self, message: int, ctx: WorkflowContext) -> None: ...

    assert Numbers().can_handle(1)
    assert not Numbers().can_handle("1")


class Greeter(Executor):
    @handler
    async def greet(self, name: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"hello {name}")


async def test_an_override_of_a_handler_is_one_without_being_marked_again() -> None:
    class Loud(Greeter):
        async def greet(self, name, ctx):  # type: ignore[no-untyped-def]
            await ctx.yield_output(f"HELLO {name}")

    assert Loud().input_types == [str]
    result = await WorkflowBuilder(start_executor=Loud()).build().run("Ann")
    assert result.get_outputs() == ["HELLO Ann"]


async def test_an_override_may_be_plain_where_the_handler_was_async() -> None:
    class Plain(Greeter):
        def greet(self, name, ctx):  # type: ignore[no-untyped-def]
            ctx.yield_output(f"plain {name}")

    result = await WorkflowBuilder(start_executor=Plain()).build().run("Ann")
    assert result.get_outputs() == ["plain Ann"]


def test_an_override_that_is_marked_again_says_its_own_types() -> None:
    class Wider(Greeter):
        @handler
        async def greet(self, name: str | bytes, ctx: WorkflowContext) -> None: ...

    assert Wider().input_types == [str, bytes]
    assert Greeter().input_types == [str]


def test_a_subclass_adds_its_handlers_to_those_of_its_bases() -> None:
    class Counting(Executor):
        @handler
        async def count(self, number: int, ctx: WorkflowContext) -> None: ...

    class Both(Counting, Greeter):
        @handler
        async def order(self, order: Order, ctx: WorkflowContext) -> None: ...

    assert set(Both().input_types) == {int, str, Order}


async def test_a_handler_is_called_by_its_name_in_the_class_whatever_its_function_is_called() -> None:
    def shouting(method: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def wrapper(self: Any, message: str, ctx: WorkflowContext[Never, str]) -> None:
            await method(self, message.upper(), ctx)

        return wrapper

    class Wrapped(Executor):
        @handler
        @shouting
        async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(message)

    assert (await WorkflowBuilder(start_executor=Wrapped()).build().run("hi")).get_outputs() == ["HI"]


async def test_a_decorator_that_keeps_the_signature_is_seen_through() -> None:
    def logged(method: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        @functools.wraps(method)
        async def wrapper(*args: Any) -> None:
            await method(*args)

        return wrapper

    class Wrapped(Executor):
        @handler
        @logged
        async def take(self, message: "Order", ctx: WorkflowContext[Never, int]) -> None:
            await ctx.yield_output(message.total)

    assert problem_free(Wrapped()).input_types == [Order]
    assert (await WorkflowBuilder(start_executor=Wrapped()).build().run(Order(3))).get_outputs() == [3]


async def test_a_plain_handler_runs_in_a_thread_and_what_it_returns_is_sent_on() -> None:
    class Plain(Executor):
        @handler
        def take(self, message: int, ctx: WorkflowContext[int]) -> tuple[int, int]:
            return message * 2, get_ident()

    @executor
    async def end(message: tuple[int, int], ctx: WorkflowContext[Never, tuple[int, int]]) -> None:
        await ctx.yield_output(message)

    workflow = WorkflowBuilder(start_executor=(plain := Plain())).add_edge(plain, end).build()
    ((doubled, thread),) = (await workflow.run(4)).get_outputs()
    assert doubled == 8
    assert thread != get_ident()


async def test_an_async_handler_may_return_what_is_sent_on_too() -> None:
    class Async(Executor):
        @handler
        async def take(self, message: int, ctx: WorkflowContext) -> int:
            return message + 1

    end = FunctionExecutor(lambda number, ctx: ctx.yield_output(number) and None, "end", input=int)
    workflow = WorkflowBuilder(start_executor=(first := Async())).add_edge(first, end).build()
    assert (await workflow.run(4)).get_outputs() == [5]


async def test_a_handler_may_send_and_yield_what_it_did_not_declare() -> None:
    class Undeclared(Executor):
        @handler
        async def take(self, message: int, ctx: WorkflowContext[int, int]) -> None:
            await ctx.send_message("text")  # type: ignore[arg-type]
            await ctx.yield_output(b"bytes")  # type: ignore[arg-type]

    class Any_(Executor):  # noqa: N801
        @handler
        async def take(self, message: int | str, ctx: WorkflowContext) -> None:
            await ctx.yield_output(message)  # type: ignore[arg-type]

    workflow = WorkflowBuilder(start_executor=(first := Undeclared())).add_edge(first, Any_()).build()
    assert (await workflow.run(1)).get_outputs() == [b"bytes", "text"]


# how often and how long


def limits_of(one: Executor, value: object) -> Limits:
    """What a call with this message is allowed."""
    spec = problem_free(one)._handler_table.choose(value)
    assert spec is not None
    return one._limits_for(spec)


TWICE = RetryPolicy(max_attempts=2)


class Limited(Executor):
    @handler(retry=TWICE, timeout=timedelta(minutes=1), idle_timeout=5)
    async def from_annotations(self, message: Order, ctx: WorkflowContext[int, str]) -> None: ...

    @handler(input=str, output=int, timeout=2)
    async def from_the_decorator(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    @handler
    async def unlimited(self, message: int, ctx: WorkflowContext) -> None: ...


def test_a_handler_may_say_how_often_it_is_tried_and_how_long_it_may_take() -> None:
    assert limits_of(Limited(), Order()) == Limits(TWICE, 60.0, 5.0)


def test_a_handler_that_says_nothing_has_no_limits() -> None:
    assert limits_of(Limited(), 1) == NO_LIMITS


def test_a_handler_that_says_only_its_limits_is_still_read_from_its_annotations() -> None:
    class Timed(Executor):
        @handler(timeout=1)
        async def take(self, message: int | Order, ctx: WorkflowContext[str, bytes]) -> float | None: ...

    one = problem_free(Timed())
    assert (one.input_types, one.output_types) == ([int, Order], [str, float])
    assert one.workflow_output_types == [bytes]


def test_limits_may_stand_beside_types_in_the_decorator() -> None:
    assert limits_of(Limited(), "text") == Limits(timeout=2.0)
    assert int in Limited().output_types


def test_the_limits_of_a_handler_beat_those_of_its_executor_one_by_one() -> None:
    often = RetryPolicy(max_attempts=9)
    one = Limited("limited", retry=often, timeout=timedelta(hours=1), idle_timeout=30)
    assert limits_of(one, Order()) == Limits(TWICE, 60.0, 5.0)
    assert limits_of(one, "text") == Limits(often, 2.0, 30.0)
    assert limits_of(one, 1) == Limits(often, 3600.0, 30.0)


def test_an_override_that_is_not_marked_has_the_limits_of_what_it_overrides() -> None:
    class Overriding(Limited):
        async def from_annotations(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    assert limits_of(Overriding(), Order()) == Limits(TWICE, 60.0, 5.0)


def test_an_override_that_is_marked_says_its_limits_itself() -> None:
    class Marked(Limited):
        @handler(timeout=7)
        async def from_annotations(self, message: Order, ctx: WorkflowContext) -> None: ...

        @handler(input=str)
        async def from_the_decorator(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    assert limits_of(Marked(), Order()) == Limits(timeout=7.0)
    assert limits_of(Marked(), "text") == NO_LIMITS


@pytest.mark.parametrize(
    ("wrong", "kind"), [({"timeout": 0}, ValueError), ({"idle_timeout": "5"}, TypeError), ({"retry": 3}, TypeError)]
)
def test_a_bad_limit_is_refused_at_the_line_that_wrote_it(wrong: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"^{next(iter(wrong))} must be "):
        handler(**wrong)
