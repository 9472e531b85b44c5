"""Pickle, for a class whose author named it so, and for no other.

Unpickling runs code of the classes that a pickle names. So a pickle is read only for a class that this
program registered with `pickle=True`, and it may name nothing but that class, the others registered so,
what the registration lists in `pickle_needs`, and the built-in types that the codec stores anyway.
"""

from __future__ import annotations

import io
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from stepwell.codec import registry
from stepwell.codec.classes import import_path, tag_of
from stepwell.codec.standard_values import VALUES, exactly
from stepwell.codec.traversal import Close, Open, Refused, ValueKind, shorten

_PROTOCOL = 4  # every Python that Stepwell runs on reads it
_BUILT_IN: dict[str, Any] = {tag_of(cls): cls for cls in (str, bool, int, float, list, *VALUES)}


class PickleKind:
    """A class stored by pickle. What was stored of it before, as another kind, is still read as that."""

    def __init__(self, cls: type, before: ValueKind | None) -> None:
        self.cls, self.tag, self._before = cls, tag_of(cls), before
        self.members = frozenset({"$", "v", "by"}) | (before.members if before else frozenset())

    def close(self, value: Any, close: Close, depth: int) -> dict[str, Any]:
        data = pickle.dumps(value, _PROTOCOL)
        self._load(data, self.tag)  # what could not be read is refused now
        return {"$": self.tag, "by": "pickle", "v": b64encode(data).decode("ascii")}

    def open(self, tree: dict[str, Any], open: Open, depth: int) -> Any:
        if "by" not in tree and self._before is not None:
            return self._before.open(tree, open, depth)
        if tree.get("by") != "pickle" or tree.keys() != {"$", "v", "by"}:
            raise Refused(f"a `{self.cls.__qualname__}` should be stored by pickle, and is not")
        return self._load(b64decode(exactly(str, tree["v"]), validate=True), tree["$"])

    def _load(self, data: bytes, tag: str) -> Any:
        instance = _Unpickler(data, self._find_allowed(tag), self.cls).load()
        if type(instance) is not self.cls:
            raise Refused(f"the pickle of a `{self.cls.__qualname__}` holds a `{type(instance).__qualname__}`")
        return instance

    def _find_allowed(self, tag: str) -> dict[str, Any]:
        """All that a pickle of this class may name; each class also by the names it had before."""
        needs: list[Callable[..., Any]] = [*registry.terms_of(self.cls).needs]
        allowed = _BUILT_IN | {import_path(need): need for need in needs}
        for cls in (*registry.registered.values(), self.cls):
            if registry.terms_of(cls).pickled:
                allowed |= dict.fromkeys((import_path(cls), *registry.terms_of(cls).names), cls)
        return allowed | {tag: self.cls}


class _Unpickler(pickle.Unpickler):
    """Knows what it is given, and imports nothing."""

    def __init__(self, data: bytes, allowed: dict[str, Any], cls: type) -> None:
        super().__init__(io.BytesIO(data))
        self._allowed, self._cls = allowed, cls

    def find_class(self, module: str, name: str) -> Any:
        tag = f"{module}:{name}"
        if tag not in self._allowed:
            raise Refused(
                f"the pickle of a `{self._cls.__qualname__}` needs `{shorten(tag)}`, which nobody allowed: "
                f"list it in `pickle_needs` when registering `{self._cls.__qualname__}`"
            )
        return self._allowed[tag]
