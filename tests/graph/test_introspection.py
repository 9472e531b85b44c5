"""What workflows and executors say of themselves, and mistakes in the choice of outputs."""

import json
from typing import Any, Never

import pytest

from stepwell import DefinitionError, Executor, WorkflowBuilder, WorkflowContext, WorkflowExecutor, handler
from stepwell import response_handler as responds
from stepwell.orchestrations import SequentialBuilder


class Sends(Executor):
    @handler
    async def send(self, message: str, ctx: WorkflowContext[str]) -> None: ...


class Yields(Executor):
    @handler
    async def give(self, message: str, ctx: WorkflowContext[Never, str]) -> None: ...


class Undeclared(Executor):
    @handler
    async def give(self, message: str, ctx: WorkflowContext) -> None: ...


class Asks(Yields):
    @responds
    async def answered(self, asked: str, response: int | None, ctx: WorkflowContext) -> None: ...


def build(**options: Any) -> Any:
    return WorkflowBuilder(name="shop", start_executor=Sends("a"), **options).add_edge("a", Yields("b")).build()


def test_a_workflow_describes_itself() -> None:
    workflow = build(output_from=["b"])
    assert workflow.get_start_executor().id == "a"
    assert [executor.id for executor in workflow.get_executors_list()] == ["a", "b"]
    assert [executor.id for executor in workflow.get_output_executors()] == ["b"]
    assert workflow.get_intermediate_executors() == []
    assert (workflow.is_terminal_executor("b"), workflow.is_terminal_executor("a")) == (True, False)
    assert json.loads(workflow.to_json()) == {
        "name": "shop",
        "description": None,
        "version": 1,
        "max_iterations": 100,
        "start_executor_id": "a",
        "executors": {"a": {"id": "a", "type": "Sends"}, "b": {"id": "b", "type": "Yields"}},
        "edges": ["a -> b"],
        "output_executors": ["b"],
        "intermediate_executors": [],
    }
    everything = build()
    assert [executor.id for executor in everything.get_output_executors()] == ["a", "b"]
    assert everything.to_dict()["output_executors"] is None


def test_a_sub_workflow_is_described_with_its_caller() -> None:
    outer = WorkflowBuilder(start_executor=WorkflowExecutor(build(), "inner", allow_direct_output=True)).build()
    assert outer.to_dict()["executors"]["inner"]["workflow"]["name"] == "shop"


def test_an_executor_says_which_requests_it_supports() -> None:
    asks = Asks("asks")
    assert asks.to_dict() == {"id": "asks", "type": "Asks"}
    assert asks.is_request_supported(str, int)
    assert not asks.is_request_supported(str, str)
    assert not asks.is_request_supported(bytes, int)


def test_a_definition_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no start executor"):
        WorkflowBuilder().build()


@pytest.mark.parametrize("option", ["output_from", "intermediate_output_from"])
def test_an_executor_that_never_yields_cannot_be_chosen_for_outputs(option: str) -> None:
    with pytest.raises(DefinitionError, match=f"'a' stands in {option}, but its handlers declare"):
        build(**{option: ["a"]})
    undeclared = Undeclared("u")
    WorkflowBuilder(start_executor=undeclared, output_from=[undeclared]).build()


def test_an_executor_is_chosen_once() -> None:
    with pytest.raises(DefinitionError, match="'b' stands twice in output_from"):
        build(output_from=["b", "b"])


def test_hints_name_the_option_that_helps() -> None:
    class Vague(Yields):
        @responds
        async def answered(self, asked, response: int, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(DefinitionError, match=r"annotate 'asked', or pass request=\.\.\."):
        WorkflowBuilder(start_executor=Vague("v")).build()

    class Writes(Executor):
        @handler(input=list, output=str, workflow_output=str)
        async def write(self, messages: Any, ctx: Any) -> None: ...

    inner = WorkflowBuilder(start_executor=Writes("writes")).build()
    with pytest.raises(DefinitionError, match="pass allow_direct_output=True to it"):
        SequentialBuilder(participants=[WorkflowExecutor(inner, "inner")]).build()
