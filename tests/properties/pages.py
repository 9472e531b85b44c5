"""What handlers do to shared state, as data, and what must come of it: told with plain dicts, in plan order."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import strategies as st

KEYS = ("log", "cart")
Kind = Literal["set", "append", "delete"]
Page = dict[str, tuple[Kind, Any]]
"""What one delivery wrote: for each key what it comes to."""


@dataclass(frozen=True)
class Op:
    kind: Kind
    key: str
    value: Any = None


@dataclass(frozen=True)
class Turn:
    """One delivery: who it goes to, what is done, and after how many turns of the others it is finished."""

    executor: str
    ops: tuple[Op, ...]
    ticks: int = 0


def pair(there: Any, written: Any) -> Any:
    """A reducer that tells who came first."""
    return [there, written]


def text(there: Any, written: Any) -> Any:
    """A reducer that makes of lists something that nobody can append to."""
    return f"({there}, {written})"


REDUCERS = {"pair": pair, "text": text}

values = st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=3), st.lists(st.integers(0, 9), max_size=3))
keys = st.sampled_from(KEYS)
ops = st.one_of(
    st.builds(Op, st.just("set"), keys, values),
    st.builds(Op, st.just("append"), keys, st.lists(values, max_size=3)),
    st.builds(Op, st.just("delete"), keys),
)
committed = st.fixed_dictionaries({}, optional={key: st.lists(values, max_size=3) | values for key in KEYS})
reducers = st.dictionaries(keys, st.sampled_from(sorted(REDUCERS)), max_size=2)


def turns(executors: st.SearchStrategy[str], max_size: int = 5) -> st.SearchStrategy[list[Turn]]:
    made = st.builds(Turn, executors, st.lists(ops, max_size=4).map(tuple), st.integers(0, 5))
    return st.lists(made, min_size=1, max_size=max_size)


@dataclass
class Sight:
    """What one executor sees in a superstep: what was committed, and what it did to it itself."""

    state: dict[str, Any]
    page: Page = field(default_factory=dict)

    def refuses(self, op: Op) -> type[Exception] | None:
        """The error that an op must meet here."""
        if op.kind == "delete" and op.key not in self.state:
            return KeyError
        appended_to = self.state.get(op.key, [])
        return TypeError if op.kind == "append" and not isinstance(appended_to, list) else None

    def do(self, op: Op) -> None:
        kind, said = self.page.get(op.key, (None, None))
        match op.kind:
            case "set":
                self.state[op.key] = deepcopy(op.value)
                self.page[op.key] = "set", op.value
            case "delete":
                del self.state[op.key]
                self.page[op.key] = "delete", None
            case "append":
                self.state[op.key] = [*self.state.get(op.key, []), *op.value]
                only_appended = kind in (None, "append")
                self.page[op.key] = ("append" if only_appended else "set"), [*(said or []), *op.value]

    def turn_page(self) -> Page:
        page, self.page = self.page, {}
        return page


@dataclass(frozen=True)
class Conflict:
    key: str
    writers: tuple[str, ...]


@dataclass
class _Joined:
    """What the deliveries so far did to one key."""

    kind: Kind | None = None
    writers: list[str] = field(default_factory=list)


def came_to(
    before: dict[str, Any], pages: list[tuple[str, Page]], reducers: dict[str, Any]
) -> dict[str, Any] | Conflict:
    """The state after the pages, in plan order; or the first conflict, and then nothing happened."""
    state = deepcopy(before)
    joined: dict[str, _Joined] = {}
    for writer, page in pages:
        for key, (kind, value) in page.items():
            so_far = joined.setdefault(key, _Joined())
            others = [one for one in so_far.writers if one != writer]
            if so_far.kind and not _may(so_far.kind, kind, bool(others), key in reducers, state.get(key)):
                return Conflict(key, (*others, writer))
            _write(state, key, kind, value, reducers.get(key))
            so_far.kind = "set" if kind == "append" and so_far.kind not in (None, "append") else kind
            so_far.writers += [writer] if writer not in so_far.writers else []
    return state


def _may(before: Kind, kind: Kind, others: bool, reduced: bool, there: Any) -> bool:
    """Whether nobody's write is lost: several may append, several may set what a reducer joins, else one may write."""
    if before == kind == "append" or (before == kind == "set" and reduced):
        return True
    if before == "set" and kind == "append" and reduced and not isinstance(there, list):
        return False  # the reducer made something of the list that cannot be appended to
    return not others


def _write(state: dict[str, Any], key: str, kind: Kind, value: Any, reducer: Any) -> None:
    match kind:
        case "set":
            state[key] = value if reducer is None or key not in state else reducer(state[key], value)
        case "append":
            state[key] = [*state.get(key, []), *value]
        case "delete":
            state.pop(key, None)
