"""Where such workflows go wrong, one test for each way: none of them happens here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    DefinitionError,
    SQLiteCheckpointStorage,
)
from stepwell.agents import Calls, ScriptedAgent
from stepwell.declarative import (
    AgentWorkflow,
    Approval,
    WorkflowEdgeTraversedEvent,
    equals,
    greater,
)
from tests.declarative.trap_samples import Review, broken, one_after_the_other, says, stored, told

# --- what is given and what is told -----------------------------------------------------------------------------------


async def test_whom_a_router_leads_to_is_told_what_the_router_was_told() -> None:
    heard: list[str] = []
    workflow = (
        AgentWorkflow.create()
        .add_router("first", ScriptedAgent("r", [Calls(("handoff_to_second", {}))]))
        .add_router("second", ScriptedAgent("r", [Calls(("handoff_to_billing", {}))]))
        .add_agent("billing", says("billed", heard))
        .from_("first")
        .to("second")
        .from_("second")
        .to("billing")
        .build()
    )
    await workflow.run("my invoice is wrong")
    assert heard == ["my invoice is wrong"]


async def test_names_of_targets_that_look_alike_as_tools_are_told_apart() -> None:
    targets = ["a b", "a_b", "a/b", "Grüße", "x" * 60 + "1", "x" * 60 + "2"]

    def built(chosen: str) -> Any:
        seen: list[str] = []

        class Router:
            name = "router"

            async def take_turn(self, turn: Any) -> Any:
                seen.extend(turn.handoffs)
                tool = list(turn.handoffs)[targets.index(chosen)]
                return await ScriptedAgent("r", [Calls((tool, {}))]).take_turn(turn)

        made = AgentWorkflow.create().add_router("route", Router())
        for target in targets:
            made.add_agent(target, says(f"at {target}"))
        return made.from_("route").to(*targets).build(), seen

    for target in targets:
        workflow, seen = built(target)
        assert (await workflow.run("go")).output == f"at {target}"
        assert len({*seen}) == len(targets)
        assert all(len(tool) <= 64 and tool.isascii() for tool in seen)


async def test_a_choice_of_the_default_edge_leads_to_the_one_that_was_chosen() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_router("route", ScriptedAgent("r", [Calls(("handoff_to_x", {}))]))
        .add_agent("x", says("x"))
        .add_agent("y", says("y"))
        .from_("route")
        .otherwise("x", "y")
        .build()
    )
    assert (await workflow.run("go")).output == "x"


async def test_a_router_that_fails_leads_to_its_default() -> None:
    made = (
        AgentWorkflow.create()
        .add_router("first", ScriptedAgent("r", [Calls(("handoff_to_route", {}))]))
        .add_router("route", broken(), default="b", fallback="spare")
        .add_agent("spare", says("whatever"))
        .add_agent("a", says("a"))
        .add_agent("b", says("b"))
        .from_("first")
        .to("route")
        .from_("route")
        .to("a", "b")
    )
    assert (await made.build().run("go")).output == "b"
    with pytest.raises(DefinitionError, match="'route' needs a default, because its fallback"):
        (
            AgentWorkflow.create()
            .add_router("route", broken(), fallback="spare")
            .add_agent("spare", says("x"))
            .add_agent("a", says("a"))
            .from_("route")
            .to("a")
            .build()
        )


async def test_a_field_called_input_does_not_take_the_place_of_the_input() -> None:
    heard: list[str] = []
    workflow = (
        AgentWorkflow.create()
        .add_agent("a", says('{"input": "mine", "x": 1}'), output="structured")
        .add_agent("b", says("ok", heard), input_template="{{input}} {{a.input}} {{x}}")
        .from_("a")
        .to("b")
        .build()
    )
    await workflow.run("yours")
    assert heard == ["yours mine 1"]
    with pytest.raises(DefinitionError, match="'a' cannot have the output key 'input'"):
        AgentWorkflow.create().add_agent("a", says("x"), output_key="input").build()


async def test_what_a_value_says_is_not_read_as_a_template() -> None:
    heard: list[str] = []
    workflow = (
        AgentWorkflow.create()
        .add_agent("a", says("{{secret}} {{input}}"))
        .add_agent("b", says("ok", heard), input_template="<{{a}}>")
        .from_("a")
        .to("b")
        .build()
    )
    await workflow.run("go")
    assert heard == ["<{{secret}} {{input}}>"]


@dataclass
class Remark:
    note: str = ""


@dataclass
class Other:
    note: str = ""


class Verdict(BaseModel):
    fine: bool
    reasons: list[str] = []


async def test_of_two_types_that_fit_the_one_with_all_the_keys_is_taken_or_else_the_first() -> None:
    for types, text, expected in (
        ((Review, Remark), '{"score": 1, "note": "x"}', "Review"),
        ((Remark, Review), '{"score": 1, "note": "x"}', "Review"),
        ((Remark, Review), '{"score": 1, "odd": "x"}', "Remark"),
        ((Remark, Verdict), '{"fine": true}', "Verdict"),
        ((Remark, Other), '{"note": "x"}', "Remark"),
    ):
        workflow = AgentWorkflow.create().add_agent("a", says(text), output=types).build()
        assert (await workflow.run("go")).values["a_type"] == expected, (types, text)
    workflow = AgentWorkflow.create().add_agent("a", says('{"note": "x"}'), output=Review | Remark).build()
    assert (await workflow.run("go")).output == Remark("x")


async def test_keys_that_a_type_does_not_have_are_left_out() -> None:
    workflow = AgentWorkflow.create().add_agent("a", says('{"score": 1, "odd": 2}'), output=Review).build()
    assert (await workflow.run("go")).values == {"input": "go", "a": Review(1), "score": 1, "note": ""}


@pytest.mark.parametrize(("kind", "text", "output"), [
    (Review, '{"score": 8, "note": "n"}', Review(8, "n")),
    (Verdict, '{"fine": true, "reasons": ["r"]}', Verdict(fine=True, reasons=["r"])),
    ("structured", '{"score": 8, "deep": {"list": [1, 2]}}', {"score": 8, "deep": {"list": [1, 2]}}),
])  # fmt: skip
async def test_objects_read_back_from_disk_are_what_they_were(
    tmp_path: Path, kind: Any, text: str, output: Any
) -> None:
    heard: list[str] = []

    template = "{{it.reasons.0}}" if kind is Verdict else "{{it}} {{it.score}}"

    def built() -> Any:
        return (
            stored(storage=SQLiteCheckpointStorage(tmp_path / "runs.db"))
            .add_agent("a", says(text), output=kind, output_key="it", approval=True)
            .add_agent("b", says("yes", heard), input_template=template)
            .add_agent("c", says("no"))
            .from_("a")
            .to("b", when=greater("it.score", 7) if kind is not Verdict else equals("it.fine", True))
            .from_("a")
            .otherwise("c")
            .build()
        )

    ((id, asked),) = (await built().run("go", run_id="r")).requests.items()
    assert asked.output == output
    result = await built().resume("r", responses={id: asked.approve()})
    assert result.output == "yes"
    assert result.values["it"] == output
    assert heard == ["r"] if kind is Verdict else heard[0].endswith(" 8")


async def test_a_type_made_inside_a_function_is_read_back_too(tmp_path: Path) -> None:
    @dataclass
    class Local:
        x: int

    def built() -> Any:
        storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
        return stored(storage=storage).add_agent("a", says('{"x": 1}'), output=Local, approval=True).build()

    ((id, asked),) = (await built().run("go", run_id="r")).requests.items()
    assert (await built().resume("r", responses={id: asked.approve()})).output == Local(1)


def test_two_types_of_one_name_are_refused() -> None:
    other = type("Review", (), {})
    with pytest.raises(DefinitionError, match="two types are called 'Review'"):
        AgentWorkflow.create().with_types(Review, other).add_agent("a", says("x")).build()


def test_an_output_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DefinitionError, match="not 'jsn'"):
        AgentWorkflow.create().add_agent("a", says("x"), output="jsn").build()  # type: ignore[arg-type]


# --- loops and joins --------------------------------------------------------------------------------------------------


async def test_a_circle_comes_to_what_its_last_agent_gave() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_agent("draft", says("text"))
        .add_agent("review", one_after_the_other("bad", "good"))
        .from_("draft")
        .to("review")
        .from_("review")
        .to("draft", when=equals("review", "bad"))
        .build()
    )
    assert (await workflow.run("go")).output == "good"


async def test_where_a_loop_begins_does_not_depend_on_what_was_said_first() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_agent("publish", says("out"))
        .add_agent("aside", says("aside"))
        .add_agent("draft", says("text"))
        .add_agent("review", says("good"))
        .from_("draft")
        .to("review")
        .from_("review")
        .to("draft", when=equals("review", "bad"))
        .from_("review")
        .otherwise("publish")
        .build()
    )
    result = await workflow.run("go")
    assert result.output == {"publish": "out", "aside": "aside"}
    assert result.outcome is not None
    assert not result.outcome.skipped


async def test_a_branch_that_loops_runs_its_siblings_again_and_no_result_of_an_older_round_is_used() -> None:
    rounds: list[str] = []
    workflow = (
        stored()
        .add_agent("a", one_after_the_other("one", "two"))
        .add_agent("b", one_after_the_other("bad", "good"))
        .add_agent("c", one_after_the_other("c1", "c2"), approval=True)
        .add_agent("join", says("joined", rounds), input_template="{{a}} {{b}} {{c}}")
        .from_("a")
        .to("b", "c")
        .from_("b")
        .to("a", when=equals("b", "bad"))
        .from_("b", "c")
        .to("join")
        .build()
    )
    result = await workflow.run("go", run_id="r")
    while result.requests:
        ((id, asked),) = result.requests.items()
        result = await workflow.resume("r", responses={id: asked.approve()})
    assert rounds == ["two good c2"]
    assert result.outcome is not None
    assert result.outcome.succeeded == ("a", "b", "c", "join")


async def test_two_ways_back_at_once_run_a_node_once() -> None:
    runs: list[str] = []
    workflow = (
        AgentWorkflow.create()
        .add_agent("a", says("a", runs))
        .add_agent("b", one_after_the_other("again", "enough"))
        .add_agent("c", one_after_the_other("again", "enough"))
        .from_("a")
        .to("b", "c")
        .from_("b")
        .to("a", when=equals("b", "again"))
        .from_("c")
        .to("a", when=equals("c", "again"))
        .build()
    )
    assert (await workflow.run("go")).output == {"b": "enough", "c": "enough"}
    assert runs == ["go", "again\n\nagain"]


async def test_a_loop_says_only_of_those_edges_that_they_were_taken_that_were() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_agent("draft", says("text"))
        .add_agent("review", one_after_the_other("bad", "good"))
        .add_agent("publish", says("out"))
        .from_("draft")
        .to("review")
        .from_("review")
        .to("draft", when=equals("review", "bad"))
        .from_("review")
        .to("publish")
        .build()
    )
    ways = await told(workflow.run("go"), WorkflowEdgeTraversedEvent)
    assert [(way.source, way.target) for way in ways] == [
        ("draft", "review"),
        ("review", "draft"),
        ("draft", "review"),
        ("review", "publish"),
    ]


async def test_a_node_that_falls_back_inside_a_loop_does_so_every_time() -> None:
    workflow = (
        AgentWorkflow.create()
        .add_agent("a", broken(), fallback="spare", output_key="text")
        .add_agent("spare", one_after_the_other("s1", "s2", "s3"))
        .add_agent("b", one_after_the_other("again", "again", "enough"), input_key="text")
        .from_("a")
        .to("b")
        .from_("b")
        .to("a", when=equals("b", "again"))
        .build()
    )
    result = await workflow.run("go")
    assert (result.output, result.values["text"]) == ("enough", "s3")


async def test_what_is_denied_inside_a_loop_ends_it() -> None:
    workflow = (
        stored()
        .add_agent("draft", one_after_the_other("d1", "d2"))
        .add_agent("review", says("again"), approval=Approval(when=equals("draft", "d2")))
        .add_agent("publish", says("out"))
        .from_("draft")
        .to("review")
        .from_("review")
        .to("draft", when=equals("review", "again"))
        .from_("review")
        .otherwise("publish")
        .build()
    )
    result = await workflow.run("go", run_id="r")
    ((id, asked),) = result.requests.items()
    result = await workflow.resume("r", responses={id: asked.deny("enough")})
    assert result.outcome is not None
    assert result.outcome.skipped == {"review": "denied: enough", "publish": "'review' was skipped"}
    assert result.outcome.succeeded == ("draft",)


async def test_a_stand_in_that_is_denied_leaves_the_place_empty() -> None:
    workflow = (
        stored()
        .add_agent("a", broken(), fallback="spare")
        .add_agent("spare", says("instead"), approval=True)
        .add_agent("b", says("b"))
        .from_("a")
        .to("b")
        .build()
    )
    ((id, asked),) = (await workflow.run("go", run_id="r")).requests.items()
    result = await workflow.resume("r", responses={id: asked.deny()})
    assert result.outcome is not None
    assert result.outcome.skipped == {"a": "denied", "spare": "denied", "b": "'a' was skipped"}


def test_whoever_stands_in_does_so_for_one_and_not_for_itself() -> None:
    shared = AgentWorkflow.create().add_agent("spare", says("s"))
    for id in ("a", "b"):
        shared.add_agent(id, says(id), fallback="spare")
    with pytest.raises(DefinitionError, match="'spare' is already the fallback of 'a'"):
        shared.build()
    circle = AgentWorkflow.create().add_agent("a", says("a"), fallback="b").add_agent("b", says("b"), fallback="a")
    with pytest.raises(DefinitionError, match="'a' falls back to itself through 'b'"):
        circle.build()
