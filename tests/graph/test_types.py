import collections
import functools
import re
import typing
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Generic,
    Literal,
    LiteralString,
    NamedTuple,
    Never,
    NewType,
    NoReturn,
    NotRequired,
    Optional,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    TypeVarTuple,
    Union,
    runtime_checkable,
)

import pytest
import typing_extensions

from stepwell.graph.type_matching import describe, flatten, is_instance_of, is_type_compatible, most_specific

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
Number = TypeVar("Number", bound=int)
Text = TypeVar("Text", str, bytes)
OrderId = NewType("OrderId", str)
Listed = typing_extensions.TypeAliasType("Listed", Union[list[T], T], type_params=(T,))  # noqa: UP007


class TypeAliasType:
    """What the `type` statement of Python 3.12 makes: an alias that reads its value late, and may name itself."""

    __type_params__ = ()

    def __init__(self, name: str, value: Callable[[], object]) -> None:
        self.__name__ = name
        self._value = value

    @property
    def __value__(self) -> object:
        return self._value()


Json: Any = TypeAliasType("Json", lambda: dict[str, Json] | list[Json] | str | int | None)  # type: ignore[misc]
Yaml: Any = TypeAliasType("Yaml", lambda: dict[str, Yaml] | list[Yaml] | str | float | None)  # type: ignore[misc]
LostAlias = TypeAliasType("LostAlias", lambda: Nowhere)  # type: ignore[name-defined]  # noqa: F821


class Animal: ...


class Dog(Animal): ...


class Puppy(Dog): ...


class Box(Generic[T]): ...


class IntBox(Box[int]): ...


class Names(list[str]): ...


class Point(NamedTuple):
    x: int
    y: int


class Color(Enum):
    RED = 1


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class DatedMovie(TypedDict):
    title: str
    year: int


class Lost(TypedDict):
    what: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


class Tree(TypedDict):
    left: NotRequired["Tree"]


class Bush(TypedDict):
    left: NotRequired["Bush"]


class Backported(typing_extensions.TypedDict):
    title: str


class Named(Protocol):
    name: str


@runtime_checkable
class Closes(Protocol):
    def close(self) -> None: ...


class Barks(Protocol):
    def bark(self) -> str: ...


class Howls(Barks, Protocol):
    def howl(self) -> str: ...


class Callback(Protocol):
    def __call__(self) -> None: ...


class BackportedBarks(typing_extensions.Protocol):
    def bark(self) -> str: ...


class Wolf:
    def __init__(self) -> None:
        self.name = "Akela"

    def bark(self) -> str:
        return "wuff"

    def howl(self) -> str:
        return "ahoo"

    def close(self) -> None: ...


@dataclass
class Person:
    name: str


class Refuses(type):
    def __instancecheck__(cls, value: object) -> bool:
        raise TypeError("do not ask")

    def __subclasscheck__(cls, other: type) -> bool:
        raise TypeError("do not ask")


class Unaskable(metaclass=Refuses): ...


circle: list[object] = []
circle.extend([circle, circle])


