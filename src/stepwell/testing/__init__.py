"""Tools to test workflows and stores with: what Stepwell's own tests are made of."""

from .clocks import FakeClock
from .confined import ConfinedSQLiteStore
from .crashing import Crash, CrashingStore
from .disk import FailingDisk
from .everywhere import CrashReport, NotTheSame, crash_everywhere
from .failing import FailingStore
from .human import ScriptedHuman
from .ledger import Ledger
from .rules import STORE_RULES
from .rules_base import StoreRule
from .slow import SlowStore
from .tearing import torn

__all__ = [
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
