"""Classes of the library are stored under names that do not change when their modules do."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

import stepwell
from stepwell import CodecError, Message, register_checkpoint_type
from stepwell.codec import stored_names
from stepwell.codec.annotations import reachable_types
from stepwell.codec.class_kinds import is_storable
from stepwell.codec.codec import Codec
from stepwell.codec.stored_names import find_class, is_ours, stored_name
from stepwell.graph.edges import Case

ROOMS = ("admin", "agents", "declarative", "orchestrations", "testing")
PROGRAM = {
    "CallableCondition",
    "Case",
    "DecisionRecord",
    "Default",
    "Lineage",
    "LineageRun",
    "Migration",
    "RunOverview",
    "StoreRule",
    "TimedEvent",
    "WorkflowEvent",
}
"""Public classes that are not values a run carries: parts of a program that hold functions, and what it observes."""


def public_classes() -> dict[str, type]:
    found = {}
    for room in (stepwell, *(import_module(f"stepwell.{name}") for name in ROOMS)):
        for name in room.__all__:
            cls = getattr(room, name)
            if inspect.isclass(cls) and is_ours(cls) and is_storable(cls):
                found[name] = cls
    return found


def test_every_public_class_that_can_be_stored_has_a_name() -> None:
    assert {name for name, cls in public_classes().items() if stored_name(cls) is None} == PROGRAM


@pytest.mark.parametrize("name", sorted(stored_names._PLACES))
def test_a_stored_name_leads_to_its_class_and_back_and_so_do_the_fields_of_the_class(name: str) -> None:
    module, _ = stored_names._PLACES[name]
    import_module(module)  # adapters are loaded by programs, not by reading
    cls = find_class(name)
    assert cls is not None
    assert is_storable(cls)
    assert stored_name(cls) == name
    unnamed = {one for one in reachable_types([cls]) if is_ours(one) and stored_name(one) is None}
    assert unnamed == set()


def test_a_value_is_written_under_its_stored_name() -> None:
    assert b'{"$":"stepwell:Message","v"' in Codec().encode(Message(role="user", text="hello"))


def test_the_name_of_a_module_of_ours_finds_nothing() -> None:
    with pytest.raises(CodecError, match=r"unknown type `stepwell\.agents\.messages:Message`"):
        Codec().decode(b'{"$":"stepwell.agents.messages:Message","v":{"role":"user","text":"x"}}')


def test_what_only_the_library_works_with_is_not_stored() -> None:
    with pytest.raises(CodecError, match="`Case` is internal to Stepwell and cannot be stored"):
        Codec().encode(Case(condition=bool, target="x"))


def test_a_class_of_ours_is_not_stored_by_pickle() -> None:
    with pytest.raises(TypeError, match="`Message` is stored without pickle"):
        register_checkpoint_type(Message, pickle=True)
