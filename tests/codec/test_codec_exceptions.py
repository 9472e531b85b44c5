"""Exceptions as values: filled as they were, by nobody's code; what would be lost is refused."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import pytest
from pydantic import BaseModel, ValidationError

from stepwell.codec.codec import DEFAULT_CODEC, Codec, reachable_types
from stepwell.errors import CodecError, HandlerFailed, HandlerTimeout

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class OutOfStock(Exception):
    """Made in its own way, so that reading it by calling it would fail."""

    calls = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> "OutOfStock":
        OutOfStock.calls += 1
        return super().__new__(cls)

    def __init__(self, sku: str, *, left: int) -> None:
        OutOfStock.calls += 1
        self.sku, self.left = sku, left
        super().__init__(f"{sku} is out of stock")

    def __setattr__(self, name: str, value: Any) -> None:
        OutOfStock.calls += 1
        super().__setattr__(name, value)

    @cached_property
    def shout(self) -> str:
        return self.sku.upper()


@dataclass
class Mishap(Exception):
    reason: str
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Frozen(Exception):
    reason: str


class Slotted(ValueError):
    __slots__ = ("code", "obj", "unused")

    def __init__(self, code: int) -> None:
        self.code, self.obj = code, [code]


class Odd(UnicodeDecodeError):
    def __init__(self, why: str) -> None:
        super().__init__("utf-8", b"\xff", 0, 1, why)


class Mixed(ValueError, OSError):
    pass


class Typed(Exception, Generic[T]):
    pass


class Silent(OSError):
    def __init__(self, path: str) -> None:
        self.path = path


class Group(ExceptionGroup[Exception]):
    pass


def with_notes(error: BaseException, *notes: str) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def raised(function: Any) -> BaseException:
    try:
        function()
    except Exception as error:  # noqa: BLE001  any of them
        return error
    raise AssertionError("nothing was raised")


def noticed(error: E, **attributes: Any) -> E:
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


EXCEPTIONS: list[BaseException] = [
    ValueError(), ValueError("x"), ValueError("x", 1, (2,), {"a": [3]}), KeyError("k"), Exception("\ud800"),
    with_notes(ValueError("x"), "first", "second \ud800"), noticed(ValueError("x"), retry_after=3, hint={"a": (1,)}),
    caused(ValueError("outer"), with_notes(caused(KeyError("mid"), OSError(2, "inner")), "n")),
    OSError(), OSError("x"), OSError(9999, "x"), FileNotFoundError(2, "gone", "/tmp/x"),
    OSError(5, "io", "a", None, "b"),
    raised(lambda: Path("/no/such/file").read_text()), BlockingIOError(11, "later", 3), noticed(OSError(), errno=5),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), raised(lambda: b"\xff".decode()),
    raised(lambda: "\ud800".encode()),
    StopIteration(3), StopAsyncIteration(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError("m"),
    ImportError("x", name="shop", path="/shop"), raised(lambda: __import__("no_such_module")),
    AttributeError("x", name="n"), NameError("x", name="n"), raised(lambda: eval("undefined")),
    SyntaxError("bad", ("f.py", 1, 2, "text", 1, 4)), raised(lambda: compile("a b", "f.py", "exec")),
    ExceptionGroup("many", [ValueError("a"), KeyError("b")]), BaseExceptionGroup("all", [KeyboardInterrupt()]),
    Group("mine", (ValueError("a"),)), asyncio.CancelledError("why"), TimeoutError(),
    raised(lambda: json.loads("{")), raised(lambda: dict[str, int]()["k"]), raised(lambda: 1 / 0),
    OutOfStock("cup", left=0), Mishap("r", (1, 2)), Frozen("r"), Slotted(3), Odd("why"), Mixed(2, "x"), Typed("x"),
    Typed[int]("x"), Silent("/tmp"), CodecError("m", path="$"),
    caused(HandlerFailed("m", run_id="r", executor_id="e"), ValueError("x")),
    HandlerTimeout("m", run_id="r", executor_id="e"),
]  # fmt: skip


def spelled(error: Any) -> Any:
    """All there is to an exception, in an order of its own."""
    if isinstance(error, (list, tuple)):
        return type(error), [spelled(item) for item in error]
    if not isinstance(error, BaseException):
        return type(error), error
    beside = {
        name: spelled(getattr(error, name, "unset"))
        for name in dir(error)
        if not name.startswith("__")
        and not callable(getattr(error, name, None))
        and name not in ("obj", "shout", "calls")
    }
    cause, notes = spelled(error.__cause__), getattr(error, "__notes__", None)
    return type(error), str(error), spelled(error.args), beside, notes, cause, error.__suppress_context__


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: ascii(error)[:50])
def test_an_exception_comes_back_as_it_was(error: BaseException) -> None:
    codec = Codec()
    inside: list[tuple[Any, Callable[[Any], Any]]] = [
        (error, lambda x: x),
        ([error], lambda x: x[0]),
        ({"a": (error,)}, lambda x: x["a"][0]),
    ]
    for whole, part in inside:
        body = codec.encode(whole)
        again = part(codec.decode(body))
        assert spelled(again) == spelled(error)
        assert (again.__traceback__, again.__context__) == (None, None), "these belong to the process that raised it"
        assert codec.encode(codec.decode(body)) == body
        assert codec.digest(whole) == codec.digest(codec.decode(body))


def test_an_exception_is_stored_so_that_a_person_can_read_it() -> None:
    error = caused(noticed(with_notes(ValueError("x", 1), "note"), code=7), KeyError("k"))
    assert DEFAULT_CODEC.encode(error) == (
        b'{"$":"builtins:ValueError","v":{"args":["x",1],"code":7},"notes":["note"],'
        b'"cause":{"$":"builtins:KeyError","v":{"args":["k"]}}}'
    )


def test_reading_an_exception_calls_nothing_of_the_users() -> None:
    body = DEFAULT_CODEC.encode(OutOfStock("cup", left=0))
    before = OutOfStock.calls
    again = DEFAULT_CODEC.decode(body)
    assert OutOfStock.calls == before
    assert (again.sku, again.left, again.args) == ("cup", 0, ("cup is out of stock",))


def test_what_is_computed_is_not_stored() -> None:
    error = OutOfStock("cup", left=0)
    assert error.shout == "CUP"
    assert "shout" not in vars(DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(error)))


def test_a_raised_exception_is_stored_without_where_it_was_raised() -> None:
    def fails() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    again = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(raised(fails)))
    assert (type(again.__cause__), again.__cause__.args) == (KeyError, ("inner",))
    lacking = raised(lambda: object().nothing)  # type: ignore[attr-defined]
    again = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(lacking))
    assert (again.args, again.name, again.obj) == (lacking.args, "nothing", None)


class Answer(BaseModel):
    value: int


class Skipping(UnicodeDecodeError):
    def __init__(self) -> None:
        pass


def without(error: E, name: str) -> E:
    delattr(error, name)
    return error


REFUSED: list[tuple[BaseException, str, str]] = [
    (ValueError(object()), "$.args[0]", "`object` cannot be stored"),
    (ValueError("x", [1, {"a": object()}]), "$.args[1][1].a", "`object` cannot be stored"),
    (noticed(ValueError(), response=object()), "$.response", "`object` cannot be stored"),
    (Mishap(object()), "$.args[0]", "`object` cannot be stored"),  # type: ignore[arg-type]
    (Slotted(object()), "$.args[0]", "`object` cannot be stored"),  # type: ignore[arg-type]
    (caused(ValueError(), KeyError(object())), "$.__cause__.args[0]", "`object` cannot be stored"),
    (ExceptionGroup("many", [ValueError(object())]), "$.args[1][0].args[0]", "`object` cannot be stored"),
    (raised(lambda: Answer(value="x")), "$", "`ValidationError` cannot be stored"),  # type: ignore[arg-type]
    (Skipping(), "$", "this `Skipping` cannot be stored"),
    (noticed(OSError(), args=(2, "x")), "$", "these arguments belong to a `FileNotFoundError`, not a `OSError`"),
    (noticed(ExceptionGroup("a", [ValueError()]), args=("b", [KeyError()])), "$", "this `ExceptionGroup` cannot be"),
    (noticed(ValueError(), __notes__="x"), "$", "the `__notes__` of this `ValueError` are not a list of strings"),
    (noticed(ValueError(), __notes__=[1]), "$", "the `__notes__` of this `ValueError` are not a list of strings"),
    (noticed(ValueError(), **{"a b": 1}), "$", "the attribute `a b` of this `ValueError` cannot be stored"),
    (noticed(ValueError(), **{"\ud800": 1}), "$", "cannot be stored under its name"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "path", "sentence"), REFUSED, ids=[sentence[:40] for _, _, sentence in REFUSED])
def test_what_would_be_lost_is_refused(error: BaseException, path: str, sentence: str) -> None:
    with pytest.raises(CodecError, match=re.escape(sentence)) as caught:
        DEFAULT_CODEC.encode(error)
    assert caught.value.path == path


def test_an_exception_of_a_function_is_stored_only_where_it_is_known() -> None:
    class Local(ValueError):
        pass

    assert reachable_types([Local | None]) == {Local}
    codec = Codec([Local])
    assert type(codec.decode(codec.encode(Local("x")))) is Local
    with pytest.raises(CodecError, match="pass it to register_checkpoint_type"):
        Codec().encode(Local("x"))


def tagged(tag: str, v: object, **more: object) -> bytes:
    return msgspec.json.encode({"$": tag, "v": v, **more})


VALUE_ERROR = {"$": "builtins:ValueError", "v": {"args": []}}
HOSTILE = [
    tagged("nowhere:Trouble", {"args": []}), tagged("builtins:NoSuchError", {"args": []}),
    tagged("builtins:ValueError", {}), tagged("builtins:ValueError", []), tagged("builtins:ValueError", {"args": "x"}),
    tagged("builtins:ValueError", {"args": {"$": "tuple", "v": []}}),
    tagged("builtins:ValueError", {"args": [], "a b": 1}),
    tagged("builtins:ValueError", {"args": [], "__notes__": 1}), tagged("builtins:ValueError", {"args": []}, notes="x"),
    tagged("builtins:ValueError", {"args": []}, notes=[1]), tagged("builtins:ValueError", {"args": []}, cause=1),
    tagged("builtins:ValueError", {"args": []}, cause={"$": "tuple", "v": []}),
    tagged("builtins:ValueError", {"args": []}, n=2),
    tagged("builtins:OSError", {"args": [2, "x"]}), tagged("builtins:OSError", {"args": [], "characters_written": "x"}),
    tagged("builtins:UnicodeDecodeError", {"args": []}),
    tagged("builtins:UnicodeDecodeError", {"args": ["a", "b", 0, 1, "c"]}),
    tagged("builtins:SyntaxError", {"args": ["x", [1]]}), tagged("builtins:ExceptionGroup", {"args": ["x", []]}),
    tagged("builtins:ExceptionGroup", {"args": ["x", [1]]}), tagged("builtins:ExceptionGroup", {"args": ["x"]}),
    tagged("builtins:ExceptionGroup", {"args": ["x", [VALUE_ERROR]], "message": "y"}),
    tagged("builtins:BaseExceptionGroup", {"args": ["x", [VALUE_ERROR]]}),
    tagged("builtins:type", {"args": []}), tagged("pydantic_core._pydantic_core:ValidationError", {"args": []}),
    tagged("builtins:ValueError", {"args": [VALUE_ERROR | {"more": 1}]}),
    b'{"$":"builtins:KeyError","v":{"args":[]},"cause":' * 300 + b"1" + b"}" * 300,
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: ascii(body)[:70])
def test_bytes_that_hold_no_exception_give_a_codec_error(body: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        DEFAULT_CODEC.decode(body, "$.state")
    assert caught.value.path.startswith("$.state")
    assert len(str(caught.value)) < 600


def test_no_attribute_that_is_stored_reaches_beyond_the_instance() -> None:
    body = tagged(
        "builtins:ValueError", {"args": [], "__class__": 1, "__traceback__": 2, "with_traceback": 3, "args_": 4}
    )
    made = DEFAULT_CODEC.decode(body)
    assert type(made) is ValueError
    assert made.__traceback__ is None
    assert ValueError().with_traceback is not None


def test_the_errors_of_pydantic_are_known_and_refused() -> None:
    assert reachable_types([ValidationError]) <= {ValidationError}
