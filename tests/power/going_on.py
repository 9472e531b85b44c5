"""Goes on with the run after a power failure, and sees whether it comes to the same."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Coroutine, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from stepwell.storage.built_in_storage import BuiltInStorage

from .failures import Failure
from .owed import Found, Owed, look, owed_at
from .recording import Call
from .story import FIRST, OUTPUTS, RUN, STATE, Watch, answer, build
from .worker import place, storage_in

T = TypeVar("T")


@dataclass
class Trial:
    """Opens what power failures have left. `every` so many of them are gone on with, and all with something new."""

    kind: str
    calls: Sequence[Call]
    home: Path  # an empty folder
    replay: str  # the command that does the same again
    every: int = 1
    opened: int = 0
    gone_on: int = 0
    seen: set[frozenset[Any]] = field(default_factory=set)

    async def check(self, failures: Sequence[Failure]) -> None:
        """Check some side by side: much of it is waiting for the disk."""
        found = await asyncio.gather(*(self._told(failure, self._look(failure)) for failure in failures))
        new = [failure for failure, one in zip(failures, found, strict=True) if self._is_chosen(one)]
        by_failure = dict(zip(map(id, failures), found, strict=True))
        await asyncio.gather(*(self._told(one, self._go_on(one, by_failure[id(one)])) for one in new))
        self.gone_on += len(new)

    def _is_chosen(self, found: Found) -> bool:
        is_new = found.kept not in self.seen
        self.seen.add(found.kept)
        self.opened += 1
        return is_new or self.opened % self.every == 0

    async def _look(self, failure: Failure) -> Found:
        folder = self._written(failure)
        async with storage_in(self.kind, folder) as storage:
            found = await look(storage, owed_at(self.calls, failure.calls))
            if self.kind.startswith("sqlite"):
                _check_database(place(self.kind, folder))
            return found

    async def _go_on(self, failure: Failure, found: Found) -> None:
        async with storage_in(self.kind, self._written(failure)) as storage:  # afresh: nobody has looked at it
            await go_on(storage, owed_at(self.calls, failure.calls), found)

    async def _told(self, failure: Failure, trying: Coroutine[Any, Any, T]) -> T:
        try:
            result = await trying
        except Exception as error:
            raise AssertionError(
                f"{self.kind}: the power failed when {failure.calls} of {len(self.calls)} calls were made, and left "
                f"{failure.left}. Then: {type(error).__name__}: {error}\n"
                f"What it left is in {self._written(failure)}; the same again: {self.replay}"
            ) from error
        shutil.rmtree(self._folder(failure), ignore_errors=True)  # a claim may be being renewed there, by a thread
        return result

    def _written(self, failure: Failure) -> Path:
        folder = self._folder(failure)
        shutil.rmtree(folder, ignore_errors=True)
        failure.image.write(folder)
        return folder

    def _folder(self, failure: Failure) -> Path:
        return self.home / f"{failure.calls}-{failure.image.key().hex()[:12]}"


def _check_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def go_on(storage: BuiltInStorage, owed: Owed, found: Found) -> None:
    """Drive the run to its end. Nothing that was there may be done again."""
    stepped: list[str] = []
    called: list[str] = []
    workflow = build(storage, Watch(stepping=stepped.append))

    async def drive(*given: Any, **options: Any) -> Any:
        stream: Any = workflow.run(*given, run_id=RUN, stream=True, **options)
        async for event in stream:
            if event.type == "executor_invoked":
                called.append(str(event.delivery))
        return await stream

    result = await (drive() if found.head >= 0 else drive(FIRST))
    while asked := result.get_request_info_events():
        result = await drive(responses={event.request_id: answer(event.data) for event in asked})
    head = await storage.get_latest(run_id=RUN)
    assert head is not None
    assert (result.get_outputs(), dict(head.state)) == (OUTPUTS, STATE), "it came to something else"
    assert not found.durable & set(called), f"handled again: {found.durable & set(called)}"
    assert len(called) == len(set(called)), f"handled twice after the failure: {called}"
    assert not owed.stepped & set(stepped), f"steps done again: {owed.stepped & set(stepped)}"
