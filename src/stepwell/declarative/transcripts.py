"""Conversations that agents remember from run to run, stored separately from runs.

A thread only grows. Each append has a key, and a key is written once: an append that is repeated
after a crash adds nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from stepwell.agents.messages import Message
from stepwell.declarative.definition import Conversation
from stepwell.engine.handler.threads import run_in_thread
from stepwell.errors import CheckpointCorrupt
from stepwell.storage.durable_files import lock_file, make_folder, safe_name, write_at
from stepwell.storage.posix import require_posix, sync_folder

FORMAT = 1  # of a line in a JSON transcript


class TranscriptStore(Protocol):
    """A store of threads. Implement it to keep conversations elsewhere."""

    async def read(self, thread: str) -> list[Message]:
        """Return all messages of a thread; empty if it does not exist."""

    async def append(self, thread: str, key: str, messages: Sequence[Message]) -> None:
        """Append messages durably, all or none; do nothing if the key was used in this thread."""

    async def threads(self) -> list[str]:
        """List the names of all threads."""


class InMemoryTranscriptStore:
    """Threads that live as long as this object."""

    def __init__(self) -> None:
        self._threads: dict[str, dict[str, list[Message]]] = {}
        # A store may be shared by workflows in different threads, each with its own event loop.
        self._lock = threading.Lock()

    async def read(self, thread: str) -> list[Message]:
        with self._lock:
            return [message for messages in self._threads.get(thread, {}).values() for message in messages]

    async def append(self, thread: str, key: str, messages: Sequence[Message]) -> None:
        with self._lock:
            self._threads.setdefault(thread, {}).setdefault(key, list(messages))

    async def threads(self) -> list[str]:
        with self._lock:
            return list(self._threads)


class JsonTranscriptStore:
    """Threads as files in a directory: one file for each thread, one line of JSON for each append.

    Several processes may use the same directory.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.abspath(directory))
        require_posix(f"the transcript store {str(self._root)!r}", "file locks", instead="InMemoryTranscriptStore")

    async def read(self, thread: str) -> list[Message]:
        return list(await run_in_thread(self._read, thread))

    async def append(self, thread: str, key: str, messages: Sequence[Message]) -> None:
        await run_in_thread(self._append, thread, key, list(messages))

    async def threads(self) -> list[str]:
        return list(await run_in_thread(self._names))

    def _path(self, thread: str) -> Path:
        return self._root / f"{safe_name(thread)}.jsonl"

    def _read(self, thread: str) -> list[Message]:
        try:
            data = self._path(thread).read_bytes()
        except FileNotFoundError:
            return []
        return [message for line in _parse(data, self._path(thread))[0] for message in line.messages]

    def _append(self, thread: str, key: str, messages: list[Message]) -> None:
        # Read under the lock: the check of the key and the append must be one step.
        path = self._path(thread)
        make_folder(path.parent)
        with lock_file(path) as handle:
            data = os.pread(handle, os.fstat(handle).st_size, 0)
            if not data:
                # Make the name of a new file durable, or a power failure could take the file with it.
                sync_folder(path.parent)
            lines, end = _parse(data, path)
            if any(line.key == key for line in lines):
                return
            # A writer died in the middle of its line. Its append never returned, so the line is
            # dropped.
            if end < len(data):
                os.ftruncate(handle, end)
            line = _TranscriptLine(FORMAT, thread, key, messages)
            write_at(handle, msgspec.json.encode(line) + b"\n", end)
            os.fsync(handle)

    def _names(self) -> list[str]:
        # File names are not reversible (see `safe_name`), so each line repeats the thread's name.
        threads = [_parse(path.read_bytes(), path)[0] for path in sorted(self._root.glob("*.jsonl"))]
        return [lines[0].thread for lines in threads if lines]


class _TranscriptLine(msgspec.Struct):
    """One append to a thread."""

    format: int
    thread: str
    key: str
    messages: list[Message]


class _TranscriptHeader(msgspec.Struct):
    """The part of a line that is the same in every format."""

    format: int


def _parse(data: bytes, path: Path) -> tuple[list[_TranscriptLine], int]:
    """Return the complete lines of a thread and their length in bytes.

    A last line without a line break was never finished and is ignored. Raises CheckpointCorrupt.
    """
    end = data.rfind(b"\n") + 1
    lines = []
    for number, line in enumerate(data[:end].splitlines(), 1):
        try:
            # The format comes first: a newer line may not have the fields of this one.
            if msgspec.json.decode(line, type=_TranscriptHeader).format > FORMAT:
                raise CheckpointCorrupt(
                    f"line {number} of {path} has a newer format than {FORMAT}: use the version that wrote it"
                )
            lines.append(msgspec.json.decode(line, type=_TranscriptLine))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CheckpointCorrupt(f"line {number} of {path} is damaged: {error}") from error
    return lines, end


@dataclass(frozen=True)
class Threads:
    """Chooses the threads an agent reads and appends to, by the policy of the workflow, not "none"."""

    policy: Conversation
    store: TranscriptStore

    async def read(self, session: str, node: str) -> list[Message]:
        """Return what an agent remembers of a session."""
        messages = await self.store.read(self._thread(session, node))
        return await self.store.read(thread_of(session)) if self.policy == "fork" and not messages else messages

    async def append(self, session: str, node: str, key: str, messages: Sequence[Message]) -> None:
        """Append what an agent was asked and what it answered."""
        thread = self._thread(session, node)
        # A fork starts with a copy of the shared thread. The fixed key makes the copy happen once,
        # even if two runs fork at the same moment.
        if self.policy == "fork" and not await self.store.read(thread):
            await self.store.append(thread, "root", await self.store.read(thread_of(session)))
        await self.store.append(thread, key, messages)

    def _thread(self, session: str, node: str) -> str:
        return thread_of(session) if self.policy == "shared" else agent_thread(session, node)


def thread_of(session: str) -> str:
    """Return the name of the shared thread of a session.

    A slash is written as %2F, because it separates session and agent in `agent_thread`.
    """
    return session.replace("%", "%25").replace("/", "%2F")


def agent_thread(session: str, node: str) -> str:
    """Return the name of the thread of one agent in a session."""
    return f"{thread_of(session)}/{thread_of(node)}"