def ids(row: object) -> str:
    return re.sub(r" at 0x\w+", "", repr(row))  # xdist wants the same ids in every process


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, int),
        (True, int),
        (Puppy(), Animal),
        (1, Any),
        (None, Any),
        (1, object),
        (None, None),
        (None, type(None)),
        (Color.RED, Color),
        (1, int | str),
        ("a", Union[int, str]),  # noqa: UP007
        (None, Optional[int]),  # noqa: UP045
        ("a", Literal["a", "b"]),
        (None, Literal[None]),
        (Color.RED, Literal[Color.RED]),
        ([], list[int]),
        ([1, 2], list[int]),
        ([1, "a"], list[int | str]),
        ([1], typing.List),  # noqa: UP006
        ([1], typing.List[int]),  # noqa: UP006
        ({1}, set[int]),
        (frozenset({1}), frozenset[int]),
        (deque([1]), deque[int]),
        ((1, 2), Sequence[int]),
        ([1], Iterable[int]),
        ({1}, Collection[int]),
        ("abc", Sequence[str]),
        ((), tuple[()]),
        ((), tuple[int, ...]),
        ((1, 2, 3), tuple[int, ...]),
        ((1, "a"), tuple[int, str]),
        ((1, "a"), typing.Tuple),  # noqa: UP006
        ((1, "a"), tuple[int, *tuple[str, ...]]),
        ((1, "a"), tuple[int, *Ts]),  # type: ignore[valid-type]
        (Point(1, 2), tuple[int, int]),
        ({"a": 1}, dict[str, int]),
        ({"a": [1]}, Mapping[str, list[int]]),
        (collections.OrderedDict(a=1), Mapping[str, int]),
        (collections.defaultdict(int, a=1), dict[str, int]),
        (Dog, type[Animal]),
        (Dog, type[int | Dog]),
        (Dog, type),
        (Dog, type[Any]),
        (Dog, typing.Type),  # noqa: UP006
        (Wolf, type[Barks]),
        (len, Callable),
        (len, Callable[[Any], int]),
        (functools.partial(len), typing.Callable),
        (1, T),
        (True, Number),
        (b"", Text),
        ({"title": "M"}, Movie),
        ({"title": "M", "year": 1931}, Movie),
        ({"title": "M", "seen": True}, Movie),
        ({"title": "M"}, Backported),
        ({"what": 1}, Lost),
        ({"left": {"left": {}}}, Tree),
        (Wolf(), Closes),
        (Wolf(), Barks),
        (Wolf(), Howls),
        (Wolf(), Named),
        (Wolf(), BackportedBarks),
        (len, Callback),
        (Person("Ada"), Named),
        (Wolf, Barks),
        (Box(), Box[int]),
        (Box(), Box[str]),
        (IntBox(), Box[int]),
        (1, Annotated[int, ["not hashable"]]),
        ([1], list[Annotated[int, "x"]]),
        ("o-1", OrderId),
        (["o-1"], list[OrderId]),
        (1, "Order"),
        (1, ForwardRef("Order")),
        ([1], list["Order"]),  # type: ignore[name-defined]  # noqa: F821
        ({"a": [1, {"b": None}]}, Json),
        ([1], Listed[int]),
        (1, Listed[int]),
        ([1], LostAlias),
        (circle, Json),
    ],
    ids=ids,
)
def test_a_value_belongs_to_its_annotation(value: object, annotation: object) -> None:
    assert is_instance_of(value, annotation)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("1", int),
        (1, float),
        (1, bool),
        (Animal(), Dog),
        (0, None),
        (None, int),
        (1.5, int | str),
        (None, Union[int, str]),  # noqa: UP007
        ("c", Literal["a", "b"]),
        (True, Literal[1]),
        (1, Literal[True]),
        (1, Never),
        (None, NoReturn),
        ([1, "a"], list[int]),
        ((1,), list[int]),
        ([1], set[int]),
        ({"a"}, set[int]),
        ((1, "a"), Sequence[int]),
        (["a"], Iterable[int]),
        (1, Iterable[int]),
        (deque(["a"]), deque[int]),
        ((1,), tuple[()]),
        ((), tuple[int]),
        ((1, 2), tuple[int]),
        (("a", 1), tuple[int, str]),
        ((1, "a"), tuple[int, ...]),
        ([1], tuple[int, ...]),
        ({1: 1}, dict[str, int]),
        ({"a": "b"}, dict[str, int]),
        ({"a": ["b"]}, Mapping[str, list[int]]),
        ([("a", 1)], Mapping[str, int]),
        (Animal, type[Dog]),
        (object, type[int]),
        (Dog(), type[Dog]),
        (1, Callable[[], None]),
        ("a", Number),
        (1, Text),
        ({}, Movie),
        ({"title": 1}, Movie),
        ({"title": "M", "year": "1931"}, Movie),
        ({1: 2}, Backported),
        ([("title", "M")], Movie),
        ({"left": {"left": 1}}, Tree),
        (1, Closes),
        (Animal(), Barks),
        (Animal(), BackportedBarks),
        (Animal(), Callback),
        (Animal(), Named),
        (1, Box[int]),
        ("a", Annotated[int, "x"]),
        (1, OrderId),
        ({"a": [1, {"b": 1.5}]}, Json),
        (["a"], Listed[int]),
    ],
    ids=ids,
)
def test_a_value_does_not_belong_to_another_annotation(value: object, annotation: object) -> None:
    assert not is_instance_of(value, annotation)


