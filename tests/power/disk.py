"""A disk as far as a power failure can tell: what is on it for good, and what was only asked of it.

The model is that of POSIX, which promises less than most file systems keep: what was written to a file is safe when
that file was synced, and a name when its folder was. Of everything else any part may be there. A rename is there or
not, never half.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .recording import Call


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Something done to the content of a file, at a call of the recording."""

    at: int
    offset: int = 0
    data: bytes = b""
    length: int | None = None  # it was made so long
    time: int | None = None  # it was given this time, in nanoseconds

    def on(self, content: bytearray) -> None:
        if self.length is not None:
            del content[self.length :]
            content.extend(bytes(self.length - len(content)))
        elif self.time is None:
            content.extend(bytes(max(0, self.offset - len(content))))
            content[self.offset : self.offset + len(self.data)] = self.data

    def cut(self) -> Change:
        """The first half of it."""
        return Change(self.at, self.offset, self.data[: len(self.data) // 2], self.length, self.time)

    def zeroed(self) -> Change:
        """The file got its length, but not its content."""
        return Change(self.at, self.offset, bytes(len(self.data)), self.length, self.time)


@dataclass(eq=False)
class File:
    safe: bytes = b""
    safe_time: int | None = None
    changes: list[Change] = field(default_factory=list)  # not synced
    content: bytearray = field(default_factory=bytearray)  # with all of them

    def change(self, change: Change) -> None:
        self.changes.append(change)
        change.on(self.content)

    def sync(self) -> None:
        self.safe_time = self.seen(self.changes)[1]
        self.safe, self.changes = bytes(self.content), []

    def seen(self, changes: Sequence[Change]) -> tuple[bytes, int | None]:
        """What is in it, and its time, if of what was not synced these are there."""
        times = [change.time for change in changes if change.time is not None]
        content = self.content
        if changes is not self.changes:
            content = bytearray(self.safe)
            for change in changes:
                change.on(content)
        return bytes(content), times[-1] if times else self.safe_time


@dataclass(eq=False)
class Folder:
    safe: dict[str, Node] = field(default_factory=dict)
    names: dict[str, Node] = field(default_factory=dict)


Node = File | Folder


@dataclass(frozen=True, slots=True, eq=False)
class Naming:
    """Names that were given or taken away at once, at a call of the recording."""

    at: int
    parts: tuple[tuple[Folder, str, Node | None], ...]

    def names(self) -> set[tuple[int, str]]:
        return {(id(folder), name) for folder, name, _ in self.parts}


@dataclass(frozen=True, slots=True)
class Image:
    """What is found on a disk."""

    folders: tuple[str, ...]
    files: dict[str, tuple[bytes, int | None]]

    def key(self) -> bytes:
        """The same for the same content."""
        digest = hashlib.sha256(repr(self.folders).encode())
        for path, (content, time) in self.files.items():
            digest.update(f"\0{path}\0{time}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.digest()

    def write(self, root: Path) -> None:
        root.mkdir(parents=True)
        for folder in self.folders:
            (root / folder).mkdir()
        for path, (content, time) in self.files.items():
            (root / path).write_bytes(content)
            if time is not None:
                os.utime(root / path, ns=(time, time))


Chosen = Callable[[File], Sequence[Change]]


class Disk:
    """Takes the calls of a recording, one after the other."""

    def __init__(self, left_out: Callable[[str], bool] = lambda path: False) -> None:
        """`left_out` names files that need not be there after a power failure."""
        self.root = Folder()
        self.namings: list[Naming] = []  # not synced
        self._left_out = left_out
        self._handles: dict[int, Node] = {}

    def take(self, at: int, call: Call) -> None:
        if self._left_out(call.path):
            return
        node = self._handles.get(call.fd)
        match call.what:
            case "open":
                self._handles[call.fd] = self._opened(at, call)
            case "close":
                self._handles.pop(call.fd, None)
            case "write" if isinstance(node, File):
                node.change(Change(at, call.number, call.data))
            case "resize" if isinstance(node, File):
                node.change(Change(at, length=call.number))
            case "resize by path":
                self._file(call.path).change(Change(at, length=call.number))
            case "set time":
                file = node if isinstance(node, File) else self._file(call.path)
                file.change(Change(at, time=call.number))
            case "sync":
                self._sync(node)
            case "make folder":
                self._name(at, (*self._place(call.path), Folder()))
            case "remove":
                self._name(at, (*self._place(call.path), None))
            case "rename":
                self._name(at, (*self._place(call.path), None), (*self._place(call.to), self._node(call.path)))
            case "link":
                self._name(at, (*self._place(call.to), self._node(call.path)))
            case "map":
                assert node is None, "a file is written through memory, which cannot be recorded"

    # ---------------------------------------------------------------- what is there

    def image(self, namings: Iterable[Naming] | None = None, chosen: Chosen = lambda file: file.changes) -> Image:
        """The disk, if of what was not synced only that is there. Without `namings` every name is."""
        kept: dict[int, dict[str, Node | None]] = {}
        for naming in self.namings if namings is None else namings:
            for folder, name, node in naming.parts:
                kept.setdefault(id(folder), {})[name] = node

        def names(folder: Folder) -> dict[str, Node]:
            found = {**folder.safe, **kept.get(id(folder), {})}
            return {name: node for name, node in sorted(found.items()) if node is not None}

        folders: list[str] = []
        files: dict[str, tuple[bytes, int | None]] = {}
        for path, node in _walk(self.root, names):
            if isinstance(node, Folder):
                folders.append(path)
            else:
                files[path] = node.seen(chosen(node))
        return Image(tuple(folders), files)

    def unsafe_files(self) -> dict[str, File]:
        """The files with content that was not synced."""
        found = _walk(self.root, lambda folder: folder.names)
        return {path: node for path, node in found if isinstance(node, File) and node.changes}

    def unsafe_names(self) -> dict[str, Naming]:
        """The names that something has now and could lose, with what gave it to them."""
        given = {(id(folder), name): naming for naming in self.namings for folder, name, _ in naming.parts}
        folders = [("", self.root), *_walk(self.root, lambda folder: folder.names)]
        return {
            f"{path}/{name}".strip("/"): given[id(folder), name]
            for path, folder in folders
            if isinstance(folder, Folder)
            for name, node in folder.names.items()
            if folder.safe.get(name) is not node
        }

    # ---------------------------------------------------------------- calls

    def _node(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in filter(None, path.split("/")):
            node = node.names.get(name) if isinstance(node, Folder) else None
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        assert isinstance(node, File), f"{path} was made in a way that was not recorded"
        return node

    def _place(self, path: str) -> tuple[Folder, str]:
        above, _, name = path.rpartition("/")
        folder = self._node(above)
        assert isinstance(folder, Folder), f"{above} was made in a way that was not recorded"
        return folder, name

    def _opened(self, at: int, call: Call) -> Node:
        node = self._node(call.path)
        if node is None:
            node = File()
            self._name(at, (*self._place(call.path), node))
        elif call.number & os.O_TRUNC and isinstance(node, File) and node.content:
            node.change(Change(at, length=0))
        return node

    def _name(self, at: int, *parts: tuple[Folder, str, Node | None]) -> None:
        self.namings.append(Naming(at, parts))
        for folder, name, node in parts:
            if node is None:
                del folder.names[name]
            else:
                folder.names[name] = node

    def _sync(self, node: Node | None) -> None:
        if isinstance(node, File):
            node.sync()
        elif isinstance(node, Folder):
            self._sync_names(node)

    def _sync_names(self, synced: Folder) -> None:
        """Make the names in a folder safe, and what else was done to them or at once with them before."""
        known: set[tuple[int, str]] = set()
        left: list[Naming] = []
        now_safe: list[Naming] = []
        for naming in reversed(self.namings):
            if any(folder is synced for folder, _, _ in naming.parts) or naming.names() & known:
                known |= naming.names()
                now_safe.append(naming)
            else:
                left.append(naming)
        self.namings = left[::-1]
        for naming in reversed(now_safe):
            for folder, name, node in naming.parts:
                if node is None:
                    folder.safe.pop(name, None)
                else:
                    folder.safe[name] = node


def _walk(folder: Folder, names: Callable[[Folder], dict[str, Node]], path: str = "") -> Iterator[tuple[str, Node]]:
    for name, node in names(folder).items():
        yield f"{path}{name}", node
        if isinstance(node, Folder):
            yield from _walk(node, names, f"{path}{name}/")
