"""What libpq says while it sends jobs, as the driver would say it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

from stepwell.stores.postgres.sender import Statement
from tests.support.postgres_server import ask, dsn

pytestmark = pytest.mark.process

ECHO = b"SELECT jsonb_build_array($1::jsonb, to_jsonb($2::text[]))"


@pytest.fixture
def db() -> Any:
    with psycopg.connect(dsn(), autocommit=True) as connection:
        yield connection


def test_jobs_and_sheets_arrive_as_they_are(db: Any) -> None:
    sheets = ['{"a":"\\"\\\\ é 日本 {},\'"}', None, ""]
    assert Statement(ECHO).call(db, b'{"do":"it"}', sheets) == [{"do": "it"}, sheets]


def test_what_the_server_refuses_is_said_by_its_name(db: Any) -> None:
    with pytest.raises(errors.InvalidTextRepresentation):
        Statement(ECHO).call(db, b"no JSON", [])
    assert not db.closed


def test_a_line_that_breaks_is_told_from_what_the_server_says(db: Any) -> None:
    ask("SELECT pg_terminate_backend(%s)", db.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        Statement(ECHO).call(db, b"{}", [])
    assert db.closed


class HalfBroken:
    """A line of which libpq does not say yet that it is bad, although it got no answer."""

    pgconn: Any

    def __init__(self) -> None:
        self.pgconn, self.closed = self, False

    def prepare(self, *given: Any) -> Any:
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
        Statement(ECHO).call(line, b"{}", [])
    assert line.closed


def prepared(db: Any) -> int:
    return int(db.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'stepwell%'").fetchone()[0])


def test_a_statement_is_prepared_once_for_each_connection(db: Any) -> None:
    statement = Statement(ECHO)
    with psycopg.connect(dsn(), autocommit=True) as another:
        for connection in (db, db, another, db):
            assert statement.call(connection, b"{}", ["x"]) == [{}, ["x"]]
        assert (prepared(db), prepared(another)) == (1, 1)


def test_one_that_was_left_by_another_program_is_used(db: Any) -> None:
    assert Statement(ECHO).call(db, b"{}", ["x"]) == [{}, ["x"]]
    assert Statement(ECHO).call(db, b"{}", ["y"]) == [{}, ["y"]]
    assert prepared(db) == 1


def test_where_it_is_not_known_any_more_it_is_sent_whole_from_there_on(db: Any) -> None:
    statement = Statement(ECHO)
    statement.call(db, b"{}", [])
    db.execute("DEALLOCATE ALL")  # as if a pooler had given us another connection
    assert statement.call(db, b"{}", ["x"]) == [{}, ["x"]]
    assert statement.call(db, b"{}", ["y"]) == [{}, ["y"]]
    assert prepared(db) == 0


def test_a_statement_that_cannot_be_prepared_says_why(db: Any) -> None:
    with pytest.raises(errors.UndefinedFunction):
        Statement(b"SELECT stepwell_has_no_such_function($1, $2)").call(db, b"{}", [])
    assert not db.closed
