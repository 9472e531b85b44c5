"""The word and the hint in the lock of a folder: a hint is believed only as a whole, and only with its own word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stepwell.stores.files.lock import (
    TOKEN_SIZE,
    hint_in,
    hint_of,
    leave_hint,
    lock_folder,
    token_in,
    token_of,
    write_token,
)

from stepwell.errors import StoreUnavailable
from stepwell.stores.files import lock as file_lock
from stepwell.stores.files.layout import LOCK

HINT = "boot 123 000000000001.json"


def left(folder: Path) -> bytes:
    """What a store leaves in a lock: its word, and behind it a hint."""
    with lock_folder(folder) as lock:
        assert lock is not None
        word = write_token(lock)
        leave_hint(lock, word, HINT)
        assert token_of(lock) == word
        assert hint_of(lock) == HINT
    return (folder / LOCK).read_bytes()


def test_whoever_comes_next_finds_the_word_and_the_hint(tmp_path: Path) -> None:
    whole = left(tmp_path)
    assert token_in(tmp_path) == whole[:TOKEN_SIZE]
    assert hint_in(tmp_path) == HINT
    with lock_folder(tmp_path) as lock:
        assert lock is not None
        assert hint_of(lock) == HINT


def test_a_hint_that_is_cut_short_is_not_believed(tmp_path: Path) -> None:
    whole = left(tmp_path)
    for length in range(len(whole)):
        (tmp_path / LOCK).write_bytes(whole[:length])
        assert hint_in(tmp_path) is None, whole[:length]
    (tmp_path / LOCK).write_bytes(whole)
    assert hint_in(tmp_path) == HINT


def test_a_hint_is_over_as_soon_as_somebody_writes_a_new_word(tmp_path: Path) -> None:
    left(tmp_path)
    with lock_folder(tmp_path) as lock:
        assert lock is not None
        write_token(lock)
        assert hint_of(lock) is None
    assert hint_in(tmp_path) is None


def test_a_shorter_hint_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    with lock_folder(tmp_path) as lock:
        assert lock is not None
        leave_hint(lock, write_token(lock), HINT * 3)
        leave_hint(lock, write_token(lock), "short")
        assert hint_of(lock) == "short"


def test_what_is_no_text_is_no_hint_that_fails(tmp_path: Path) -> None:
    word = b"w" * TOKEN_SIZE
    (tmp_path / LOCK).write_bytes(word + b"\n" + word + b" \xff\xfe\n")
    assert hint_in(tmp_path) == "\ufffd\ufffd"


def test_a_folder_without_a_lock_has_neither(tmp_path: Path) -> None:
    assert (token_in(tmp_path), hint_in(tmp_path)) == (b"", None)
    with lock_folder(tmp_path / "gone") as lock:
        assert lock is None


def test_a_lock_that_is_never_given_back_is_reported_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "PATIENCE", 0.05)
    with lock_folder(tmp_path) as lock:
        assert lock is not None
        os.fsync(lock)
        with (
            pytest.raises(StoreUnavailable, match=f"another process has held the lock {tmp_path / LOCK} for"),
            lock_folder(tmp_path),
        ):
            pass
