"""What a workflow is, as far as the engine must know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..durable.codec import Codec
from ..graph.graph import Graph
from ..graph.migrations import Migration


class Definition(msgspec.Struct, frozen=True):
    """What a workflow is, as far as the engine must know."""

    name: str
    graph: Graph
    signature: Mapping[str, Any]
    codec: Codec
    max_iterations: int
    version: int = 1
    migrations: tuple[Migration, ...] = ()  # oldest first; the last leads to `version`
