"""Removes private values from the JSON of records, superstep logs and signals. Pure.

A path names a part and, after dots, the value to remove: `state.token`, `executors.clerk.password`,
`messages`. `*` stands for any one key. A path applies to each item of a list, and to the fields of
stored objects. `*` alone stands for every part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# A tag without content is never written for a value, so decoding it raises an error instead of
# returning something.
REMOVED = {"$": "removed"}
REMOVED_TEXT = "[removed]"
# The id of an executor that no graph has: resuming a run that refers to it is refused. Part of the
# stored format.
LOCK = "this run was redacted: it can be looked at, and not resumed"

_NAMED = ("state", "executors", "metadata", "tags")  # values by key
_UNNAMED = ("messages", "requests", "outputs", "steps")  # values without a key
_INDIVISIBLE = ("failures",)  # strings: removed completely or not at all
PARTS = (*_NAMED, *_UNNAMED, *_INDIVISIBLE)
EVERYTHING = "*"

Tree = dict[str, Any]

# Where the values of each part are in the JSON of a record, an outcome, a note of a superstep log
# and a signal; `*` is each key of a mapping or each item of a list.
_COMMIT = {
    "state": ("state.set", "state.append"),
    "executors": ("executors",),
    "metadata": ("metadata",),
    "tags": ("run.tags", "tags"),
    # Answers and what people say with them count as messages.
    "messages": ("messages.*.payload", "held.*.*.*", "answers.*.value", "answers.*.comment", "reason"),
    # A message that answers a request carries a copy of the question.
    "requests": ("asked.*.payload", "asked.*.default", "messages.*.reply.question"),
    "outputs": ("done.*.outputs.*.payload",),
    "failures": ("failures.*",),
}
_OUTCOME = {
    "state": ("state.set", "state.append"),
    "executors": ("executors",),
    "messages": ("sent.*.payload",),
    "requests": ("requests.*.payload", "requests.*.default"),
    "outputs": ("outputs.*.payload",),
    "tags": ("tags",),
}
_NOTE = {
    "steps": ("value",),
    "failures": ("failure",),
    "requests": ("request.payload", "request.default"),
    "messages": ("answer.value", "answer.comment"),
}
_SIGNAL = {"messages": ("value", "comment", "reason")}
# Values that must be strings.
_TEXTS = ("run.tags.*", "tags.*", "answers.*.comment", "answer.comment", "comment", "reason")


class Redaction:
    """The paths to remove. `unused` are those that have removed nothing so far."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)
        # `*` counts as used from the start: it is right even for a run that contains nothing.
        self._used: set[str] = {EVERYTHING}
        self._removed = PARTS if EVERYTHING in self.paths else self.paths
        for path in self.paths:
            if path == EVERYTHING:
                continue
            part, _, rest = path.partition(".")
            if part not in PARTS or (rest and part in _INDIVISIBLE):
                raise ValueError(f"{path!r} cannot be removed; a path starts with one of {', '.join(PARTS)}")

    @property
    def unused(self) -> list[str]:
        return [path for path in self.paths if path not in self._used and EVERYTHING not in self.paths]

    def redact_commit(self, tree: Tree) -> Tree:
        """Redact the JSON of a record, in place, and return it."""
        self._redact(tree, _COMMIT)
        self._drop_summaries(tree, "done.*.steps.*.summary")
        return tree

    def redact_outcome(self, tree: Tree) -> Tree:
        """Redact the JSON of an outcome in a superstep log."""
        # The state of its executor is wrapped as a record has it, so that the same paths apply.
        if "saved" in tree:
            tree["executors"] = {tree["executor"]: tree.pop("saved")}
        self._redact(tree, _OUTCOME)
        self._drop_summaries(tree, "steps.*.summary")
        if "executors" in tree:
            tree["saved"] = tree.pop("executors")[tree["executor"]]
        return tree

    def redact_note(self, tree: Tree) -> Tree:
        """Redact the JSON of a step, timer or attempt in a superstep log."""
        return self._redact(tree, _NOTE)

    def redact_signal(self, tree: Tree) -> Tree:
        """Redact the JSON of a signal; answers and input count as messages."""
        return self._redact(tree, _SIGNAL)

    def _drop_summaries(self, tree: Tree, place: str) -> None:
        """Drop what an agent's calls came to: text cut from their results, which goes with any part of them."""
        paths = [path for path in self._removed if path.partition(".")[0] == "steps"]
        for record, name in list(_find_slots(tree, place)) if paths else ():
            del record[name]
            self._used.update(paths)

    def _redact(self, tree: Tree, places: Mapping[str, tuple[str, ...]]) -> Tree:
        for path in self._removed:
            part, _, rest = path.partition(".")
            for holder, key in [slot for place in places.get(part, ()) for slot in _find_slots(tree, place)]:
                removed = (
                    _remove_failure(holder[key])
                    if part in _INDIVISIBLE
                    else _remove_at(holder, key, rest or ("*" if part in _NAMED else ""))
                )
                if removed:
                    self._used.add(path)
        for appends, name in _find_slots(tree, "state.append.*"):
            if appends[name] == REMOVED:
                appends[name] = [REMOVED]  # an append is a list of items, and must stay one
        for holder, name in (slot for place in _TEXTS for slot in _find_slots(tree, place)):
            if holder[name] == REMOVED:
                holder[name] = REMOVED_TEXT
        return tree


def _find_slots(tree: Any, place: str) -> Iterator[tuple[Any, Any]]:
    """Yield the mappings or lists that hold the values at a place, each with the key or index."""
    first, _, rest = place.partition(".")
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        if first in ("*", key):
            yield from _find_slots(tree[key], rest) if rest else ((tree, key),)


def _remove_failure(failure: Tree | None) -> bool:
    if failure is None:
        return False
    failure |= {"message": REMOVED_TEXT}
    # A traceback may show source lines and values.
    for name in ("traceback", "extra"):
        failure.pop(name, None)
    return True


def _remove(tree: Any, path: str) -> bool:
    """Remove what a path names in a JSON tree, in place.

    Return whether there was anything to remove.
    """
    # `True in [...]` instead of any(): every item must be visited.
    if isinstance(tree, list):
        return True in [_remove_pair(item, path) or _remove(item, path) for item in tree]
    if not isinstance(tree, dict) or tree == REMOVED:
        return False
    # The content of a tagged value is under `v`; people write paths without it.
    if "$" in tree:
        return _remove(tree.get("v"), path)
    # A key may itself contain dots, so the path is matched against each key instead of being split.
    return True in [_remove_at(tree, key, rest) for key in tree for rest in _rests(path, key)]


def _remove_pair(tree: Any, path: str) -> bool:
    """Remove what a path names in one pair of a mapping that is stored as pairs.

    That is how mappings with keys other than strings are stored.
    """
    if not (isinstance(tree, list) and len(tree) == 2 and isinstance(tree[0], str)):
        return False
    return True in [_remove_at(tree, 1, rest) for rest in _rests(path, tree[0])]


def _rests(path: str, key: str) -> Iterator[str]:
    """Yield what is left of a path below `key`; empty if the path names that value itself."""
    for name in (key, "*"):
        if path == name:
            yield ""
        elif path.startswith(f"{name}."):
            yield path[len(name) + 1 :]


def _remove_at(holder: Any, key: Any, rest: str) -> bool:
    if not rest:
        holder[key] = REMOVED
        return True
    return _remove(holder[key], rest)
