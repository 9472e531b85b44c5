"""Lazy loading of the library's own modules, safe from any thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
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


def export_lazily(
    package: str, homes: Mapping[str, str], packages: tuple[str, ...] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package whose names load with their modules.

    `homes` names the module of each public name, relative to the library; `packages` are packages of the
    library that can be reached as attributes. Type checkers read the package's `__init__.pyi`.
    """

    def get_attribute(name: str) -> object:
        if name in homes:
            value = getattr(load(f"{ROOT}.{homes[name]}"), name)
            setattr(sys.modules[package], name, value)  # found without this function from now on
            return value
        if name in packages:
            return load(f"{ROOT}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def list_attributes() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *packages})

    return get_attribute, list_attributes, list(homes)
