"""Annotations under `from __future__ import annotations`: all of them are strings until they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Never, Optional

from stepwell import Executor, WorkflowBuilder, WorkflowContext, executor, handler
from stepwell.workflows import FunctionExecutor

if TYPE_CHECKING:
    from nowhere import Ghost  # type: ignore[import-not-found]


@dataclass
class Order:
    total: int = 0


class AtTheTop(Executor):
    @handler
    async def order(self, message: Order, ctx: WorkflowContext[int, str]) -> None: ...

    @handler
    async def union(self, message: int | str, ctx: WorkflowContext[Never, list[Order]]) -> None: ...

    @handler
    async def optional(self, message: Optional[bytes], ctx: WorkflowContext) -> None: ...  # noqa: UP045

    @handler
    async def generic(self, message: dict[str, list[Order]], ctx: WorkflowContext) -> None: ...

    @handler
    async def anything(self, message: Any, ctx: WorkflowContext[Any]) -> None: ...

    @handler
    async def literal(self, message: Literal["go", "stop"], ctx: WorkflowContext[None]) -> None: ...

    @handler
    async def later(self, message: Later, ctx: WorkflowContext) -> None: ...


class Later:
    """Defined after it is named, which is fine at the top of a module."""


def test_postponed_annotations_are_read_like_any_other() -> None:
    one = AtTheTop()
    assert one._handler_table.problems == []
    assert one.input_types == [
        *(Order, int, str, bytes, type(None)),
        *(dict[str, list[Order]], Any, Literal["go", "stop"], Later),
    ]
    assert one.output_types == [int, Any, type(None)]
    assert one.workflow_output_types == [str, list[Order]]


async def test_types_that_are_local_to_a_function_are_found() -> None:
    @dataclass
    class Local:
        number: int

    class Worker(Executor):
        @handler
        async def take(self, message: Local | None, ctx: WorkflowContext[list[Local], Local]) -> None:
            await ctx.yield_output(message or Local(0))

    one = Worker()
    assert one._handler_table.problems == []
    assert one.input_types == [Local, type(None)]
    assert one.output_types == [list[Local]]
    assert (await WorkflowBuilder(start_executor=one).build().run(Local(3))).get_outputs() == [Local(3)]


def test_types_of_every_function_around_are_found_the_nearest_first() -> None:
    class Outer:
        pass

    class Both:
        pass

    both_outside = Both

    def inner() -> Any:
        class Both:
            pass

        class Worker(Executor):
            near = Both

            @handler
            async def take(self, message: Outer | Both, ctx: WorkflowContext) -> None: ...

        return Worker()

    made = inner()
    assert made.input_types == [Outer, made.near]
    assert both_outside not in made.input_types


def test_functions_find_local_types_with_the_decorator_and_without() -> None:
    class Local:
        pass

    @executor
    async def decorated(message: Local, ctx: WorkflowContext[Local]) -> None: ...

    @executor(id="named")
    def configured(message: list[Local]) -> Local:
        return message[0]

    def plain(message: Local) -> None: ...

    assert (decorated.input_types, decorated.output_types) == ([Local], [Local])
    assert (configured.input_types, configured.output_types) == ([list[Local]], [Local])
    assert FunctionExecutor(plain).input_types == [Local]


def test_a_type_imported_for_type_checkers_only_is_a_problem_that_says_what_to_do() -> None:
    class Haunted(Executor):
        @handler
        async def take(self, message: Ghost, ctx: WorkflowContext) -> None: ...

    (problem,) = Haunted()._handler_table.problems
    assert "'Ghost'" in problem
    assert "not under TYPE_CHECKING" in problem


def test_a_local_type_can_be_given_in_the_decorator_as_a_string() -> None:
    class Local:
        pass

    class Worker(Executor):
        @handler(input="Local", output="list[Local]")
        async def take(self, message, ctx) -> None: ...  # type: ignore[no-untyped-def]

    assert Worker()._handler_table.problems == []
    assert (Worker().input_types, Worker().output_types) == ([Local], [list[Local]])
