"""`STORE_RULES` and `OUTBOX_RULES`: all rules, collected from the modules of this package."""

from __future__ import annotations

import sys
from importlib import import_module

from stepwell.testing.store_rules.rule import Promise, StoreRule

# One chapter for each protocol of the port, and two more. In the order in which the tests run:
# simple promises first, so that the first failure is the most telling one.
_CHAPTERS = (
    "run_log",
    "superstep_log",
    "signals",
    "leases.ownership",
    "leases.fences",
    "index.runs",
    "index.forks",
    "index.checkpoints",
    "index.requests",
    "index.ready",
    "maintenance.rewrites",
    "maintenance.retention",
    "maintenance.upkeep",
    "two_programs",
    "integrity",
)


# Makes pytest show the values in a failed assert, as it does in test modules. It must know before
# the import, and pytest is not a dependency, so it is used only if the program has loaded it.
if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(
        *(f"{__package__}.{module}" for module in ("samples", "outbox", *_CHAPTERS))
    )


def _promises_of(chapter: str) -> list[Promise]:
    values = vars(import_module(f"{__package__}.{chapter}")).values()
    return [value for value in values if isinstance(value, Promise)]


def _rules_of(*chapters: str) -> tuple[StoreRule, ...]:
    promises = [promise for chapter in chapters for promise in _promises_of(chapter)]
    return tuple(StoreRule(promise, manner) for promise in promises for manner in promise.manners)


STORE_RULES: tuple[StoreRule, ...] = _rules_of(*_CHAPTERS)
"""Every promise of the store port, in every manner of use.

Parametrize a test with it, with `ids=str`.
"""

OUTBOX_RULES: tuple[StoreRule, ...] = _rules_of("outbox")
"""Every promise of a store that implements `Outbox` as well, and so can have webhooks."""