WEIRD = [
    *(5, "not an annotation]", [int], {}, ..., typing.Union, typing.Literal, typing.Self, LiteralString),
    *(P, Ts, P.args, typing.ClassVar[int], typing.Final[int], typing.TypeGuard[int], typing.Concatenate[int, P]),  # type: ignore[attr-defined]
    *(Unaskable, Protocol, Generic, list[()], dict[int], type[()], type[5], tuple[...], collections.Counter[str]),  # type: ignore[misc]
    *(typing.Annotated, typing.Optional, typing.Unpack[Ts], LostAlias, Lost, Listed, typing.NamedTuple, TypedDict),
]


@pytest.mark.parametrize("annotation", WEIRD, ids=ids)
def test_no_annotation_is_too_weird_to_answer(annotation: object) -> None:
    for value in (1, None, [1], {"a": 1}, (1,), int, Dog()):
        assert is_instance_of(value, annotation) in (True, False)
    for other in (*WEIRD, int, list[int], Named, Movie, Json):
        assert is_type_compatible(annotation, other) in (True, False)
        assert is_type_compatible(other, annotation) in (True, False)
        assert most_specific([annotation, other]) in (0, 1)
    assert describe(annotation)


@pytest.mark.parametrize("annotation", ["Order", ForwardRef("Order"), 5, typing.Self, P, Unaskable], ids=ids)
def test_what_cannot_be_known_is_taken(annotation: object) -> None:
    assert is_instance_of(Dog(), annotation)


def test_an_iterator_is_not_consumed_by_asking() -> None:
    numbers = iter([1, 2])
    assert is_instance_of(numbers, Iterable[str])
    assert is_instance_of(numbers, Iterator[str])
    assert list(numbers) == [1, 2]


