"""Tools to test workflows and stores with: what Holdfast's own tests are made of."""

from .clocks import FakeClock
from .crashing import Crash, CrashingStore
from .everywhere import CrashReport, NotTheSame, crash_everywhere
from .ledger import Ledger

__all__ = [
    "Crash",
    "CrashReport",
    "CrashingStore",
    "FakeClock",
    "Ledger",
    "NotTheSame",
    "crash_everywhere",
]
