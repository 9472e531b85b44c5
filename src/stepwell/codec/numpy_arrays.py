"""Arrays and scalars of numpy: their type, shape, memory order and bytes.

numpy is never imported here. If the program has not loaded it, no value to be stored can be an
array, and reading a stored one fails with advice.
"""

from __future__ import annotations

import math
import re
import sys
from base64 import b64decode, b64encode
from typing import Any

from stepwell.codec.standard_values import Value, require
from stepwell.codec.traversal import Close, Open, Refused, ValueKind, shorten

_ARRAY, _SCALAR = "numpy.ndarray", "numpy.generic"
# A closed list of element types, always with their byte order. Types that depend on the machine
# (`longdouble`) or contain Python objects (`O`, which numpy can store only by pickle) are not in it.
_NAME = re.compile(r"[<>|](b1|[iu][1248]|f[248]|c8|c16|[SUV]\d{1,10}|[mM]8(\[\d{0,9}([YMWDhms]|[munpfa]s)\])?)")
# the limit of numpy 2; numpy 1 stops at 32 and says so itself
_MAX_DIMENSIONS = 64


def numpy_kind(cls: type) -> ValueKind | None:
    """Return how instances of a numpy class are stored; None for every other class."""
    numpy = sys.modules.get("numpy")
    if cls.__module__ != "numpy" or numpy is None:
        return None
    if cls is numpy.ndarray:
        return ARRAY
    return SCALAR if issubclass(cls, numpy.generic) else None


def is_special_array(cls: type) -> bool:
    """Return whether a class extends `ndarray`, as masked arrays and matrices do."""
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    return array is not None and cls is not array and issubclass(cls, array)


def _loaded_numpy() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise Refused("a numpy value is stored, but numpy is not loaded: import numpy before reading")
    return numpy


# --- types ------------------------------------------------------------------------------------------------------------


def _name_of(dtype: Any) -> Any:
    """Return the stored form of an element type: its code, or for a record a list of fields.

    Raises Refused unless reading that form gives the same type.
    """
    name = _fields_of(dtype) if dtype.names is not None else dtype.str
    if dtype.metadata or dtype.type.__module__ != "numpy" or dtype.type is sys.modules["numpy"].record:
        raise Refused(
            f"an array of `{shorten(dtype)}` cannot be stored: its dtype has metadata or a class of its own, "
            f"which would be lost"
        )
    try:
        restored = _read_dtype(name)
    except (Refused, TypeError, ValueError):
        restored = None
    # None is checked apart, because numpy compares it as the default type float64
    if restored is None or restored != dtype:
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
    """Return the element type of a stored code or list of fields."""
    if type(name) is list and name:
        dtype = _loaded_numpy().dtype([_read_field(*require(list, field)) for field in name])
        # numpy makes up names for fields whose name is empty
        if dtype.names != tuple(field[0] for field in name):
            raise Refused("every field of a stored record needs a name")
        return dtype
    if type(name) is not str or not _NAME.fullmatch(name):
        raise Refused(f"`{shorten(name)}` is not a supported element type of an array")
    return _loaded_numpy().dtype(name)


def _read_field(name: Any, kind: Any, shape: Any = ()) -> tuple[Any, ...]:
    return (require(str, name), _read_dtype(kind), *([_read_shape(shape)] if shape else []))


def _read_shape(tree: Any) -> tuple[int, ...]:
    if len(require(list, tree)) > _MAX_DIMENSIONS or any(require(int, length) < 0 for length in tree):
        raise Refused(f"an array must have at most {_MAX_DIMENSIONS} dimensions, none of them negative")
    return tuple(tree)


# --- values -----------------------------------------------------------------------------------------------------------


def _close_array(value: Any, close: Close, depth: int) -> dict[str, Any]:
    if not value.dtype.itemsize:
        raise Refused("an array whose elements have no bytes cannot be stored")
    tree = {
        "$": _ARRAY,
        # "A" keeps Fortran order where the array has it, so that nothing is transposed
        "v": b64encode(value.tobytes("A")).decode("ascii"),
        "dtype": close(_name_of(value.dtype), depth + 1),
        "shape": list(value.shape),
    }
    return {**tree, "order": "F"} if value.flags.fnc else tree


def _close_scalar(value: Any, close: Close, depth: int) -> dict[str, Any]:
    name, data = _name_of(value.dtype), value.tobytes()[: value.dtype.itemsize]
    if value.dtype.kind in "SU" and _make_array(data, value.dtype, ())[()] != value:
        raise Refused(
            f"this `{type(value).__name__}` ends in null characters, which numpy would drop: use plain `str` or `bytes`"
        )
    return {"$": _SCALAR, "v": b64encode(data).decode("ascii"), "dtype": close(name, depth + 1)}


def _open_array(tree: dict[str, Any], open: Open, depth: int) -> Any:
    if "dtype" not in tree or "shape" not in tree:
        raise Refused("a stored array must have `dtype` and `shape`")
    dtype = _read_dtype(open(tree["dtype"], depth + 1))
    if not dtype.itemsize:
        raise Refused("the elements of a stored array have no bytes")
    order = tree.get("order", "C")
    if "order" in tree and order != "F":
        raise Refused(f"expected no `order` or `F`, found `{shorten(order)}`")
    array = _make_array(_decode_bytes(tree["v"]), dtype, _read_shape(tree["shape"]), order)
    # an array over `bytes` is read-only; its owner may want to change it
    return array.copy("K")


def _open_scalar(tree: dict[str, Any], open: Open, depth: int) -> Any:
    if "dtype" not in tree:
        raise Refused("a stored scalar must have `dtype`")
    return _make_array(_decode_bytes(tree["v"]), _read_dtype(open(tree["dtype"], depth + 1)), ()).copy()[()]


def _decode_bytes(text: Any) -> bytes:
    return b64decode(require(str, text), validate=True)


def _make_array(data: bytes, dtype: Any, shape: tuple[int, ...], order: str = "C") -> Any:
    # Compared before numpy sees the shape: a hostile one could make it allocate any amount of memory
    if math.prod(shape) * dtype.itemsize != len(data):
        raise Refused("the shape of a stored array does not match the number of its bytes")
    return _loaded_numpy().ndarray(shape, dtype, buffer=data, order=order)


ARRAY: ValueKind = Value(_ARRAY, _close_array, _open_array, frozenset({"$", "v", "dtype", "shape", "order"}))
SCALAR: ValueKind = Value(_SCALAR, _close_scalar, _open_scalar, frozenset({"$", "v", "dtype"}))
NUMPY_BY_TAG: dict[str, ValueKind] = {kind.tag: kind for kind in (ARRAY, SCALAR)}
