"""Which agents run next: joins, dead paths, default edges, loops."""

from collections.abc import Mapping
from typing import Any

import pytest

from stepwell.declarative.conditions.condition import equals
from stepwell.declarative.definition import Definition, Edge, Node
from stepwell.declarative.node_graph import NodeGraph
from stepwell.declarative.schedule import Decision, NodeState, Scheduler, TooManyLoops
from tests.support.conditions import find_holding


class Course:
    """A run of a definition, without agents: the test says what each of them gives."""

    def __init__(self, nodes: str | list[Node], *edges: Edge, max_iterations: int = 10) -> None:
        several = [Node(id) for id in nodes.split()] if isinstance(nodes, str) else nodes
        self.graph = NodeGraph(Definition("course", tuple(several), edges, max_iterations))
        self.states: Mapping[str, NodeState] = {}

    def _do(self, what: str, *args: Any) -> Decision:
        scheduler = Scheduler(self.graph, self.states, {})
        holding = [find_holding(scheduler, *args)] if what == "succeed" else []
        decision: Decision = getattr(scheduler, what)(*args, *holding)
        self.states = scheduler.states
        return decision

    def begin(self) -> tuple[str, ...]:
        return self._do("begin").start

    def gives(self, id: str, **outputs: Any) -> Decision:
        return self._do("succeed", id, outputs or {id: "said"})

    def fails(self, id: str, reason: str = "broken") -> Decision:
        return self._do("fail", id, reason)

    def is_denied(self, id: str) -> Decision:
        return self._do("deny", id, "denied")


def way(sources: str, targets: str, when: Any = None, **known: Any) -> Edge:
    return Edge(tuple(sources.split()), tuple(targets.split()), when, **known)


def test_agents_without_edges_all_begin() -> None:
    assert Course("a b").begin() == ("a", "b")


def test_one_after_the_other_whatever_the_order_in_which_they_were_said() -> None:
    course = Course("c b a", way("a", "b"), way("b", "c"))
    assert course.begin() == ("a",)
    assert course.gives("a").start == ("b",)
    assert course.gives("b").start == ("c",)
    assert course.gives("c").done


def test_a_join_waits_for_all_that_lead_to_it() -> None:
    course = Course("a b join", way("a b", "join"))
    assert course.begin() == ("a", "b")
    assert course.gives("a").start == ()
    assert course.gives("b").start == ("join",)


def test_a_join_runs_if_one_way_to_it_is_taken_and_the_other_is_dead() -> None:
    course = Course("a b join", way("a", "b", equals("a", "yes")), way("a", "join"), way("b", "join"))
    course.begin()
    decision = course.gives("a", a="no")
    assert decision.start == ("join",)
    (skipped,) = decision.skipped
    assert skipped.node == "b"
    assert skipped.reason.startswith("'a' did not lead to it (a ")


def test_dead_paths_go_on_to_the_end() -> None:
    course = Course("a b c d", way("a", "b", equals("a", "yes")), way("b", "c"), way("c", "d"))
    course.begin()
    decision = course.gives("a", a="no")
    assert [one.node for one in decision.skipped] == ["b", "c", "d"]
    assert decision.skipped[1].reason == "'b' was skipped"
    assert decision.done


def test_a_default_edge_is_taken_only_if_no_other_is() -> None:
    edges = (way("a", "b", equals("a", "yes")), way("a", "c", default=True))
    for said, chosen in (("yes", "b"), ("no", "c")):
        course = Course("a b c", *edges)
        course.begin()
        decision = course.gives("a", a=said)
        assert decision.start == (chosen,)
        assert [one.target for one in decision.traversed] == [chosen]


def test_the_type_of_a_union_output_decides() -> None:
    course = Course("a b c", way("a", "b", type="Yes"), way("a", "c", type="No"))
    course.begin()
    assert course.gives("a", a={}, a_type="No").start == ("c",)


def test_a_router_decides_by_handing_over() -> None:
    course = Course([Node("a", output_mode="handoff"), Node("b"), Node("c")], way("a", "b c"))
    course.begin()
    decision = course.gives("a", handoff="c")
    assert decision.start == ("c",)
    assert decision.traversed[0].condition == "handed over to 'c'"


def loop(max_iterations: int = 10) -> Course:
    again = equals("review", "again")
    return Course(
        "draft review publish",
        way("draft", "review"),
        way("review", "draft", again),
        way("review", "publish", default=True),
        max_iterations=max_iterations,
    )


def test_a_loop_runs_what_it_leads_back_to_and_what_lies_behind_it() -> None:
    course = loop()
    assert course.begin() == ("draft",)
    course.gives("draft")
    for _ in range(3):
        assert course.gives("review", review="again").start == ("draft",)
        assert course.states["publish"].status == "waiting"
        assert course.gives("draft").start == ("review",)
    assert course.gives("review", review="fine").start == ("publish",)
    assert course.gives("publish").done
    assert course.states["draft"].runs == 4


def test_a_loop_that_runs_too_often_is_an_error_that_says_who_was_running() -> None:
    course = loop(max_iterations=2)
    course.begin()
    course.gives("draft")
    course.gives("review", review="again")
    course.gives("draft")
    with pytest.raises(TooManyLoops, match="'draft' has run 2 times"):
        course.gives("review", review="again")