def test_no_property_runs_when_a_protocol_is_checked() -> None:
    class Trap:
        @property
        def name(self) -> str:
            raise RuntimeError("ran")

    assert is_instance_of(Trap(), Named)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (int, int),
        (Any, int),
        (int, Any),
        (Any, Never),
        (int, object),
        (object, int),
        (Never, int),
        (NoReturn, Never),
        (Puppy, Animal),
        (bool, int),
        (None, type(None)),
        (None, int | None),
        (int | str, int),
        (int | str, str | bytes),
        (Dog | None, Animal),
        (int, Union[int, str]),  # noqa: UP007
        (Literal["a"], str),
        (Literal["a", 1], int),
        (Literal["a", "b"], Literal["b", "c"]),
        (str, Literal["a"]),
        (list, list[int]),
        (list[int], list),
        (list[int], typing.List[int]),  # noqa: UP006
        (list[Dog], list[Animal]),
        (list[int | str], list[int]),
        (list[Any], list[int]),
        (list[int], Sequence[int]),
        (list[int], Iterable[int]),
        (list[int], Collection),
        (set[Dog], set[Animal]),
        (frozenset[int], Iterable[int]),
        (tuple[int, str], tuple[int, str]),
        (tuple[Dog, int], tuple[Animal, int]),
        (tuple[int, int], tuple[int, ...]),
        (tuple[int, ...], tuple[int, int]),
        (tuple[int, ...], Sequence[int]),
        (tuple[int, int], Sequence[int]),
        (tuple[()], tuple[int, ...]),
        (tuple, tuple[int, str]),
        (Point, tuple[int, int]),
        (dict[str, Dog], dict[str, Animal]),
        (dict[str, int], Mapping[str, int]),
        (dict, Mapping[str, int]),
        (dict[str, int], Iterable[str]),
        (type[Dog], type[Animal]),
        (type, type[Animal]),
        (T, int),
        (int, T),
        (Number, int),
        (Text, bytes),
        (OrderId, str),
        (str, OrderId),
        (Annotated[int, "x"], int),
        ("Order", int),
        (int, ForwardRef("Order")),
        (Box[int], Box),
        (Box, Box[int]),
        (Box[Dog], Box[Animal]),
        (Box[Animal], Box[Dog]),
        (IntBox, Box[int]),
        (Callable[[int], str], Callable),
        (Callable[[int], str], Callable[..., str]),
        (Wolf, Closes),
        (Wolf, Howls),
        (Howls, Barks),
        (Wolf, BackportedBarks),
        (type(len), Callback),
        (Wolf, Named),
        (Person, Named),
        (Movie, Movie),
        (DatedMovie, Movie),
        (Movie, DatedMovie),
        (dict[str, Any], Movie),
        (Movie, dict),
        (Movie, Mapping[str, Any]),
        (Tree, Bush),
        (Json, Json),
        (Json, Yaml),
        (list[str], Json),
        (Json, list[str]),
        (list[int], Listed[int]),
    ],
    ids=ids,
)
def test_an_edge_carries_what_the_target_can_take(source: object, target: object) -> None:
    assert is_type_compatible(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (int, str),
        (int, float),
        (int, Never),
        (Animal, Dog),
        (None, int),
        (int | str, bytes),
        (int, str | bytes),
        (Literal["a"], int),
        (Literal["a"], Literal["b"]),
        (Literal[1], Literal[True]),
        (bool, Literal[1]),
        (int, Literal["a"]),
        (list[int], list[str]),
        (list[int], Sequence[str]),
        (list[int], set[int]),
        (list, set),
        (list[int], tuple[int, ...]),
        (Sequence[int], list[int]),
        (list[int], int),
        (tuple[int, str], tuple[int]),
        (tuple[int, str], tuple[str, int]),
        (tuple[int, str], tuple[int, ...]),
        (tuple[int, str], Sequence[int]),
        (tuple[str, ...], tuple[int, int]),
        (tuple[int], tuple[()]),
        (dict[str, int], dict[int, int]),
        (dict[str, int], Mapping[str, str]),
        (dict[str, int], Iterable[int]),
        (dict[str, int], list[str]),
        (type[int], type[str]),
        (str, Number),
        (Number, str),
        (Text, int),
        (OrderId, int),
        (Box[int], Box[str]),
        (int, Callable[[], None]),
        (int, Closes),
        (Animal, Barks),
        (Animal, BackportedBarks),
        (Animal, Callback),
        (Barks, Howls),
        (int, Named),
        (Tree, Movie),
        (Movie, list),
        (list, Movie),
        (float, Json),
        (list[str], Listed[int]),
    ],
    ids=ids,
)
def test_an_edge_that_can_carry_nothing_is_refused(source: object, target: object) -> None:
    assert not is_type_compatible(source, target)


@pytest.mark.parametrize(
    ("annotation", "members"),
    [
        (int, (int,)),
        (None, (type(None),)),
        (Any, (Any,)),
        (Never, ()),
        (NoReturn, ()),
        (int | str, (int, str)),
        (Union[int, str, None], (int, str, type(None))),  # noqa: UP007
        (Optional[int], (int, type(None))),  # noqa: UP045
        (Annotated[int | str, "x"], (int, str)),
        (Union[Annotated[int | str, "x"], bytes], (int, str, bytes)),  # noqa: UP007
        (Union[int, Never], (int,)),  # noqa: UP007, RUF020
        (OrderId, (str,)),
        (NewType("Sub", OrderId), (str,)),
        (OrderId | int, (str, int)),
        (list[int | str], (list[int | str],)),
        (Literal["a", "b"], (Literal["a", "b"],)),
        (Listed[int], (list[int], int)),
        (T, (T,)),
        ("Order", ("Order",)),
    ],
    ids=ids,
)
def test_a_union_flattens_to_its_members(annotation: object, members: tuple[object, ...]) -> None:
    assert flatten(annotation) == members


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (Dog, Animal),
        (bool, int),
        (int, Any),
        (int, object),
        (None, Any),
        (Literal["a"], str),
        (Literal["a"], Literal["a", "b"]),
        (int, int | str),
        (int | str, int | str | bytes),
        (bool, int | str),
        (None, int | None),
        (list[int], list),
        (list[int], typing.List),  # noqa: UP006
        (list[int], list[Any]),
        (list[int], list[int | str]),
        (list[Dog], list[Animal]),
        (list[int], Sequence[int]),
        (list[int], Iterable),
        (list, Sequence),
        (Names, list[str]),
        (Names, list),
        (tuple[int, int], tuple[int, ...]),
        (tuple[()], tuple[int, ...]),
        (tuple[int, ...], tuple),
        (tuple[int, ...], Sequence[int]),
        (Point, tuple[int, int]),
        (dict[str, int], dict[str, Any]),
        (dict[str, int], Mapping[str, int]),
        (Movie, dict),
        (DatedMovie, Movie),
        (type[Dog], type[Animal]),
        (type[Dog], type),
        (Box[int], Box),
        (Box[Dog], Box[Animal]),
        (IntBox, Box[int]),
        (Callable[[], int], Callable),
        (Wolf, Closes),
        (Wolf, Barks),
        (Wolf, Named),
        (Howls, Barks),
        (int, T),
        (bool, Number),
        (OrderId, "Order"),
        (list[str], Json),
    ],
    ids=ids,
)
def test_the_narrower_annotation_is_the_more_specific_one(narrow: object, wide: object) -> None:
    assert most_specific([narrow, wide]) == 0
    assert most_specific([wide, narrow]) == 1


