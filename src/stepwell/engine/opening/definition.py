"""The immutable parts of a workflow that a drive needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.codec.codec import Codec
from stepwell.graph.graph import Graph
from stepwell.graph.migration import Migration


class WorkflowDefinition(msgspec.Struct, frozen=True):
    """The name, graph, codec and version of a workflow."""

    name: str
    graph: Graph
    signature: Mapping[str, Any]
    codec: Codec
    max_iterations: int
    version: int = 1
    # Oldest first; the last leads to `version`.
    migrations: tuple[Migration, ...] = ()
    code: tuple[str, ...] = ()  # what named it on the command line, if it was loaded from there
