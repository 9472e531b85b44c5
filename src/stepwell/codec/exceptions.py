"""Exceptions as values: type, arguments, attributes, notes and cause.

The traceback and the context of an exception belong to the process that raised it and are not
stored. Reading fills an exception by calling the `__new__` and `__init__` of built-in classes only,
never those of a user's class.
"""

from __future__ import annotations

import builtins
import operator
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from stepwell.codec.classes import Versions, computed_names, hides_nothing, slots_of, tag_of
from stepwell.codec.traversal import (
    Close,
    Open,
    Refused,
    close_items,
    describe_json,
    open_parts,
    shorten,
)

_NOTES = "__notes__"
# The descriptors of Python itself: a user's class may define properties under the same names
_ARGUMENTS, _CAUSE, _ATTRIBUTES = (vars(BaseException)[name] for name in ("args", "__cause__", "__dict__"))
_UNSET: Any = object()
# `AttributeError.obj` is the object that lacks the attribute, which may be anything. Pickle skips it too.
_NOT_STORED = vars(AttributeError)["obj"]
_SIMPLE = frozenset({str, int, float, bool, bytes})

Descriptor = MemberDescriptorType | GetSetDescriptorType


def is_exception(cls: type) -> bool:
    """Return whether this is an exception class whose instances can be stored."""
    user_classes = [base for base in cls.__mro__ if not _is_built_in(base)]
    return issubclass(cls, BaseException) and all(map(hides_nothing, user_classes))


def _is_built_in(cls: type) -> bool:
    return vars(builtins).get(cls.__name__) is cls


def _makers(cls: Any) -> tuple[Any, Any]:
    """Return the built-in `__new__` and `__init__` that apply to instances of `cls`, skipping users' code."""
    layout = cls
    while not _is_built_in(layout):
        # of several bases, `__base__` is the one that decides the memory layout, and so whose `__new__` fits
        layout = layout.__base__
    return layout.__new__, next(filter(_is_built_in, cls.__mro__)).__init__


def _descriptors(cls: type) -> dict[str, Descriptor]:
    """Return the attributes that instances keep outside `__dict__`: slots, and those of built-in exceptions."""
    slots = slots_of(cls)
    return {
        name: attribute
        for base in reversed(cls.__mro__)
        if base not in (object, BaseException)
        for name, attribute in vars(base).items()
        if isinstance(attribute, Descriptor)
        and (name in slots or (_is_built_in(base) and not name.startswith("__")))
        and attribute is not _NOT_STORED
    }


