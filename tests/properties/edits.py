"""Changes to values as data: what superstep after superstep does to shared state and to what executors keep."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

KEYS = ("text", "list", "table", "other")
EXECUTORS = ("a", "b")

Kind = Literal["splice", "grow", "shrink", "append", "set", "same", "delete"]


@dataclass(frozen=True)
class Edit:
    """One change to one value. Places are parts of it, in hundredths, so that they fit values of any size."""

    kind: Kind
    key: str
    value: Any = None
    start: int = 0
    end: int = 0

    def made_to(self, before: Any) -> Any:
        """The value after the change; a change that does not fit a value sets another."""
        match self.kind, before:
            case "splice", str():
                return before[: self._at(self.start, before)] + self.value + before[self._at(self.end, before) :]
            case "grow", list():
                place = self._at(self.start, before)
                return [*before[:place], self.value, *before[place:]]
            case "shrink", list():
                return before[: self._at(self.start, before)] + before[self._at(self.end, before) :]
            case "grow", dict():
                return {**before, f"key {len(before)}": self.value}
            case "shrink", dict():
                gone = self._at(self.start, list(before))
                return {key: item for n, (key, item) in enumerate(before.items()) if n != gone}
            case (("splice" | "grow" | "shrink"), _):
                return self.value if before is None else before
            case "same", _:
                return deepcopy(before)
        return self.value

    @staticmethod
    def _at(part: int, value: Any) -> int:
        return len(value) * part // 100


letters = st.sampled_from(
    ["a", "é", "è", "€", "₭", "😀", "😁", '"', "\\", "\u2028", "\x00"]
)  # some begin alike, in UTF-8
words = st.text(letters, max_size=6)
torn = st.sampled_from(["\ud800", "a\udfff"])  # half a character: a text with it is stored in another way
sizes = st.sampled_from([300, 600, 30, 1])
texts = st.builds(lambda word, size, end: f"{word}." * size + end, words, sizes, words)
lists = st.builds(lambda items, size: items * size, st.lists(words | st.integers(0, 99), max_size=4), sizes)
tables = st.builds(lambda size, word: {f"key {n}": word + str(n) for n in range(size)}, sizes, words)
values = st.one_of(
    texts, lists, tables, st.none(), st.integers(), st.floats(allow_nan=False), st.tuples(words), st.binary(max_size=9)
)
parts = st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted)
keys = st.sampled_from(KEYS)


def _placed(kind: Kind, value: Any) -> st.SearchStrategy[Edit]:
    return st.builds(lambda key, made, part: Edit(kind, key, made, *part), keys, value, parts)


edits = st.one_of(
    _placed("splice", words),
    _placed("splice", letters),
    _placed("splice", torn),
    _placed("grow", words),
    _placed("shrink", words),
    st.builds(Edit, st.just("append"), keys, st.lists(words | st.integers(0, 9) | st.lists(words), max_size=3)),
    st.builds(Edit, st.just("set"), keys, values),
    st.builds(Edit, st.just("same"), keys),
    st.builds(Edit, st.just("delete"), keys),
)


@dataclass(frozen=True)
class Step:
    """What happens next to a run: a superstep with these changes, or something else."""

    edits: tuple[Edit, ...] = ()
    saves: tuple[Edit, ...] = ()  # by the executors, each to its own; the key is the executor
    back: int | None = None  # moved back to one of its checkpoints, in hundredths of its history
    reopened: bool = False  # by another process, which reads where the run is first


saves = st.builds(
    lambda edit, id: Edit(edit.kind, id, edit.value, edit.start, edit.end), edits, st.sampled_from(EXECUTORS)
)
steps = st.builds(
    Step,
    st.lists(edits, max_size=3).map(tuple),
    st.lists(saves, max_size=2).map(tuple),
    st.sampled_from([None] * 9 + [0, 40, 80]),
    st.booleans(),
)
first_steps = st.builds(
    lambda text, items, table, saved: Step(
        (Edit("set", "text", text), Edit("set", "list", items), Edit("set", "table", table)), (Edit("set", "a", saved),)
    ),
    texts,
    lists,
    tables,
    texts,
)
"""With values that are large, mostly, so that there is something to change."""
