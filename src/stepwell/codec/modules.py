"""Lazy loading of the library's own modules, safe from any thread."""

from __future__ import annotations

import sys
from importlib import import_module
from threading import RLock
from types import ModuleType

ROOT = __name__.partition(".")[0]
"""The name of the package that contains the whole library."""

# Packages import their modules, and modules import their package. Two threads that start at opposite
# ends would each hold the import lock that the other one needs. Hence one lock for all of them, and
# always the package before its module, which is the order that an import statement uses too.
# Reentrant, because a module that is being loaded may load others.
_loading = RLock()


def load(name: str) -> ModuleType:
    """Import a module of this library and return it."""
    package = name.rpartition(".")[0]
    with _loading:
        if package and package not in sys.modules:
            load(package)
        return import_module(name)
