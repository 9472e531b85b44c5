"""What may stand between a program and its PostgreSQL server: a line that breaks, and a pooler."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

SOCKET = ".s.PGSQL.5432"
ENDS_A_REQUEST = b"QSX"  # a plain query, the end of a parametrised one, goodbye
STATEMENT = b"\0stepwell_"  # the name of one that was prepared, after the name of its portal
FUNCTIONS = (b"append", b"write_log", b"finish_step", b"send", b"acquire", b"renew", b"release", b"rewrite", b"drop")
ENDS_AN_ANSWER = b"Z"  # the server waits for the next request


class Line:
    """One end of a connection, read message by message."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._reader: BinaryIO = end.makefile("rb")

    def send(self, message: bytes) -> None:
        self._end.sendall(message)

    def hang_up(self) -> None:
        self._end.shutdown(socket.SHUT_RDWR)

    def startup(self) -> bytes:
        """The first message of a client, which has no type."""
        return self._sized(b"")

    def upto(self, last: bytes) -> bytes:
        """Messages up to one of those types. Raises EOFError if the line is dead."""
        read = b""
        while True:
            kind = self._exactly(1)
            message = self._sized(kind)
            read += message
            if kind in last:
                return read

    def _sized(self, kind: bytes) -> bytes:
        size = self._exactly(4)
        return kind + size + self._exactly(int.from_bytes(size, "big") - 4)

    def _exactly(self, count: int) -> bytes:
        read = self._reader.read(count)
        if len(read) < count:
            raise EOFError
        return read


class Between:
    """Listens where a server would, and serves each client in a thread of its own."""

    lines_to_the_server = 1

    def __init__(self, dsn: str) -> None:
        self._server = Path(str(conninfo_to_dict(dsn)["host"])) / SOCKET
        self._folder = Path(tempfile.mkdtemp(prefix="stepwell-between-"))
        self.dsn = make_conninfo(dsn, host=str(self._folder))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / SOCKET))
        self._folder.chmod(0o755)  # a pooler that comes here has an account of its own
        (self._folder / SOCKET).chmod(0o777)
        self._listener.listen()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()
        shutil.rmtree(self._folder)

    def greet(self, welcome: bytes) -> bytes:
        """What a client is told when it has connected."""
        return welcome

    def answer(self, request: bytes, client: Line, server: Line) -> bytes:
        server.send(request)
        answer = server.upto(ENDS_AN_ANSWER)
        client.send(answer)
        return answer

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with contextlib.ExitStack() as open_ends, contextlib.suppress(OSError, EOFError):
            client = Line(open_ends.enter_context(end))
            startup = client.startup()
            servers = [Line(open_ends.enter_context(self._connect())) for _ in range(self.lines_to_the_server)]
            for server in servers:
                server.send(startup)
                welcome = server.upto(ENDS_AN_ANSWER)
            client.send(self.greet(welcome))
            while True:
                answer = self.answer(client.upto(ENDS_A_REQUEST), client, servers[0])
                if answer.endswith(b"I"):  # no transaction is open
                    servers.append(servers.pop(0))

    def _connect(self) -> socket.socket:
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(self._server))
        return line


class BreakingLine(Between):
    """Passes everything on, and breaks when it is told to, at the next statement that writes."""

    def __init__(self, dsn: str) -> None:
        self._plans: list[str] = []
        self.broke = threading.Semaphore(0)  # released each time
        self.held, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        super().__init__(dsn)

    def break_next(self, *plans: str) -> None:
        """Of the next statements that write, one for each plan: `before` it reaches the server; `after` the server
        has done it, and before its answer arrives; `meanwhile`, so that the server goes on alone; `hold`: not at
        all, it arrives when it may `go_on`."""
        self._plans += plans

    def answer(self, request: bytes, client: Line, server: Line) -> bytes:
        if not self._plans or not writes(request):
            return super().answer(request, client, server)
        plan = self._plans.pop(0)
        if plan == "hold":
            self.held.release()
            self.go_on.acquire()
            return super().answer(request, client, server)
        if plan != "before":
            server.send(request)
        if plan == "after":
            server.upto(ENDS_AN_ANSWER)
        client.hang_up()
        self.broke.release()
        if plan == "meanwhile":
            server.upto(ENDS_AN_ANSWER)
        raise EOFError


class SilentLine(Between):
    """Passes everything on until it falls silent: its sockets stay open, it accepts clients, and forwards nothing."""

    def __init__(self, dsn: str) -> None:
        self._silent = False
        self._clients: dict[Line, Line] = {}  # each with its line to the server
        self._lost: set[Line] = set()
        self._plan: tuple[str, Callable[[bytes], bool]] | None = None
        self._over = threading.Event()
        self.fell_silent = threading.Event()
        super().__init__(dsn)

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        super().__exit__(*exc)

    def fall_silent(self) -> None:
        self._silent = True
        self.fell_silent.set()

    def fall_silent_at(self, when: str, request: Callable[[bytes], bool]) -> None:
        """At the next request of that kind: `before` it reaches the server, or `after` the server has answered."""
        self._plan = (when, request)

    def speak_again(self) -> None:
        """Serve clients that come from now on. What was swallowed is lost, and lines that are open stay silent.

        The server notices that these clients are gone, as it does in time.
        """
        for server in self._clients.values():
            with contextlib.suppress(OSError):  # gone already
                server.hang_up()
        self._lost.update(self._clients)
        self._silent = False

    def answer(self, request: bytes, client: Line, server: Line) -> bytes:
        if self._plan is not None and self._plan[1](request):
            (when, _), self._plan = self._plan, None
            if when == "after":
                server.send(request)
                server.upto(ENDS_AN_ANSWER)
            self.fall_silent()
        self._clients[client] = server
        if self._silent or client in self._lost:
            self._hang()
        return super().answer(request, client, server)

    def _serve(self, end: socket.socket) -> None:
        if self._silent:
            with end:
                self._over.wait()
            return
        super()._serve(end)

    def _hang(self) -> None:
        self._over.wait()
        raise EOFError


def writes(request: bytes) -> bool:
    """Whether the request calls functions that write."""
    return STATEMENT in request or any(b"." + function + b"(" in request for function in FUNCTIONS)


class Pooler(Between):
    """Gives each transaction another connection, as poolers in transaction mode do."""

    lines_to_the_server = 3

    def greet(self, welcome: bytes) -> bytes:
        """Invent a process id, as poolers do: there is no single one."""
        key = welcome.index(b"K\0\0\0\x0c") + 5  # the message with the process id and the key to cancel
        return welcome[:key] + b"\0\0\0\1" + welcome[key + 4 :]
