"""For the tests of the command line: stores with runs in them, and the program."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from click.testing import Result
from psycopg.conninfo import conninfo_to_dict

from tests.support.operating_runs import Order, asking, counting
from tests.support.postgres_server import ask, dsn

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


def damage(place: Place, folder: Path, number: int) -> None:
    """This record of `count-1` is not what was written any more."""
    change = f"SET body = replace(body, 'count', 'cuont') WHERE run_id = 'count-1' AND number = {number}"
    if place.address == "runs":
        (record,) = (folder / "runs" / "counting" / "count-1").glob(f"{number:06}-*.json")
        record.write_text(record.read_text().replace('"sum": "', '"sum": "0', 1))
    elif place.address.startswith("sqlite"):
        db = sqlite3.connect(folder / "runs.db")
        db.execute(f"UPDATE commits {change}")
        db.commit()
        db.close()
    else:
        ask(f'UPDATE "{schema_of(place)}".commits {change} RETURNING 1')
