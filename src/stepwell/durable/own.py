"""Modules of this library, loaded when they are needed.

So one may not be loaded yet when a stored value names a class of it. Reading never imports a module because data says
so: what it may load is what the library was told here, whatever the data say.
"""

from __future__ import annotations

import sys
from importlib import import_module
from threading import RLock
from types import ModuleType

HOMES: set[str] = set()
"""The modules in which the public names of the library are at home. `stepwell` itself fills it."""

# Packages import their modules, and modules their package: threads that load both at once could wait for each other.
# So one is loaded at a time, and a package before its modules, as a package does.
_one_at_a_time = RLock()


def load(name: str) -> ModuleType:
    """A module of the library, from any thread."""
    package = name.rpartition(".")[0]
    with _one_at_a_time:
        if package and package not in sys.modules:
            load(package)
        return import_module(name)


def find(name: str) -> ModuleType | None:
    """A module if it is loaded, or if it comes with the public names of the library."""
    if name not in sys.modules and name.partition(".")[0] == __name__.partition(".")[0]:
        for home in sorted(HOMES):
            load(home)
    return sys.modules.get(name)
