"""Random graphs and what is sent in them, and who must get it: told by a few lines that know nothing of the kernel."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from stepwell import executor
from stepwell.graph.edges import Direct, Edge, FanIn, FanOut, Select, Switch
from stepwell.graph.graph import Graph

NAMES = ("a", "b", "c", "d", "e")
ASKS = ("direct", "switch", "select")
TAKES = {"numbers": int, "texts": str, "anything": int | str}


def says(salt: int, value: Any) -> int:
    """What a condition makes of a value: some number, always the same."""
    return crc32(f"{salt}|{value}".encode())


@dataclass(frozen=True)
class Way:
    """An edge, as data. With `salt` a direct one has a condition."""

    kind: str  # direct, fan out, switch, select, fan in
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    salt: int | None = None

    def edge(self, heard: list[tuple[Way, Any]]) -> Edge:
        """The real one. Its condition notes in `heard` what it was asked about."""
        salt = self.salt or 0

        def case(n: int, of: int) -> Any:
            def holds(value: Any) -> bool:
                heard.append((self, value))
                return says(salt + n, value) % of == 0

            return holds

        async def choose(value: Any, targets: list[str]) -> list[str]:
            heard.append((self, value))
            return [target for n, target in enumerate(targets) if says(salt, value) >> n & 1]

        match self.kind:
            case "direct" if self.salt is not None:
                return Direct(self.sources[0], self.targets[0], case(0, 2))
            case "direct":
                return Direct(self.sources[0], self.targets[0])
            case "fan out":
                return FanOut(self.sources[0], self.targets)
            case "switch":
                cases = tuple((case(n, 3), target) for n, target in enumerate(self.targets[:-1]))
                return Switch(self.sources[0], cases, self.targets[-1])
            case "select":
                return Select(self.sources[0], self.targets, choose)
        return FanIn(self.sources, self.targets[0])

    def leads_to(self, value: Any) -> tuple[str, ...]:
        """The targets that a value has along this way, whether they take such values or not."""
        salt = self.salt or 0
        match self.kind:
            case "direct" if self.salt is not None:
                return self.targets if says(salt, value) % 2 == 0 else ()
            case "switch":
                hits = [target for n, target in enumerate(self.targets[:-1]) if says(salt + n, value) % 3 == 0]
                return (*hits, self.targets[-1])[:1]
            case "select":
                return tuple(target for n, target in enumerate(self.targets) if says(salt, value) >> n & 1)
        return self.targets


@dataclass(frozen=True)
class Web:
    takes: dict[str, str]  # what each executor takes
    ways: tuple[Way, ...]

    def graph(self, heard: list[tuple[Way, Any]]) -> Graph:
        made = {id: _taker(id, self.takes[id], self._joined(id)) for id in NAMES}
        return Graph("a", made, tuple(way.edge(heard) for way in self.ways), on_unroutable="drop")

    def _joined(self, id: str) -> bool:
        return any(way.kind == "fan in" and id in way.targets for way in self.ways)

    def handles(self, id: str, value: Any) -> bool:
        return isinstance(value, TAKES[self.takes[id]])


def _taker(id: str, takes: str, joined: bool) -> Any:
    async def take(message: Any) -> None: ...

    kind: Any = TAKES[takes]
    return executor(id=id, input=list[kind] | kind if joined else kind)(take)


def _alone(way: Way) -> tuple[Way, ...]:
    return (way,)


def _diamonds(sources: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[Way, ...]]:
    """Several at once, and one that waits for all of them."""
    return st.builds(
        lambda source, between, end: (Way("fan out", (source,), between), Way("fan in", between, (end,))),
        sources,
        _several,
        _names,
    )


@st.composite
def webs(draw: st.DrawFn) -> Web:
    """Graphs with at most one way from one executor to another, as the builder wants them."""
    taken: set[tuple[str, str]] = set()
    ways: list[Way] = []
    parts = [draw(_first_ways | _diamonds(st.just("a"))), *draw(st.lists(_parts, min_size=2, max_size=6))]
    for way in itertools.chain.from_iterable(parts):
        pairs = {(source, target) for source in way.sources for target in way.targets}
        if not pairs & taken:
            taken |= pairs
            ways.append(way)
    kinds = st.sampled_from(["anything"] * 8 + sorted(TAKES))
    return Web({id: draw(kinds) for id in NAMES}, tuple(ways))


_names = st.sampled_from(NAMES)
_several = st.lists(_names, min_size=2, max_size=4, unique=True).map(tuple)
_salts = st.integers(0, 9)
_one = _names.map(lambda name: (name,))
_first_ways = st.builds(Way, st.sampled_from(["fan out", "switch"]), st.just(("a",)), _several, _salts).map(_alone)
_ways = st.one_of(
    st.builds(Way, st.just("direct"), _one, _one, st.none() | _salts),
    st.builds(Way, st.just("fan out"), _one, _several),
    st.builds(Way, st.just("switch"), _one, _several, _salts),
    st.builds(Way, st.just("select"), _one, _several, _salts),
    st.builds(Way, st.just("fan in"), _several, _one),
)
_parts = _ways.map(_alone) | _diamonds(_names)


@dataclass(frozen=True)
class Sending:
    """What somebody sends. Each value is sent once, so that it can be followed."""

    value: int | str
    target: str | None = None


@dataclass
class Model:
    """Where everything is. One superstep is: take what `calls` says, and send in its order."""

    web: Web
    calls: list[tuple[str, Any, tuple[str, ...]]]  # executor, what it gets, from whom
    held: dict[Way, dict[str, list[Any]]] = field(default_factory=dict)
    asked: list[tuple[Way, Any]] = field(default_factory=list)  # which conditions about what
    declined: list[Any] = field(default_factory=list)
    missing: list[Any] = field(default_factory=list)

    def superstep(self, sent: Sequence[Sequence[Sending]]) -> None:
        """What follows, if the calls send that, each its part."""
        following: list[tuple[str, Any, tuple[str, ...]]] = []
        for (source, _, _), parts in zip(self.calls, sent, strict=True):
            for one in parts:
                following += [(taker, one.value, (source,)) for taker in self._send(source, one)]
        for way in self.web.ways:
            by_source = self.held.get(way, {})
            if way.kind == "fan in" and all(by_source.get(source) for source in way.sources):
                everything = [value for source in way.sources for value in by_source[source]]
                following.append((way.targets[0], everything, way.sources))
                del self.held[way]
        self.calls = following

    def _send(self, source: str, sent: Sending) -> list[str]:
        takers: list[str] = []
        joined = refused = False
        leaving = [way for way in self.web.ways if source in way.sources]
        asked = [way for way in leaving if sent.target is None or sent.target in way.targets]
        self.asked += [(way, sent.value) for way in asked if way.salt is not None and way.kind in ASKS]
        for way in asked:
            for target in way.leads_to(sent.value):
                if sent.target not in (None, target):
                    continue
                if not self.web.handles(target, sent.value):
                    refused = True
                elif way.kind == "fan in":
                    self.held.setdefault(way, {}).setdefault(source, []).append(sent.value)
                    joined = True
                else:
                    takers.append(target)
        if not takers and not joined:
            (self.missing if refused or not asked else self.declined).append(sent.value)
        return takers
