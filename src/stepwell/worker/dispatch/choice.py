"""Loads a dispatcher by its name, so that only programs that use it need its libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.errors import DefinitionError

if TYPE_CHECKING:
    from stepwell.worker.dispatch.procrastinate import Procrastinate


def load_procrastinate() -> Procrastinate:
    """Return the dispatcher. Raises DefinitionError if procrastinate is not installed."""
    try:
        from stepwell.worker.dispatch.procrastinate import Procrastinate  # lazy: it is optional
    except ImportError as error:
        raise DefinitionError(
            f"this dispatcher needs procrastinate ({error}); run: pip install 'stepwell[procrastinate]'"
        ) from error
    return Procrastinate()
