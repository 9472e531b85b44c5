"""What libpq says while it sends jobs, as the driver would say it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

from holdfast.stores.postgres_sending import answers
from postgres_server import ask, dsn

ECHO = b"SELECT jsonb_build_array($1::jsonb, to_jsonb($2::text[]))"


@pytest.fixture
def db() -> Any:
    with psycopg.connect(dsn(), autocommit=True) as connection:
        yield connection


def test_jobs_and_sheets_arrive_as_they_are(db: Any) -> None:
    sheets = ['{"a":"\\"\\\\ é 日本 {},\'"}', None, ""]
    assert answers(db, ECHO, b'{"do":"it"}', sheets) == [{"do": "it"}, sheets]


def test_what_the_server_refuses_is_said_by_its_name(db: Any) -> None:
    with pytest.raises(errors.InvalidTextRepresentation):
        answers(db, ECHO, b"no JSON", [])
    assert not db.closed


def test_a_line_that_breaks_is_told_from_what_the_server_says(db: Any) -> None:
    ask("SELECT pg_terminate_backend(%s)", db.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        answers(db, ECHO, b"{}", [])
    assert db.closed


class HalfBroken:
    """A line of which libpq does not say yet that it is bad, although it got no answer."""

    pgconn: Any

    def __init__(self) -> None:
        self.pgconn, self.closed = self, False

    def exec_params(self, *given: Any, **more: Any) -> Any:
        return self

    status = psycopg.pq.ExecStatus.FATAL_ERROR

    def error_field(self, field: Any) -> None:
        return None

    def get_error_message(self) -> str:
        return "server closed the connection unexpectedly"

    def close(self) -> None:
        self.closed = True


def test_an_error_that_no_server_sent_is_a_broken_line() -> None:
    line: Any = HalfBroken()
    with pytest.raises(psycopg.OperationalError, match="unexpectedly"):
        answers(line, ECHO, b"{}", [])
    assert line.closed
