"""The users' classes that can be stored: dataclasses, enums, named tuples, pydantic models, msgspec
structs, and exceptions (in `exceptions`).

Reading fills an object without calling `__init__` or `__post_init__`: stored data must not make
code run. (A msgspec struct is the exception, because msgspec offers no other way to make one.)
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from enum import Enum, Flag
from typing import Any

import msgspec

from stepwell.codec.classes import FIRST, Versions, computed_names, hides_nothing, slots_of, tag_of
from stepwell.codec.exceptions import ExceptionKind, is_exception
from stepwell.codec.traversal import (
    VERBATIM,
    Close,
    Open,
    Refused,
    ValueKind,
    describe_json,
    open_parts,
    shorten,
)

_UNDEFINED = object()


def is_storable(cls: object) -> bool:
    """Return whether instances of a user's class can be stored."""
    return isinstance(cls, type) and _kind_class(cls) is not None


def kind_of(cls: type, versions: Versions = FIRST) -> ValueKind | None:
    """Return how instances of a user's class are stored; None if they cannot be."""
    kind = _kind_class(cls)
    return None if kind is None else kind(cls, versions)


def _kind_class(cls: type) -> type[EnumKind] | type[FieldsKind] | type[ExceptionKind] | None:
    # The order matters where a class is of two kinds: an enum may be a dataclass too, and so may an
    # exception. The more particular way of storing comes first.
    if issubclass(cls, Enum):
        return EnumKind if cls.__members__ or issubclass(cls, Flag) else None
    if is_model(cls):
        return None if cls is sys.modules["pydantic"].BaseModel else ModelKind
    if issubclass(cls, msgspec.Struct):
        return None if cls is msgspec.Struct else StructKind
    if issubclass(cls, BaseException):
        return ExceptionKind if is_exception(cls) else None
    if is_named_tuple(cls):
        return NamedTupleKind
    # A dataclass that extends, say, `dict` has content that is not in its fields. `object`, the last
    # class of the MRO, need not be asked.
    if dataclasses.is_dataclass(cls) and all(map(hides_nothing, cls.__mro__[:-1])):
        return DataclassKind
    return None


