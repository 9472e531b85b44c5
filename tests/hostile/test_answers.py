"""Answers of every kind: taken if they are what was asked for, refused by name otherwise; the question stays open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from stepwell import (
    CodecError,
    Executor,
    InMemoryCheckpointStorage,
    ResponseRejected,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from tests.hostile.victim import Order, only_typed


class Parcel(BaseModel):
    weight: int
    inside: list[Parcel] = []


class Asker(Executor):
    def __init__(self, kind: Any) -> None:
        super().__init__("asker")
        self.kind = kind

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(text, self.kind, request_id="q")

    @response_handler
    async def number(self, original_request: str, response: int, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"int {response}")

    @response_handler
    async def order(self, original_request: str, response: Order, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"Order {response.item}")

    @response_handler
    async def parcel(self, original_request: str, response: Parcel, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"Parcel {response.weight}")

    @response_handler
    async def tree(self, original_request: str, response: list[Any], ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output("list")


def deep(levels: int = 100_000) -> list[Any]:
    tree: list[Any] = []
    for _ in range(levels):
        tree = [tree]
    return tree


def circular() -> list[Any]:
    tree: list[Any] = []
    tree.append(tree)
    return tree


def nested(levels: int = 100_000) -> dict[str, Any]:
    tree: dict[str, Any] = {"weight": 1, "inside": []}
    for _ in range(levels):
        tree = {"weight": 1, "inside": [tree]}
    return tree


class Bomb:
    """Goes off if anybody lets it."""

    exploded = False

    def __reduce__(self) -> tuple[Any, ...]:
        Bomb.exploded = True
        return (print, ("boom",))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        Bomb.exploded = True
        return self


WRONG: dict[str, Any] = {
    "nothing": None,
    "a text": "x",
    "half a character": "\ud800",
    "bytes": b"\xff",
    "a float": 1.5,
    "not a number": float("nan"),
    "a set": {1},
    "a function": print,
    "a class": int,
    "an object": object(),
    "a bomb": Bomb(),
    "a tag": {"$": "os:system", "v": "true"},
    "fields": {"item": 5, "price": "x", "__class__": "x"},
    "100,000 levels": deep(),
    "100,000 levels of parcels": nested(),
    "a circle": circular(),
    "10 MB": "x" * 10_000_000,
    "a million items": dict.fromkeys(map(str, range(1_000_000))),
    "a number of 100,000 digits": 10**100_000,
}
KINDS = {"int": int, "Order": Order, "Parcel": Parcel, "list": list[Any]}
RIGHT = {"int": 7, "Order": {"item": "cup", "price": 3}, "Parcel": {"weight": 2}, "list": [1, "x"]}
GOOD = {("list", "a set")}  # which a list can be made of


async def asked(kind: Any) -> tuple[Workflow, Any]:
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(name="asking", start_executor=Asker(kind), checkpoint_storage=storage).build()
    await workflow.run("go", run_id="r")
    return workflow, storage


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_wrong_answer_is_refused_by_name_and_the_right_one_is_taken(kind: str, name: str) -> None:
    workflow, storage = await asked(KINDS[kind])
    if (kind, name) in GOOD:
        return
    errors = (ResponseRejected, CodecError)
    taken = await only_typed("run", workflow.run(run_id="r", responses={"q": WRONG[name]}), errors)
    assert not taken
    assert not await only_typed("respond", workflow.attach("r", drive=True).respond({"q": WRONG[name]}), errors)
    assert [one.request_id for one in await storage.pending_requests()] == ["q"]
    result = await workflow.run(run_id="r", responses={"q": RIGHT[kind]})
    assert result.get_outputs()[0].startswith(kind)
    assert not Bomb.exploded


@pytest.mark.parametrize("id", ["", "x", "q\0", "../q", "y" * 10_000_000, 5, None])
async def test_an_answer_to_no_question_is_refused(id: Any) -> None:
    workflow, _ = await asked(int)
    with pytest.raises(UnknownRequest):
        await workflow.run(run_id="r", responses={id: 5})
    assert (await workflow.run(run_id="r", responses={"q": 5})).get_outputs() == ["int 5"]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["$", "v", "item"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(KINDS)), plain)
def test_any_answer_is_taken_or_refused_by_name(kind: str, answer: Any) -> None:
    async def tried() -> None:
        workflow, storage = await asked(KINDS[kind])
        run = workflow.run(run_id="r", responses={"q": answer})
        taken = await only_typed("run", run, (ResponseRejected, CodecError))
        assert (await storage.pending_requests() == []) == taken

    asyncio.run(tried())
