"""Discovery of the storable classes that annotations mention.

A codec must know the classes it may meet before it reads anything, because reading never imports.
The annotations of handlers name nearly all of them.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stepwell.codec.class_kinds import is_model, is_named_tuple, is_storable


def reachable_types(annotations: Iterable[object]) -> set[type]:
    """Return the users' storable classes that these annotations name, directly or in fields of others.

    A name that cannot be resolved is skipped without an error.
    """
    types: set[type] = set()
    seen: dict[int, object] = {}
    pending = list(annotations)
    # Annotations need not be hashable, so they are remembered by id. They must stay alive meanwhile:
    # Python gives the id of a freed object to the next one, which would then be skipped.
    while pending:
        annotation = pending.pop()
        if id(annotation) in seen:
            continue
        seen[id(annotation)] = annotation
        if isinstance(annotation, type) and is_storable(annotation):
            types.add(annotation)
        pending.extend(_expand(annotation))
    return types


def _expand(annotation: Any) -> Iterator[Any]:
    """Yield the annotations directly inside this one."""
    if isinstance(annotation, (list, tuple)):  # the parameters of a Callable
        yield from annotation
        return
    origin = typing.get_origin(annotation)
    if origin is not None:
        yield origin
        yield from _arguments(origin, typing.get_args(annotation))
        return
    if isinstance(annotation, typing.TypeVar):
        yield annotation.__bound__
        yield from annotation.__constraints__
    # NewType has a `__supertype__`, an alias made by the `type` statement a `__value__`
    for name in ("__supertype__", "__value__"):
        if not isinstance(annotation, type) and hasattr(annotation, name):
            yield getattr(annotation, name)
    if isinstance(annotation, type):
        yield from _fields(annotation)


def _arguments(origin: Any, arguments: tuple[Any, ...]) -> Iterable[Any]:
    if origin is typing.Literal:
        return map(type, arguments)  # the member of an enum leads to the enum
    return arguments[:1] if origin is typing.Annotated else arguments


def _fields(cls: type) -> Iterable[Any]:
    if is_model(cls):
        fields: dict[str, Any] = cls.model_fields  # type: ignore[attr-defined]
        private = _hints(cls) if getattr(cls, "__private_attributes__", None) else {}
        return [field.annotation for field in fields.values()] + list(private.values())
    if dataclasses.is_dataclass(cls) or is_named_tuple(cls) or issubclass(cls, msgspec.Struct):
        return _hints(cls).values()
    return _hints(cls).values() if typing.is_typeddict(cls) else ()


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception:  # noqa: BLE001  an annotation may be any expression, and fail in any way
        return _resolvable_hints(cls)


def _resolvable_hints(cls: type) -> dict[str, Any]:
    """Resolve the hints of a class one by one, leaving out those that fail."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        scope = getattr(sys.modules.get(base.__module__), "__dict__", {})
        for name, annotation in vars(base).get("__annotations__", {}).items():
            # `get_type_hints` is all or nothing: a class with a single annotation makes it one at a time
            holder = type(base.__name__, (), {"__annotations__": {name: annotation}})
            try:
                hints |= typing.get_type_hints(holder, scope, {**vars(base), base.__name__: base}, include_extras=True)
            except Exception:  # noqa: BLE001  as above
                continue
    return hints
