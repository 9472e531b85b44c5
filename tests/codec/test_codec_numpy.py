"""Arrays and scalars of numpy come back with type, shape, order and bytes; the codec never loads numpy."""

import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest

from stepwell.codec.codec import DEFAULT_CODEC, Codec
from stepwell.errors import CodecError

RECORD = np.dtype([("id", "<i4"), ("at", ">f8", (2,)), ("in", [("name", "<U3"), ("ok", "?")])])

ARRAYS = [
    np.array(1.5), np.array([]), np.zeros((0, 3)), np.arange(6).reshape(2, 3),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(10)[::3], np.arange(8, dtype=">i4"), np.arange(3, dtype="u1"), np.array([True, False]),
    np.array([1, np.nan, -np.inf, -0.0]), np.array([1.5, 2], "f2"), np.array([1 + 2j], "c8"), np.array([1j]),
    np.array(["a", "\ud800ü"]), np.array([b"a", b"bc"]), np.array(["2024-01-01", "NaT"], "M8[D]"),
    np.array([1, 2], "m8[25us]"), np.zeros(2, "m8"), np.zeros(2, "V3"), np.zeros(2, RECORD), np.zeros((1,) * 30),
    np.zeros(2, [("ü\ud800", "i4")]),
]  # fmt: skip
SCALARS = [
    np.float64(1.5), np.float32(1.5), np.float16(0.5), np.float64("nan"), np.int8(-1), np.uint64(2**64 - 1),
    np.bool_(True),
    np.complex64(1 + 2j), np.str_("aü"), np.str_(""), np.bytes_(b"x"), np.bytes_(b""),
    np.datetime64("2024-01-01T10:00"),
    np.datetime64("NaT"), np.timedelta64(3, "h"), np.void(b"abc"), np.zeros(2, RECORD)[1], np.str_("\ud800"),
]  # fmt: skip


def alike(left: Any, right: Any) -> bool:
    return (
        type(left) is type(right)
        and left.dtype == right.dtype
        and left.dtype.str == right.dtype.str
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )


@pytest.mark.parametrize("value", ARRAYS + SCALARS, ids=repr)
def test_a_value_of_numpy_comes_back_as_it_was(value: Any) -> None:
    codec = Codec()
    body = codec.encode([value, {"a": (value,)}])
    first, second = codec.decode(body)
    assert alike(first, value)
    assert alike(second["a"][0], value)
    assert codec.encode([first, second]) == body
    assert codec.digest(first) == codec.digest(value)


def test_an_array_is_stored_so_that_a_person_can_read_its_type() -> None:
    body = DEFAULT_CODEC.encode(np.zeros((2, 1), [("id", ">i2")]))
    assert body == b'{"$":"numpy.ndarray","v":"AAAAAA==","dtype":[["id",">i2"]],"shape":[2,1]}'
    assert DEFAULT_CODEC.encode(np.int8(1)) == b'{"$":"numpy.generic","v":"AQ==","dtype":"|i1"}'


def test_an_array_in_the_order_of_fortran_comes_back_in_it_and_any_other_in_that_of_c() -> None:
    cube = np.arange(24, dtype="u1").reshape(2, 3, 4)
    for array, order in ((cube, "C"), (cube.T, "F"), (cube[:, ::2], "C"), (cube.swapaxes(0, 1), "C")):
        again = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(array))
        assert (again == array).all()
        assert (again.flags.c_contiguous, again.flags.f_contiguous) == (order == "C", order == "F")
    body = DEFAULT_CODEC.encode(cube[0, :2, :2].T.copy("F"))
    assert body == b'{"$":"numpy.ndarray","v":"AAEEBQ==","dtype":"|u1","shape":[2,2],"order":"F"}'


def test_an_array_that_was_read_is_the_readers_own() -> None:
    parcel = DEFAULT_CODEC.pack(np.arange(3), "$")
    first = parcel.open()
    first[0] = 9
    first.resize(5)
    assert parcel.open().tolist() == [0, 1, 2]
    record = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(np.zeros(1, RECORD)[0]))
    record["id"] = 3
    assert record["id"] == 3


def test_a_scalar_is_a_key_like_any_other() -> None:
    value = {np.int64(1): np.float32(2), "a": {np.str_("x")}}
    again = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(value))
    assert again == value
    assert [type(key) for key in again] == [np.int64, str]


