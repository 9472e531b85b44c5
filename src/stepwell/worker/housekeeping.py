"""Deletes old runs by a policy, while a worker serves. One of the workers that share a store does it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from stepwell.admin.retention.policy import Keep
from stepwell.admin.retention.pruner import prune
from stepwell.errors import DurabilityError
from stepwell.storage.built_in_storage import BuiltInStorage

_LOG = logging.getLogger("stepwell")

EVERY = 3600.0  # seconds between two looks for what is old
_FIRST = 10.0  # seconds until the first one, so that workers that start together know each other


async def keep_clean(storage: BuiltInStorage, policy: Keep, is_my_turn: Callable[[], bool]) -> None:
    """Remove what the policy does not keep, again and again, whenever it is this worker's turn."""
    await asyncio.sleep(_FIRST)
    while True:
        if is_my_turn():
            with suppress(DurabilityError):  # the loop that looks for runs reports it; an hour later is soon enough
                report = await prune(storage, policy)
                if report.runs or report.checkpoints:
                    _LOG.info("deleted %d runs and %d checkpoints", len(report.runs), len(report.checkpoints))
        await asyncio.sleep(EVERY)
