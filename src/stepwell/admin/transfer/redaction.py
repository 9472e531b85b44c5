"""Removes private values from the JSON of records, superstep logs and signals. Pure.

A path names a part and, after dots, the value to remove: `state.token`, `executors.clerk.password`,
`messages`. `*` stands for any one key. A path applies to each item of a list, and to the fields of
stored objects. `*` alone stands for every part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

# A tag without content is never written for a value, so decoding it raises an error instead of
# returning something.
REMOVED = {"$": "removed"}
REMOVED_TEXT = "[removed]"
LOCK = "this run was redacted: it can be looked at, and not resumed"
"""The id of an executor that no graph has: resuming a run that refers to it is refused.

Part of the stored format.
"""

_NAMED = ("state", "executors", "metadata", "tags")  # values by key
_UNNAMED = ("messages", "requests", "outputs", "steps")  # values without a key
_INDIVISIBLE = ("failures",)  # strings: removed completely or not at all
PARTS = (*_NAMED, *_UNNAMED, *_INDIVISIBLE)
EVERYTHING = "*"

Tree = dict[str, Any]


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
        run = tree.get("run") or {}
        requests, messages = tree.get("asked", []), tree.get("messages") or []
        held = [payloads for by_source in (tree.get("held") or {}).values() for payloads in by_source.values()]
        self._redact_state(tree)
        self._remove_by_name("executors", tree, "executors")
        self._remove_by_name("metadata", tree, "metadata")
        self._remove_by_name("tags", run, "tags")
        # The value of a tag must be a string.
        if "tags" in run:
            run["tags"] = {key: REMOVED_TEXT if value == REMOVED else value for key, value in run["tags"].items()}
        self._remove_slots("messages", [*_slots(messages, "payload"), *((p, n) for p in held for n in range(len(p)))])
        self._redact_requests(requests)
        # A message that answers a request carries a copy of the question.
        self._remove_slots("requests", _slots([m["reply"] for m in messages if m.get("reply")], "question"))
        outputs = [output for done in tree.get("done", []) for output in done.get("outputs", [])]
        self._remove_slots("outputs", _slots(outputs, "payload"))
        self._redact_failures(tree.get("failures", []))
        return tree

    def redact_outcome(self, tree: Tree) -> Tree:
        """Redact the JSON of an outcome in a superstep log."""
        self._redact_state(tree)
        if "saved" in tree:
            # Wrapped as a record has it, so that the same paths apply.
            saved = {"executors": {tree["executor"]: tree["saved"]}}
            self._remove_by_name("executors", saved, "executors")
            tree["saved"] = saved["executors"][tree["executor"]]
        self._remove_slots("messages", _slots(tree.get("sent", []), "payload"))
        self._remove_slots("outputs", _slots(tree.get("outputs", []), "payload"))
        self._redact_requests(tree.get("requests", []))
        return tree

    def redact_note(self, tree: Tree) -> Tree:
        """Redact the JSON of a step, timer or attempt in a superstep log."""
        self._remove_slots("steps", _slots([tree], "value"))
        self._redact_failures([tree["failure"]] if tree.get("failure") else [])
        return tree

    def redact_signal(self, tree: Tree) -> Tree:
        """Redact the JSON of a signal; answers and input count as messages."""
        self._remove_slots("messages", _slots([tree], "value"))
        return tree

    def _redact_state(self, tree: Tree) -> None:
        state = tree.get("state") or {}
        self._remove_by_name("state", state, "set")
        self._remove_by_name("state", state, "append")
        # An append is a list of items, and must stay one.
        for key, items in state.get("append", {}).items():
            if items == REMOVED:
                state["append"][key] = [REMOVED]

    def _redact_requests(self, requests: Sequence[Tree]) -> None:
        self._remove_slots("requests", [*_slots(requests, "payload"), *_slots(requests, "default")])

    def _redact_failures(self, failures: Sequence[Tree]) -> None:
        for failure in failures if "failures" in self._removed else ():
            self._used.add("failures")
            # A traceback may show source lines and values.
            failure |= {"message": REMOVED_TEXT}
            failure.pop("traceback", None)
            failure.pop("extra", None)

    def _remove_by_name(self, part: str, holder: Tree, key: str) -> None:
        for path, rest in self._paths_of(part):
            if _remove(holder.get(key, {}), rest or "*"):
                self._used.add(path)

    def _remove_slots(self, part: str, slots: Iterable[tuple[Any, Any]]) -> None:
        places = list(slots)
        for path, rest in self._paths_of(part):
            for holder, key in places:
                if not rest:
                    holder[key] = REMOVED
                if not rest or _remove(holder[key], rest):
                    self._used.add(path)

    def _paths_of(self, part: str) -> Iterator[tuple[str, str]]:
        for path in self._removed:
            first, _, rest = path.partition(".")
            if first == part:
                yield path, rest


def _slots(holders: Iterable[Tree], key: str) -> list[tuple[Tree, str]]:
    return [(holder, key) for holder in holders if key in holder]


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