class ExceptionKind:
    """An exception. `v` holds `args` and every attribute that the arguments alone do not bring back."""

    members = frozenset({"$", "n", "v", "notes", "cause"})

    def __init__(self, cls: Any, versions: Versions) -> None:
        self.cls, self.tag, self.versions = cls, tag_of(cls), versions
        self._new, self._init = _makers(cls)
        self._descriptors, self._computed = _descriptors(cls), computed_names(cls)

    # --- writing ------------------------------------------------------------------------------------------------------

    def close(self, value: BaseException, close: Close, depth: int) -> dict[str, Any]:
        tree = self.versions.head(self.tag)
        tree["v"] = fields = self._fields(value)
        name = ""
        try:
            for name, item in fields.items():
                fields[name] = close(item, depth + 1)
        except Refused as refused:
            refused.at(f".{name}")
            raise
        notes, cause = _ATTRIBUTES.__get__(value).get(_NOTES), _CAUSE.__get__(value)
        if notes is not None:
            if type(notes) is not list or any(type(note) is not str for note in notes):
                raise Refused(f"the `__notes__` of this `{self.cls.__qualname__}` are not a list of strings")
            tree["notes"] = close_items(notes, close, depth)
        if cause is not None:
            try:
                tree["cause"] = close(cause, depth + 1)
            except Refused as refused:
                refused.at(".__cause__")
                raise
        return tree

    def _fields(self, value: BaseException) -> dict[str, Any]:
        arguments = _ARGUMENTS.__get__(value)
        fields = {"args": list(arguments), **self._find_changed(value, arguments)}
        for name, item in _ATTRIBUTES.__get__(value).items():
            if name in self._computed or name == _NOTES:
                continue
            if name in fields or name in self._descriptors or not name.isidentifier():
                raise Refused(
                    f"the attribute `{shorten(name)}` of this `{self.cls.__qualname__}` cannot be stored under its name"
                )
            fields[name] = item
        return fields

    def _find_changed(self, value: BaseException, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Return the attributes outside `__dict__` that the arguments alone would not bring back.

        Which ones the arguments set differs by class and by Python version, so a twin is made from
        the same arguments and compared.
        """
        twin, attributes = self._make(arguments), {}
        for name, descriptor in self._descriptors.items():
            item, expected = _value_of(descriptor, value), _value_of(descriptor, twin)
            if _same(item, expected):
                continue
            if item is _UNSET:
                raise Refused(
                    f"the attribute `{name}` of this `{self.cls.__qualname__}` was deleted, "
                    f"and its arguments would set it again"
                )
            # try it on the twin: an attribute that cannot be set could not be read back
            descriptor.__set__(twin, item)
            attributes[name] = item
        return attributes

    # --- reading ------------------------------------------------------------------------------------------------------

    def open(self, tree: dict[str, Any], open: Open, depth: int) -> BaseException:
        stored = open_parts(tree["v"], dict, open, depth)
        fields = self.versions.upgrade(tree, stored, self.cls.__qualname__)
        arguments = fields.pop("args", None)
        if type(arguments) is not list:
            raise Refused(f"expected a list in `args` of a `{self.cls.__qualname__}`, found {describe_json(arguments)}")
        instance = self._make(tuple(arguments))
        for name, item in fields.items():
            self._set(instance, name, item)
        if "notes" in tree:
            notes = open_parts(tree["notes"], list, open, depth)
            if any(type(note) is not str for note in notes):
                raise Refused(f"expected a list of strings as the notes of a `{self.cls.__qualname__}`")
            _ATTRIBUTES.__get__(instance)[_NOTES] = notes
        if "cause" in tree:
            try:
                cause = open(tree["cause"], depth + 1)
            except Refused as refused:
                refused.at(".__cause__")
                raise
            if not isinstance(cause, BaseException):
                raise Refused(f"expected an exception as the cause, found {describe_json(cause)}")
            _CAUSE.__set__(instance, cause)
        return instance

    def _make(self, arguments: tuple[Any, ...]) -> BaseException:
        """Make an instance with the built-in constructors only."""
        instance: BaseException = self._new(self.cls, *arguments)
        # OSError and BaseExceptionGroup choose the class by the arguments
        if type(instance) is not self.cls:
            raise Refused(
                f"these arguments belong to a `{type(instance).__qualname__}`, not a `{self.cls.__qualname__}`"
            )
        self._init(instance, *arguments)
        # some `__init__`s rewrite them: OSError drops the file name
        _ARGUMENTS.__set__(instance, arguments)
        return instance

    def _set(self, instance: BaseException, name: Any, item: Any) -> None:
        if name in self._descriptors:
            self._descriptors[name].__set__(instance, item)
        elif type(name) is str and name.isidentifier() and name != _NOTES:
            _ATTRIBUTES.__get__(instance)[name] = item
        else:
            raise Refused(f"`{shorten(name)}` is not a valid attribute name for a `{self.cls.__qualname__}`")


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are the same, without calling the `__eq__` of a user's class."""
    if type(left) is tuple and type(right) is tuple:  # the exceptions of a group
        return len(left) == len(right) and all(map(operator.is_, left, right))
    return left is right or (type(left) is type(right) and type(left) in _SIMPLE and left == right)


def _value_of(descriptor: Descriptor, value: BaseException) -> Any:
    try:
        return descriptor.__get__(value, type(value))
    except (AttributeError, TypeError):  # both are raised for an attribute that was never set
        return _UNSET
