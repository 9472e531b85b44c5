"""Every rule for stores, chapter by chapter."""

from __future__ import annotations

import sys
from importlib import import_module

from stepwell.testing.store_rules.rule import Promise, StoreRule

_CHAPTERS = (
    "records",
    "reading",
    "superstep_log",
    "signals",
    "requests",
    "leases",
    "fences",
    "runs",
    "retention",
    "lifecycle",
    "two_programs",
    "integrity",
)


def _promises_of(chapter: str) -> list[Promise]:
    name = f"{__package__}.{chapter}"
    if "pytest" in sys.modules:  # to be told before it is loaded: a rule that is broken then says what was found
        sys.modules["pytest"].register_assert_rewrite(name)
    return [value for value in vars(import_module(name)).values() if isinstance(value, Promise)]


_PROMISES = [promise for chapter in _CHAPTERS for promise in _promises_of(chapter)]

STORE_RULES: tuple[StoreRule, ...] = tuple(
    StoreRule(promise, manner) for promise in _PROMISES for manner in promise.manners
)
"""What is true of every store, in every manner of use: to parametrise a test with."""