def test_the_limit_holds_for_every_agent_of_a_loop_not_only_for_the_one_it_leads_back_to() -> None:
    routers = [Node(id, output_mode="handoff") for id in ("start", "left", "right")]
    course = Course(
        [*routers, Node("other")],
        way("start", "other"),
        way("start", "left"),
        way("other", "right"),
        way("right", "left"),
        way("left", "right"),  # leads back: 'right' comes before 'left' by way of 'other'
        max_iterations=1,
    )
    assert course.begin() == ("start",)
    assert course.gives("start", handoff="left").start == ("left",)
    assert course.gives("left", handoff="right").start == ("right",)
    assert [course.states[id].runs for id in ("left", "right")] == [1, 1]
    with pytest.raises(TooManyLoops, match=r"'left' has run 1 times.*still running: none"):
        course.gives("right", handoff="left")


def nested_loops(*besides: Edge, nodes: str = "outer inner") -> Course:
    edges = (
        way("outer", "inner"),
        way("inner", "inner", equals("inner", "again")),
        way("inner", "outer", default=True),
    )
    return Course(nodes, *edges, *besides, max_iterations=2)


def test_rounds_of_an_inner_loop_count_when_the_outer_loop_comes_to_it_again() -> None:
    course = nested_loops()
    assert course.begin() == ("outer",)
    assert course.gives("outer").start == ("inner",)
    assert course.gives("inner", inner="again").start == ("inner",)
    assert course.gives("inner", inner="enough").start == ("outer",)
    with pytest.raises(TooManyLoops, match="'inner' has run 2 times"):
        course.gives("outer")


def test_too_many_loops_names_those_at_work_and_not_those_that_would_have_begun_next() -> None:
    course = nested_loops(way("outer", "sibling"), nodes="sibling outer inner side")
    assert course.begin() == ("outer", "side")
    assert course.gives("outer").start == ("sibling", "inner")
    course.gives("sibling")
    course.gives("inner", inner="again")
    course.gives("inner", inner="enough")
    assert course.states["sibling"].status == "waiting"
    with pytest.raises(TooManyLoops) as raised:
        course.gives("outer")
    assert (raised.value.node, raised.value.running) == ("inner", ("side",))


def test_a_loop_leaves_alone_what_it_does_not_lead_to() -> None:
    course = Course(
        "a side draft review",
        way("a", "side draft"),
        way("draft", "review"),
        way("review", "draft", equals("review", "again")),
    )
    course.begin()
    course.gives("a")
    course.gives("side")
    course.gives("draft")
    course.gives("review", review="again")
    assert course.states["side"].status == "succeeded"
    assert course.states["side"].runs == 1


def test_an_agent_may_loop_on_itself() -> None:
    course = Course("a", way("a", "a", equals("a", "again")))
    assert course.begin() == ("a",)
    assert course.gives("a", a="again").start == ("a",)
    assert course.gives("a", a="enough").done


def test_with_isolate_others_go_on_without_it() -> None:
    course = Course([Node("a", on_error="isolate"), Node("b"), Node("join")], way("a b", "join"))
    course.begin()
    course.gives("b")
    assert course.fails("a").start == ("join",)


def test_with_skip_whatever_depends_on_it_is_skipped() -> None:
    course = Course([Node("a", on_error="skip"), Node("b"), Node("join")], way("a b", "join"))
    course.begin()
    course.gives("b")
    decision = course.fails("a")
    assert [one.node for one in decision.skipped] == ["join"]
    assert "failed: broken" in decision.skipped[0].reason
    assert decision.done


def test_a_fallback_takes_the_place_of_the_one_that_failed() -> None:
    nodes = [Node("a", on_error="fallback", fallback="spare", output_key="text"), Node("spare"), Node("b")]
    course = Course(nodes, way("a", "b"))
    assert course.begin() == ("a",)
    decision = course.fails("a")
    assert (decision.start, decision.skipped, decision.done) == (("spare",), (), False)
    assert course.gives("spare", spare="instead").start == ("b",)
    assert course.states["a"].outputs["text"] == "instead"


def test_a_fallback_that_fails_too_leaves_the_place_empty() -> None:
    nodes = [
        Node("a", on_error="fallback", fallback="spare"),
        Node("spare", on_error="isolate"),
        Node("b"),
    ]
    course = Course(nodes, way("a", "b"))
    course.begin()
    course.fails("a")
    decision = course.fails("spare", "broken too")
    assert [(one.node, one.reason) for one in decision.skipped] == [("b", "'a' failed: broken too")]
    assert decision.done


def test_what_was_denied_is_skipped_and_leads_nowhere() -> None:
    course = Course("a b", way("a", "b"))
    course.begin()
    decision = course.is_denied("a")
    assert [one.node for one in decision.skipped] == ["a", "b"]


def test_in_a_circle_the_first_begins() -> None:
    course = Course("a b", way("a", "b"), way("b", "a", equals("b", "again")))
    assert course.begin() == ("a",)
    assert course.gives("a").start == ("b",)
    assert course.gives("b", b="again").start == ("a",)


def test_a_run_is_not_over_while_somebody_runs() -> None:
    course = Course("a b")
    course.begin()
    assert not course.gives("a").done
    assert course.gives("b").done
