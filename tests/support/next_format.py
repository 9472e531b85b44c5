"""A program of the next version: it knows one format more, of each kind of store."""

from __future__ import annotations

import sys

import pytest

from stepwell.stores.files import layout as file_layout
from stepwell.stores.postgres import schema as postgres_schema
from stepwell.stores.postgres import tables as postgres_tables
from stepwell.stores.sqlite import schema as sqlite_schema

NEXT = 2


def know_the_next_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this program be of the next version: a table more in databases, and a number more in files."""
    assert {file_layout.FORMAT, postgres_tables.FORMAT, sqlite_schema.FORMAT} == {NEXT - 1}
    added = "CREATE TABLE {schema}added (what integer);"
    monkeypatch.setattr(sqlite_schema, "STEPS", (*sqlite_schema.STEPS, added.format(schema="")))
    monkeypatch.setattr(postgres_schema, "STEPS", (*postgres_tables.STEPS, added.format(schema="{schema}.")))
    for name, module in sys.modules.items():
        if name.startswith("stepwell.stores.") and hasattr(module, "FORMAT"):
            monkeypatch.setattr(module, "FORMAT", NEXT)
