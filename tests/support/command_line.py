"""For the tests of the command line: stores with runs in them, and the program."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from click.testing import Result
from psycopg.conninfo import conninfo_to_dict

from stepwell.storage.stored_values import Record
from tests.support.operating_runs import Order, asking, counting
from tests.support.postgres_server import dsn

Say = Callable[..., Result]


def postgres_address(schema: str, **more: str) -> str:
    """The test server as people write it."""
    known = conninfo_to_dict(dsn())
    name = known.pop("dbname")
    said = {**{key: str(value) for key, value in known.items() if value is not None}, **more, "schema": schema}
    return f"postgresql:///{name}?{urlencode(said, quote_via=quote, safe='')}"


@dataclass(frozen=True)
class Place:
    """A store, and what it is called on the command line."""

    address: str
    storage: Any

    def fill(self) -> None:
        """Two runs: one that is done, and a later one that waits for a person."""

        async def runs() -> None:
            await counting(self.storage).run(1, run_id="count-1", tags={"team": "blue"})
            await asking(self.storage).run(Order(7, ["tea"]), run_id="refund-7", tags={"team": "red"})
            await self.storage.close()

        asyncio.run(runs())


def ran(*arguments: str, **known: Any) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own."""
    environment = {**os.environ, **known.pop("env", {})}
    command = [sys.executable, "-m", "stepwell.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False, **known)


def schema_of(place: Place) -> str:
    """Where it is in the test server."""
    return place.address.rpartition("schema=")[2]


def damage(place: Place, run_id: str, number: int | None = None) -> None:
    """This record of a run, or each of its records, is not what was written any more."""

    async def change() -> None:
        store = place.storage._store.inner
        first, last = (-1, None) if number is None else (number - 1, number)
        records = await store.history(run_id, after=first, upto=last)
        # Every body says what kind of commit it is.
        damaged = [Record(record.entry, record.body.replace(b'"kind":"', b'"kind":"x')) for record in records]
        assert damaged != records
        await store.rewrite(run_id, replace=damaged)
        await place.storage.close()

    asyncio.run(change())
