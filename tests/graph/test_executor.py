"""Executors: what they are called, how a run gets its own, and functions as executors."""

import functools
import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from threading import get_ident
from typing import Any, Never

import pytest

from stepwell import DefinitionError, Executor, WorkflowBuilder, WorkflowContext, executor, handler, persistent
from stepwell.graph.retry import NO_LIMITS, Limits, RetryPolicy
from stepwell.workflows import FunctionExecutor


class Worker(Executor):
    @handler
    async def work(self, message: int, ctx: WorkflowContext[Never, int]) -> None: ...


# what it is called


def test_an_executor_has_the_id_it_was_given() -> None:
    assert Worker("first").id == Worker(id="first").id == "first"


def test_without_an_id_it_is_named_after_its_class() -> None:
    assert Worker().id == "Worker"


def test_a_subclass_that_never_calls_the_init_of_its_base_is_named_after_its_class() -> None:
    class Recovering(Worker):
        def __init__(self) -> None:
            self._results: dict[int, int] = {}

    assert Recovering().id == "Recovering"
    assert Recovering().clone().id == "Recovering"


def test_an_attribute_called_id_with_an_underscore_belongs_to_the_user() -> None:
    class Row(Worker):
        def __init__(self) -> None:
            super().__init__("row")
            self._id = 42

    assert Row().id == "row"


def test_a_dataclass_can_be_an_executor() -> None:
    @dataclass
    class Configured(Worker):
        limit: int = 3

    assert Configured().id == "Configured"
    assert WorkflowBuilder(start_executor=Configured(limit=5)).build().executors["Configured"] == Configured(5)


@pytest.mark.parametrize("id", ["", 7, b"bytes"])
def test_an_id_is_a_non_empty_string(id: Any) -> None:
    with pytest.raises(ValueError, match="non-empty string"):
        Worker(id)


def test_an_id_that_a_subclass_says_itself_is_checked_at_build() -> None:
    class Nameless(Worker):
        id = ""

    with pytest.raises(DefinitionError, match="not a non-empty string"):
        WorkflowBuilder(start_executor=Nameless()).build()


def test_an_id_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Worker("a").id = "b"  # type: ignore[misc]


def test_an_executor_shows_its_class_and_its_id() -> None:
    assert repr(Worker("a")) == "<Worker 'a'>"


# clones


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)


class Client:
    """Something that is not data: it must be shared."""

    def __init__(self) -> None:
        self.calls: list[str] = []


class Furnished(Worker):
    def __init__(self) -> None:
        super().__init__("furnished")
        inner = [2, 3]
        self.numbers: list[int | list[int]] = [1, inner]
        self.by_name = {"cart": Cart(["apple"])}
        self.seen = {1, 2}
        self.grouped: dict[str, list[int]] = defaultdict(list, a=[1])
        self.ordered = OrderedDict(a=[1])
        self.inner = inner
        self.client = Client()
        self.lock = threading.Lock()
        self.function = len


def test_a_clone_has_plain_data_of_its_own() -> None:
    one = Furnished()
    twin = one.clone()
    twin.numbers.append(4)
    twin.by_name["cart"].items.append("pear")
    twin.seen.add(3)
    twin.grouped["a"].append(2)
    twin.grouped["b"].append(3)
    twin.ordered["a"].append(2)
    assert one.numbers == [1, [2, 3]]
    assert one.by_name == {"cart": Cart(["apple"])}
    assert one.seen == {1, 2}
    assert one.grouped == {"a": [1]}
    assert one.ordered == {"a": [1]}


def test_a_clone_shares_clients_locks_and_functions() -> None:
    one = Furnished()
    twin = one.clone()
    assert twin.client is one.client
    assert twin.lock is one.lock
    assert twin.function is len


def test_what_was_one_object_in_the_executor_is_one_object_in_the_clone() -> None:
    twin = Furnished().clone()
    twin.inner.append(9)
    assert twin.numbers == [1, [2, 3, 9]]


def test_a_clone_has_the_class_the_id_and_the_handlers() -> None:
    twin = Furnished().clone()
    assert type(twin) is Furnished
    assert twin.id == "furnished"
    assert twin.input_types == [int]


def test_a_clone_of_a_function_executor_is_one_too() -> None:
    twin = FunctionExecutor(len, "length", input=str).clone()
    assert twin.func is len
    assert twin.id == "length"
    assert twin.input_types == [str]


# how often and how long its handlers may


def limits_of(one: Executor) -> Limits:
    """What a call of its only handler is allowed."""
    (spec,) = one._handler_table.specs
    return one._limits_for(spec)


TWICE = RetryPolicy(max_attempts=2)


def test_the_limits_of_an_executor_go_for_its_handlers() -> None:
    one = Worker("w", retry=TWICE, timeout=timedelta(seconds=90), idle_timeout=10)
    assert limits_of(one) == Limits(TWICE, 90.0, 10.0)


def test_an_executor_that_was_given_no_limits_has_none() -> None:
    assert limits_of(Worker()) == NO_LIMITS


