"""By what a stored run knows its graph again, and how unnamed workflows are called."""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Case, Default, Executor, Workflow, WorkflowBuilder, WorkflowContext, handler
from stepwell.graph.graph import describe_differences, signature_hash
from stepwell.graph.retry import RetryPolicy


class Step(Executor):
    @handler
    async def take(self, message: Any, ctx: WorkflowContext[Any]) -> None: ...


class Renamed(Executor):
    """Another class, another handler, other code."""

    @handler
    async def quite_another_name(self, message: int | str, ctx: WorkflowContext[int | str]) -> None:
        await ctx.send_message(message)


def is_big(message: Any) -> bool:
    return bool(message > 10)


def is_small(message: Any) -> bool:
    return not is_big(message)


def pick(message: Any, targets: list[str]) -> list[str]:
    return targets[:1]


def line(*ids: str, cls: Callable[[str], Executor] = Step, **options: Any) -> Workflow:
    steps = [cls(id) for id in ids]
    return WorkflowBuilder(start_executor=steps[0], **options).add_chain(steps).build()


def around(add: Callable[[WorkflowBuilder], object]) -> Workflow:
    """A workflow of a, b and c, with the edges that `add` adds."""
    builder = WorkflowBuilder(start_executor=Step("a"))
    builder.add_fan_out_edges("a", [Step("b"), Step("c")])
    add(builder)
    return builder.build()


def changes(before: Workflow, after: Workflow) -> list[str]:
    return describe_differences(before.graph_signature, after.graph_signature)


def test_limits_are_no_part_of_it_so_they_may_be_changed_while_runs_are_stored() -> None:
    class Limited(Executor):
        @handler(timeout=5)
        async def take(self, message: Any, ctx: WorkflowContext[Any]) -> None: ...

    def limited(id: str) -> Executor:
        return Limited(id, retry=RetryPolicy(), idle_timeout=1)

    assert line("a", "b").graph_signature_hash == line("a", "b", cls=limited).graph_signature_hash


def test_the_signature_is_kept_in_parts_a_person_can_read() -> None:
    a, b, c, d = map(Step, "abcd")
    workflow = (
        WorkflowBuilder(start_executor=a)
        .add_edge(a, b, condition=is_big)
        .add_switch_case_edge_group(b, [Case(is_small, c), Default(d)])
        .add_multi_selection_edge_group(c, ["a", "b"], pick)
        .add_edge(d, d)
        .build()
    )
    assert workflow.graph_signature == {
        "start": "a",
        "executors": ["a", "b", "c", "d"],
        "edges": [
            "a -> b if is_big",
            "b -> first of c if is_small, d otherwise",
            "c -> those of a, b chosen by pick",
            "d -> d",
        ],
    }


def test_the_signature_survives_being_stored() -> None:
    kept = json.loads(json.dumps(line("a", "b").graph_signature))
    assert describe_differences(kept, line("a", "b").graph_signature) == []
    assert signature_hash(kept) == line("a", "b").graph_signature_hash


def test_renaming_a_class_or_a_handler_does_not_change_the_signature() -> None:
    assert line("a", "b", cls=Renamed).graph_signature == line("a", "b").graph_signature


def test_moving_a_module_does_not_change_the_signature() -> None:
    moved = type("Step", (Step,), {"__module__": "elsewhere.entirely", "__qualname__": "Package.Step"})
    assert line("a", "b", cls=moved).graph_signature == line("a", "b").graph_signature


def test_the_code_of_a_condition_may_change_as_long_as_its_name_stays() -> None:
    def is_big(message: Any) -> bool:
        return True

    first, second = Step("a"), Step("b")
    rewritten = WorkflowBuilder(start_executor=first).add_edge(first, second, is_big).build()
    original = WorkflowBuilder(start_executor=first).add_edge(first, second, globals()["is_big"]).build()
    assert changes(original, rewritten) == []


def test_a_partial_condition_goes_by_the_name_of_its_function() -> None:
    def above(limit: int, message: Any) -> bool:
        return bool(message > limit)

    workflow = around(lambda b: b.add_edge("b", "c", functools.partial(above, 10)))
    assert "b -> c if above" in workflow.graph_signature["edges"]


def test_the_name_the_limit_and_the_outputs_are_not_in_the_signature() -> None:
    one = line("a", "b")
    other = line("a", "b", name="other", description="text", max_iterations=3, output_from="all", on_unroutable="drop")
    assert one.graph_signature == other.graph_signature


