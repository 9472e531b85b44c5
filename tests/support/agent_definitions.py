"""Definitions of every kind, for Hypothesis."""

from typing import Any

from hypothesis import strategies as st

from stepwell import FullHistory, LatestOnly
from stepwell.declarative.conditions.condition import Condition, FieldCondition, all_of, any_of, not_
from stepwell.declarative.conditions.operators import OPERATORS
from stepwell.declarative.definition import Approval, Definition, Edge, Node, Retries
from stepwell.declarative.validation import find_problems

ODD = [
    "no",
    "1e5",
    "0x10",
    "12:30",
    "2024-01-01",
    "~",
    "null",
    "<<",
    "*a",
    "&a b",
    "- x",
    "# x",
    "{a}",
    "'",
    '"',
    " x ",
    "a\nb\n",
    "\n\n x\ny",
    "x\r\ny",
]
texts = st.text(max_size=12) | st.sampled_from(ODD)
names = texts.filter(bool)
numbers = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
data = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
seconds = st.integers(1, 10**6) | st.floats(0.001, 10**6)
GIVEN: dict[str, st.SearchStrategy[Any]] = {
    "nothing": st.none(),
    "value": data.filter(lambda value: value is not None),
    "bound": numbers | texts,
    "text": texts,
    "pattern": st.sampled_from(["^a", r"\d{4}", "(?i)[é-ü]|x", "'\" #:"]),
    "values": st.lists(scalars, min_size=1, max_size=3),
}


@st.composite
def questions(draw: st.DrawFn) -> Condition:
    kind = draw(st.sampled_from(sorted(OPERATORS)))
    return FieldCondition(kind, draw(names), draw(GIVEN[OPERATORS[kind].operand]))


conditions: st.SearchStrategy[Condition] = st.recursive(
    questions(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda several: all_of(*several))
        | st.lists(inner, min_size=1, max_size=3).map(lambda several: any_of(*several))
        | inner.map(not_)
    ),
    max_leaves=5,
)
retries = st.builds(
    Retries,
    st.integers(1, 9),
    st.integers(0, 9) | st.floats(0, 9),
    st.sampled_from(["constant", "linear", "exponential", "jittered"]),
    st.floats(0, 99),
    st.lists(names, max_size=2).map(tuple),
)
approvals = st.builds(
    Approval,
    st.none() | conditions,
    texts,
    st.none() | st.floats(0, 10**6),
    st.sampled_from(["deny", "approve", "suspend"]),
)


def definitions() -> st.SearchStrategy[Definition]:
    """Those in which nothing is wrong."""
    return _definitions().filter(lambda definition: not list(find_problems(definition)))


@st.composite
def _definitions(draw: st.DrawFn) -> Definition:
    ids = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    main, spare = ids[:3], ids[3:]  # the others run only in the place of these
    edges = tuple(draw(st.lists(_edges(main), max_size=4)))
    instead = dict(zip(main, spare, strict=False))
    nodes = [draw(_nodes(id, edges, instead.get(id))) for id in ids]
    return Definition(
        draw(names),
        tuple(nodes),
        edges,
        draw(st.integers(1, 100)),
        draw(st.none() | seconds),
        draw(st.sampled_from(["none", "shared", "per-agent", "fork"])),
        draw(st.booleans()),
        draw(st.sampled_from([FullHistory, LatestOnly])),
        draw(st.none() | texts),
    )


@st.composite
def _edges(draw: st.DrawFn, ids: list[str]) -> Edge:
    some = st.lists(st.sampled_from(ids), min_size=1, max_size=2, unique=True).map(tuple)
    return Edge(draw(some), draw(some), draw(st.none() | conditions))


@st.composite
def _nodes(draw: st.DrawFn, id: str, edges: tuple[Edge, ...], fallback: str | None) -> Node:
    targets = [target for edge in edges if id in edge.sources for target in edge.targets]
    mode = draw(st.sampled_from(["text", "structured", "union", *(["handoff"] if targets else [])]))
    types = {"structured": ["Review"], "union": ["Bug", "Question"]}.get(mode, [])
    keyed = draw(st.booleans())
    return Node(
        id,
        agent=draw(st.none() | names),
        config=draw(st.none() | st.dictionaries(texts, data, max_size=2)),
        input_key=draw(st.none() | names) if keyed else None,
        input_template=None if keyed else draw(st.none() | texts),
        context_keys=tuple(draw(st.lists(names, max_size=2))),
        instructions=draw(st.none() | texts),
        output_key=draw(st.none() | names),
        output_mode=mode,  # type: ignore[arg-type]
        output_types=tuple(types),
        default_target=draw(st.none() | st.sampled_from(targets)) if mode == "handoff" else None,
        timeout=draw(st.none() | seconds),
        retry=draw(st.none() | retries),
        on_error=draw(st.sampled_from(["stop", "skip", "isolate"])) if fallback is None else "fallback",
        fallback=fallback,
        concurrency=draw(st.none() | st.integers(1, 9)),
        approval=draw(st.none() | approvals),
    )