def test_a_subclass_that_never_calls_the_init_of_its_base_has_no_limits() -> None:
    class Free(Worker):
        def __init__(self) -> None:
            self.calls = 0

    assert limits_of(Free()) == limits_of(Free().clone()) == NO_LIMITS


def test_attributes_called_like_limits_belong_to_the_user() -> None:
    class Caller(Worker):
        def __init__(self) -> None:
            super().__init__("caller", timeout=3)
            self.retry, self.timeout, self.idle_timeout, self.limits = "a", "b", "c", "d"

    assert limits_of(Caller()) == Limits(timeout=3.0)
    assert not {"retry", "timeout", "idle_timeout", "limits"} & set(dir(Executor))


def test_a_clone_has_the_limits() -> None:
    assert limits_of(Worker("w", retry=TWICE, timeout=3).clone()) == Limits(TWICE, 3.0, None)
    assert limits_of(FunctionExecutor(len, input=str, retry=TWICE, idle_timeout=4).clone()) == Limits(TWICE, None, 4.0)


def test_a_clone_whose_own_method_decides_about_retries_asks_its_own() -> None:
    class Deciding(Worker):
        def __init__(self) -> None:
            super().__init__("deciding", retry=RetryPolicy(retry_on=self.is_worth_it))
            self.patience = [1]

        def is_worth_it(self, error: Exception) -> bool:
            return bool(self.patience)

    one = Deciding()
    twin = one.clone()
    one.patience.clear()
    theirs, own = limits_of(twin).retry, limits_of(one).retry
    assert theirs is not None
    assert own is not None
    assert theirs.wants(ValueError())
    assert not own.wants(ValueError())


@pytest.mark.parametrize(
    ("wrong", "kind"), [({"timeout": 0}, ValueError), ({"idle_timeout": "5"}, TypeError), ({"retry": 3}, TypeError)]
)
def test_a_bad_limit_is_refused_at_the_line_that_wrote_it(wrong: dict[str, Any], kind: type[Exception]) -> None:
    for refusing in (lambda: Worker(**wrong), lambda: FunctionExecutor(scale, **wrong), lambda: executor(**wrong)):
        with pytest.raises(kind, match=f"^{next(iter(wrong))} must be "):
            refusing()


# persistent attributes


class Counting(Worker):
    count = persistent(0)
    seen = persistent([[1]])


def test_a_persistent_attribute_begins_with_its_default() -> None:
    assert Counting().count == 0
    assert Counting().seen == [[1]]


def test_a_persistent_attribute_is_each_instance_s_own() -> None:
    one, other = Counting(), Counting()
    one.count += 2
    one.seen[0].append(2)
    assert (one.count, one.seen) == (2, [[1, 2]])
    assert (other.count, other.seen) == (0, [[1]])
    assert Counting().seen == [[1]]


def test_a_default_that_was_looked_at_stays_the_object_it_was() -> None:
    one = Counting()
    assert one.seen is one.seen


def test_a_persistent_attribute_is_copied_into_a_clone() -> None:
    one = Counting()
    one.seen.append([2])
    twin = one.clone()
    twin.seen[0].append(9)
    assert one.seen == [[1], [2]]
    assert twin.seen == [[1, 9], [2]]


def test_on_the_class_a_persistent_attribute_is_its_declaration() -> None:
    assert isinstance(Counting.count, persistent)


async def test_every_run_begins_with_the_value_from_before_any_run() -> None:
    class Adding(Executor):
        count = persistent(0)
        given = persistent(0)

        def __init__(self) -> None:
            super().__init__()
            self.given = 10

        @handler
        async def add(self, message: int, ctx: WorkflowContext[Never, int]) -> None:
            self.count += message
            self.given += message
            await ctx.yield_output(self.count + self.given)

    workflow = WorkflowBuilder(start_executor=Adding()).build()
    assert [(await workflow.run(1)).get_outputs() for _ in range(3)] == [[12], [12], [12]]


# functions


async def outputs_of(one: Executor, message: object) -> list[Any]:
    """What comes out of a workflow of the executor and one that yields whatever it gets."""

    @executor
    async def end(value: Any, ctx: WorkflowContext[Never, Any]) -> None:
        await ctx.yield_output(value)

    return (await WorkflowBuilder(start_executor=one).add_edge(one, end).build().run(message)).get_outputs()


async def test_an_async_function_is_an_executor_named_after_it() -> None:
    @executor
    async def upper(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text.upper())

    assert isinstance(upper, FunctionExecutor)
    assert (upper.id, upper.input_types, upper.output_types) == ("upper", [str], [str])
    assert await outputs_of(upper, "a") == ["A"]


async def test_a_plain_function_runs_in_a_thread_and_what_it_returns_is_sent_on() -> None:
    @executor
    def where(text: str) -> tuple[str, int]:
        return text.upper(), get_ident()

    assert where.output_types == [tuple[str, int]]
    ((text, thread),) = await outputs_of(where, "a")
    assert text == "A"
    assert thread != get_ident()


