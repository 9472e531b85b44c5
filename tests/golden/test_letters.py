"""Letters of every format are read as they were meant, and the newest are written as they are here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepwell import NewerFormat
from stepwell.codec.codec import DEFAULT_CODEC, Encoded
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedCancel, ReceivedInput, ReceivedJson, ReceivedResponse, Signal
from stepwell.storage.signals import answer_key, cancel_key, input_key, next_answer_key, read_signal, write_signal
from stepwell.storage.stored_values import SignalRow

LETTERS = [json.loads(line) for line in (Path(__file__).parent / "letters.jsonl").read_text().splitlines()]
ASKED = Request("q", "who", Encoded(b"1", DEFAULT_CODEC), "int", "bool", "{}", "2026-01-01T00:00:00+00:00")


def written(kind: str, body: dict[str, Any]) -> tuple[str, bytes]:
    value = msgspec.json.encode(body.get("value"))
    parcel = Encoded(value, DEFAULT_CODEC)
    signals: dict[str, tuple[str, Signal]] = {
        "answer": (answer_key(0, ASKED), ReceivedResponse("q", parcel)),
        "input": (input_key(0, "golden"), ReceivedInput(parcel)),
        "cancel": (cancel_key(0, 1), ReceivedCancel(1)),
        "plain": (next_answer_key(answer_key(0, ASKED)), ReceivedJson("q", value)),
    }
    key, signal = signals[kind]
    return key, write_signal(signal)


@pytest.mark.parametrize("letter", LETTERS, ids=lambda letter: letter["body"]["kind"])
def test_a_letter_of_any_format_is_read(letter: dict[str, Any]) -> None:
    body = letter["body"]
    read = read_signal("r", SignalRow(letter["key"], msgspec.json.encode(body)))
    assert json.loads(write_signal(read)) == body


@pytest.mark.parametrize("letter", LETTERS, ids=lambda letter: letter["body"]["kind"])
def test_a_letter_is_written_as_it_is_here(letter: dict[str, Any]) -> None:
    key, text = written(letter["body"]["kind"], letter["body"])
    assert (key, json.loads(text)) == (letter["key"], letter["body"])


def test_a_letter_of_a_later_format_is_refused() -> None:
    with pytest.raises(NewerFormat, match="use a newer Stepwell"):
        read_signal("r", SignalRow("k", b'{"kind":"plain","format":2,"request_id":"q","value":1}'))
