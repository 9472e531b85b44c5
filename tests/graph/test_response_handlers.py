"""Response handlers: what they take, and which of them is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import DefinitionError, Executor, WorkflowBuilder, WorkflowContext, handler, response_handler
from stepwell.graph.retry import Limits, RetryPolicy


@dataclass
class Question:
    text: str


@dataclass
class Hard(Question):
    pass


class Several(Executor):
    @handler
    async def ask(self, n: int, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def general(self, original_request: Question, response: bool, ctx: WorkflowContext[int]) -> None: ...

    @response_handler
    async def hard(self, original_request: Hard, response: bool, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def words(self, original_request: Question, response: str | None, ctx: WorkflowContext) -> None: ...


@pytest.mark.parametrize(
    ("question", "answer", "name"),
    [
        (Question("q"), True, "general"),
        (Hard("q"), True, "hard"),
        (Hard("q"), "text", "words"),
        (Question("q"), None, "words"),
        (Question("q"), 1.5, None),
        ("q", True, None),
    ],
)
def test_the_most_specific_one_for_question_and_answer_is_chosen(question: Any, answer: Any, name: str | None) -> None:
    chosen = Several("s")._handler_table.choose_response_handler(question, answer)
    assert (chosen.name if chosen else None) == name


def test_a_response_handler_takes_no_messages() -> None:
    executor = Several("s")
    assert executor.input_types == [int]
    assert not executor.can_handle(Question("q"))
    assert executor.output_types == [int]


def test_types_may_be_given_in_the_decorator_instead() -> None:
    class Explicit(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None: ...

        @response_handler(request=Question, response=list[int], output=str)
        async def take(self, original_request: Any, response: Any, ctx: Any) -> None: ...

    executor = Explicit("e")
    assert executor._handler_table.choose_response_handler(Question("q"), [1]) is not None
    assert executor._handler_table.response_types(Question("q")) == (list[int],)
    assert executor.output_types == [str]


def test_a_response_handler_with_other_parameters_is_refused_by_its_decorator() -> None:
    def short(self: Executor, original_request: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match=r"\(self, original_request, response, ctx\)"):
        response_handler(short)


def test_problems_of_response_handlers_are_told_with_all_others_at_build() -> None:
    class Wrong(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None: ...

        @response_handler
        async def silent(self, original_request: str, response, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]

        @response_handler
        async def one(self, original_request: str, response: bool, ctx: WorkflowContext) -> None: ...

        @response_handler
        async def other(self, original_request: str, response: bool, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        WorkflowBuilder(start_executor=Wrong("w")).build()
    words = "\n".join(caught.value.problems)
    assert "does not declare what response it takes" in words
    assert "'one' and 'other' both accept bool as the response to str" in words


def test_a_response_handler_may_say_its_limits_with_or_without_its_types() -> None:
    twice = RetryPolicy(max_attempts=2)

    class Limited(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None: ...

        @response_handler(retry=twice, timeout=3)
        async def annotated(self, original_request: Question, response: bool, ctx: WorkflowContext[int]) -> None: ...

        @response_handler(request=Question, response=str, idle_timeout=4)
        async def explicit(self, original_request: Any, response: Any, ctx: Any) -> None: ...

    executor = Limited("l", timeout=60)
    assert executor._handler_table.problems == []
    annotated = executor._handler_table.choose_response_handler(Question("q"), True)
    explicit = executor._handler_table.choose_response_handler(Question("q"), "text")
    assert annotated is not None
    assert explicit is not None
    assert annotated.output == (int,)
    assert executor._limits_for(annotated) == Limits(twice, 3.0, None)
    assert executor._limits_for(explicit) == Limits(None, 60.0, 4.0)


@pytest.mark.parametrize(
    ("wrong", "kind"), [({"timeout": -1}, ValueError), ({"idle_timeout": True}, TypeError), ({"retry": 3}, TypeError)]
)
def test_a_bad_limit_is_refused_at_the_line_that_wrote_it(wrong: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"^{next(iter(wrong))} must be "):
        response_handler(**wrong)