def is_model(cls: type) -> bool:
    """Return whether a class is a pydantic model. Pydantic is never imported for the question."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return base is not None and issubclass(cls, base)


def is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


class EnumKind:
    """An enum member by its name; a flag by its value, because combinations of flags have no name."""

    members = frozenset({"$", "n", "v"})

    def __init__(self, cls: type[Enum], versions: Versions) -> None:
        self._cls, self.tag, self._is_flag = cls, tag_of(cls), issubclass(cls, Flag)
        self._versions = versions

    def close(self, value: Enum, close: Close, depth: int) -> dict[str, Any]:
        tree = self._versions.head(self.tag)
        tree["v"] = close(value._value_, depth + 1) if self._is_flag else value._name_
        return tree

    def open(self, tree: dict[str, Any], open: Open, depth: int) -> Enum:
        stored = self._versions.upgrade(tree, open(tree["v"], depth + 1), self._cls.__qualname__)
        if self._is_flag:
            if type(stored) is not int:
                raise Refused(
                    f"expected the number of a `{self._cls.__qualname__}` flag, found {describe_json(stored)}"
                )
            return self._cls(stored)
        try:
            return self._cls.__members__[stored]
        except KeyError:
            raise Refused(
                f"`{self._cls.__qualname__}` has no member `{shorten(stored)}`: if it was removed, add it again "
                f"as an alias of the member that replaces it"
            ) from None


class FieldsKind:
    """A class with named fields. Subclasses say which fields there are and how an instance is made."""

    members = frozenset({"$", "n", "v"})

    def __init__(self, cls: Any, versions: Versions) -> None:
        self.cls, self.tag, self.versions = cls, tag_of(cls), versions
        self.head = versions.head(self.tag)
        self.names: tuple[str, ...] = self.field_names()
        self._names = frozenset(self.names)
        self._own = self._names | computed_names(cls)
        self._slots = slots_of(cls) - self._own

    def field_names(self) -> Any:
        """Return the names of the fields, as a tuple of strings."""
        raise NotImplementedError

    def default(self, name: str, fields: dict[str, Any]) -> Any:
        """Return the default of a field that is missing in stored data; `_UNDEFINED` if there is none."""
        raise NotImplementedError

    def make(self, fields: dict[str, Any]) -> Any:
        """Make an instance with these fields, running as little of the class's code as possible."""
        raise NotImplementedError

    def close(self, value: Any, close: Close, depth: int) -> dict[str, Any]:
        self.check_attributes(value)
        tree = self.head.copy()
        tree["v"] = self.close_fields(value, close, depth)
        return tree

    def open(self, tree: dict[str, Any], open: Open, depth: int) -> Any:
        stored = open_parts(tree["v"], dict, open, depth)
        if self.versions is not FIRST or "n" in tree:
            stored = self.versions.upgrade(tree, stored, self.cls.__qualname__)
        return self.make(self.reconcile(stored))

    def check_attributes(self, value: Any) -> None:
        """Raise Refused if the instance has an attribute that is not a field: it would be lost in silence."""
        attributes = getattr(value, "__dict__", None)
        if attributes and not attributes.keys() <= self._own:
            self._refuse_attribute(next(name for name in attributes if name not in self._own))
        for name in self._slots:
            if hasattr(value, name):
                self._refuse_attribute(name)

    def _refuse_attribute(self, name: str) -> None:
        raise Refused(
            f"the attribute `{name}` of this `{self.cls.__qualname__}` is not one of its fields and would be lost: "
            f"declare it as a field, or keep it elsewhere"
        )

    def close_fields(self, value: Any, close: Close, depth: int) -> dict[str, Any]:
        closed = {}
        name = ""
        try:
            for name in self.names:
                item = getattr(value, name)
                closed[name] = item if type(item) in VERBATIM else close(item, depth + 1)
        except Refused as refused:
            refused.at(f".{name}")
            raise
        except AttributeError as error:
            raise Refused(
                f"the field `{name}` of this `{self.cls.__qualname__}` was never set: give it a value or a default"
            ) from error
        return closed

    def check_known(self, fields: dict[str, Any]) -> None:
        """Raise Refused if data is stored for a field that the class no longer has."""
        for name in fields:
            if name not in self.names:
                raise Refused(
                    f"`{self.cls.__qualname__}` has no field `{shorten(name)}`, but a value of it is stored: "
                    f"keep the field until no stored run uses it"
                )

    def reconcile(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return stored fields in the present shape of the class, with defaults for new ones."""
        if fields.keys() == self._names:
            return fields
        self.check_known(fields)
        for name in self.names:
            if name in fields:
                continue
            fields[name] = self.default(name, fields)
            if fields[name] is _UNDEFINED:
                raise Refused(
                    f"the field `{name}` of `{self.cls.__qualname__}` is not stored and has no default: give it one"
                )
        return fields


class DataclassKind(FieldsKind):
    def field_names(self) -> tuple[str, ...]:
        self._fields = {field.name: field for field in dataclasses.fields(self.cls)}
        return tuple(self._fields)

    def default(self, name: str, fields: dict[str, Any]) -> Any:
        field = self._fields[name]
        if field.default is not dataclasses.MISSING:
            return field.default
        return _UNDEFINED if field.default_factory is dataclasses.MISSING else field.default_factory()

    def make(self, fields: dict[str, Any]) -> Any:
        instance = object.__new__(self.cls)
        for name, item in fields.items():
            # a frozen dataclass refuses plain assignment
            object.__setattr__(instance, name, item)
        return instance


class NamedTupleKind(FieldsKind):
    def field_names(self) -> Any:
        return self.cls._fields

    def default(self, name: str, fields: dict[str, Any]) -> Any:
        defaults: Mapping[str, Any] = getattr(self.cls, "_field_defaults", {})
        return defaults.get(name, _UNDEFINED)

    def make(self, fields: dict[str, Any]) -> Any:
        return tuple.__new__(self.cls, [fields[name] for name in self.names])


class StructKind(FieldsKind):
    def field_names(self) -> Any:
        return self.cls.__struct_fields__

    def reconcile(self, fields: dict[str, Any]) -> dict[str, Any]:
        self.check_known(fields)
        # the constructor fills in defaults for missing fields
        return fields

    def make(self, fields: dict[str, Any]) -> Any:
        instance = self.cls(**fields)
        # The constructor runs `__post_init__`, which already changed the fields before they were
        # stored. Setting them again undoes a second change.
        for name, item in fields.items():
            msgspec.structs.force_setattr(instance, name, item)
        return instance


class ModelKind(FieldsKind):
    """A pydantic model by its internal state.

    `model_dump` would turn nested values into plain data, and reading would need validation, which
    runs code. This way fields keep their types and nothing is validated.
    """

    members = frozenset({"$", "n", "v", "set", "extra", "private"})

    def field_names(self) -> tuple[str, ...]:
        self._fields: dict[str, Any] = self.cls.model_fields
        self._private: dict[str, Any] = self.cls.__private_attributes__
        self._takes_extra = self.cls.model_config.get("extra") == "allow"
        return tuple(self._fields)

    def default(self, name: str, fields: dict[str, Any]) -> Any:
        field = self._fields[name]
        if field.is_required():
            return _UNDEFINED
        if field.default_factory is not None and getattr(field, "default_factory_takes_validated_data", False):
            return field.default_factory(fields)
        return field.get_default(call_default_factory=True)

    def close(self, value: Any, close: Close, depth: int) -> dict[str, Any]:
        self.check_attributes(value)
        tree = self.head.copy()
        tree["v"] = self.close_fields(value, close, depth)
        tree["set"] = sorted(value.__pydantic_fields_set__)
        if value.__pydantic_extra__:
            tree["extra"] = close(value.__pydantic_extra__, depth + 1)
        if value.__pydantic_private__:
            undefined = sys.modules["pydantic_core"].PydanticUndefined
            private = {name: item for name, item in value.__pydantic_private__.items() if item is not undefined}
            tree["private"] = close(private, depth + 1)
        return tree

    def open(self, tree: dict[str, Any], open: Open, depth: int) -> Any:
        fields = open_parts(tree["v"], dict, open, depth)
        # opened, not just copied: the name of an extra field may contain a surrogate and be tagged
        were_set = set(_check_names(open_parts(tree.get("set", []), list, open, depth)))
        if self.versions is not FIRST or "n" in tree:
            before = frozenset(fields)
            fields = self.versions.upgrade(tree, fields, self.cls.__qualname__)
            # what the upcast added was set, what it removed is gone
            were_set = (were_set - (before - fields.keys())) | (fields.keys() - before)
        fields = self.reconcile(fields)
        instance = object.__new__(self.cls)
        object.__setattr__(instance, "__dict__", {name: fields[name] for name in self.names})
        object.__setattr__(instance, "__pydantic_fields_set__", were_set)
        object.__setattr__(instance, "__pydantic_extra__", self._open_extra(tree.get("extra"), open, depth))
        object.__setattr__(instance, "__pydantic_private__", self._open_private(tree.get("private"), open, depth))
        return instance

    def _open_extra(self, tree: Any, open: Open, depth: int) -> dict[str, Any] | None:
        if tree is not None and not self._takes_extra:
            raise Refused(
                f"`{self.cls.__qualname__}` does not allow extra fields, but some are stored: "
                f'set extra="allow" in its model_config'
            )
        return self._open_dict(tree, open, depth) if self._takes_extra else None

    def _open_private(self, tree: Any, open: Open, depth: int) -> dict[str, Any] | None:
        stored = self._open_dict(tree, open, depth)
        for name in stored:
            if name not in self._private:
                raise Refused(
                    f"`{self.cls.__qualname__}` has no private attribute `{shorten(name)}`, but a value of it is "
                    f"stored: keep the attribute until no stored run uses it"
                )
        undefined = sys.modules["pydantic_core"].PydanticUndefined
        for name, attribute in self._private.items():
            if name not in stored and (default := attribute.get_default()) is not undefined:
                stored[name] = default
        return stored if self._private else None

    def _open_dict(self, tree: Any, open: Open, depth: int) -> dict[str, Any]:
        opened = {} if tree is None else open(tree, depth + 1)
        if type(opened) is not dict:
            raise Refused(f"expected an object, found {describe_json(opened)}")
        _check_names(opened)
        return opened


def _check_names(names: Iterable[Any]) -> Iterable[str]:
    for name in names:
        if type(name) is not str:
            raise Refused(f"expected a name, found {describe_json(name)}")
    return names
