"""The steps of a migration, one by one, on a run as it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import DefinitionError, Executor, WorkflowBuilder, WorkflowContext, WorkflowRunState, handler
from stepwell.errors import MigrationFailed
from stepwell.graph.migration import Migration
from stepwell.kernel import Migrator, plan
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.child import Child
from stepwell.model.commit import Stamp
from stepwell.model.message import Outcome, Reply, RoutedMessage, Sent
from stepwell.model.payload import Payload, pack_copy
from stepwell.model.request import Request
from stepwell.model.state_writes import Appended, Assigned, Deleted

IDLE, WAITING = WorkflowRunState.IDLE, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
AT = "2026-01-01T00:00:00+00:00"


class Step(Executor):
    _state_key_patterns = ("kept/{id}/",)

    @handler
    async def take(self, message: Any, ctx: WorkflowContext[Any]) -> None: ...


def closed(value: object) -> Payload:
    return pack_copy(value, "$")


def opened(values: Any) -> dict[str, Any]:
    return {key: value.open() for key, value in values.items()}


def graph(*joins: tuple[tuple[str, ...], str]) -> Any:
    """Executors of every name that is used here, with fan-ins among them."""
    builder = WorkflowBuilder(start_executor="s", on_unroutable="drop")
    builder.add_fan_out_edges(Step("s"), [Step(id) for id in ("a", "b", "c", "new")])
    for sources, target in joins:
        builder.add_fan_in_edges(list(sources), Step(target))
    return builder.build()._definition.graph


def run(**known: Any) -> Checkpoint:
    header = RunHeader("r", "w", {}, "")
    given = {"status": WorkflowRunState.IN_PROGRESS, "iteration": 3, "since_input": 3, "place": 3, **known}
    return Checkpoint(header, 4, Stamp("id", AT), None, **given)


def message(*takers: str, value: object = 1, **known: Any) -> RoutedMessage:
    return RoutedMessage("2.0.0", known.pop("source", "s"), closed(value), takers=takers, **known)


def question(id: str, executor: str, **known: Any) -> Request:
    return Request(id, executor, closed("sure?"), "str", "bool", "{}", AT, **known)


def after(at: Checkpoint, say: Callable[[Migration], Migration], *joins: tuple[tuple[str, ...], str]) -> Checkpoint:
    worded = lambda annotation: (getattr(annotation, "__name__", str(annotation)), "{}")  # noqa: E731
    return Migrator(graph(*joins), pack_copy, worded).run(at, [say(Migration(2))])


def test_a_renamed_executor_takes_everything_along() -> None:
    before = run(
        messages=(message("a", "b", target="a"), message(source="a", joins=("all of a, b -> d",))),
        held={"all of a, b -> d": {"a": (closed(1),)}, "all of b, c -> a": {"b": (closed(2),)}},
        state={"kept/a/notes": closed([1]), "a": closed("not its own")},
        executors={"a": closed({"count": 2}), "b": closed({})},
        requests={"q": question("q", "a"), "p": question("p", "b")},
        children={"k": Child("inner", "a", "id", 1, "0/r")},
    )
    found = after(before, lambda m: m.rename_executor("a", "new"))
    assert [(one.source, one.target, one.takers, one.joins) for one in found.messages] == [
        ("s", "new", ("new", "b"), ()),
        ("new", None, (), ("all of new, b -> d",)),
    ]
    assert {key: list(held) for key, held in found.held.items()} == {
        "all of new, b -> d": ["new"],
        "all of b, c -> new": ["b"],
    }
    assert opened(found.state) == {"kept/new/notes": [1], "a": "not its own"}
    assert opened(found.executors) == {"new": {"count": 2}, "b": {}}
    assert {id: one.executor for id, one in found.requests.items()} == {"q": "new", "p": "b"}
    assert found.children["k"].executor == "new"


def test_two_executors_never_become_one() -> None:
    before = run(executors={"a": closed({}), "b": closed({})})
    with pytest.raises(MigrationFailed, match="'a' renamed to 'b': ValueError: the run already has an executor 'b'"):
        after(before, lambda m: m.rename_executor("a", "b"))
    swapped = after(
        run(executors={"a": closed({"x": 1}), "b": closed({"x": 2})}),
        lambda m: m.rename_executor("a", "new").rename_executor("b", "a").rename_executor("new", "b"),
    )
    assert opened(swapped.executors) == {"b": {"x": 1}, "a": {"x": 2}}


def test_state_is_dropped_handed_over_and_changed_by_small_functions() -> None:
    before = run(
        executors={"a": closed({"n": 1}), "b": closed({"n": 2}), "c": closed({"n": 3})},
        state={"cents": closed(250), "old": closed(1), "junk": closed(0), "kept/c/notes": closed([])},
    )
    found = after(
        before,
        lambda m: (
            m.hand_over_state("a", "b", lambda mine, theirs: {"n": mine["n"] + theirs["n"]})
            .remove_executor("c")
            .change_executor_state("b", lambda kept: {"count": kept["n"]})
            .change_state("cents", lambda cents: cents / 100)
            .change_state("not there", lambda value: 1 / 0)
            .rename_state("old", "new")
            .remove_state("junk")
        ),
    )
    assert opened(found.executors) == {"b": {"count": 3}}
    assert opened(found.state) == {"cents": 2.5, "new": 1}
    assert opened(before.state)["cents"] == 250


def test_messages_are_redirected_dropped_and_changed_in_their_order() -> None:
    answer = message("b", value=True, source=None, reply=Reply("q", closed("sure?")))
    before = run(messages=(message("a", "b", "a", value=1), message("b", value=2), answer))
    redirected = after(before, lambda m: m.redirect_messages("a", "new"))
    assert [one.takers for one in redirected.messages] == [("new", "b", "new"), ("b",), ("b",)]
    dropped = after(before, lambda m: m.drop_messages("b"))
    assert [one.takers for one in dropped.messages] == [("a", "a")]
    changed = after(before, lambda m: m.change_messages("b", lambda number: number * 10))
    calls = plan(graph(), 3, changed.messages, {}).deliveries
    assert [(one.executor, one.payload.open()) for one in calls] == [
        ("a", 1),
        ("b", 10),
        ("a", 1),
        ("b", 20),
        ("b", True),
    ]


def test_what_fan_ins_hold_is_changed_and_dropped_with_the_messages_of_their_target() -> None:
    key = "all of a, b -> d"
    before = run(messages=(message("c", source="b", value=3, joins=(key,)),), held={key: {"a": (closed(1), closed(2))}})
    join = (("a", "b"), "d")
    changed = after(before, lambda m: m.change_messages("d", str), join)
    last = plan(graph(join), 3, changed.messages, changed.held).deliveries[-1]
    assert (last.executor, last.payload.open()) == ("d", ["1", "2", "3"])
    assert [one.payload.open() for one in changed.messages if one.takers] == [3]
    dropped = after(before, lambda m: m.drop_messages("d"), join)
    assert dropped.held == {}
    assert [(one.takers, one.joins) for one in dropped.messages] == [(("c",), ())]


@pytest.mark.parametrize(
    ("to", "calls"),
    [
        (("a", "b", "c", "new"), []),  # it waits for one more
        (("c", "a"), []),  # what came from a source it has no more is dropped
        (("b", "a"), [("d", [2, 1])]),  # nobody is missing any more: it fires at once
        (("b",), [("d", 2)]),  # where there is only one source there is nothing to wait for
        ((), []),
    ],
)
def test_what_a_fan_in_holds_is_held_by_another(to: tuple[str, ...], calls: list[Any]) -> None:
    before = run(held={"all of a, b, c -> d": {"a": (closed(1),), "b": (closed(2),)}}, status=IDLE)
    joins = [(to if len(to) > 1 else ("a", "c"), "d")]
    found = after(before, lambda m: m.change_fan_in(["a", "b", "c"], "d", to_sources=to), *joins)
    made = plan(graph(*joins), 3, found.messages, found.held).deliveries
    assert [(one.executor, one.payload.open()) for one in made] == calls
    assert found.status is (WorkflowRunState.IN_PROGRESS if calls else IDLE)


def test_what_a_fan_in_holds_goes_to_another_target_together_with_what_that_holds() -> None:
    held = {"all of a, b -> d": {"a": (closed(1),)}, "all of a, b -> e": {"a": (closed(3),)}}
    before = run(messages=(message(source="b", value=2, joins=("all of a, b -> d",)),), held=held)
    joins = (("a", "b"), "e")
    found = after(before, lambda m: m.change_fan_in(["a", "b"], "d", to_sources=["a", "b"], to_target="e"), joins)
    assert [one.joins for one in found.messages] == [("all of a, b -> e",)]
    assert {key: [*by_source] for key, by_source in found.held.items()} == {"all of a, b -> e": ["a"]}
    made = plan(graph(joins), 3, found.messages, found.held).deliveries
    assert [(one.executor, one.payload.open()) for one in made] == [("e", [1, 3, 2])]


def test_one_source_that_is_left_of_a_fan_in_is_delivered_to_the_other_target() -> None:
    before = run(held={"all of a, b -> d": {"a": (closed(1),), "b": (closed(2),)}}, status=IDLE)
    found = after(before, lambda m: m.change_fan_in(["a", "b"], "d", to_sources=["b"], to_target="new"))
    assert found.held == {}
    assert [(one.source, one.takers, one.payload.open()) for one in found.messages] == [("b", ("new",), 2)]


def test_questions_are_readdressed_reworded_and_withdrawn() -> None:
    child = Child("inner", "b", "id", 1, "0/r")
    before = run(requests={"q": question("q", "a"), "p": question("p", "b")}, children={"k": child}, status=WAITING)
    found = after(before, lambda m: m.redirect_requests("a", "new").withdraw_requests("b"))
    assert {id: one.executor for id, one in found.requests.items()} == {"q": "new"}
    assert (found.children, found.status) == ({}, WAITING)
    reworded = after(before, lambda m: m.change_requests("a", len, response_type=float)).requests["q"]
    assert (reworded.payload.open(), reworded.request_type, reworded.response_type) == (5, "int", "float")
    done = after(before, lambda m: m.withdraw_requests("a").withdraw_requests("b"))
    assert done.status is IDLE  # nothing is left to wait for


def test_a_run_that_had_stopped_stays_so_while_there_is_something_to_do() -> None:
    failed = run(messages=(message("a"),), status=WorkflowRunState.FAILED)
    assert after(failed, lambda m: m.redirect_messages("a", "b")).status is WorkflowRunState.FAILED
    assert after(failed, lambda m: m.drop_messages("a")).status is IDLE


def test_a_function_that_fails_is_named_with_its_version_and_step() -> None:
    before = run(state={"total": closed("many")})
    with pytest.raises(MigrationFailed, match=r"'r' .*: version 2, state\['total'\] changed: ValueError"):
        after(before, lambda m: m.change_state("total", int))
    kept = run(executors={"a": closed({"n": 1})})
    with pytest.raises(MigrationFailed, match="the function must return a dict as the state of 'a', not a list"):
        after(kept, lambda m: m.change_executor_state("a", list))


def remembered(**known: Any) -> Outcome:
    return Outcome("3.0", "a", **known)


def test_what_was_finished_by_the_version_before_is_migrated_too() -> None:
    writes = {
        "cents": Assigned(closed(250)),
        "log": Appended((closed("x"),)),
        "gone": Deleted(),
        "kept/a/notes": Appended((closed(1),)),
    }
    outcome = remembered(
        writes=writes,
        sent=(Sent(closed(1), "a"),),
        saved=closed({"n": 1}),
        requests=(question("q", "a"),),
        children={"k": None},
    )
    say = (
        Migration(2)
        .rename_executor("a", "new")
        .change_state("cents", lambda cents: cents / 100)
        .rename_state("log", "history")
        .remove_state("gone")
        .change_executor_state("new", lambda kept: {"count": kept["n"]})
    )
    made = Migrator(graph(), pack_copy, lambda one: ("", "{}")).migrate_outcome(run(), outcome, [say])
    assert (made.executor, made.version, [one.target for one in made.sent]) == ("new", 2, ["new"])
    assert {key: type(write).__name__ for key, write in made.writes.items()} == {
        "cents": "Assigned",
        "history": "Appended",
        "kept/new/notes": "Appended",
    }
    kept: Any = (made.writes["cents"], made.saved)
    assert (kept[0].value.open(), kept[1].open()) == (2.5, {"count": 1})
    assert ([one.executor for one in made.requests], dict(made.children)) == (["new"], {"k": None})


@pytest.mark.parametrize(
    ("outcome", "say"),
    [
        (remembered(sent=(Sent(closed(1), None),)), Migration(2).change_messages("b", str)),
        (remembered(saved=closed({"n": 1})), Migration(2).hand_over_state("a", "b", lambda one, other: one)),
        (remembered(writes={"log": Appended((closed(1),))}), Migration(2).change_state("log", list)),
    ],
)
def test_what_cannot_be_known_before_the_superstep_ends_is_refused(outcome: Outcome, say: Migration) -> None:
    with pytest.raises(MigrationFailed, match=r"'a' has already finished in the current superstep, .* fork the run"):
        Migrator(graph(), pack_copy, lambda one: ("", "{}")).migrate_outcome(run(), outcome, [say])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"version": 0}, "the version of a workflow must be an integer of 1 or more, not 0"),
    ({"version": True}, "the version of a workflow must be an integer of 1 or more, not True"),
    ({"migrations": ["rename"]}, "a list of Migration"),
    ({"migrations": Migration(2)}, "a list of Migration"),
    ({"migrations": [Migration(1)]}, "a migration leads to version 2 or more, not to 1"),
    ({"migrations": [Migration(2), Migration(4)]}, "version 2 is followed by version 4"),
    (
        {"migrations": [Migration(2)], "version": 3},
        "the last migration leads to version 2, but the workflow has version 3",
    ),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_versions_that_do_not_go_together_are_refused_when_built(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        WorkflowBuilder(start_executor=Step("a"), **options).build()


def test_the_version_is_that_of_the_last_migration() -> None:
    def version(**options: Any) -> int:
        return WorkflowBuilder(start_executor=Step("a"), **options).build().version

    assert (version(), version(version=4), version(migrations=[Migration(3), Migration(4)])) == (1, 4, 4)