REFUSED = [
    (np.array([object()]), "an array of `object` cannot be stored"),
    (np.zeros(1, [("a", "O")]), "an array of `object` cannot be stored"),
    (np.array(["a"], np.dtypes.StringDType()), "cannot be stored"),
    (np.zeros(1, np.dtype([("a", "i1"), ("b", "f8")], align=True)), "packed records"),
    (np.zeros(1, np.dtype([(("title", "a"), "i1")])), "packed records"),
    (np.zeros(1, np.dtype("f8", metadata={"unit": "m"})), "its dtype has metadata or a class of its own"),
    (np.zeros(1, np.longdouble), "numbers of at most 64 bits"),
    (np.longdouble(1), "numbers of at most 64 bits"),
    (np.zeros(2, "V0"), "no bytes"),
    (np.zeros(1, []), "no bytes"),
    (np.str_("a\0"), "ends in null characters"),
    (np.bytes_(b"a\0"), "ends in null characters"),
    (np.ma.masked_array([1], [True]), "`MaskedArray` extends `ndarray`"),
    (np.array([[1]]).view(np.matrix), "`matrix` extends `ndarray`"),
    (np.zeros(1, [("a", "i4")]).view(np.recarray), "`recarray` extends `ndarray`"),
    (np.zeros(1, [("a", "i4")]).view(np.recarray)[0], "its dtype has metadata or a class of its own"),
    (np.dtype("f8"), "cannot be stored"),
    (np.float64, "`type` cannot be stored"),
    (np.random.default_rng(0), "`Generator` cannot be stored"),
]


@pytest.mark.parametrize(("value", "sentence"), REFUSED, ids=[f"{n}-{s[:30]}" for n, (_, s) in enumerate(REFUSED)])
def test_what_would_not_come_back_is_refused(value: object, sentence: str) -> None:
    with pytest.raises(CodecError, match=sentence) as caught:
        DEFAULT_CODEC.encode({"x": [value]})
    assert caught.value.path == "$.x[0]"


def array(v: object = "AAA=", dtype: object = "|u1", shape: object = (2,), **more: object) -> bytes:
    return msgspec.json.encode({"$": "numpy.ndarray", "v": v, "dtype": dtype, "shape": shape, **more})


def scalar(v: object = "AA==", dtype: object = "|u1", **more: object) -> bytes:
    return msgspec.json.encode({"$": "numpy.generic", "v": v, "dtype": dtype, **more})


HOSTILE = [
    array(v=1), array(v="!"), array(v="AA=="), array(v=None), array(dtype=1), array(dtype="O"), array(dtype="|O8"),
    array(dtype="object"), array(dtype="u1,O"), array(dtype="<f16"), array(dtype="<f3"), array(dtype="T"),
    array(dtype=[]),
    array(dtype=["|u1"]), array(dtype=[["a"]]), array(dtype=[["a", "O"]]), array(dtype=[["", "|u1"]]),
    array(dtype={"a": 1}),
    array(dtype=[["a", "|u1"], ["a", "|u1"]]), array(dtype=[[1, "|u1"]]), array(dtype=[["a", "|u1", [2**40]]]),
    array(dtype=[["a", "|u1", [2**62, 2**62]]]), array(dtype=[["a", "|u1", -1]]), array(dtype=[["a", "|u1", [-1]]]),
    array(dtype="<M8[x]"), array(dtype="<M8[0s]"), array(dtype="<U9999999999"), array(dtype="|S0", v=""),
    array(shape=2),
    array(dtype="|S0", v="", shape=[2**40]), array(dtype="|V0", v="", shape=[0]), array(shape=[-2]), array(shape=["2"]),
    array(shape=[2.0]), array(shape=[True, 2]), array(shape=[1]), array(shape=[2**62, 4]),
    array(order="C"), array(order=None), array(order=["F"]), array(order="F", shape=[1]),
    array(shape=[2**70, 0], v=""), array(shape=[1] * 65), array(shape=[2**62] * 100_000), array(more=1),
    msgspec.json.encode({"$": "numpy.ndarray", "v": ""}), msgspec.json.encode({"$": "numpy.generic", "v": ""}),
    scalar(v=""), scalar(v=1), scalar(dtype="O"), scalar(dtype=None), scalar(shape=[]), scalar(v="AAA="),
    array(dtype=msgspec.Raw(b'[["a",' * 300 + b'"|u1"' + b"]]" * 300)),
    msgspec.json.encode({"$": "numpy:ndarray", "v": {}}), msgspec.json.encode({"$": "numpy:float64", "v": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: ascii(body)[:80])
def test_bytes_that_hold_no_array_give_a_codec_error(body: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        DEFAULT_CODEC.decode(b"[" + body + b"]")
    assert caught.value.path.startswith("$[0]")
    assert len(str(caught.value)) < 600


@pytest.mark.process
def test_where_numpy_is_not_loaded_its_values_are_refused_and_it_stays_so() -> None:
    program = (
        "import sys\n"
        "from stepwell import CodecError\n"
        "from stepwell.codec.codec import Codec\n"
        "try:\n"
        "    Codec().decode(sys.argv[1].encode())\n"
        "except CodecError as error:\n"
        "    print(error.message)\n"
        "print('numpy' in sys.modules)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, array().decode()], capture_output=True, text=True, check=True
    ).stdout
    assert told == "a numpy value is stored, but numpy is not loaded: import numpy before reading\nFalse\n"
