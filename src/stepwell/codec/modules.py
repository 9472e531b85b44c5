"""Loads modules of this library when they are needed, from any thread."""

from __future__ import annotations

import sys
from importlib import import_module
from threading import RLock
from types import ModuleType

ROOT = __name__.partition(".")[0]
"""The package that everything of ours is in."""

# Packages import their modules, and modules their package: two threads that load both at once could deadlock.
# So only one module is loaded at a time, and a package before its modules, as a package does itself.
_loading = RLock()


def load(name: str) -> ModuleType:
    """Import a module of the library."""
    package = name.rpartition(".")[0]
    with _loading:
        if package and package not in sys.modules:
            load(package)
        return import_module(name)
