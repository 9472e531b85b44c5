"""Classes of other libraries that are stored by the attributes of their instances.

They are not dataclasses, and what their `__init__` does is not ours to run: an instance is made empty,
and its attributes are set. An adapter registers them; a program's own classes are dataclasses or models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwell.codec.classes import tag_of
from stepwell.codec.registry import REGISTRY, Registration
from stepwell.codec.traversal import VERBATIM, Close, Open, Refused, open_parts


class AttributesKind:
    """A class stored by its attributes. Those that are None or omitted are not written.

    The omitted ones are read as what their names stand for, the others as None.
    """

    members = frozenset({"$", "v", "none"})

    def __init__(self, cls: type, omitted: Mapping[str, Any]) -> None:
        self._cls, self.tag, self._omitted = cls, tag_of(cls), omitted

    def close(self, value: Any, close: Close, depth: int) -> dict[str, Any]:
        attributes = vars(value)
        empty = sorted(name for name, item in attributes.items() if item is None or name in self._omitted)
        closed = {}
        for name in attributes.keys() - set(empty):
            item = attributes[name]
            try:
                closed[name] = item if type(item) in VERBATIM else close(item, depth + 1)
            except Refused as refused:
                refused.at(f".{name}")
                raise
        return {"$": self.tag, "v": dict(sorted(closed.items())), "none": empty}

    def open(self, tree: dict[str, Any], open: Open, depth: int) -> Any:
        instance: Any = object.__new__(self._cls)
        empty = {name: self._omitted.get(name) for name in tree.get("none", ())}
        vars(instance).update(empty, **open_parts(tree["v"], dict, open, depth))
        return instance


def register_attributes(cls: type, *, omitted: Mapping[str, Any] | None = None) -> None:
    """Store instances of exactly this class by their attributes; the omitted ones are not stored, but read as given."""
    REGISTRY.register(cls, Registration(omitted_attributes=omitted or {}))
