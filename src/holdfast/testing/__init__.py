"""Tools to test workflows and stores with: what Holdfast's own tests are made of."""

from .clocks import FakeClock
from .crashing import Crash, CrashingStore
from .everywhere import CrashReport, NotTheSame, crash_everywhere
from .ledger import Ledger
from .rules import STORE_RULES
from .rules_base import StoreRule

__all__ = [
    "STORE_RULES",
    "Crash",
    "CrashReport",
    "CrashingStore",
    "FakeClock",
    "Ledger",
    "NotTheSame",
    "StoreRule",
    "crash_everywhere",
]
