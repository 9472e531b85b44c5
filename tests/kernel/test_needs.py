"""What a stored run needs of the code that goes on with it: one table, a row for each kind of change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import (
    Case,
    Default,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    handler,
    response_handler,
)
from stepwell.kernel.compatibility import find_incompatibilities, split_union
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.child import Child
from stepwell.model.commit import Stamp
from stepwell.model.log_keys import LogEntry, RecalledLog
from stepwell.model.message import Outcome, Reply, RoutedMessage, Sent
from stepwell.model.payload import Payload, pack_copy
from stepwell.model.request import Request

JOIN = "all of b, c -> d"


class Step(Executor):
    @handler
    async def take(self, message: int | list[int], ctx: WorkflowContext[int]) -> None: ...

    @response_handler
    async def hear(self, original_request: str, response: bool, ctx: WorkflowContext[int]) -> None: ...


class OnlyText(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[str]) -> None: ...

    @response_handler
    async def hear(self, original_request: str, response: str, ctx: WorkflowContext[str]) -> None: ...


class Lists(Executor):
    @handler
    async def take(self, message: list[str], ctx: WorkflowContext[str]) -> None: ...


class Keeper(Step):
    _state_key_patterns = ("kept/{id}/",)


def closed(value: object) -> Payload:
    return pack_copy(value, "$")


def say_yes(message: Any) -> bool:
    return True


def pick(message: Any, targets: list[str]) -> list[str]:
    return targets


def four(*, start: str = "a", cls: Callable[[str], Executor] = Step, edges: Any = None, **options: Any) -> Workflow:
    """a sends to b and c, d waits for both; `edges` says otherwise."""
    steps = {id: cls(id) for id in "abcd"}
    builder = WorkflowBuilder(start_executor=steps[start], on_unroutable="drop", **options)
    if edges is None:
        builder.add_fan_out_edges(steps["a"], [steps["b"], steps["c"]])
        builder.add_fan_in_edges([steps["b"], steps["c"]], steps["d"])
    else:
        edges(builder, steps)
    return builder.build()


def run(**known: Any) -> Checkpoint:
    """A run of `four`, with nothing under way but what is said."""
    header = RunHeader("r", "w", four().graph_signature, "")
    nothing = {id: closed({}) for id in "abcd"}
    stamp = Stamp("id", "2026-01-01T00:00:00+00:00")
    known = {"status": WorkflowRunState.IN_PROGRESS, "executors": nothing, **known}
    return Checkpoint(header, 3, stamp, None, iteration=3, since_input=3, place=3, **known)


def message(*takers: str, value: object = 1, **known: Any) -> RoutedMessage:
    return RoutedMessage("2.0.0", known.pop("source", "a"), closed(value), takers=takers, **known)


def question(executor: str, response_type: str = "bool", **known: Any) -> Request:
    stamp = "2026-01-01T00:00:00+00:00"
    return Request("q", executor, closed("sure?"), "str", response_type, "{}", stamp, **known)


CHILD = Child("inner", "c", "id", 1, "0/r")


def without(*gone: str) -> Callable[[WorkflowBuilder, dict[str, Executor]], Any]:
    """A ring of whoever is left."""

    def edges(builder: WorkflowBuilder, steps: dict[str, Executor]) -> None:
        left = [step for id, step in steps.items() if id not in gone]
        builder.add_chain([*left, left[0]])

    return edges


def rewired(builder: WorkflowBuilder, steps: dict[str, Executor]) -> None:
    """Every kind of edge but those it had, and a new executor."""
    a, b, c, d = steps.values()
    builder.add_switch_case_edge_group(a, [Case(say_yes, b), Default(Step("new"))])
    builder.add_multi_selection_edge_group(b, [c, d], pick)
    builder.add_edge(c, d, say_yes).add_edge(d, d)


def joined_by(*sources: str, target: str = "d") -> Callable[[WorkflowBuilder, dict[str, Executor]], Any]:
    def edges(builder: WorkflowBuilder, steps: dict[str, Executor]) -> None:
        builder.add_fan_out_edges(steps["a"], [step for id, step in steps.items() if id not in ("a", target)])
        builder.add_fan_in_edges([steps[id] for id in sources], steps[target])

    return edges


FINE: dict[str, tuple[Checkpoint, Workflow]] = {
    "nothing changed": (run(messages=(message("b", "c"),), held={JOIN: {"b": (closed(1),)}}), four()),
    "all other edges and a new executor": (run(messages=(message("b", "c"),)), four(edges=rewired)),
    "another start": (run(messages=(message("a", source=None),)), four(start="c", edges=without("x"))),
    "one gone that has nothing": (run(messages=(message("b"),)), four(edges=without("c"))),
    "a fan-in gone that holds nothing": (run(held={JOIN: {}}), four(edges=rewired)),
    "a fan-in gone that another is like": (run(held={JOIN: {"b": (closed(1),)}}), four(edges=joined_by("b", "c"))),
    "a question and its asker": (run(requests={"q": question("b")}), four(edges=rewired)),
    "a run inside": (
        run(children={"k": CHILD}),
        four(cls=lambda id: WorkflowExecutor(four(), id) if id == "c" else Step(id)),
    ),
    "what is remembered is its own": (
        run(messages=(message("b", "c"),)),
        four(edges=without("d")),
    ),
    "an answer on its way": (
        run(messages=(message("b", value=True, source=None, reply=Reply("q", closed("sure?"))),)),
        four(edges=rewired),
    ),
}

REFUSED: dict[str, tuple[Checkpoint, Workflow, str]] = {
    "gone with its state": (
        run(executors={"c": closed({"count": 2})}),
        four(edges=without("c")),
        "executor 'c' was removed, but this run has state of it: 'count'",
    ),
    "gone with what is kept for it in the state of the run": (
        run(state={"kept/c/notes": closed([1])}),
        four(edges=without("c"), cls=Keeper),
        "executor 'c' was removed, but this run has state of it: 'kept/c/notes'",
    ),
    "gone with a message": (
        run(messages=(message("b", "c"),)),
        four(edges=without("c")),
        "executor 'c' was removed, but a message from 'a' is in flight to it",
    ),
    "gone with an answer": (
        run(messages=(message("c", value=True, source=None, reply=Reply("q", closed("sure?"))),)),
        four(edges=without("c")),
        "executor 'c' was removed, but a response is in flight to it",
    ),
    "gone with a question": (
        run(requests={"q": question("c")}),
        four(edges=without("c")),
        "executor 'c' was removed, but its request 'q' is open",
    ),
    "gone with a run inside": (
        run(children={"k": CHILD}),
        four(edges=without("c")),
        "executor 'c' was removed, but its run 'inner' waits for a response",
    ),
    "no sub-workflow any more": (
        run(children={"k": CHILD}),
        four(),
        "executor 'c' is no longer a sub-workflow, but its run 'inner' waits for a response",
    ),
    "a handler that takes something else": (
        run(messages=(message("b"),)),
        four(cls=OnlyText, edges=without("x")),
        "a message from 'a' in flight to 'b' is of type int, but 'b' accepts str",
    ),
    "a handler that takes another answer, which is on its way": (
        run(messages=(message("b", value=True, source=None, reply=Reply("q", closed("sure?"))),)),
        four(cls=OnlyText, edges=without("x")),
        "a response in flight to 'b' is of type bool, but 'b' has no handler for it",
    ),
    "a question that wants another answer": (
        run(requests={"q": question("b")}),
        four(cls=OnlyText, edges=without("x")),
        "the open request 'q' of 'b' expects bool, but 'b' accepts str",
    ),
    "a question of which half an answer is taken": (
        run(requests={"q": question("b", "bool | str")}),
        four(),
        "the open request 'q' of 'b' expects bool | str, but 'b' accepts bool",
    ),
    "a default nobody takes": (
        run(requests={"q": question("b", default=closed("yes"))}),
        four(),
        "'b' does not accept the default of its open request 'q'",
    ),
    "half-full fan-in with a source less": (
        run(held={JOIN: {"b": (closed(1), closed(2))}}),
        four(edges=joined_by("b", "a")),
        f"the fan-in {JOIN!r} was removed, but it holds messages of this run: 2 from 'b'",
    ),
    "half-full fan-in with a source more": (
        run(held={JOIN: {"b": (closed(1),)}}),
        four(edges=joined_by("b", "c", "a")),
        f"the fan-in {JOIN!r} was removed, but it holds messages of this run: 1 from 'b'",
    ),
    "half-full fan-in in another order": (
        run(held={JOIN: {"b": (closed(1),)}}),
        four(edges=joined_by("c", "b")),
        f"the fan-in {JOIN!r} was removed, but it holds messages of this run: 1 from 'b'",
    ),
    "half-full fan-in into one that takes something else": (
        run(held={JOIN: {"b": (closed(1),)}}),
        four(cls=lambda id: Lists(id) if id == "d" else OnlyText(id), edges=joined_by("b", "c")),
        f"the fan-in {JOIN!r} holds a value of type int, but 'd' accepts list[str]",
    ),
    "a message on its way into a fan-in that is gone": (
        run(messages=(message(source="c", joins=(JOIN,)),)),
        four(edges=rewired),
        f"the fan-in {JOIN!r} was removed, but it holds messages of this run: 1 from 'c'",
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_a_run_goes_on_if_the_change_cannot_matter(name: str) -> None:
    at, workflow = FINE[name]
    assert find_incompatibilities(workflow._definition.graph, at, RecalledLog()) == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_needs_what_is_not_there_is_refused_in_words(name: str) -> None:
    at, workflow, why = REFUSED[name]
    assert find_incompatibilities(workflow._definition.graph, at, RecalledLog()) == [why]


def test_what_is_finished_need_not_be_taken_again_but_what_it_sent_must() -> None:
    at = run(messages=(message("b", "c"),))
    graph = four(cls=OnlyText, edges=without("x"))._definition.graph
    done = {"3.0": Outcome("3.0", "b"), "3.1": Outcome("3.1", "c")}
    assert find_incompatibilities(graph, at, RecalledLog(done)) == []
    strict = WorkflowBuilder(start_executor="b").add_edge(OnlyText("b"), OnlyText("c")).build()._definition.graph
    sent = {"3.0": Outcome("3.0", "b", sent=(Sent(closed(1), None), Sent(closed("x"), "a"))), "3.1": done["3.1"]}
    began = "'b' has already finished in the current superstep and sent a message"
    assert find_incompatibilities(strict, at, RecalledLog(sent)) == [
        f"{began} of type int, but no target of its edges accepts it",
        f"{began} to 'a', but no edge leads there",
    ]


def test_what_is_finished_must_be_its_own() -> None:
    at = run(messages=(message("b"),))
    found = find_incompatibilities(four()._definition.graph, at, RecalledLog({"3.0": Outcome("3.0", "c")}))
    assert found == [
        "'c' has already finished in the current superstep, "
        "but its delivery 3.0 belongs to another executor in this graph"
    ]


def test_notes_of_what_is_under_way_belong_to_the_place_and_need_nobody() -> None:
    at = run(messages=(message("b"),))
    notes = {"3.0/timer/0": LogEntry("2026-01-01T00:00:00+00:00")}
    assert find_incompatibilities(four(edges=rewired)._definition.graph, at, RecalledLog({}, notes)) == []


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("bool", ["bool"]),
        ("A | None", ["A", "None"]),
        ("list[int | str] | None", ["list[int | str]", "None"]),
        ("dict[str, list[int | A] | None]", ["dict[str, list[int | A] | None]"]),
    ],
)
def test_a_union_in_words_is_read_by_its_members(words: str, parts: list[str]) -> None:
    assert split_union(words) == parts
