"""Shared state: everyone reads the last commit, everyone writes on a page of their own, nobody's write is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stepwell.errors import RunError, StateConflict
from stepwell.model.message import Outcome
from stepwell.model.payload import Payload, pack_copy
from stepwell.model.state import Reducer, StateView, add_writes, apply_writes, fold_writes, grow
from stepwell.model.state_writes import Appended, Assigned, Deleted, Write


def closed(value: object) -> Payload:
    return pack_copy(value, "$")


def stored(values: Mapping[str, Any]) -> dict[str, Payload]:
    return {key: closed(value) for key, value in values.items()}


def view(**committed: Any) -> StateView:
    return StateView(stored(committed), pack_copy, {})


def sets(value: object) -> Write:
    return Assigned(closed(value))


def appends(*values: object) -> Write:
    return Appended(tuple(closed(value) for value in values))


def folded(
    *pages: tuple[str, dict[str, Write]], reducers: Mapping[str, Reducer] | None = None, **committed: Any
) -> dict[str, Any]:
    """The state after the pages, each the writes of one delivery of that executor, in plan order."""
    outcomes = [Outcome(f"1.{n}", executor, writes=writes) for n, (executor, writes) in enumerate(pages)]
    state = stored(committed)
    after = apply_writes(state, fold_writes("r", state, outcomes, reducers or {}, pack_copy))
    return {key: parcel.open() for key, parcel in after.items()}


# --- what one executor sees ---------------------------------------------------------------------------------------


def test_an_executor_reads_what_was_committed_and_its_own_writes_on_top() -> None:
    state = view(a=1, b=2)
    state.set("b", 3)
    state.set("c", 4)
    assert [state.get(key) for key in "abc"] == [1, 3, 4]
    assert state.keys() == ["a", "b", "c"]


def test_how_long_a_list_is_can_be_asked_without_reading_it() -> None:
    state = view(there=[1, 2])
    assert (state.length("there"), state.length("missing")) == (2, 0)
    state.append("there", [3])
    state.append("new", [1, 2, 3])
    assert (state.length("there"), state.length("new")) == (3, 3)
    state.set("there", [7])
    assert state.length("there") == 1
    state.append("there", [8])
    assert state.length("there") == 2


def test_a_key_that_is_not_there_gives_the_default_and_a_stored_none_gives_none() -> None:
    state = view(there=None)
    assert state.get("missing") is None
    assert state.get("missing", "default") == "default"
    assert state.get("there", "default") is None


def test_a_value_that_was_read_may_be_changed_and_counts_only_after_set() -> None:
    state = view(cart=["egg"])
    state.get("cart").append("milk")
    assert state.get("cart") == ["egg"]
    changed = state.get("cart")
    changed.append("milk")
    state.set("cart", changed)
    changed.append("ham")
    assert state.get("cart") == ["egg", "milk"]


def test_a_deleted_key_is_gone_for_the_executor_that_deleted_it() -> None:
    state = view(a=1, b=2)
    state.delete("a")
    assert state.get("a", "gone") == "gone"
    assert state.keys() == ["b"]
    state.set("a", 5)
    assert state.get("a") == 5


def test_deleting_what_is_not_there_is_an_error_that_names_it() -> None:
    state = view(a=1)
    state.delete("a")
    for key in ("a", "never"):
        with pytest.raises(KeyError, match=key):
            state.delete(key)


def test_append_begins_a_list_or_makes_the_list_longer() -> None:
    state = view(log=[1])
    state.append("log", [2])
    state.append("log", [3, 4])
    state.append("new", ["a"])
    assert state.get("log") == [1, 2, 3, 4]
    assert state.get("new") == ["a"]


def test_append_follows_what_the_executor_did_to_the_key_before() -> None:
    state = view(log=[1], other=[1])
    state.delete("log")
    state.append("log", [2])
    state.set("other", [5])
    state.append("other", [6])
    assert state.get("log") == [2]
    assert state.get("other") == [5, 6]


def test_only_a_list_can_be_appended_to() -> None:
    state = view(count=1)
    with pytest.raises(TypeError, match=r"state\['count'\] is a int"):
        state.append("count", [2])
    assert state.writes == {}


def test_an_appended_item_that_is_changed_later_stays_as_it_was() -> None:
    state, item = view(), {"n": 1}
    state.append("log", [item])
    item["n"] = 2
    state.get("log")[0]["n"] = 3
    assert state.get("log") == [{"n": 1}]


def test_a_page_holds_the_writes_of_one_delivery_and_the_next_delivery_still_sees_them() -> None:
    committed, earlier = stored({"log": [0]}), dict[str, Write]()
    first = StateView(committed, pack_copy, earlier)
    first.set("a", 1)
    first.append("log", [1])
    add_writes(earlier, first.writes)
    second = StateView(committed, pack_copy, earlier)
    second.append("log", [2])
    assert {key: type(write) for key, write in first.writes.items()} == {"a": Assigned, "log": Appended}
    assert set(second.writes) == {"log"}
    assert second.get("a") == 1
    assert second.get("log") == [0, 1, 2]


def test_the_writes_of_a_recalled_delivery_are_seen_and_not_written_again() -> None:
    recalled = {"a": sets(1), "log": appends(1), "gone": Deleted()}
    state = StateView(stored({"log": [0], "gone": 1}), pack_copy, recalled)
    assert (state.get("a"), state.get("log"), state.get("gone")) == (1, [0, 1], None)
    assert state.writes == {}


def test_growing_a_list_shares_what_was_there() -> None:
    once = grow(closed([1]), (closed(2),))
    twice = grow(once, (closed(3),))
    assert twice.chunks[0] is once.chunks[0]
    assert twice.open() == [1, 2, 3]
    assert once.open() == [1, 2]


def test_a_long_list_that_is_appended_to_is_shared_but_for_its_end() -> None:
    grown = grow(None, ())
    for n in range(1000):
        before, grown = grown, grow(grown, (closed({"n": n}),))
        assert grown.chunks[:-2] == before.chunks[: len(grown.chunks) - 2]
    for _ in range(4):  # decoded twice, then copied
        items = grown.open()
        assert items == [{"n": n} for n in range(1000)]
        items[0]["n"] = items[-1]["n"] = "changed by its reader"
    assert len(grown.chunks) < 20


# --- how the pages of a superstep come together -------------------------------------------------------------------


def test_executors_that_write_different_keys_do_not_meet() -> None:
    assert folded(("a", {"x": sets(1)}), ("b", {"y": sets(2)}), z=0) == {"x": 1, "y": 2, "z": 0}


CONFLICTS = {
    "set, set": (sets(1), sets(2)),
    "set, the same value": (sets(1), sets(1)),
    "set, delete": (sets(1), Deleted()),
    "delete, set": (Deleted(), sets(1)),
    "delete, delete": (Deleted(), Deleted()),
    "set, append": (sets([1]), appends(2)),
    "append, set": (appends(1), sets([2])),
    "append, delete": (appends(1), Deleted()),
    "delete, append": (Deleted(), appends(1)),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_two_executors_that_write_one_key_are_refused_by_name(case: str) -> None:
    first, second = CONFLICTS[case]
    with pytest.raises(StateConflict, match=r"state\['k'\] was written by 'a' and 'b'.*reducers") as caught:
        folded(("a", {"k": first}), ("b", {"k": second}), k=[0])
    assert caught.value.run_id == "r"


def test_a_conflict_is_seen_also_when_an_executor_comes_twice() -> None:
    """The second message of `a` must not wipe out what `b` appended in between."""
    with pytest.raises(StateConflict, match="'b' and 'a'"):
        folded(("a", {"k": appends(1)}), ("b", {"k": appends(2)}), ("a", {"k": sets([])}))


def test_several_executors_may_append_and_the_order_is_the_plan() -> None:
    pages = [("a", {"log": appends(1)}), ("b", {"log": appends(2, 3)}), ("a", {"log": appends(4)})]
    assert folded(*pages, log=[0]) == {"log": [0, 1, 2, 3, 4]}
    assert folded(*reversed(pages)) == {"log": [4, 2, 3, 1]}


ONE_EXECUTOR: dict[str, tuple[list[Write], Any]] = {
    "set, set": ([sets(1), sets(2)], 2),
    "set, append": ([sets([1]), appends(2)], [1, 2]),
    "append, set": ([appends(1), sets([2])], [2]),
    "append, append": ([appends(1), appends(2)], [0, 1, 2]),
    "append, delete": ([appends(1), Deleted()], "gone"),
    "delete, append": ([Deleted(), appends(1)], [1]),
    "delete, set": ([Deleted(), sets(3)], 3),
    "set, delete": ([sets(3), Deleted()], "gone"),
}


@pytest.mark.parametrize("case", ONE_EXECUTOR)
def test_one_executor_with_two_messages_may_write_a_key_twice(case: str) -> None:
    writes, expected = ONE_EXECUTOR[case]
    assert folded(*(("a", {"k": write}) for write in writes), k=[0]).get("k", "gone") == expected


def add(there: Any, written: Any) -> Any:
    return there + written


def test_a_reducer_joins_what_several_executors_set_with_what_is_there_in_plan_order() -> None:
    pages = [("a", {"k": sets(["a"])}), ("b", {"k": sets(["b"])})]
    assert folded(*pages, reducers={"k": add}, k=["0"]) == {"k": ["0", "a", "b"]}
    assert folded(*reversed(pages), reducers={"k": add}) == {"k": ["b", "a"]}


def test_a_reducer_is_asked_also_for_one_writer_alone() -> None:
    assert folded(("a", {"k": sets(5)}), reducers={"k": add}, k=2) == {"k": 7}
    assert folded(("a", {"k": sets(5)}), ("a", {"k": sets(1)}), reducers={"k": add}, k=2) == {"k": 8}


def test_a_reducer_is_not_asked_for_what_one_executor_deletes_or_appends() -> None:
    assert folded(("a", {"k": Deleted()}), ("a", {"k": sets(1)}), reducers={"k": add}, k=2) == {"k": 1}
    assert folded(("a", {"k": appends(1)}), ("b", {"k": appends(2)}), reducers={"k": add}, k=[0]) == {"k": [0, 1, 2]}


@pytest.mark.parametrize("case", ["set, delete", "delete, set", "set, append", "append, set", "delete, append"])
def test_a_reducer_cannot_join_a_value_with_a_deletion_or_an_append_of_another(case: str) -> None:
    first, second = CONFLICTS[case]
    with pytest.raises(StateConflict, match="its reducer combines only values that were set"):
        folded(("a", {"k": first}), ("b", {"k": second}), reducers={"k": add})


def test_appending_to_what_a_reducer_made_no_list_is_refused() -> None:
    def count(there: Any, written: Any) -> int:
        return len(written)

    with pytest.raises(StateConflict, match="'a'"):
        folded(("a", {"k": sets([1])}), ("a", {"k": appends(2)}), reducers={"k": count}, k=[0])


def test_a_reducer_that_fails_is_named_with_the_key() -> None:
    with pytest.raises(RunError, match=r"reducer 'add' of state\['k'\] failed in run 'r': TypeError") as caught:
        folded(("a", {"k": sets("x")}), reducers={"k": add}, k=1)
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_reducer_cannot_change_what_is_committed() -> None:
    def greedy(there: list[int], written: list[int]) -> list[int]:
        there.extend(written)
        return there

    committed = stored({"k": [0]})
    fold_writes("r", committed, [Outcome("1.0", "a", writes={"k": sets([1])})], {"k": greedy}, pack_copy)
    assert committed["k"].open() == [0]
