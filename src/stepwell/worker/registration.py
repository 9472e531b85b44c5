"""How a worker announces itself in the store, and learns who shares its runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

import msgspec

from stepwell.errors import DefinitionError, DurabilityError
from stepwell.storage import clock
from stepwell.storage.lease import this_process
from stepwell.storage.worker_registry import (
    ALIVE_FOR,
    WorkerProfile,
    WorkerRegistry,
    is_alive,
    read_profile,
)

_LOG = logging.getLogger("stepwell")

EVERY = 5.0  # seconds between two announcements
_LOOK_AGAIN = 1.0  # seconds, while another process has the name


def default_name() -> str:
    """Return a name that no other worker has."""
    return f"{this_process('').host}-{os.getpid()}-{os.urandom(2).hex()}"


class WorkerRegistration:
    """The entry of one worker in the registry of its store, if that has one."""

    def __init__(
        self,
        registry: WorkerRegistry | None,
        name: str,
        *,
        version: str,
        slots: int,
        workflows: Mapping[str, int],
        runs: Callable[[], Collection[str]],
        takeovers: Callable[[], int],
    ) -> None:
        self._registry, self._name, self._runs, self._takeovers = registry, name, runs, takeovers
        self._owner = this_process(os.urandom(8).hex())
        self._process = msgspec.json.encode(self._owner).decode()
        self._profile = WorkerProfile(self._owner, version, slots, dict(workflows), (), clock.stamp())
        self._is_doubted = False

    async def begin(self) -> None:
        """Announce the worker. Raises DefinitionError if another process that is alive has its name.

        The entry of a worker that was killed on another machine outlives it for some seconds, so
        this waits for as long.
        """
        for attempt in range(int(ALIVE_FOR / _LOOK_AGAIN) + 2):
            if await self._announce():
                return
            if attempt == 0:
                _LOG.warning("there is a worker named %r already; waiting until it is gone", self._name)
            await asyncio.sleep(_LOOK_AGAIN)
        raise DefinitionError(f"another worker is named {self._name!r} and is alive; give this one another name")

    async def keep_up(self, learn: Callable[[Mapping[str, Collection[str]]], None]) -> None:
        """Announce the worker again and again, and pass on which workers serve which workflow."""
        while True:
            # What the registry says is only of use to people, and to share runs. The loop that looks
            # for runs reports a store that is away.
            with suppress(DurabilityError):
                learn(await self._find_peers())
                if not await self._announce() and not self._is_doubted:
                    self._is_doubted = True
                    _LOG.error(
                        "another worker is named %r, too; runs are safe, but only one of them is seen", self._name
                    )
            await asyncio.sleep(EVERY)

    async def end(self) -> None:
        if self._registry is not None:
            with suppress(DurabilityError):  # it will be seen that it is gone
                await self._registry.withdraw_worker(self._name, self._process)

    async def _announce(self) -> bool:
        if self._registry is None:
            return True
        profile = msgspec.structs.replace(self._profile, runs=tuple(self._runs()), takeovers=self._takeovers())
        body = msgspec.json.encode(profile)
        if await self._registry.announce_worker(self._name, self._process, body):
            return True
        for row in await self._registry.workers():
            # One that died on this machine is known to be gone.
            if row.name == self._name and not is_alive(row):
                await self._registry.withdraw_worker(self._name, row.process)
                return await self._registry.announce_worker(self._name, self._process, body)
        return False

    async def _find_peers(self) -> dict[str, list[str]]:
        """Return the workers that are alive, by workflow."""
        peers: dict[str, list[str]] = {workflow: [self._name] for workflow in self._profile.workflows}
        rows = [] if self._registry is None else await self._registry.workers()
        for row in rows:
            if row.name != self._name and is_alive(row):
                for workflow in peers.keys() & read_profile(row).workflows.keys():
                    peers[workflow].append(row.name)
        return peers
