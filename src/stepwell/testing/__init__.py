"""Tools for testing workflows and stores. Stepwell's own tests are built with them.

- `crash_everywhere` proves that a workflow gives the same result wherever its process dies.
- `ScriptedHuman`, `FakeClock` and `Ledger` stand in for people, time and the outside world.
- `CrashingStore`, `FailingStore`, `SlowStore`, `FailingDisk`, `ConfinedSQLiteStore` and `torn` inject
  faults below a workflow.
- `STORE_RULES` checks that a store of your own keeps the promises of the store port, and
  `OUTBOX_RULES` those of one that can have webhooks.
"""

from stepwell.testing.clock import FakeClock
from stepwell.testing.crash_runs import CrashReport, NotTheSame, crash_everywhere
from stepwell.testing.faults.crash import Crash, CrashingStore
from stepwell.testing.faults.disk import FailingDisk
from stepwell.testing.faults.failing import FailingStore
from stepwell.testing.faults.slow import SlowStore
from stepwell.testing.faults.sqlite import ConfinedSQLiteStore
from stepwell.testing.faults.torn_write import torn
from stepwell.testing.human import ScriptedHuman
from stepwell.testing.ledger import Ledger
from stepwell.testing.store_rules.catalogue import OUTBOX_RULES, STORE_RULES
from stepwell.testing.store_rules.rule import StoreRule

__all__ = [
    "OUTBOX_RULES",
    "STORE_RULES",
    "ConfinedSQLiteStore",
    "Crash",
    "CrashReport",
    "CrashingStore",
    "FailingDisk",
    "FailingStore",
    "FakeClock",
    "Ledger",
    "NotTheSame",
    "ScriptedHuman",
    "SlowStore",
    "StoreRule",
    "crash_everywhere",
    "torn",
]
