"""Arrays and scalars of numpy: their type, their shape, their order and their bytes.

numpy is never imported here. Where the program has not loaded it, no value can be one of its own, and a
stored one is refused.
"""

from __future__ import annotations

import math
import re
import sys
from base64 import b64decode, b64encode
from typing import Any

from stepwell.codec.standard_values import Value, exactly
from stepwell.codec.traversal import Close, Open, Refused, ValueKind, shorten

_ARRAY, _SCALAR = "numpy.ndarray", "numpy.generic"
_NAME = re.compile(r"[<>|](b1|[iu][1248]|f[248]|c8|c16|[SUV]\d{1,10}|[mM]8(\[\d{0,9}([YMWDhms]|[munpfa]s)\])?)")
_MOST_DIMENSIONS = 64


def numpy_kind(cls: type) -> ValueKind | None:
    """How instances of a class of numpy are stored; None for every other class."""
    numpy = sys.modules.get("numpy")
    if cls.__module__ != "numpy" or numpy is None:
        return None
    if cls is numpy.ndarray:
        return ARRAY
    return SCALAR if issubclass(cls, numpy.generic) else None


def is_special_array(cls: type) -> bool:
    """Is this a class that adds something to the arrays of numpy, like a mask?"""
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    return array is not None and cls is not array and issubclass(cls, array)


def _loaded_numpy() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise Refused("a value of numpy is stored, and numpy is not loaded: import it before this is read")
    return numpy


# --- types ------------------------------------------------------------------------------------------------------------


def _name_of(dtype: Any) -> Any:
    """What says the type of the elements: its text, or for a record a list of fields; or refuse."""
    name = _fields_of(dtype) if dtype.names is not None else dtype.str
    if dtype.metadata or dtype.type.__module__ != "numpy" or dtype.type is sys.modules["numpy"].record:
        raise Refused(f"an array of `{shorten(dtype)}` cannot be stored: its type says more than numpy does by itself")
    try:
        restored = _read_dtype(name)
    except (Refused, TypeError, ValueError):
        restored = None
    if restored is None or restored != dtype:  # numpy takes None for a type
        raise Refused(
            f"an array of `{shorten(dtype)}` cannot be stored: use numbers of at most 64 bits (complex: 128), bool, "
            f"text, bytes, dates, or packed records of these"
        )
    return name


def _fields_of(dtype: Any) -> list[list[Any]]:
    fields = []
    for name in dtype.names:
        kind = dtype.fields[name][0]
        inner, shape = kind.subdtype or (kind, ())
        fields.append([name, _name_of(inner), *([list(shape)] if shape else [])])
    return fields


def _read_dtype(name: Any) -> Any:
    """The type of elements that a text or a list of fields says."""
    if type(name) is list and name:
        dtype = _loaded_numpy().dtype([_read_field(*exactly(list, field)) for field in name])
        if dtype.names != tuple(field[0] for field in name):
            raise Refused("the fields of a record should have names, each its own")
        return dtype
    if type(name) is not str or not _NAME.fullmatch(name):
        raise Refused(f"`{shorten(name)}` is no type that elements of an array are stored as")
    return _loaded_numpy().dtype(name)


def _read_field(name: Any, kind: Any, shape: Any = ()) -> tuple[Any, ...]:
    return (exactly(str, name), _read_dtype(kind), *([_shape(shape)] if shape else []))


def _shape(tree: Any) -> tuple[int, ...]:
    if len(exactly(list, tree)) > _MOST_DIMENSIONS or any(exactly(int, length) < 0 for length in tree):
        raise Refused(f"the shape of an array should be at most {_MOST_DIMENSIONS} lengths, none of them negative")
    return tuple(tree)


# --- values -----------------------------------------------------------------------------------------------------------


def _close_array(value: Any, close: Close, depth: int) -> dict[str, Any]:
    if not value.dtype.itemsize:
        raise Refused("an array whose elements have no bytes cannot be stored")
    tree = {
        "$": _ARRAY,
        "v": b64encode(value.tobytes("A")).decode("ascii"),  # as they lie, if that is an order at all
        "dtype": close(_name_of(value.dtype), depth + 1),
        "shape": list(value.shape),
    }
    return {**tree, "order": "F"} if value.flags.fnc else tree


def _close_scalar(value: Any, close: Close, depth: int) -> dict[str, Any]:
    name, data = _name_of(value.dtype), value.tobytes()[: value.dtype.itemsize]
    if value.dtype.kind in "SU" and _array(data, value.dtype, ())[()] != value:
        raise Refused(
            f"this `{type(value).__name__}` ends in zeros, which numpy would drop: use plain `str` or `bytes`"
        )
    return {"$": _SCALAR, "v": b64encode(data).decode("ascii"), "dtype": close(name, depth + 1)}


def _open_array(tree: dict[str, Any], open: Open, depth: int) -> Any:
    if "dtype" not in tree or "shape" not in tree:
        raise Refused("a stored array should have `dtype` and `shape`")
    dtype = _read_dtype(open(tree["dtype"], depth + 1))
    if not dtype.itemsize:
        raise Refused("an array whose elements have no bytes cannot be stored, and one is")
    order = tree.get("order", "C")
    if "order" in tree and order != "F":
        raise Refused("the order of a stored array should be `F` or not be said, and is something else")
    return _array(_data(tree["v"]), dtype, _shape(tree["shape"]), order).copy("K")  # one that can be written to


def _open_scalar(tree: dict[str, Any], open: Open, depth: int) -> Any:
    if "dtype" not in tree:
        raise Refused("a stored scalar should have `dtype`")
    return _array(_data(tree["v"]), _read_dtype(open(tree["dtype"], depth + 1)), ()).copy()[()]


def _data(text: Any) -> bytes:
    return b64decode(exactly(str, text), validate=True)


def _array(data: bytes, dtype: Any, shape: tuple[int, ...], order: str = "C") -> Any:
    """The array these bytes are; asked for before numpy could take memory for what is not there."""
    if math.prod(shape) * dtype.itemsize != len(data):
        raise Refused("the shape of a stored array does not fit its bytes")
    return _loaded_numpy().ndarray(shape, dtype, buffer=data, order=order)


ARRAY: ValueKind = Value(_ARRAY, _close_array, _open_array, frozenset({"$", "v", "dtype", "shape", "order"}))
SCALAR: ValueKind = Value(_SCALAR, _close_scalar, _open_scalar, frozenset({"$", "v", "dtype"}))
NUMPY_BY_TAG: dict[str, ValueKind] = {kind.tag: kind for kind in (ARRAY, SCALAR)}
