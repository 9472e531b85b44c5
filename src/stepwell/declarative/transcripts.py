"""What agents remember from run to run: conversations, kept apart from the runs.

A thread only grows. What is added has a key, and a key is written once: whoever repeats it after a crash adds nothing.
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
from stepwell.declarative.files.durable_files import lock_file, safe_name, write_at
from stepwell.engine.threads import run_in_thread
from stepwell.errors import CheckpointCorrupt
from stepwell.storage.system import require_posix

FORMAT = 1


class TranscriptStore(Protocol):
    """Where threads are kept."""

    async def read(self, thread: str) -> list[Message]:
        """Everything that was said in a thread; nothing if there is none."""

    async def append(self, thread: str, key: str, messages: Sequence[Message]) -> None:
        """Add to a thread, all or nothing, to stay; nothing if that key was used in it before."""

    async def threads(self) -> list[str]:
        """The names of all threads."""


class InMemoryTranscriptStore:
    """Threads that live as long as this object."""

    def __init__(self) -> None:
        self._threads: dict[str, dict[str, list[Message]]] = {}
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
    """Threads as files in a directory, one for each, one line of JSON for each thing that was added."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.abspath(directory))
        require_posix(f"the transcript store {str(self._root)!r}", "file locks", instead="InMemoryTranscriptStore")

    async def read(self, thread: str) -> list[Message]:
        lines: list[_TranscriptLine] = await run_in_thread(self._lines, thread)
        return [message for line in lines for message in line.messages]

    async def append(self, thread: str, key: str, messages: Sequence[Message]) -> None:
        await run_in_thread(self._append, thread, key, list(messages))

    async def threads(self) -> list[str]:
        names: list[str] = await run_in_thread(self._names)
        return names

    def _path(self, thread: str) -> Path:
        return self._root / f"{safe_name(thread)}.jsonl"

    def _lines(self, thread: str) -> list[_TranscriptLine]:
        try:
            data = self._path(thread).read_bytes()
        except FileNotFoundError:
            return []
        return _parse(data, self._path(thread))[0]

    def _append(self, thread: str, key: str, messages: list[Message]) -> None:
        with lock_file(self._path(thread)) as handle:
            data = os.pread(handle, os.fstat(handle).st_size, 0)
            lines, whole = _parse(data, self._path(thread))
            if any(line.key == key for line in lines):
                return
            if whole < len(data):
                os.ftruncate(handle, whole)  # a writer died in the middle of its line: nobody was told it is there
            line = _TranscriptLine(FORMAT, thread, key, messages)
            write_at(handle, _ENCODER.encode(line) + b"\n", whole)

    def _names(self) -> list[str]:
        names = []
        for path in sorted(self._root.glob("*.jsonl")):
            lines, _ = _parse(path.read_bytes(), path)
            names += [lines[0].thread] if lines else []
        return names


class _TranscriptLine(msgspec.Struct):
    """One thing that was added to a thread."""

    format: int
    thread: str
    key: str
    messages: list[Message]


class _TranscriptHeader(msgspec.Struct):
    """What lines of every format have."""

    format: int


_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(_TranscriptLine)
_HEADER = msgspec.json.Decoder(_TranscriptHeader)


def _parse(data: bytes, path: Path) -> tuple[list[_TranscriptLine], int]:
    """The lines of a thread, and how many bytes they are: a last line without its end was never finished."""
    whole = data.rfind(b"\n") + 1
    lines = []
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            if _HEADER.decode(line).format > FORMAT:
                raise CheckpointCorrupt(
                    f"line {number} of {path} is of a newer format than {FORMAT}: use the version that wrote it"
                )
            lines.append(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CheckpointCorrupt(f"line {number} of {path} is damaged: {error}") from error
    return lines, whole


@dataclass(frozen=True)
class Threads:
    """Which threads an agent hears and adds to, by the policy of the workflow."""

    policy: Conversation
    store: TranscriptStore

    async def read(self, session: str, node: str) -> list[Message]:
        """What an agent has heard in this session before."""
        match self.policy:
            case "none":
                return []
            case "shared":
                return await self.store.read(thread_of(session))
            case "per-agent":
                return await self.store.read(own_thread(session, node))
            case "fork":
                own = await self.store.read(own_thread(session, node))
                return own or await self.store.read(thread_of(session))

    async def append(self, session: str, node: str, key: str, messages: Sequence[Message]) -> None:
        """Keep what was said to an agent, and by it."""
        match self.policy:
            case "shared":
                await self.store.append(thread_of(session), key, messages)
            case "per-agent":
                await self.store.append(own_thread(session, node), key, messages)
            case "fork":
                thread = own_thread(session, node)
                if not await self.store.read(thread):  # it begins with what everybody heard
                    await self.store.append(thread, "root", await self.store.read(thread_of(session)))
                await self.store.append(thread, key, messages)


def thread_of(session: str) -> str:
    """The thread of a session, named after it; a slash in the name is written %2F, because it means an agent's own."""
    return session.replace("%", "%25").replace("/", "%2F")


def own_thread(session: str, node: str) -> str:
    """The thread of one agent in a session."""
    return f"{thread_of(session)}/{thread_of(node)}"