async def test_a_plain_function_may_use_the_context_without_waiting() -> None:
    @executor
    def twice(number: int, ctx: WorkflowContext[int]) -> None:
        ctx.send_message(number)
        ctx.send_message(number * 2)

    assert await outputs_of(twice, 2) == [2, 4]


async def test_an_async_function_needs_no_context() -> None:
    @executor
    async def double(number: int) -> int:
        return number * 2

    assert await outputs_of(double, 2) == [4]


def test_the_decorator_takes_an_id_and_types() -> None:
    @executor(id="named", input=int, output="str | None", workflow_output=list[int])
    async def anonymous(message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    assert anonymous.id == "named"
    assert anonymous._handler_table.problems == []
    assert anonymous.input_types == [int]
    assert anonymous.output_types == [str, type(None)]
    assert anonymous.workflow_output_types == [list[int]]


def test_a_function_executor_takes_them_too() -> None:
    one = FunctionExecutor(lambda message: message, "same", input=int, output=int)
    assert (one.id, one.input_types, one.output_types) == ("same", [int], [int])


def test_a_function_may_say_its_limits_with_or_without_its_types() -> None:
    @executor(retry=TWICE, timeout=timedelta(minutes=1), idle_timeout=5)
    async def annotated(message: int, ctx: WorkflowContext[str]) -> None: ...

    assert (annotated.id, annotated._handler_table.problems) == ("annotated", [])
    assert (annotated.input_types, annotated.output_types) == ([int], [str])
    assert limits_of(annotated) == Limits(TWICE, 60.0, 5.0)
    assert limits_of(FunctionExecutor(len, input=str, timeout=2)) == Limits(timeout=2.0)


@pytest.mark.parametrize("id", ["", 3])
def test_the_id_of_a_function_is_a_non_empty_string(id: Any) -> None:
    with pytest.raises(ValueError, match="non-empty string"):
        FunctionExecutor(len, id)


class Adder:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, number: int) -> int:
        return number + self.by


class AsyncAdder(Adder):
    async def __call__(self, number: int, ctx: WorkflowContext[int]) -> None:  # type: ignore[override]
        await ctx.send_message(number + self.by)


async def test_an_object_that_can_be_called_is_named_after_its_class() -> None:
    one = FunctionExecutor(Adder(3))
    assert (one.id, one.input_types, one.output_types) == ("Adder", [int], [int])
    assert await outputs_of(one, 4) == [7]
    assert await outputs_of(executor(AsyncAdder(1)), 4) == [5]


async def test_a_bound_method_is_a_function() -> None:
    class Calculator:
        async def square(self, number: int) -> int:
            return number**2

    one = executor(Calculator().square)
    assert (one.id, one.input_types, one.output_types) == ("square", [int], [int])
    assert await outputs_of(one, 4) == [16]


def scale(factor: int, number: int, *, offset: int = 0) -> int:
    return factor * number + offset


async def scale_later(number: int, ctx: WorkflowContext[int], factor: int) -> None:
    await ctx.send_message(number * factor)


async def test_a_partial_is_named_after_its_function_and_takes_what_is_left() -> None:
    one = executor(functools.partial(scale, 3, offset=1))
    assert (one.id, one._handler_table.problems, one.input_types, one.output_types) == ("scale", [], [int], [int])
    assert await outputs_of(one, 2) == [7]


async def test_a_partial_of_an_async_function_is_async() -> None:
    one = executor(functools.partial(functools.partial(scale_later), factor=5))
    assert (one.id, one._handler_table.problems, one.output_types) == ("scale_later", [], [int])
    assert await outputs_of(one, 2) == [10]


async def test_a_function_of_the_standard_library_can_be_one_if_its_type_is_given() -> None:
    assert await outputs_of(FunctionExecutor(len, input=str), "four") == [4]


@pytest.mark.parametrize("wrong", [staticmethod(scale), classmethod(scale), Worker, int, 7, "scale", None])  # type: ignore[arg-type]
def test_what_is_no_function_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="FunctionExecutor takes a function"):
        FunctionExecutor(wrong)


def nothing() -> None: ...
def three(one: int, two: WorkflowContext, three: int) -> None: ...
def any_number(*messages: int) -> None: ...
def unannotated(message) -> None: ...  # type: ignore[no-untyped-def]
def no_context(message: int, ctx: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (nothing, "must take (message) or (message, ctx), not ()"),
        (three, "must take (message) or (message, ctx), not (one, two, three)"),
        (any_number, "must take (message) or (message, ctx), not (*messages)"),
        (unannotated, "annotate 'message', or pass input=..."),
        (no_context, "annotates its context as int"),
        (print, "handler 'print'"),
        (iter, "handler 'iter' has no readable signature"),
    ],
)
def test_a_wrong_signature_is_refused_where_the_executor_is_made(function: Any, words: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        FunctionExecutor(function, "wrong")
    assert words in str(caught.value)
