"""Every rule for stores, chapter by chapter."""

from __future__ import annotations

import sys
from importlib import import_module

from .rules_base import StoreRule

_CHAPTERS = ("records", "reading", "memory", "mail", "questions", "claims", "life")


def _rules_of(chapter: str) -> list[StoreRule]:
    name = f"{__package__}.rules_{chapter}"
    if "pytest" in sys.modules:  # to be told before it is loaded: a rule that is broken then says what was found
        sys.modules["pytest"].register_assert_rewrite(name)
    return [found for found in vars(import_module(name)).values() if isinstance(found, StoreRule)]


STORE_RULES: tuple[StoreRule, ...] = tuple(found for chapter in _CHAPTERS for found in _rules_of(chapter))
"""What is true of every store."""
