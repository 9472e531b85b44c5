"""A real PgBouncer in transaction mode, for the long form of the tests: found or installed, and gone when they are."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.launching import dying_with_us
from tests.support.postgres_server import account, give

PORT = 6432
CONFIGURATION = """
[databases]
* = host={server} port=5432

[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
logfile = {folder}/log
pidfile = {folder}/pid
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 6
max_client_conn = 200
server_login_retry = 0.2
"""


class PgBouncer:
    """Stands between clients and a server that listens in a folder. May be stopped and started again."""

    def __init__(self, program: Path, dsn: str) -> None:
        server = conninfo_to_dict(dsn)
        self._program, self._account = program, account()
        self.folder = Path(tempfile.mkdtemp(prefix="stepwell-bouncer-"))
        told = CONFIGURATION.format(server=server["host"], folder=self.folder, port=PORT)
        (self.folder / "pgbouncer.ini").write_text(told)
        (self.folder / "users").write_text(f'"{server["user"]}" ""\n')
        for path in (self.folder, *self.folder.iterdir()):
            give(path, self._account)
        self.dsn = make_conninfo(dsn, host=str(self.folder), port=PORT)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            dying_with_us(
                [str(self._program), "--quiet", str(self.folder / "pgbouncer.ini")],
                user=self._account and self._account.pw_uid,
                group=self._account and self._account.pw_gid,
            ),
            cwd=self.folder,
        )
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"PgBouncer did not start: {self.log()}")
            time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """At once: its clients and its server see broken lines."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.dsn).close()
            return True
        return False


@contextlib.contextmanager
def bouncer(dsn: str) -> Iterator[PgBouncer]:
    program = installed()
    if program is None:
        raise RuntimeError("there is no PgBouncer here, and it cannot be installed: apt-get install pgbouncer")
    made = PgBouncer(program, dsn)
    try:
        yield made
    finally:
        made.remove()


@cache
def installed() -> Path | None:
    """The program; the package of the distribution is installed if it is missing and we may."""
    if _found() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "pgbouncer"]):
            subprocess.run(command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, capture_output=True)
    return _found()


def _found() -> Path | None:
    found = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    return Path(found) if found else None