def test_the_order_in_which_edges_were_added_does_not_matter() -> None:
    one = around(lambda b: b.add_edge("b", "c").add_edge("c", "b"))
    other = around(lambda b: b.add_edge("c", "b").add_edge("b", "c"))
    assert one.graph_signature_hash == other.graph_signature_hash


TOPOLOGIES: dict[str, Callable[[WorkflowBuilder], object]] = {
    "nothing": lambda b: None,
    "edge": lambda b: b.add_edge("b", "c"),
    "edge back": lambda b: b.add_edge("c", "b"),
    "self-loop": lambda b: b.add_edge("b", "b"),
    "condition": lambda b: b.add_edge("b", "c", is_big),
    "other condition": lambda b: b.add_edge("b", "c", is_small),
    "switch": lambda b: b.add_switch_case_edge_group("b", [Case(is_big, "c"), Default("a")]),
    "switch the other way": lambda b: b.add_switch_case_edge_group("b", [Case(is_big, "a"), Default("c")]),
    "switch on something else": lambda b: b.add_switch_case_edge_group("b", [Case(is_small, "c"), Default("a")]),
    "selection": lambda b: b.add_multi_selection_edge_group("b", ["c", "a"], pick),
    "fan-out": lambda b: b.add_fan_out_edges("b", ["c", "a"]),
    "fan-out in another order": lambda b: b.add_fan_out_edges("b", ["a", "c"]),
    "fan-in": lambda b: b.add_fan_in_edges(["b", "c"], Step("d")),
    "fan-in in another order": lambda b: b.add_fan_in_edges(["c", "b"], Step("d")),
    "two edges instead": lambda b: b.add_edge("b", Step("d")).add_edge("c", "d"),
}


def test_every_change_of_topology_changes_the_signature() -> None:
    hashes = {name: around(add).graph_signature_hash for name, add in TOPOLOGIES.items()}
    assert len(set(hashes.values())) == len(TOPOLOGIES)


@pytest.mark.parametrize("name", [name for name in TOPOLOGIES if name != "nothing"])
def test_every_change_of_topology_can_be_said_in_words(name: str) -> None:
    before, after = around(TOPOLOGIES["nothing"]), around(TOPOLOGIES[name])
    assert changes(before, after)
    assert changes(after, before)
    assert changes(after, around(TOPOLOGIES[name])) == []


def test_the_difference_is_said_in_words() -> None:
    before = line("a", "b", "c")
    after = WorkflowBuilder(start_executor=Step("b")).add_edge("b", Step("d"), is_big).build()
    assert changes(before, after) == [
        "the start was 'a' and is now 'b'",
        "executor 'a' is gone",
        "executor 'c' is gone",
        "executor 'd' is new",
        "edge 'a -> b' is gone",
        "edge 'b -> c' is gone",
        "edge 'b -> d if is_big' is new",
    ]


def test_odd_ids_do_not_make_two_topologies_look_alike() -> None:
    def with_edges(first: list[str], second: list[str]) -> Workflow:
        builder = WorkflowBuilder(start_executor=Step("s"))
        builder.add_fan_out_edges("s", [Step("a"), Step("b"), Step("a, b"), Step("x")])
        return builder.add_fan_out_edges("a", first).add_fan_out_edges("x", second).build()

    one, other = with_edges(["a", "b"], ["a, b"]), with_edges(["a, b"], ["a", "b"])
    assert one.graph_signature_hash != other.graph_signature_hash
    assert "edge \"a -> each of 'a, b'\" is new" in changes(one, other)


# names


PROGRAM = """
from typing import Any
from stepwell import Executor, WorkflowBuilder, WorkflowContext, handler

class Elsewhere(Executor):
    @handler
    async def go(self, message: Any, ctx: WorkflowContext[Any]) -> None: ...

steps = [Elsewhere(id) for id in ("a", "b", "c")]
print(WorkflowBuilder(start_executor=steps[0]).add_chain(steps).build().name)
"""


@pytest.mark.process
@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_unnamed_workflow_has_the_same_name_in_another_process(seed: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    assert told.stdout.strip() == line("a", "b", "c").name


def test_the_name_of_an_unnamed_workflow_is_made_from_its_structure() -> None:
    assert re.fullmatch(r"workflow-[0-9a-f]{12}", line("a", "b").name)
    assert line("a", "b").name == line("a", "b", cls=Renamed).name
    names = {around(add).name for add in TOPOLOGIES.values()}
    assert len(names) == len(TOPOLOGIES)


def test_a_name_that_was_given_is_kept() -> None:
    assert line("a", "b", name="orders").name == "orders"