@pytest.mark.parametrize(
    ("candidates", "index"),
    [
        ([int], 0),
        ([int, int], 0),
        ([Any, object], 0),
        ([object, Any], 0),
        ([Any, Animal, Puppy, Dog], 2),
        ([Animal | int, Animal, Any], 1),
        ([list[int], list[str]], 0),
        ([list[str], list[int]], 0),
        ([str, OrderId], 0),
        ([Closes, Named], 0),
        ([Tree, Bush], 0),
        ([Json, Yaml], 0),
        ([Any, Closes, Wolf, object], 2),
        ([int | str, int | None], 0),
    ],
    ids=ids,
)
def test_the_closest_wins_and_ties_go_to_the_first(candidates: list[object], index: int) -> None:
    assert most_specific(candidates) == index


def test_of_unrelated_classes_the_one_deeper_in_its_family_is_closer() -> None:
    class Pet: ...

    assert most_specific([Pet, Dog]) == 1
    assert most_specific([Dog, Pet]) == 0


def test_being_a_protocol_is_no_depth() -> None:
    class Closed:
        def __init__(self) -> None:
            self.close = lambda: None  # seen on the instance only, so the class does not look like a Closes

    assert is_instance_of(Closed(), Closes)
    assert most_specific([Closed, Closes]) == 0
    assert most_specific([Closes, Closed]) == 1


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "int"),
        (None, "None"),
        (type(None), "None"),
        (Any, "Any"),
        (object, "object"),
        (Never, "Never"),
        (Dog, "Dog"),
        (list[Dog], "list[Dog]"),
        (typing.List, "list"),  # noqa: UP006
        (typing.List[int], "list[int]"),  # noqa: UP006
        (int | str, "int | str"),
        (Optional[int], "int | None"),  # noqa: UP045
        (list[int | None], "list[int | None]"),
        (dict[str, list[int]], "dict[str, list[int]]"),
        (Sequence[int], "Sequence[int]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (tuple[()], "tuple[()]"),
        (type[Dog], "type[Dog]"),
        (Callable[[int], str], "Callable[[int], str]"),
        (Callable[..., str], "Callable[..., str]"),
        (Literal["a", 1], "Literal['a', 1]"),
        (Annotated[int, "x"], "int"),
        (OrderId, "OrderId"),
        (Box[int], "Box[int]"),
        (T, "T"),
        (Json, "Json"),
        (Listed[int], "Listed[int]"),
        ("Order", "Order"),
        (ForwardRef("Order"), "Order"),
        (list["Order"], "list[Order]"),  # type: ignore[name-defined]  # noqa: F821
    ],
    ids=ids,
)
def test_an_annotation_is_described_in_short_words(annotation: object, words: str) -> None:
    assert describe(annotation) == words
