"""Pickle, for the classes that were registered with `pickle=True` and for no other.

Unpickling runs code of the classes that a pickle names. Therefore a pickle is read only for a class
that this program registered with `pickle=True`, and it may name nothing but that class, the other
classes registered that way, what its registration lists in `pickle_needs`, and the built-in types
that the codec stores anyway.
"""

from __future__ import annotations

import io
import pickle
from base64 import b64decode, b64encode
from typing import Any

from stepwell.codec.classes import import_path, tag_of
from stepwell.codec.registry import REGISTRY
from stepwell.codec.standard_values import BUILT_IN, require
from stepwell.codec.traversal import Close, Open, Refused, ValueKind, shorten

_PROTOCOL = 4  # fixed, so that every Python version that Stepwell supports can read it
_BUILT_IN: dict[str, Any] = {tag_of(cls): cls for cls in BUILT_IN - {type(None)}}  # no pickle names that of None


class PickleKind:
    """A class stored by pickle. Instances stored before it was registered with `pickle=True` are still read."""

    def __init__(self, cls: type, previous_kind: ValueKind | None) -> None:
        self.cls, self.tag, self._previous_kind = cls, tag_of(cls), previous_kind
        self.members = frozenset({"$", "v", "by"}) | (previous_kind.members if previous_kind else frozenset())

    def close(self, value: Any, close: Close, depth: int) -> dict[str, Any]:
        data = pickle.dumps(value, _PROTOCOL)
        # read it back now: a pickle that could not be loaded must fail the superstep that writes it,
        # not a resume weeks later
        self._load(data, self.tag)
        return {"$": self.tag, "by": "pickle", "v": b64encode(data).decode("ascii")}

    def open(self, tree: dict[str, Any], open: Open, depth: int) -> Any:
        if "by" not in tree and self._previous_kind is not None:
            return self._previous_kind.open(tree, open, depth)
        if tree.get("by") != "pickle" or tree.keys() != {"$", "v", "by"}:
            raise Refused(f"expected a pickled `{self.cls.__qualname__}`, found one stored without pickle")
        return self._load(b64decode(require(str, tree["v"]), validate=True), tree["$"])

    def _load(self, data: bytes, tag: str) -> Any:
        instance = _Unpickler(data, self._find_allowed(tag), self.cls).load()
        if type(instance) is not self.cls:
            raise Refused(f"the pickle of a `{self.cls.__qualname__}` contains a `{type(instance).__qualname__}`")
        return instance

    def _find_allowed(self, tag: str) -> dict[str, Any]:
        """Return everything that a pickle of this class may name, classes by their former names too."""
        needs = REGISTRY.registration_of(self.cls).pickle_needs
        allowed = _BUILT_IN | {import_path(need): need for need in needs}
        for cls in (*REGISTRY.by_tag.values(), self.cls):
            registration = REGISTRY.registration_of(cls)
            if registration.pickled:
                allowed |= dict.fromkeys((import_path(cls), *registration.names), cls)
        # the tag it was stored under, in case a script's `__main__` has since become a module
        return allowed | {tag: self.cls}


class _Unpickler(pickle.Unpickler):
    """Finds only the allowed classes and functions, and never imports."""

    def __init__(self, data: bytes, allowed: dict[str, Any], cls: type) -> None:
        super().__init__(io.BytesIO(data))
        self._allowed, self._cls = allowed, cls

    def find_class(self, module: str, name: str) -> Any:
        tag = f"{module}:{name}"
        if tag not in self._allowed:
            raise Refused(
                f"the pickle of a `{self._cls.__qualname__}` uses `{shorten(tag)}`, which is not allowed: "
                f"add it to `pickle_needs` when registering `{self._cls.__qualname__}`"
            )
        return self._allowed[tag]
